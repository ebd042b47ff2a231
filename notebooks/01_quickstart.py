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
# # FedEntropy in five minutes
#
# In federated learning a server sends a global model to some devices each round; they train it on their own images, and
# the server averages what comes back. If every device has only a few labels, the local models pull in different
# directions. FedEntropy asks the devices first for a **soft label** only: the mean softmax output of the local model over
# the device's own images, ten numbers. From these the server decides whose models fit together. Only those are uploaded.
#
# This notebook shows each piece on a small synthetic data set. It needs no download and trains for a few seconds.

# %%
import tempfile

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from fedentropy_core import RunConfig, judge, load_dataset, partition, run
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.paper.round_figure import round_diagram
from fedentropy_core.report import figures as plots
from fedentropy_core.report.judgment_figures import judgment_steps
from fedentropy_core.report.looks import NAMES, line
from fedentropy_core.report.source import made_by
from fedentropy_core.report.tables import Shown

# %% tags=["parameters"]
seed = 0
rounds = 10
figures = None  # where figures go; None: figures

# %%
figure = round_diagram()
plots.save(figure, "round", figures, made_by("01_quickstart"))

# %% [markdown]
# ## Data
#
# Ten coloured patterns, moved, overlaid with another one and with noise; 32 × 32 pixels, like CIFAR-10. Two images a
# label:

# %%
dataset = load_dataset("synthetic")
plots.use_style()
figure, grid = plt.subplots(2, 10, figsize=(10, 2.2), gridspec_kw={"hspace": 0.05, "wspace": 0.05})
for label in range(10):
    images = dataset.train_images[dataset.train_labels == label][:2]
    for axes, image in zip(grid[:, label], images, strict=True):
        axes.imshow(image.transpose(1, 2, 0))
        axes.axis("off")
    grid[0, label].set_title(f"label {label}")

# %% [markdown]
# ## Partition
#
# The training images are spread over 50 devices. **Case 1**: one label a device. **Case 2**: two labels, half and half.
# **Case 3**: for each label a Dirichlet(0.1) share over the devices.

# %%
counts = {}
for case in (1, 2, 3):
    parts = partition(dataset.train_labels, case, devices=50, seed=seed)
    counts["synthetic", case] = np.stack([np.bincount(dataset.train_labels[part], minlength=10) for part in parts])
figure = plots.label_distribution(counts)
figure.set_figheight(2.8)

# %% [markdown]
# ## One judgment, step by step
#
# Case 2. After two rounds the server picks 10 of the 50 devices. They train the global model and send their soft labels.

# %%
setting = {"dataset": "synthetic", "case": 2, "devices": 50, "fraction": 0.2, "batch_size": 10, "seed": seed}
engine = make_engine("auto", dataset)
federation = Federation(RunConfig(**setting, entropy=True, rounds=rounds), dataset, engine)
for _ in range(2):
    federation.play_round()
cohort = engine.train(federation.begin_round())
chosen = federation.chosen
sizes = [len(federation.parts[device]) for device in chosen]

# %% [markdown]
# The judgment looks at the group's mean soft label, weighted by images. It removes the device whose absence gives the
# largest entropy, and repeats this as long as the entropy rises.

# %%
judgment = judge(cohort.soft_labels, sizes)
held = counts["synthetic", 2][list(chosen)]
steps = pd.DataFrame(
    {
        "step": range(len(judgment.entropies)),
        "device removed": ["none yet", *(str(chosen[k]) for k in judgment.removed)],
        "labels it has": ["", *(" and ".join(map(str, np.flatnonzero(held[k]))) for k in judgment.removed)],
        "entropy after": np.round(judgment.entropies, 4),
        "devices left": [len(chosen) - step for step in range(len(judgment.entropies))],
    }
)
Shown(steps)

# %%
figure = judgment_steps(cohort.soft_labels, sizes, judgment, devices=chosen)

# %% [markdown]
# Left: the ten soft labels; a line runs through the removed ones. Middle: the labels that too many devices have lose
# weight, and the group gets closer to uniform (dashed); it cannot get there, since no chosen device has label 4. Right:
# the entropy after each removal.
#
# The removed devices upload nothing and go to the **negative pool**; the kept ones are averaged and go to the **positive
# pool**, from which the next round draws with probability 0.8.

# %% [markdown]
# ## Ten rounds of FedAvg and of FedEntropy
#
# A run is a function of its `RunConfig`. Both runs start from the same partition and the same initial model.

# %%
with tempfile.TemporaryDirectory() as folder:
    runs = [
        run(RunConfig(**setting, entropy=entropy, rounds=rounds), progress=False, results=folder)
        for entropy in (False, True)
    ]

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 2.8))
for record, name, marker in zip(runs, ("FedAvg", "FedEntropy"), ("s", "o"), strict=True):
    look = line(record.config.label) | {"marker": marker, "markersize": 4, "label": name}
    left.plot(record.rounds["round"], 100 * record.rounds["accuracy"], **look)
    right.plot(record.rounds["round"], record.rounds["models_up"].cumsum(), **look)
left.set(xlabel="round", ylabel="test accuracy (%)")
right.set(xlabel="round", ylabel="models uploaded so far")
left.legend(handlelength=3.2)
figure.tight_layout()

# %%
table = pd.DataFrame(
    {
        "method": [NAMES[record.config.label] for record in runs],
        "accuracy, last round (%)": [round(100 * record.rounds["accuracy"].iloc[-1], 1) for record in runs],
        "accuracy, best round (%)": [round(100 * record.best_accuracy, 1) for record in runs],
        "models uploaded": [record.rounds["models_up"].sum() for record in runs],
        "MB uploaded": [round(record.rounds["bytes_up"].sum() / 1e6, 1) for record in runs],
    }
)
Shown(table)

# %% [markdown]
# A run is a record, which shows itself: the settings that are not the default, and the curve.

# %%
runs[1]

# %% [markdown]
# One seed of ten rounds on a toy set is an illustration,
# not evidence: change `seed` above and run again. The evidence is in the other
# notebooks.
#
# ## Where to go next
#
# | notebook | what |
# |---|---|
# | [02_heterogeneity](02_heterogeneity.ipynb) | Figure 5: how unequal the devices are |
# | [03_accuracy](03_accuracy.ipynb) | Table 1 and Figure 2: accuracy of all methods |
# | [04_communication](04_communication.ipynb) | Tables 2 and 6: rounds and bytes to a target |
# | [05_synergy](05_synergy.ipynb) | Table 3, Figures 3a and 6: each method with FedEntropy on top |
# | [06_ablation](06_ablation.ipynb) | Figure 3b: what the judgment and the pools each do |
# | [07_settings](07_settings.ipynb) | Tables 4 and 5: data sets and network |
# | [08_judgment](08_judgment.ipynb) | how good the judgment is |
# | [09_claims](09_claims.ipynb) | the claims of the paper, each with a verdict |
# | [10_explore](10_explore.ipynb) | panels to play with |
# | [11_diagnosis](11_diagnosis.ipynb) | where our numbers differ from the paper's, and what was tried |
