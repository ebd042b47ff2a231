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
# # The paper's claims, and whether they hold here
#
# Each sentence of the paper about its results, with two answers. **Direction**: *holds* if the 95 % interval of every
# comparison is on the claimed side of zero, *fails* if one is on the other side (by Holm's level, where there are
# several), else *open*; *underpowered* if all point the claimed way but would hardly all be found if they were true; *not
# tested* while runs are missing or there is one seed only. **Size**: whether the paper's numbers are ours within two
# standard errors, those of both sides counted, wherever it gives both by the same measure. What decides, and the smallest
# effects that count, were [written down](../docs/protocol.md) before the study of the paper's setting was trained. All
# intervals are conditional on the study's partitions.

# %%
from fedentropy_core.paper import two_studies
from fedentropy_core.paper.claims import claims_table, comparisons_table, counted, decide_all
from fedentropy_core.paper.forests import claims_forest, gains_forest
from fedentropy_core.paper.study import caption, save_table, shown_runs
from fedentropy_core.report.figures import save
from fedentropy_core.report.source import made_by
from fedentropy_core.report.tables import Shown

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
study = None  # whose records; None: the study that the README shows
tables = None  # where tables go; None: results/<study>/tables
figures = None  # where figures go; None: figures
datasets = ["cifar10", "cifar100", "cinic10"]

# %%
runs = shown_runs(study, results)
made = made_by("09_claims", runs)
decided = decide_all(runs)
print(caption(runs))
print(", ".join(f"{count} {direction}" for direction, count in counted(decided).items()))

# %%
figure = claims_forest(runs, datasets)
save(figure, "claims", figures, made)

# %%
table = claims_table(decided)
save_table("claims", table, Shown(table), tables, made)

# %% [markdown]
# ## What FedEntropy adds to each method
#
# The paper compares its Table 3, probably best rounds, with Table 1, last ten rounds; only for FedAvg does it have both by
# one measure. Here both sides are the last hundred rounds.

# %%
figure = gains_forest(runs, datasets)
save(figure, "gains", figures, made)

# %% [markdown]
# ## Two studies
#
# The study “paper” has the paper's setting: images as they are, one partition for all seeds. “mirrored” mirrors training
# images and has a partition for each seed. Which verdicts do they share?

# %%
paper, mirrored = (shown_runs(name, results) for name in ("paper", "mirrored"))
made_of_both = made_by("09_claims", paper, mirrored)
table = two_studies.shared_verdicts(decide_all(paper), decide_all(mirrored))
save_table("two_studies", table, Shown(table), tables, made_of_both)

# %% [markdown]
# Seed 0 has the same partition in both, so that its pairs differ by mirroring alone; what the partition does is in the
# spread of the mirrored seeds. Accuracy of the last hundred rounds, in percent.

# %%
table = two_studies.mirroring_alone(paper, mirrored)
save_table("mirroring_alone", table, Shown(table.round(2)), tables, made_of_both)

# %% [markdown]
# ## The numbers behind each verdict
#
# A row a comparison; *claim* is the row of the first table. Accuracies are points of difference by the last hundred rounds,
# with their interval; rounds and megabytes to the target are percent less than the other needs, and the remark has them
# seed by seed. *Paper* and *ours, its measure* are by the paper's own measure, with their standard errors.

# %%
table = comparisons_table(decided)
save_table("claims_comparisons", table, Shown(table.round(2).fillna("")), tables, made)
