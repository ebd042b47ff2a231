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
# the mean of the last ten of 1,000 rounds, mean ± standard deviation over three seeds. "(3)" is our number of seeds.

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
# **What we see.** On CIFAR-10 FedAvg and FedEntropy have two seeds, all else has one, and a cell with (2) is not of the
# same seeds as one with (1). That matters in case 3, where each seed draws another partition: FedAvg has 52.32 with seed
# 0 and 47.13 with seed 1 (50.82 and 48.27 by the last hundred rounds). So methods are compared seed by seed (notebook 05
# has the differences).
#
# CIFAR-10: FedEntropy is ahead of FedAvg with both seeds in all three cases, by 5.0, 1.4 and 2.1 points (the paper: 5.4,
# 2.5, 2.7); by the last hundred rounds it is 5.2, 1.3 and 1.7. Both are within 0.3 points of the paper in case 1, 2.7 and
# 1.7 above it in case 2, and 1.4 and 0.9 in case 3, where seed 1 alone is 1.2 and 1.0 below it. The rest is seed 0.
# FedProx is within 0.2 points of FedAvg everywhere, Moon behind it in case 1 (23.43), as in the paper, and beside it in
# cases 2 and 3. SCAFFOLD contradicts the paper: in case 1 it stays at chance (10.00; the paper has 22.30), in cases 2 and
# 3 it is ahead of FedEntropy (56.23 and 54.00 against 53.85 and 53.72; the paper has it behind). Notebook 11 looks for
# causes.
#
# CIFAR-100, with one seed: FedEntropy is 1.2 points ahead of FedAvg in case 1, 0.2 behind in case 2 and 0.8 ahead in case
# 3 (the paper: 3.1, 1.6 and 0.5 ahead); by the last hundred rounds it is ahead by 2.5, 0.7 and 0.8. FedProx is within 0.7
# points of FedAvg. SCAFFOLD is at chance in case 1 again (5.15), the most accurate in case 2 (32.64), and far behind in
# case 3 (24.72), where the paper has it ahead of all (30.15) and on CIFAR-10 it did well. Moon is behind FedAvg in case 1
# (12.94), as in the paper, and within 0.6 points of it in cases 2 and 3. FedAvg is 0.8, 2.2 and 3.1 points above the
# paper.

# %% [markdown]
# ## Figure 2
# Each curve is a 20-round moving average, the mean over the seeds that all methods of its panel have; the band is one
# standard deviation over seeds.

# %%
figure = plots.convergence(records, datasets, TABLE_1)
plots.save(figure, "figure2_convergence", figures)

# %% [markdown]
# **What we see, seed 0.** CIFAR-10: in cases 2 and 3 FedEntropy leads FedAvg from the start, by 5 to 6 points over the
# first hundred rounds, 3.4 on average from then to round 900, and 2 over the last hundred. In case 1 it leaves chance
# after some 25 rounds and FedAvg after 100; the lead is 5 points over the second and third hundred and 5 to 8 after.
# FedEntropy's 20-round average swings by several points there: which ten rounds are the last decides the number in Table
# 1. SCAFFOLD in cases 2 and 3 starts below FedEntropy and still rises when that is flat: in case 2 it draws level around
# round 650 and is ahead for good from 870, in case 3 it is ahead from 880 to 975 and level at the end. In case 1
# SCAFFOLD is at exactly 10 % in most rounds and answers one label. FedProx lies on FedAvg: with the same draws and μ =
# 0.01 its term changes next to nothing. Moon lies there too in cases 2 and 3, and learns later in case 1. CIFAR-100:
# FedEntropy leads by about 2 points from round 100 on in case 1, by 0.2 to 1.2 in case 2 and by 0.8 to 1.5 in case 3
# (means of a hundred rounds). SCAFFOLD in case 2 passes FedEntropy around round 450; in case 3 it is at 26 % around
# round 280, falls to 13 % around round 450 and stays between 19 and 26 % after round 500.
