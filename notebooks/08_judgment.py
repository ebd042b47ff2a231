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
# # How good is the judgment? (beyond the paper)
#
# The judgment is greedy: it removes one device at a time and stops when no single removal raises the entropy. And it
# does not see labels, only soft labels. The paper does not ask what either costs. With 10 chosen devices there are only
# 2¹⁰ − 1 = 1,023 groups, so the best one can be found by trying all. Three questions:
#
# 1. How close does the greedy judgment come to the best group?
# 2. How much is lost because it judges soft labels in place of true label counts?
# 3. Is it better than removing the same number of devices at random?
#
# Entropies are in nats; ten labels in equal shares have ln 10.

# %%
import pandas as pd

from fedentropy_core.config import profile_config
from fedentropy_core.paper import judgment_quality as optimal
from fedentropy_core.paper import participation
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.findings import judgment as findings
from fedentropy_core.paper.judgment_figures import judgment_quality
from fedentropy_core.paper.played import play, play_all_on, with_weights
from fedentropy_core.paper.study import caption, save_table, shown_runs, study_runs
from fedentropy_core.report import figures as plots
from fedentropy_core.report.groups import best_group
from fedentropy_core.report.source import made_by
from fedentropy_core.report.tables import Shown

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
study = None  # whose records; None: the study that the README shows
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/<study>/tables
figures = None  # where figures go; None: figures
seeds = [0, 1, 2]
rounds = 10

# %% [markdown]
# ## Greedy against best, on true labels
#
# First without any training: 10 of 100 devices are drawn 1,000 times from the CIFAR-10 partition, and their true label
# distributions are judged. "Random drop" is the exact mean over all groups of the size that the judgment keeps. "Share of
# the gain" is how much of the entropy that the best group would add the judgment does add.

# %%
made = made_by("08_judgment")
drawn = pd.concat(optimal.drawn_rounds("cifar10", case, rounds=1000) for case in (1, 2, 3))
table = optimal.greedy_table(drawn, ["case"])
save_table("judgment_true_labels", table, optimal.greedy_text(table, ["case"]), tables, made)

# %%
findings.greedy(table)

# %% [markdown]
# The judgment never lowers the entropy and mostly raises it, but it stops early. In case 1 one can see why. Let six
# labels be held by 2, 2, 2, 2, 1 and 1 devices. Removing one device of a double label makes the shares less even, so the
# judgment stops; removing all four doubles would make them uniform.

