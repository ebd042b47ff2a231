# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Test accuracy (Table 1 and Figure 2)
#
# Claimed: FedEntropy is more accurate than FedAvg, FedProx, SCAFFOLD and Moon in nearly every setting. The paper gives
# the mean of the last ten of 1,000 rounds, mean ± standard deviation over three seeds. "(3)" is our number of seeds; while
# some methods have more of them than others, those that all methods of the row have are shown.

# %%
from fedentropy_core import plots, report
from fedentropy_core.study import TABLE_1

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
profile = "paper"
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/paper/tables
figures = None  # where figures go; None: figures

# %%
records = report.Records.load(profile, results)
long = report.accuracy_table(records, "table1", datasets, TABLE_1)
report.write_table("table1_accuracy", long, report.side_by_side(long), tables)
report.side_by_side(long[long["measure"] == "last ten"])

# %%
print(report.missing_runs(long))

# %% [markdown]
# In case 1 accuracy swings by several points from round to round, so ten rounds are a noisy measure. The same runs by the
# mean of their last hundred rounds, and by their best round:

# %%
report.side_by_side(long[long["measure"] != "last ten"].assign(paper_mean=None))

# %% [markdown]
# Every recorded run by its seed, which fixes partition and initial weights (last ten rounds):

# %%
each = report.seeds_table(records, datasets, TABLE_1)
report.write_table("accuracy_by_seed", each, report.by_seed(each), tables)
report.by_seed(each)

# %% [markdown]
# **What we see.** CIFAR-10, two seeds: FedEntropy is ahead of FedAvg with both in all three cases, by 5.0, 1.4 and 2.1
# points on average (the paper: 5.4, 2.5, 2.7). FedProx is within 0.4 points of FedAvg with either seed. Moon is behind
# FedAvg in case 1, as in the paper, and beside it in cases 2 and 3. SCAFFOLD contradicts the paper with both seeds: at
# chance in case 1, ahead of FedEntropy in cases 2 and 3, where the paper has it 2.7 and 0.5 points behind. Notebook 11
# looks for causes.
#
# Our level there: in case 1 all but SCAFFOLD are within 0.3 points of the paper, in case 2 all are above it, by 1.7
# (FedEntropy) to 7.0 (SCAFFOLD). In case 3 each seed draws another partition: all but SCAFFOLD are 3.7 to 5.2 points
# lower with seed 1 than with seed 0; on average all are 0.9 to 3.8 above the paper.
#
# CIFAR-100, one seed: by the last ten rounds FedEntropy is ahead of FedAvg in cases 1 and 3 and 0.2 points behind in
# case 2, by the last hundred ahead in all three; the paper has more in cases 1 and 2 (3.1 and 1.6) and less in case 3
# (0.5). SCAFFOLD is at chance in case 1 again, the most accurate in case 2, and far behind in case 3, where the paper
# has it ahead of all. FedProx and Moon are within 0.7 points of FedAvg, but for Moon in case 1, behind as in the paper.

# %% [markdown]
# ## Figure 2
# Each curve is a 20-round moving average, the mean over the seeds that all methods of its panel have; the band is one
# standard deviation over seeds.

# %%
figure = plots.convergence(records, datasets, TABLE_1)
plots.save(figure, "figure2_convergence", figures)

# %% [markdown]
# **What we see.** CIFAR-10, two seeds: FedEntropy leads FedAvg from the start in cases 2 and 3, by 4 to 5 points over
# the first hundred rounds and by 1.3 and 1.7 over the last. In case 1 its 20-round average passes 12 % in round 46 and
# FedAvg's in round 103; from round 100 on the lead is 4 to 9 points (means of a hundred rounds). Averages over 20
# rounds swing there by several points: which ten rounds are the last decides the number in Table 1. SCAFFOLD in cases 2
# and 3 starts below FedEntropy and still rises when that is flat; it is ahead from around rounds 650 and 870 on, but
# for moments in case 2. In case 1 it answers one label in most rounds. FedProx lies on FedAvg: with the same draws and
# μ = 0.01 its term changes next to nothing. Moon lies there too in cases 2 and 3, and learns later in case 1.
#
# CIFAR-100, seed 0: FedEntropy leads by about 2 points from round 100 on in case 1, by 0.2 to 1.2 in case 2 and by 0.8
# to 1.5 in case 3 (means of a hundred rounds). SCAFFOLD in case 2 passes FedEntropy around round 450; in case 3 it is
# at 26 % around round 280, falls to 13 % around round 450 and stays between 19 and 26 % after round 500.
