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
# while some methods have more of them than others, those that all methods of the row have are shown. The best of a row
# is bold.

# %%
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.findings import accuracy as findings
from fedentropy_core.paper.findings.heterogeneity import concentrated
from fedentropy_core.paper.reported import final_accuracies
from fedentropy_core.paper.study import TABLE_1, caption, save_table, shown_runs
from fedentropy_core.report import figures as plots
from fedentropy_core.report.source import made_by

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
study = None  # whose records; None: the study that the README shows
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/<study>/tables
figures = None  # where figures go; None: figures

# %%
runs = shown_runs(study, results)
made = made_by("03_accuracy", runs)
print(caption(runs))
long = report.accuracy_table(runs, "table1", datasets, TABLE_1)
save_table("table1_accuracy", long, report.side_by_side(long), tables, made)
report.side_by_side(long[long["measure"] == "last_ten"])

# %%
findings.accuracy(runs)

# %%
findings.scaffold(runs)

# %%
findings.level(runs)

# %%
print(report.missing_runs(runs, long))

# %% [markdown]
# In case 1 accuracy swings by several points from round to round, so ten rounds are a noisy measure. The same runs by
# the mean of their last hundred rounds, and by their best round:

# %%
report.side_by_side(long[long["measure"] != "last_ten"].assign(paper_mean=None))

# %% [markdown]
# How noisy: the standard deviation of the means of ten rounds within the last 200 rounds of a run, in points, mean over
# seeds.

# %%
noise = report.noise_table(runs, datasets, TABLE_1)
save_table("noise", noise, report.side_by_side(noise, best=None), tables, made)

# %%
findings.noise(runs)

# %% [markdown]
# Every recorded run by its seed (last ten rounds):

# %%
each = report.seeds_table(runs, datasets, TABLE_1)
save_table("accuracy_by_seed", each, report.by_seed(each), tables, made)

# %%
concentrated(runs)

# %% [markdown]
# ## Figure 2
# Each curve is a 20-round moving average, the mean over the seeds that all methods of its panel have; the band is their
# range. Triangles at the right edge are the paper's Table 1.

# %%
figure = plots.convergence(runs, datasets, TABLE_1, reported=final_accuracies())
plots.save(figure, "figure2_convergence", figures, made)

# %%
findings.curves(runs)
