"""The engines: the same inputs, the same outputs, each fast somewhere else. PyTorch is loaded with the first one."""

import sys

import numpy as np

from fedentropy_core.work import Dataset, Engine

ENGINES = ("auto", "native", "batched", "reference")


class BuildError(RuntimeError):
    """The compiler is missing or failed."""


class UnsuitableModel(ValueError):
    """An engine that is written for the paper's CNN meets another model."""


def make_engine(name: str, dataset: Dataset, threads: int | None = None, device: str | None = None) -> Engine:
    """The engine by name, ready for a data set; `device` is a torch device, None for what suits the engine.

    "auto" is batched on CUDA, else native where a compiler has built it, else reference; and reference, with a notice,
    for a model that the faster one is not written for.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {name!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    if name != "auto":
        return _make(name, dataset, threads, device)
    try:
        return _make(fastest(name, device), dataset, threads, device)
    except UnsuitableModel as why:
        print(f"{why}: the reference engine is taken", file=sys.stderr)
        return _make("reference", dataset, threads, device)


def fastest(name: str, device: str | None) -> str:
    """The engine that a name stands for on this machine."""
    import torch

    from fedentropy_core.engines.build import available

    if name != "auto":
        return name
    if (device or "cuda").startswith("cuda") and torch.cuda.is_available():
        return "batched"
    return "native" if device in (None, "cpu") and available() else "reference"


def _make(name: str, dataset: Dataset, threads: int | None, device: str | None) -> Engine:
    from fedentropy_core.engines.batched import BatchedEngine
    from fedentropy_core.engines.native import NativeEngine
    from fedentropy_core.engines.reference import ReferenceEngine

    if name == "reference":
        return ReferenceEngine(dataset, threads, device or "cpu")
    if name == "native" and device not in (None, "cpu"):
        raise ValueError(f"the native engine is for CPUs; device must be cpu, got {device!r}")
    engine = NativeEngine(dataset, threads) if name == "native" else BatchedEngine(dataset, device or "cuda")
    _check_forward(engine, ReferenceEngine(dataset, 1))
    return engine


def _check_forward(engine: Engine, reference: Engine) -> None:
    """Layers of the right shapes may still be put together in another way: the loss of some images tells."""
    from fedentropy_core.model import initial_weights

    images, labels = reference.images[:8], reference.labels[:8]
    weights = 2 * initial_weights(reference.classes, np.random.default_rng(0))
    (_, found), (_, expected) = (each.evaluate(weights, images, labels) for each in (engine, reference))
    if abs(found - expected) > 1e-3:
        raise UnsuitableModel(
            f"the {engine.name} engine computes the paper's CNN only, and this model gives other outputs"
        )
