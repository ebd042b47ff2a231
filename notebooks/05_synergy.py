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
# # FedEntropy on top of other methods (Table 3, Figures 3a and 6)
#
# Claimed: every optimiser gets better with FedEntropy on top.
#
# The paper's tables contradict each other: its Table 1 ("Ours") and its Table 3 ("FedAvg + FedEntropy") name the same
# method on the same data and give different numbers. Our records keep every round, so both readings are here: the last
# ten rounds, and the best round.

# %%
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.findings import synergy as findings
from fedentropy_core.paper.reported import BASELINES
from fedentropy_core.paper.study import SYNERGY, caption, save_table, shown_runs
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
made = made_by("05_synergy", runs)
print(caption(runs))
combined = ("fedavg+entropy", *SYNERGY)
long = report.accuracy_table(runs, "table3", datasets[:1], combined)
long = long[long["measure"] != "last_hundred"]
save_table("table3_synergy", long, report.side_by_side(long), tables, made)

# %%
findings.table_3(runs)

# %% [markdown]
# So the paper's "compared with Table 1" probably sets best rounds with FedEntropy against last-ten means without, and
# its gains are partly the difference between the two measures.
#
# ## What FedEntropy adds to each method
# Points of accuracy with FedEntropy minus without, paired by seed, both by the same measure.

# %%
gains = report.gains_table(runs, datasets)
save_table("synergy_gains", gains, report.gains_shown(gains), tables, made)

# %%
findings.synergy(runs)

# %% [markdown]
# That the pools do the harm to SCAFFOLD, and not the judgment, is in notebook 11.
#
# ## Figure 3a: CIFAR-10, case 1
# Moving averages over 20 rounds, mean over the seeds that all methods of a panel have, band: their range. Pale: without
# FedEntropy; dark: with. All methods with FedEntropy swing together where they draw mostly the same devices; a curve
# ends with the first of its runs that diverges.

# %%
methods = [method for pair in zip(BASELINES, combined, strict=True) for method in pair]
figure = plots.convergence(runs, datasets[:1], methods, cases=[1])
plots.save(figure, "figure3a_synergy", figures, made)

# %% [markdown]
# ## Figure 6: all data sets and cases

# %%
figure = plots.convergence(runs, datasets, methods)
plots.save(figure, "figure6_synergy", figures, made)

# %%
print(report.missing_runs(runs, report.accuracy_table(runs, "", datasets, methods)))