# %%
labels = [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
one_label_each = pd.get_dummies(labels).to_numpy(dtype=float)
outcome = pd.DataFrame([optimal.greedy_and_best(one_label_each, sizes=[500] * 10)])
Shown(outcome[["all", "judgment", "best", "kept", "best_kept"]].round(3))

# %% [markdown]
# ## Fresh runs: real soft labels
#
# FedEntropy on the synthetic set, 10 of 50 devices a round. A device has about 100 images, and batches of 10 give it the
# 50 local steps that a CIFAR-10 device has in the paper. As in the study “mirrored”, training images are mirrored with
# probability ½ and every seed draws its own partition. Each round is looked into before it goes on: the soft labels,
# the true labels, and the test accuracy that the averaged model of *other* groups would have had, from the same local
# models.

# %%
setting = {"dataset": "synthetic", "devices": 50, "fraction": 0.2, "batch_size": 10, "rounds": rounds, "entropy": True}
played = [
    played_round
    for case in (1, 2, 3)
    for seed in seeds
    for played_round in play(profile_config("mirrored", case=case, seed=seed, **setting))
]

# %% [markdown]
# How far is a soft label from the device's true label distribution? Mean total-variation distance by round (0: the same,
# 1: nothing in common).

# %%
distances = pd.DataFrame(
    [(r.case, r.round, optimal.soft_label_distance(r)) for r in played], columns=["case", "round", "distance"]
)
by_round = distances.pivot_table(index="case", columns="round", values="distance", aggfunc="mean").round(2)
Shown(by_round.rename_axis(columns=None).reset_index())

# %% [markdown]
# Greedy against best, both on soft labels:

# %%
judged = optimal.judged_rounds(played)
table = optimal.greedy_table(judged, ["case"])
save_table("judgment_soft_labels", table, optimal.greedy_text(table, ["case"]), tables, made)

# %% [markdown]
# Case 3 by seed, the first two rounds apart:

# %%
third = judged[judged["case"] == 3]
third = third.assign(part=third["round"].gt(2).map({False: "rounds 1 and 2", True: "later"}))
optimal.greedy_text(optimal.greedy_table(third, ["seed", "part"]), ["seed", "part"])

# %% [markdown]
# The best group of case 3 in the last round of the first seed:

# %%
last = next(r for r in played if r.case == 3 and r.round == rounds)
best = best_group(last.soft_labels, last.counts.sum(axis=1))
print(f"{len(best)} of {len(last.counts)} devices; images of each label: {last.counts[list(best)].sum(axis=0)}")

# %% [markdown]
# One device with one image of each label: all the entropy there can be, and next to no data. The Dirichlet draw of seed 0
# made such a device. Entropy does not see how much data a group has. The greedy judgment, which stops early, is spared
# this.
#
# What each way of choosing gives. "Random" keeps as many devices as the judgment on soft labels. The last column is the
# accuracy of the averaged model less that of all ten, mean ± standard deviation over seeds.

# %%
compared = pd.concat(map(optimal.compare_groups, played))
groups = optimal.groups_table(compared)
save_table("judgment_groups", groups, optimal.groups_text(groups), tables, made)

# %%
findings.soft_labels(distances, groups)

# %%
findings.against_random(groups, "the synthetic set")

# %% [markdown]
# The accuracies are those of a single averaging step, not of whole runs in which the other groups were used throughout.
#
# ## After training: CIFAR-10
#
# The same on real devices late in training: FedEntropy's recorded runs of the study “paper”, seed 0, go on from their final
# weights and pools. This needs CIFAR-10 and the kept weights; without them the figure is that of the synthetic set, and says
# so.

# %% tags=["nbval-ignore-output"]
recorded = with_weights(study_runs("paper", results))
trained = play_all_on(recorded, rounds)
where = "CIFAR-10 after training" if trained else "the synthetic set (CIFAR-10 or kept weights are not here)"
if trained:
    compared = pd.concat(map(optimal.compare_groups, trained))
optimal.groups_text(optimal.groups_table(compared))

# %% [markdown]
# Top: each of the 1,023 groups in the last round of the first seed, by the entropy of its soft labels; a marker's height
# is the share of groups with less entropy. Middle and bottom: mean over all rounds (marker) and the middle 80 % of rounds
# (line).

# %% tags=["nbval-ignore-output"]
figure = judgment_quality(trained or played, compared, where)
if trained or figures:  # the figure of the repository is the real one
    plots.save(figure, "judgment", figures, made_by("08_judgment", recorded))

# %% tags=["nbval-ignore-output"]
findings.against_random(optimal.groups_table(compared), where)

# %% [markdown]
# ## Recorded runs
#
# Records hold who was chosen and who was kept, and the true labels follow from the partition. So the judgment on soft
# labels can be measured by the entropy of the true labels, for every recorded round of FedEntropy, without the data.
# "Uniform draw" is the entropy of the devices that FedAvg drew with the same seeds. "Random drop" and "best group" are over
# the same chosen devices; the best group is that of the true labels, which the server does not know.

# %%
runs = shown_runs(study, results)
made = made_by("08_judgment", runs)
print(caption(runs))
table = optimal.recorded_table(runs, datasets, cases=(1, 2, 3))
print(report.missing_runs(runs, table))
save_table("judgment_recorded", table, optimal.recorded_text(table), tables, made)

# %%
findings.recorded(table)

# %%
findings.entropy_and_accuracy(runs)

# %% [markdown]
# Who is kept where devices differ in size? Case 3: the images of the kept devices in a round, and the share of rounds in
# which a device is kept, for devices ordered by their images and cut into quarters. Without judgment and pools a device
# is in one round of ten.

# %%
table = participation.participation_table(runs, datasets)
save_table("participation", table, participation.participation_text(table), tables, made)

# %%
findings.participation(table)

# %% [markdown]
# A large device with few labels weighs most in the group's distribution, so it is likely to be removed.
