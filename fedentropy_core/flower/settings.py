"""A run's settings as Flower carries them: a flat table of TOML values, the keys of `[tool.flwr.app.config]`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from fedentropy_core.config import RunConfig

_FIELDS = {field.name.replace("_", "-"): field.name for field in fields(RunConfig)}


@dataclass(frozen=True)
class Settings:
    """What is run, and how the server deals with faults. `output`: a file that gets a line of JSON a round."""

    config: RunConfig
    engine: str = "auto"
    min_devices: int = 1
    timeout: float = 600.0
    max_attempts: int = 10
    output: str = ""


def read_settings(table: Mapping[str, bool | float | int | str]) -> Settings:
    """The settings of a run_config; RunConfig's fields with - for _, and Settings' own."""
    config = {_FIELDS[key]: value for key, value in table.items() if key in _FIELDS}
    own = {key.replace("-", "_"): value for key, value in table.items() if key not in _FIELDS}
    unknown = sorted(own.keys() - {field.name for field in fields(Settings)} | own.keys() & {"config"})
    if unknown:
        raise ValueError(f"unknown settings: {', '.join(unknown)}")
    # TOML has no null and one type a key: "" is RunConfig's None, and case 1 may come as "1".
    config |= {name: None for name in ("selection", "partition_seed") if config.get(name) == ""}
    if str(config.get("case")).isdigit():
        config["case"] = int(config["case"])
    return Settings(RunConfig(**config), **own)
