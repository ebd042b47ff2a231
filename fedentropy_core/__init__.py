"""FedEntropy: federated learning that uploads only the models whose soft labels raise the group's entropy.

Each name is loaded when it is first used, so that reading records needs no PyTorch.
"""

from importlib import import_module

from fedentropy_core.partition import partition  # at once: importing the module later would take its name

_HOMES = {
    "RunConfig": "config",
    "compare": "report.compare",
    "frame": "report.frame",
    "judge": "judgment",
    "load_dataset": "data.load",
    "load_records": "runs.listing",
    "run": "runs.train",
    "run_all": "runs.train",
}
__all__ = ["RunConfig", "compare", "frame", "judge", "load_dataset", "load_records", "partition", "run", "run_all"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
