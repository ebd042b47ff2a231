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
# the mean of the last ten of 1,000 rounds, mean ± standard deviation over three seeds. "(3)" is our number of seeds;
# while some methods have more of them than others, those that all methods of the row have are shown.

# %%
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.study import TABLE_1, caption, save_table, shown_records
from fedentropy_core.report import figures as plots

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
study = None  # whose records; None: the study that the README shows
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/<study>/tables
figures = None  # where figures go; None: figures

# %%
records = shown_records(study, results)
print(caption(records))
long = report.accuracy_table(records, "table1", datasets, TABLE_1)
save_table("table1_accuracy", long, report.side_by_side(long), tables)
report.side_by_side(long[long["measure"] == "last ten"])

# %%
print(report.missing_runs(records, long))

# %% [markdown]
# In case 1 accuracy swings by several points from round to round, so ten rounds are a noisy measure. The same runs by
# the mean of their last hundred rounds, and by their best round:

# %%
report.side_by_side(long[long["measure"] != "last ten"].assign(paper_mean=None))

# %% [markdown]
# How noisy: the standard deviation of the means of ten rounds within the last 200 rounds of a run, in points, mean over
# seeds.

# %%
noise = report.noise_table(records, datasets, TABLE_1)
save_table("noise", noise, report.side_by_side(noise), tables)
report.side_by_side(noise)

# %% [markdown]
# **What we see.** On CIFAR-10 the choice of ten rounds alone has a standard deviation of 0.8 to 2.0 points, but for
# SCAFFOLD in case 1, which hardly moves. The paper's standard deviations over three seeds are mostly smaller than that,
# as are ours in case 1: with three seeds that can be luck.
#
# Every recorded run by its seed, which fixes partition and initial weights (last ten rounds):

# %%
each = report.seeds_table(records, datasets, TABLE_1)
save_table("accuracy_by_seed", each, report.by_seed(each), tables)
report.by_seed(each)

# %% [markdown]
# **What we see.** CIFAR-10, three seeds: as the paper claims, FedEntropy is ahead of FedAvg, FedProx and Moon with
# every seed in all three cases, of FedAvg by 5.1, 1.8 and 2.2 points on average (the paper: 5.4, 2.5, 2.7). SCAFFOLD
# contradicts the paper: it is at chance in case 1, and in case 2 ahead of FedEntropy with every seed, by 2.0 points on
# average, where the paper has it 2.7 behind; in case 3 it is level with seed 0, 4.6 ahead with seed 1 and 4.7 behind
# with seed 2. But for SCAFFOLD in case 1 our level is within 0.7 points of the paper in cases 1 and 3, and 1.3
# (FedEntropy) to 6.0 points (SCAFFOLD) above it in case 2. Each seed draws another partition; in case 3 these differ
# most, and the seeds are far apart. Notebook 11 looks for causes.
#
# CIFAR-100, one seed: by the last ten rounds FedEntropy is ahead of FedAvg in cases 1 and 3 and 0.2 points behind in
# case 2, by the last hundred ahead in all three; the paper has more in cases 1 and 2 (3.1 and 1.6) and less in case 3
# (0.5). SCAFFOLD is at chance in case 1 again, the most accurate in case 2, and far behind in case 3, where the paper
# has it ahead of all; there with seed 1, of which three methods are trained so far, it is 3.7 points ahead of
# FedEntropy.

# %% [markdown]
# ## Figure 2
# Each curve is a 20-round moving average, the mean over the seeds that all methods of its panel have; the band is one
# standard deviation over seeds.

# %%
figure = plots.convergence(records, datasets, TABLE_1)
plots.save(figure, "figure2_convergence", figures)

# %% [markdown]
# **What we see.** CIFAR-10: FedEntropy leads FedAvg, FedProx and Moon from the start in cases 2 and 3, by 5 points over
# the first hundred rounds and by 1.4 to 2.5 over the last hundred; in case 1 it leads by 4 to 8 points from round 100
# on (means of a hundred rounds, against FedAvg). Averages over 20 rounds swing there by several points: which ten
# rounds are the last moves the numbers of Table 1. SCAFFOLD in case 2 starts below FedEntropy and is ahead from around
# round 620 on; in case 3 its mean is of two kinds of runs, hence the wide band: with seed 1 it does as in case 2, with
# seed 2 it swings between 32 and 43 % from round 300 on. FedProx lies on FedAvg: with the same draws and μ = 0.01 its
# term changes next to nothing.
#
# CIFAR-100, seed 0: FedEntropy leads FedAvg by about 2 points from round 100 on in case 1, by 0.2 to 1.2 in case 2 and
# by 0.8 to 1.5 in case 3 (means of a hundred rounds). SCAFFOLD in case 2 passes FedEntropy around round 450; in case 3
# it falls from 26 % around round 280 to 13 % around round 450.
