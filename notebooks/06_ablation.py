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
# * **authors' values**: the selection rule of the authors' code of October 2022, which has no pools; that of June 2022,
#   which made the paper's numbers, has them.
# * **FedAvg**: neither.
#
# Shown are the seeds that all five have.

# %%
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.findings import synergy as findings
from fedentropy_core.paper.study import ABLATION, caption, save_table, shown_runs
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
made = made_by("06_ablation", runs)
print(caption(runs))
methods = ["fedavg", "fedavg+entropy", *ABLATION]
long = report.accuracy_table(runs, "", datasets[:1], methods, cases=[1])
save_table("ablation", long, report.by_measure(long), tables, made)

# %%
findings.ablation(runs)

# %% [markdown]
# ## Figure 3b
# Moving averages over 20 rounds, mean over seeds, band: their range.

# %%
figure = plots.convergence(runs, datasets[:1], methods, cases=[1])
plots.save(figure, "figure3b_ablation", figures, made)

# %% [markdown]
# ## What the pools do (ours)
# The entropy of the mean soft label of the ten chosen devices, before the judgment; it is ln 10 at most. The same moving
# averages.

# %%
figure = plots.convergence(runs, datasets[:1], methods, cases=[1], column="entropy_before")
plots.save(figure, "ablation_entropy", figures, made)

# %%
findings.group_entropy(runs)

# %% [markdown]
# A likely reason for the bursts: an even group is kept whole, so its devices stay in the positive pool and are drawn
# together, until draws from the negative pool break it up.

# %%
print(report.missing_runs(runs, long))
