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
# **What we see.** On CIFAR-10 all methods have two seeds in cases 1 and 2; in case 3 Moon lacks its second, so that the
# tables above show seed 0 there, and the last one has the rest. CIFAR-100 has one seed.
#
# CIFAR-10: FedEntropy is ahead of FedAvg with both seeds in all three cases, by 5.0, 1.4 and 2.1 points on average (the
# paper: 5.4, 2.5, 2.7); by the last hundred rounds it is 5.2, 1.3 and 1.7. FedProx is within 0.4 points of FedAvg with
# either seed. Moon is behind FedAvg in case 1 (22.24, the paper 22.10), and beside it in cases 2 and 3. SCAFFOLD
# contradicts the paper with both seeds: in case 1 it stays at chance (10.00; the paper has 22.30), in cases 2 and 3 it
# is ahead of FedEntropy, by 2.4 and 3.1 and by 0.3 and 4.6 points, where the paper has it 2.7 and 0.5 behind. Notebook
# 11 looks for causes.
#
# Our level on CIFAR-10: in case 1 all but SCAFFOLD are within 0.3 points of the paper. In case 2 all methods are above
# it, by 1.7 (FedEntropy) to 7.0 points (SCAFFOLD). In case 3 each seed draws another partition: FedAvg has 52.32 with
# seed 0 and 47.13 with seed 1, FedEntropy 53.72 and 50.01, on either side of the paper's 48.31 and 51.00; SCAFFOLD is
# above the paper's 50.49 with both.
#
# CIFAR-100, with one seed: FedEntropy is 1.2 points ahead of FedAvg in case 1, 0.2 behind in case 2 and 0.8 ahead in
# case 3 (the paper: 3.1, 1.6 and 0.5 ahead); by the last hundred rounds it is ahead by 2.5, 0.7 and 0.8. FedProx is
# within 0.7 points of FedAvg. SCAFFOLD is at chance in case 1 again (5.15), the most accurate in case 2 (32.64), and
# far behind in case 3 (24.72), where the paper has it ahead of all (30.15) and on CIFAR-10 it did well. Moon is behind
# FedAvg in case 1 (12.94), as in the paper, and within 0.6 points of it in cases 2 and 3. FedAvg is 0.8, 2.2 and 3.1
# points above the paper.

# %% [markdown]
# ## Figure 2
# Each curve is a 20-round moving average, the mean over the seeds that all methods of its panel have; the band is one
# standard deviation over seeds.

# %%
figure = plots.convergence(records, datasets, TABLE_1)
plots.save(figure, "figure2_convergence", figures)

# %% [markdown]
# **What we see.** CIFAR-10, two seeds in cases 1 and 2 and seed 0 in case 3: FedEntropy leads FedAvg from the start in
# cases 2 and 3, by 5 to 6 points over the first hundred rounds, and by 1.3 and 2.0 over the last. In case 1 its
# 20-round average passes 12 % in round 46 and FedAvg's in round 103; from round 100 on the lead is 4 to 9 points (means
# of a hundred rounds). Averages over 20 rounds swing there by several points: which ten rounds are the last decides the
# number in Table 1. SCAFFOLD in cases 2 and 3 starts below FedEntropy and still rises when that is flat: in case 2 it
# is ahead from around round 650 on but for moments, in case 3 from 880 to 975, and level at the end. In case 1 it is at
# exactly 10 % in 935 of 1,000 rounds with seed 0 and in 936 with seed 1: it answers one label. FedProx lies on FedAvg:
# with the same draws and μ = 0.01 its term changes next to nothing. Moon lies there too in cases 2 and 3, and learns
# later in case 1.
#
# CIFAR-100, seed 0: FedEntropy leads by about 2 points from round 100 on in case 1, by 0.2 to 1.2 in case 2 and by 0.8
# to 1.5 in case 3 (means of a hundred rounds). SCAFFOLD in case 2 passes FedEntropy around round 450; in case 3 it is
# at 26 % around round 280, falls to 13 % around round 450 and stays between 19 and 26 % after round 500.
