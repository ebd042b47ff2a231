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
# # Ablation (Figure 3b)
#
# Claimed: both parts of FedEntropy, the judgment and the pools, raise accuracy. CIFAR-10, case 1.
#
# * **FedEntropy**: judgment and pools.
# * **without pools**: the judgment drops devices, selection is uniform.
# * **pools only** (ours): the judgment only moves devices between the pools, all chosen devices upload.
# * **authors' values**: the selection rule of the authors' released code, which has no pools.
# * **FedAvg**: neither.

# %%
from fedentropy_core import plots, report
from fedentropy_core.study import ABLATION

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
profile = "paper"
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/paper/tables
figures = None  # where figures go; None: figures

# %%
records = report.Records.load(profile, results)
methods = ["fedavg", "fedavg+entropy", *ABLATION]
long = report.accuracy_table(records, "", datasets[:1], methods, cases=[1])
shown = report.by_measure(long)
report.write_table("ablation", long, shown, tables)
shown

# %% [markdown]
# ## Figure 3b
# Moving averages over 20 rounds, mean over seeds, band of one standard deviation.

# %%
figure = plots.convergence(records, datasets[:1], methods, cases=[1])
plots.save(figure, "figure3b_ablation", figures)

# %% [markdown]
# **What we see, with one seed.** The judgment alone, with uniform selection, is 5.2 points ahead of FedAvg by the last ten
# rounds and uploads 7.8 of 10 models a round; the pools add 1.0 points to it. Pools only and the authors' values are not
# trained yet.

# %%
print(report.missing_runs(long))
