"""Tables 4 and 5 and the hyperparameters, read off the data, the network and the configuration."""

from dataclasses import fields

import pandas as pd
import torch

from fedentropy_core.config import IDENTITY, RunConfig
from fedentropy_core.data.catalogue import SIDE, SPECS
from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.model import CNN


def dataset_table() -> pd.DataFrame:
    """Table 4; every load checks the images' fingerprint."""
    rows = []
    for name, spec in SPECS.items():
        try:
            data = load_dataset(name)
            shape = (*data.train_images.shape[1:],)
            rows.append((spec.title, shape, len(data.classes), len(data.train_images), len(data.test_images)))
        except DatasetMissing:
            rows.append((spec.title, (3, SIDE, SIDE), len(spec.classes), spec.train, spec.test))
    table = pd.DataFrame(rows, columns=["data", "input", "classes", "training images", "test images"])
    return table.assign(input=table["input"].map(lambda shape: "×".join(map(str, shape))))


def network_table(classes: int) -> pd.DataFrame:
    """Table 5: each layer with weights, its parameters and the shape it gives for one image."""
    model, rows = CNN(classes), []

    def note(name: str):
        def hook(layer: torch.nn.Module, _, output: torch.Tensor) -> None:
            kind = "convolution" if isinstance(layer, torch.nn.Conv2d) else "fully connected"
            size = "×".join(map(str, layer.weight.shape[2:] or layer.weight.shape[1:]))
            count = sum(p.numel() for p in layer.parameters())
            rows.append((name, kind, size, layer.weight.shape[0], "×".join(map(str, output.shape[1:])), count))

        return hook

    for name, layer in model.named_children():
        layer.register_forward_hook(note(name))
    model(torch.zeros(1, 3, SIDE, SIDE))
    rows.append(("all", "", "", "", "", sum(p.numel() for p in model.parameters())))
    return pd.DataFrame(rows, columns=["layer", "type", "kernel or inputs", "units", "output", "parameters"])


def hyperparameter_table() -> pd.DataFrame:
    """The settings of the paper profile that all runs share, and where each comes from."""
    config = RunConfig()
    silent = {"augment": "authors' code", "partition_seed": "authors' code", "global_step": "SCAFFOLD's paper"}
    rows = [
        (field.name, str(getattr(config, field.name)), silent.get(field.name, "paper"))
        for field in fields(config)
        if field.name not in IDENTITY
    ]
    return pd.DataFrame(rows, columns=["setting", "value", "from"])
