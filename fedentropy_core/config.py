"""A run's configuration, and the profiles. A run is a pure function of its RunConfig."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from fedentropy_core.datasets import DATASETS
from fedentropy_core.engines.base import LocalRule
from fedentropy_core.methods import METHODS
from fedentropy_core.partition import CASES
from fedentropy_core.selection import cohort_size

SELECTIONS = ("uniform", "pools", "value")
AUGMENTATIONS = ("mirror", "none")


@dataclass(frozen=True)
class RunConfig:
    """Defaults are the paper's setting, and where it is silent (mirroring) the authors' code's.

    `entropy` puts FedEntropy on top of `method`. `selection` None means pools with FedEntropy, uniform without;
    "uniform" with FedEntropy is the ablation without pools. `pools_only`: the judgment only moves devices between
    the pools, every chosen device uploads.
    """

    dataset: str = "cifar10"
    case: int | str = 1
    method: str = "fedavg"
    entropy: bool = False
    selection: str | None = None
    pools_only: bool = False
    seed: int = 0
    rounds: int = 1000
    devices: int = 100
    fraction: float = 0.1
    epochs: int = 5
    batch_size: int = 50
    lr: float = 0.01
    momentum: float = 0.5
    prox_mu: float = 0.01
    moon_mu: float = 0.1
    moon_tau: float = 0.5
    epsilon: float = 0.8
    beta: float = 0.1
    augment: str = "mirror"

    def __post_init__(self) -> None:
        if self.selection is None:
            object.__setattr__(self, "selection", "pools" if self.entropy else "uniform")
        _validate(self)

    @property
    def chosen_per_round(self) -> int:
        return cohort_size(self.fraction, self.devices)

    @property
    def local_rule(self) -> LocalRule:
        """What every local step does, apart from the state a device brings along."""
        return LocalRule(
            lr=self.lr,
            momentum=self.momentum,
            batch_size=self.batch_size,
            prox_mu=self.prox_mu if self.method == "fedprox" else 0.0,
            moon_mu=self.moon_mu if self.method == "moon" else 0.0,
            moon_tau=self.moon_tau,
        )

    @property
    def label(self) -> str:
        """The method with its variant, as it stands in file names: fedavg, fedavg+entropy, fedavg+entropy-value …"""
        if not self.entropy:
            return self.method
        variant = {"pools": "", "uniform": "-no-pools", "value": "-value"}[self.selection]
        return f"{self.method}+entropy{variant}{'-pools-only' if self.pools_only else ''}"

    @property
    def key(self) -> str:
        """Names the content: two configurations have the same key if and only if they are equal."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def profile(self) -> str:
        """The profile whose settings these are, else "custom"."""
        for name, settings in PROFILES.items():
            if replace(self, **_SETTINGS | settings) == self:
                return name
        return "custom"


_IDENTITY = ("dataset", "case", "method", "entropy", "selection", "pools_only", "seed")
_SETTINGS = {f.name: f.default for f in RunConfig.__dataclass_fields__.values() if f.name not in _IDENTITY}

# Each profile names what differs from the paper's setting.
PROFILES: dict[str, dict[str, int | float | str]] = {
    "paper": {},
    "quick": {"rounds": 100},
    "smoke": {"rounds": 5, "devices": 20, "fraction": 0.25, "epochs": 1},
}


def profile_config(profile: str, **fields) -> RunConfig:
    """A RunConfig of a profile, with some fields set otherwise."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}")
    return RunConfig(**PROFILES[profile] | fields)


def _validate(config: RunConfig) -> None:
    _one_of(config, "dataset", DATASETS)
    _one_of(config, "case", CASES)
    _one_of(config, "method", METHODS)
    _one_of(config, "selection", SELECTIONS)
    _one_of(config, "augment", AUGMENTATIONS)
    _one_of(config, "entropy", (True, False))
    _one_of(config, "pools_only", (True, False))
    for name in ("rounds", "devices", "epochs", "batch_size"):
        _integer(config, name, least=1)
    _integer(config, "seed", least=0)
    for name in ("lr", "moon_tau", "beta"):
        _number(config, name, lambda value: value > 0, "positive")
    for name in ("prox_mu", "moon_mu"):
        _number(config, name, lambda value: value >= 0, "zero or positive")
    _number(config, "momentum", lambda value: 0 <= value < 1, "in [0, 1)")
    _number(config, "epsilon", lambda value: 0 <= value <= 1, "in [0, 1]")
    _number(config, "fraction", lambda value: 0 < value <= 1, "in (0, 1]")
    if not config.entropy and (config.selection != "uniform" or config.pools_only):
        raise ValueError("selection and pools_only belong to FedEntropy: set entropy=True as well")
    if config.pools_only and config.selection != "pools":
        raise ValueError(f"pools_only needs selection 'pools'; got {config.selection!r}")


def _one_of(config: RunConfig, name: str, choices: tuple) -> None:
    value = getattr(config, name)
    # 1 == True == 1.0 in Python, and would give one run two keys.
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def _integer(config: RunConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on; got {value!r}")


def _number(config: RunConfig, name: str, good, what: str) -> None:
    value = getattr(config, name)
    if type(value) not in (int, float) or not good(value) or value == float("inf"):
        raise ValueError(f"{name} must be {what}; got {value!r}")
    object.__setattr__(config, name, float(value))
