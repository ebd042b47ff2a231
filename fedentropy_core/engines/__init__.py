"""The engines: the same inputs, the same outputs, each fast somewhere else."""

from fedentropy_core.engines import native
from fedentropy_core.engines.base import Cohort, DeviceWork, Engine, LocalRule, Work
from fedentropy_core.engines.reference import ReferenceEngine

__all__ = ["ENGINES", "Cohort", "DeviceWork", "Engine", "LocalRule", "Work", "make_engine"]

ENGINES = ("auto", "native", "reference")


def make_engine(name: str, dataset, threads: int | None = None, device: str = "cpu") -> Engine:
    """The engine by name, ready for a data set.

    "auto" on a CPU is native where a compiler has built it, else reference; on any other torch device reference.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {name!r}")
    if name == "auto":
        name = "native" if device == "cpu" and native.available() else "reference"
    if name == "native":
        if device != "cpu":
            raise ValueError(f"the native engine is for CPUs; device must be cpu, got {device!r}")
        return native.NativeEngine(dataset, threads)
    return ReferenceEngine(dataset, threads, device)
