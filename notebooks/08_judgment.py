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
# Entropies are in nats; ten labels in equal shares have ln 10 = 2.303.

# %%
import pandas as pd

from fedentropy_core.config import profile_config
from fedentropy_core.paper import judgment_quality as optimal
from fedentropy_core.paper import participation
from fedentropy_core.paper import tables as report
from fedentropy_core.paper.judgment_figures import judgment_quality
from fedentropy_core.paper.study import caption, save_table, shown_records
from fedentropy_core.report import figures as plots
from fedentropy_core.report.groups import best_group

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
drawn = pd.concat(optimal.drawn_rounds("cifar10", case, rounds=1000) for case in (1, 2, 3))
table = optimal.greedy_table(drawn, ["case"])
shown = optimal.greedy_text(table, ["case"])
save_table("judgment_true_labels", table, shown, tables)
shown

# %% [markdown]
# The judgment never lowers the entropy and mostly raises it, but it stops early. In case 1 one can see why. Let six
# labels be held by 2, 2, 2, 2, 1 and 1 devices. Removing one device of a double label makes the shares less even, so the
# judgment stops; removing all four doubles would make them uniform.

# %%
labels = [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
one_label_each = pd.get_dummies(labels).to_numpy(dtype=float)
outcome = pd.DataFrame([optimal.greedy_and_best(one_label_each, sizes=[500] * 10)])
outcome[["all", "judgment", "best", "kept", "best_kept"]].round(3)

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
    for played_round in optimal.play(profile_config("mirrored", case=case, seed=seed, **setting))
]

# %% [markdown]
# How far is a soft label from the device's true label distribution? Mean total-variation distance by round (0: the same,
# 1: nothing in common).

# %%
distances = pd.DataFrame(
    [(r.case, r.round, optimal.soft_label_distance(r)) for r in played], columns=["case", "round", ""]
)
distances.pivot_table(index="case", columns="round", values="", aggfunc="mean").round(2)

# %% [markdown]
# Greedy against best, both on soft labels:

# %%
judged = optimal.judged_rounds(played)
table = optimal.greedy_table(judged, ["case"])
shown = optimal.greedy_text(table, ["case"])
save_table("judgment_soft_labels", table, shown, tables)
shown

# %% [markdown]
# Case 3 falls behind. By seed, the first two rounds apart:

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
table = optimal.groups_table(compared)
shown = optimal.groups_text(table)
save_table("judgment_groups", table, shown, tables)
shown

# %% [markdown]
# Top: each of the 1,023 groups in the last round of the first seed, by the entropy of its soft labels; a marker's height
# is the share of groups with less entropy. Middle and bottom: mean over all rounds (marker) and the middle 80 % of rounds
# (line).

# %%
figure = judgment_quality(played, compared, looked_at=rounds, data="synthetic set")
plots.save(figure, "judgment", figures)

# %% [markdown]
# ## Recorded runs
#
# Records hold who was chosen and who was kept, and the true labels follow from the partition. So the judgment on soft labels can be measured by the entropy of the true labels, for every recorded round of
# FedEntropy, without the data. "Uniform draw" is the entropy of the devices that FedAvg drew with the same seeds.
# "Random drop" and "best group" are over the same chosen devices; the best group is that of the true labels, which the
# server does not know.

# %%
records = shown_records(study, results)
print(caption(records))
table = optimal.recorded_table(records, datasets, cases=(1, 2, 3))
shown = optimal.recorded_text(table)
save_table("judgment_recorded", table, shown, tables)
print(report.missing_runs(records, table))
shown

# %% [markdown]
# Who is kept where devices differ in size? Case 3: the images of the kept devices in a round, and the share of rounds in
# which a device is kept, for devices ordered by their images and cut into quarters. Without judgment and pools a device
# is in one round of ten.

# %%
table = participation.participation_table(records, datasets)
shown = participation.participation_text(table)
save_table("participation", table, shown, tables)
shown

# %% [markdown]
# ## What we see
#
# In the study “mirrored”, from its records, with three seeds on CIFAR-10 and one on CIFAR-100 (two in case 3):
#
# - **The judgment gets most of what there is.** On CIFAR-10, of the true entropy that the best group would add to the
#   chosen devices the judgment, which sees soft labels only, adds 81, 71 and 84 % in cases 1, 2 and 3, with eight of ten
#   devices kept; on CIFAR-100 97, 92 and 89 %.
# - **The pools add about half to one and a half times as much.** Devices drawn with pools have more entropy before any
#   judgment than those drawn uniformly: on CIFAR-10 by 0.05, 0.07 and 0.13, to which the judgment adds 0.06, 0.04 and
#   0.09; on CIFAR-100 by 0.02, 0.04 and 0.04, and the judgment 0.04, 0.04 and 0.05. In accuracy the judgment is worth
#   more, at least in case 1 of CIFAR-10 (notebook 06).
# - **Large devices are seldom kept.** In case 3 of CIFAR-10 a device of the largest quarter is kept in 4.0 % of rounds,
#   where FedAvg's uniform draws have it in 9.8 %; on CIFAR-100 it is 6.6 against 9.9 %. A large device with few labels
#   weighs most in the group's distribution, so it is likely to be removed. The model of a round is thus made from 2,903
#   images where FedAvg's is from 4,964 (3,871 and 4,998), and is the more accurate all the same (notebook 03).
#
# From the drawn and the fresh rounds (three seeds of ten rounds on a small set):
#
# - **Greedy against best.** On true labels the judgment finds the best group in two thirds, 41 % and two thirds of draws
#   (cases 1, 2, 3) and gets 80 to 86 % of the entropy that the best group would add, while it keeps one or two devices
#   more. On soft labels it is much the same in cases 1 and 2 (81 and 82 %). In case 3 it is 47 %, mostly because of seed
#   0 with its ten-image device, and of the first two rounds; later rounds of seeds 1 and 2 reach 97 % and more.
# - **Soft labels against true labels.** Once the model has learnt a little, soft labels are close to the true
#   distribution: distance 0.00 in case 1, and 0.03 to 0.06 in cases 2 and 3 after five rounds. Over all rounds the
#   judgment on soft labels gives groups as even as on true labels (true entropy 1.945 and 1.945, 2.181 and 2.178, 2.023
#   and 2.027). In the first rounds of cases 2 and 3 soft labels say less (distance 0.24 and 0.29 in round 1). An
#   exhaustive search falls for that: in case 3 its groups on soft labels have less true entropy (1.946) than all chosen
#   devices (1.952).
# - **Against random.** Dropping as many devices at random lowers the entropy and, on average, the accuracy in every case.
#   Averaged from the same local models, the judgment's group is 1.3, 3.6 and 2.9 points more accurate than all ten
#   devices, and 2.0, 6.6 and 4.2 points more than the random drop. With three seeds only the 3.6 of case 2 is clear of
#   zero (95 % intervals ± 1.9, 2.9 and 4.0); in case 1 all groups are near chance, 11 to 13 %.
# - **More entropy is not more accuracy.** The best group has more entropy than the judgment's, but in cases 1 and 2 its
#   accuracy is not clearly better, and in case 3 the spread over seeds is too large to tell.
#
# The accuracies are those of a single averaging step, not of whole runs in which the other groups were used throughout.
