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
# # Explore
#
# Three panels to play with. They need a live kernel: `make lab`, open this notebook, Run All. Without one each panel
# shows its first picture only.

# %%
from fedentropy_core.paper.study import SHOWN
from fedentropy_core.report import explore, explore_runs

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own

# %% [markdown]
# ## Partitions
#
# Turn β and see how the labels spread over the devices. Small β: few labels a device and very unequal sizes. Large β:
# close to iid. Not every request can be met, such as ten labels on five single-label devices; then the panel says why.
# The labels of a data set are known from its class counts, so nothing is downloaded.

# %%
explore.partition_panel()

# %% [markdown]
# ## The judgment, one removal at a time
#
# Edit the soft labels and sizes of six devices; each row is normalised to sum to 1. Move *removals* to let the judgment
# remove one device after the other. It removes the device whose absence gives the largest entropy, as long as that is
# more than now; ties go to the earlier device.
#
# Things to try:
# - "one label three times": two of the three go, and the group becomes uniform.
# - "one big device": entropy is weighted by images, so a large device with a skewed soft label goes first.
# - "the judgment stops early": no single removal helps, though two of the six devices alone would be uniform.
# - Give a device a flat soft label, as an untrained model would. The judgment likes it whatever its data is.

# %%
explore.judgment_panel()

# %% [markdown]
# ## Recorded runs
#
# Any runs in one picture: those of the paper and your own (`python -m fedentropy_core run …`). Without records the panel
# says how to make them.

# %%
explore_runs.runs_panel(results, SHOWN)
