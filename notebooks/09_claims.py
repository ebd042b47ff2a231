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
# # Every claim, and whether it holds here
#
# Each claim of the paper's Section 4 and of the appendix's results, with the paper's numbers and ours. A comparison is the
# difference between two methods on the same data, paired by seed, with a 95 % confidence interval over seeds. A claim
# of several comparisons is *reproduced* if every difference has the claimed sign, else *not reproduced*; a stated
# percentage is reproduced if it lies in our interval (or within one point). With fewer than two seeds it is *not tested*.

# %%
import pandas as pd

from fedentropy_core import report
from fedentropy_core.claims import verdicts

# %% tags=["parameters"]
results = None  # folder of records; None: the repository's own
profile = "paper"
datasets = ["cifar10", "cifar100", "cinic10"]
tables = None  # where tables go; None: results/paper/tables
figures = None  # where figures go; None: figures

# %%
records = report.Records.load(profile, results)
table = verdicts(records)
report.write_table("claims", table, table, tables)
table["verdict"].value_counts().rename_axis(None).to_frame("claims")

# %%
with pd.option_context("display.max_colwidth", None):
    display(table[["section", "claim", "verdict", "note"]])

# %% [markdown]
# The numbers behind each verdict:

# %%
with pd.option_context("display.max_colwidth", None):
    display(table[["claim", "paper", "ours"]])
