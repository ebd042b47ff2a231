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
import pandas as pd

from fedentropy_core import heterogeneity, plots, report

# %% tags=["parameters"]
tables = None  # where tables go; None: results/paper/tables
figures = None  # where figures go; None: figures

# %% [markdown]
# The share of each label (row) on each device (column), seed 0.

# %%
figure = plots.label_distribution(heterogeneity.counts_by_case(seed=0))
plots.save(figure, "figure5_label_distribution", figures)

# %% [markdown]
# A measure settles the question: the total-variation distance between a device's label distribution and the global one,
# ½·Σ|p_k − p|, averaged over devices. 0 is iid; with 10 labels a single-label device has 0.9. Mean over seeds 0 to 2.

# %%
index = heterogeneity.index_table(seeds=(0, 1, 2))
shown = index.pivot(index="dataset", columns="case", values="distance").loc[list(index["dataset"].unique())]
shown = shown.rename(index=report.DATASET_NAMES, columns="distance in case {}".format)
shown = shown.rename_axis(index="data", columns=None).round(3).reset_index()
report.write_table("heterogeneity", index, shown, tables)
shown

# %% [markdown]
# **What we see.** The distance falls from case 1 to case 2 to case 3 on every data set: heterogeneity *decreases* from
# case 1 to case 3, the reverse of the paper's sentence. What does increase is the inequality of sizes: cases 1 and 2 give
# all devices the same number of images, case 3 does not.

# %%
sizes = pd.DataFrame(
    [
        (report.DATASET_NAMES[dataset], case, *pd.Series(counts.sum(axis=1)).agg(["min", "median", "max"]).astype(int))
        for (dataset, case), counts in heterogeneity.counts_by_case(seed=0).items()
    ],
    columns=["data", "case", "fewest images", "median", "most images"],
)
sizes
