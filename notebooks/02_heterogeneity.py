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
# # How unequal the devices are (Figure 5)
#
# The paper spreads the training images over 100 devices in three ways. **Case 1**: one label a device. **Case 2**: two
# labels, half and half. **Case 3**: for each label a Dirichlet(0.1) share over the devices. It says that "the degree of
# data heterogeneity increases from case 1 to case 3".
#
# In canonical order the labels of a data set follow from its class counts alone, so this notebook needs no download.

# %%
from fedentropy_core.paper import heterogeneity
from fedentropy_core.paper.findings import heterogeneity as findings
from fedentropy_core.paper.study import save_table
from fedentropy_core.report import figures as plots
from fedentropy_core.report.source import made_by

# %% tags=["parameters"]
tables = None  # where tables go; None: results/<study>/tables
figures = None  # where figures go; None: figures

# %% [markdown]
# The share of each label (row) on each device (column) in the draw of partition seed 0, which all runs of the study
# “paper” share, and those of seed 0 of “mirrored”.

# %%
made = made_by("02_heterogeneity")
figure = plots.label_distribution(heterogeneity.counts_by_case(seed=0))
plots.save(figure, "figure5_label_distribution", figures, made)

# %% [markdown]
# How far is a device's label distribution p_k from the global one, p? *Distance*: total variation, ½·Σ|p_k − p|,
# averaged over devices; 0 is iid. Devices differ in size in case 3, so also weighted by their images; and, as a second
# measure, the Kullback-Leibler *divergence* Σ p_k·ln(p_k/p). Means over partition seeds 0 to 2.

# %%
index = heterogeneity.index_table(seeds=(0, 1, 2))
save_table("heterogeneity", index, heterogeneity.index_shown(index), tables, made)

# %%
findings.cases(index)

# %% [markdown]
# The draws of case 3 differ from partition seed to partition seed; in the study “mirrored” every seed has its own, on
# which all its methods train. The effective number of devices to a label is 1/Σs² over the devices' shares s of it;
# given is that of the label that is spread the least.

# %%
draws = heterogeneity.seeds_table(seeds=(0, 1, 2))
save_table("heterogeneity_by_seed", draws, heterogeneity.seeds_shown(draws), tables, made)

# %%
findings.draws(draws)
