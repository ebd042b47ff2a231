"""The engines: the same inputs, the same outputs, each fast somewhere else."""

import torch

from fedentropy_core.engines import native
from fedentropy_core.engines.base import Cohort, DeviceWork, Engine, LocalRule, Work
from fedentropy_core.engines.batched import BatchedEngine
from fedentropy_core.engines.reference import ReferenceEngine

__all__ = ["ENGINES", "Cohort", "DeviceWork", "Engine", "LocalRule", "Work", "make_engine"]

ENGINES = ("auto", "native", "batched", "reference")


def make_engine(name: str, dataset, threads: int | None = None, device: str | None = None) -> Engine:
    """The engine by name, ready for a data set; `device` is a torch device, None for what suits the engine.

    "auto" is batched on CUDA, else native where a compiler has built it, else reference.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {name!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    if name == "auto":
        name = _fastest(device)
    if name == "native" and device not in (None, "cpu"):
        raise ValueError(f"the native engine is for CPUs; device must be cpu, got {device!r}")
    if name == "native":
        return native.NativeEngine(dataset, threads)
    if name == "batched":
        return BatchedEngine(dataset, device or "cuda")
    return ReferenceEngine(dataset, threads, device or "cpu")


def _fastest(device: str | None) -> str:
    if (device or "cuda").startswith("cuda") and torch.cuda.is_available():
        return "batched"
    return "native" if device in (None, "cpu") and native.available() else "reference"
