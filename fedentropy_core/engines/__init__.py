"""The engines: the same inputs, the same outputs, each fast somewhere else."""

from fedentropy_core.engines.base import Cohort, DeviceWork, Engine, LocalRule, Work
from fedentropy_core.engines.reference import ReferenceEngine

__all__ = ["ENGINES", "Cohort", "DeviceWork", "Engine", "LocalRule", "Work", "make_engine"]

ENGINES = ("auto", "reference")


def make_engine(name: str, dataset, threads: int | None = None, device: str = "cpu") -> Engine:
    """The engine by name, ready for a data set; "auto" takes the fastest that this machine has."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {name!r}")
    return ReferenceEngine(dataset, threads, device)
