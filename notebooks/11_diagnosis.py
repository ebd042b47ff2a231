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
# # Where our numbers differ from the paper's
#
# In case 2 of CIFAR-10 all our methods are more accurate than the paper's, SCAFFOLD most. In case 3 they are at its
# level, but the three seeds are much further apart than the paper's. In case 1 our SCAFFOLD stays at chance; with
# FedEntropy on top it diverges there with two of three seeds and is less accurate in cases 2 and 3. Here settings in
# which the paper, the authors' released code and this one may differ are changed, alone or two together, seed 0, 1,000
# rounds of ten devices: the paper has momentum and does not mention mirroring; the authors' code mirrors, has no
# momentum, and batches of 10; ours mirrors, has momentum, batches of 50. For case 2 their code deals two shards of
# sorted images to a device, which may be of the same label; ours may not. Three runs ask why SCAFFOLD stays at chance
# in case 1: with every device in each of 100 rounds, so that no control variate is older than a round; with one local
# epoch, a fifth of the local steps; and with both. One asks what FedEntropy does to it: judgment without pools.
# Accuracies in percent: the paper's are those of its Table 1 (of its Table 3 for SCAFFOLD with FedEntropy), ours are
# the mean of the last ten rounds, of the last hundred, and the best round. `make train DIAGNOSIS=1` makes the runs, in
# `results/paper/diagnosis`.

# %%
from fedentropy_core import RunConfig, report
from fedentropy_core.controls import ages_shown, ages_table, growth_table
from fedentropy_core.diagnosis import diagnosis_table, shown

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
tables = None  # where tables go; None: results/paper/tables
rounds = 10

# %%
table = diagnosis_table(results)
report.write_table("diagnosis", table, shown(table), tables)
shown(table)

# %% [markdown]
# **What we see so far.** FedAvg in case 2, where the paper has 48.90 ± 0.47: as specified 51.45 (three seeds: 50.91 ±
# 1.28), without mirroring 48.72 (last hundred rounds 52.36 and 49.82). In case 3, where it has 48.31 ± 0.83: as
# specified 52.32 (three seeds: 48.32 ± 3.55), without momentum 51.19, without mirroring 49.92, with neither 47.91, with
# batches of 10 51.11 (last hundred 50.82, 49.69, 48.47, 46.67 and 50.29). Batches of 10 learn much faster, 12 points
# more over the first hundred rounds, and end about a point lower. Leaving out mirroring takes 2.3 to 2.7 points away in
# both cases and by both measures; momentum is worth half of that in case 3. In case 1, where we are at the paper's
# 27.08 ± 0.79 with mirroring, leaving it out changes nothing: 27.60 with and without, and 0.14 points between the two
# in a round on average, perhaps since at this level there is nothing to overfit yet. So runs without mirroring would
# fit the paper's FedAvg in cases 1 and 2, but in case 3, where three seeds with mirroring are on average where the
# paper is, they would be some two points below it. One run each.
#
# The authors' shards, which give 11 of the 100 devices a single label, change little in case 2: 51.72 by the last
# hundred rounds (as specified 52.36). That the last ten say the opposite, 54.30 against 51.45, is probably their noise:
# about a point of standard deviation there (notebook 03).
#
# Another reading needs no other setting: the paper's standard deviations in case 3 are 0.2 to 1.2 points, ours 3.0 to
# 6.5, probably since every seed draws its own partition. The authors' code has one fixed seed; if the paper's three
# runs share a partition, its level in cases 2 and 3 is that of one draw, and in case 2 our draws differ by 1.0 to 1.9
# (standard deviation). That would do for FedAvg, FedProx and FedEntropy, which are 1.3 to 2.0 above the paper there,
# not for Moon (3.8) and SCAFFOLD (6.0). It does not explain all: some of those standard deviations are below the noise
# of ten rounds in a single run (notebook 03), and the rounds that the paper's FedAvg takes to its target in case 3 vary
# by 239.
#
# SCAFFOLD in case 1: without momentum it stays at chance. With all devices in each round it gets to 17.20 in round 20
# and falls back to chance (10.01 at the end), so stale control variates are not the cause alone. With one local epoch
# it ends at 15.72. With one local epoch and all devices it learns up to round 85 (22.66) and then falls to chance
# within seven rounds. So local steps have a part in it: with fewer of them it breaks later or less. In case 2 nothing
# is tried yet. In case 3 it is behind all other methods on two of four draws, by 1.8 to 4.7 points with seed 2 of
# CIFAR-10 and by 6.5 to 7.8 with seed 0 of CIFAR-100: those in which one device holds more than half of a label
# (notebook 02).

# %% [markdown]
# ## Control variates that feed on themselves (synthetic set)
#
# A device's next control variate is the mean of its local steps, and to each of these steps c − c_k was added. Does c_k
# settle? Here the global model (FedAvg's after ten rounds on the synthetic set, 10 of 50 devices a round, batches of 10)
# and c = 0 are held fixed, and ten devices renew their c_k eight times. If the correction did not change where a device
# goes, all eight would be the same. The median of ‖c_k‖ over the devices, after each renewal:

# %%
setting = RunConfig(dataset="synthetic", devices=50, fraction=0.2, batch_size=10, rounds=rounds)
growth = growth_table(setting, cases=(1, 2, 3, "iid"), epochs=(5, 1), renewals=8)
report.write_table("control_growth", growth, growth.round(2), tables)
growth.round(2)

# %% [markdown]
# **What we see.** In cases 1 to 3 c_k grows with almost every renewal, to 2.5 to 4 times in eight, with one local epoch
# as with five; with iid data to about 1.6 times. So the two keep each other up: −c_k takes the device away from its
# labels, the loss there pulls back harder, and the mean of that pull is the next c_k. In a run w_g and c move as well, so
# this shows that it happens, not how much of SCAFFOLD's failure in case 1 it explains.

# %% [markdown]
# ## SCAFFOLD with FedEntropy
#
# SCAFFOLD's global control variate c is the mean of all devices' c_k, and a device's c_k is renewed only when it is kept.
# With uniform draws every device has its turn about once in ten rounds. The judgment removes devices, and pools draw most
# devices from those kept before. How old are control variates then, in rounds, over all devices and rounds?

# %%
ages = ages_table(results)
report.write_table("control_ages", ages, ages_shown(ages), tables)
ages_shown(ages)

# %% [markdown]
# **What we see.** With FedEntropy half of the control variates are older than 15 to 29 rounds, where SCAFFOLD's own have
# 6, and one in ten is older than 77 to 111; in each case the seeds agree. With the judgment but uniform draws they are a
# third to a half older than SCAFFOLD's own (median 8 rounds against 6, one in ten older than 31 against 21), and
# SCAFFOLD then ends at 55.74 in case 3 with seed 0, above SCAFFOLD alone (54.00) and far above SCAFFOLD with pools
# (33.91). So in this run it is the pools that harm SCAFFOLD, not the judgment, and old control variates are the likely
# way: c is a mean over all devices, also over those that pools seldom draw. Tried in case 3 only; on CIFAR-100 the
# judgment may have a part (notebook 05).
