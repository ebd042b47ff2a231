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
# level, but the three seeds are much further apart than the paper's. In case 1 our SCAFFOLD stays at chance, and
# FedEntropy on top of it is worse than SCAFFOLD alone in cases 2 and 3. Here settings in which the paper, the authors'
# code of October 2022, which was read first, and this one may differ are changed, alone or two together, in runs of the
# study “mirrored”, seed 0:
#
# * That code has no momentum, batches of 10, and values in place of pools. For case 2 it deals two shards of sorted
#   images to a device, which may be of the same label; ours may not.
# * It mirrors training images, as “mirrored” does. The paper does not mention that, and the authors' code of June 2022,
#   which made its numbers, does not do it; hence the study “paper” (docs/protocol.md).
# * Why SCAFFOLD stays at chance in case 1: with every device in each of 100 rounds, so that no control variate is older
#   than a round; with one local epoch, a fifth of the local steps; and with both.
# * What FedEntropy does to SCAFFOLD: the judgment without pools.
#
# Accuracies in percent: the paper's are those of its Table 1 (of its Table 3, probably best rounds, for SCAFFOLD with
# FedEntropy), ours are the mean of the last ten rounds, of the last hundred, and the best round. Changed runs are the
# study “diagnosis”, one run each; as specified are those of “mirrored”.

# %%
from fedentropy_core.config import profile_config
from fedentropy_core.paper.controls import ages_shown, ages_table, growth_table
from fedentropy_core.paper.diagnosis import diagnosis_table, shown
from fedentropy_core.paper.study import save_table

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
tables = None  # where tables go; None: results/<study>/tables
rounds = 10

# %%
table = diagnosis_table(results)
save_table("diagnosis", table, shown(table), tables)
shown(table)

# %% [markdown]
# **What we see.** *Level.* In case 2 only leaving out mirroring takes FedAvg to the paper's number: 48.72, where the
# paper has 48.90 ± 0.47 and ours 51.45 with this seed. Momentum makes no difference there, batches of 10 learn faster
# and end level (52.29), and the authors' shards, which give 11 of the 100 devices a single label, change little by the
# last hundred rounds; that the last ten say 54.30 is probably their noise, about a point of standard deviation
# (notebook 03). The authors' values take FedEntropy further above the paper there (56.07, with pools 53.85, the paper
# 51.39). In case 1, where we are at the paper's level with mirroring, leaving it out changes nothing. But in case 3 it
# takes 2.4 points away, and three seeds with mirroring are on average where the paper is (48.32, the paper 48.31 ±
# 0.83). So runs without mirroring would fit the paper's FedAvg in cases 1 and 2 and be some two points below it in case
# 3. One run each.
#
# *Spread.* The paper's standard deviations in case 3 are 0.2 to 1.2 points, ours 3.0 to 6.5, probably since every seed
# draws its own partition. The authors' code of June 2022 loads one saved partition; if the paper's three runs share one
# in all cases, its level in cases 2 and 3 is that of one draw, and in case 2 our draws differ by 1.0 to 1.9 (standard deviation). That would do
# for FedAvg, FedProx and FedEntropy, which are 1.3 to 2.0 above the paper there, not for Moon (3.8) and SCAFFOLD (6.0).
# It does not explain all: some of those standard deviations are below the noise of ten rounds in a single run (notebook
# 03), and the rounds that the paper's FedAvg takes to its target in case 3 vary by 239.
#
# *SCAFFOLD in case 1.* Without momentum it stays at chance. With all devices in each round it gets to 17.20 in round 20
# and falls back to chance, so stale control variates are not the cause alone. Fewer local steps help: with one local
# epoch it ends at 15.72; with one local epoch and all devices it learns up to round 85 (22.66) and then falls to chance
# within seven rounds.
#
# *SCAFFOLD in cases 2 and 3.* Without momentum, which the code of October 2022 does not have, it ends at 48.93 and 50.49 (last
# hundred rounds 50.40 and 47.61) in place of 56.23 and 54.00. In case 2 that is the paper's level, 48.73 ± 1.62; in
# case 3 three seeds with momentum are there already (50.57, the paper 50.49 ± 1.21), and without momentum SCAFFOLD is
# behind FedAvg (51.19), where the paper has it 2.2 points ahead. Momentum makes local steps up to twice as long, and
# with it FedAvg and SCAFFOLD both learn faster; in case 2 FedAvg without it catches up, SCAFFOLD does not within 1,000
# rounds. So missing momentum is a possible cause in case 2, with one seed, and not of the level of the other methods
# there.
#
# With momentum SCAFFOLD is behind all other methods of Table 1 in case 3 on seed 2 of CIFAR-10 and seed 0 of CIFAR-100:
# the draws in which one device holds more than half of a label (notebook 02).

# %% [markdown]
# ## Control variates that feed on themselves (synthetic set)
#
# A device's next control variate is the mean of its local steps, and to each of these steps c − c_k was added. Does c_k
# settle? Here the global model (FedAvg's after ten rounds on the synthetic set, 10 of 50 devices a round, batches of
# 10) and c = 0 are held fixed, and ten devices renew their c_k eight times. If the correction did not change where a
# device goes, all eight would be the same. The median of ‖c_k‖ over the devices, after each renewal:

# %%
setting = profile_config("mirrored", dataset="synthetic", devices=50, fraction=0.2, batch_size=10, rounds=rounds)
growth = growth_table(setting, cases=(1, 2, 3, "iid"), epochs=(5, 1), renewals=8)
save_table("control_growth", growth, growth.round(2), tables)
growth.round(2)

# %% [markdown]
# **What we see.** In cases 1 to 3 c_k grows with almost every renewal, to 2.5 to 4 times in eight, with one local epoch
# as with five; with iid data to about 1.6 times. So the two keep each other up: −c_k takes the device away from its
# labels, the loss there pulls back harder, and the mean of that pull is the next c_k. In a run w_g and c move as well,
# so this shows that it happens, not how much of SCAFFOLD's failure in case 1 it explains.

# %% [markdown]
# ## SCAFFOLD with FedEntropy
#
# SCAFFOLD's global control variate c is the mean of all devices' c_k, and a device's c_k is renewed only when it is
# kept. With uniform draws every device has its turn about once in ten rounds. The judgment removes devices, and pools
# draw most devices from those kept before. How old are control variates then, in rounds, over all devices and rounds?

# %%
ages = ages_table(results)
save_table("control_ages", ages, ages_shown(ages), tables)
ages_shown(ages)

# %% [markdown]
# **What we see.** With FedEntropy half of the control variates are older than 15 to 29 rounds, where SCAFFOLD's own
# have 6, and one in ten is older than 77 to 111; in each case the seeds agree. With the judgment but uniform draws the
# median is 8 to 9, and SCAFFOLD gains from the judgment: it ends at 58.61 and 55.74 in cases 2 and 3 with seed 0, where
# it has 56.23 and 54.00 alone and 47.98 and 33.91 with the pools as well. So on CIFAR-10 it is the pools that harm
# SCAFFOLD, not the judgment, and old control variates are the likely way: c is a mean over all devices, also over those
# that pools seldom draw. One seed; on CIFAR-100 the judgment may have a part (notebook 05).
