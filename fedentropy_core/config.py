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
        settle_selection(self)
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


# What tells the runs of a profile apart.
IDENTITY = ("dataset", "case", "method", "entropy", "selection", "pools_only", "seed")
_SETTINGS = {f.name: f.default for f in RunConfig.__dataclass_fields__.values() if f.name not in IDENTITY}

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
    check_one_of(config, "dataset", DATASETS)
    check_one_of(config, "case", CASES)
    check_one_of(config, "method", METHODS)
    check_one_of(config, "augment", AUGMENTATIONS)
    for name in ("rounds", "devices", "epochs", "batch_size"):
        check_integer(config, name, least=1)
    check_integer(config, "seed", least=0)
    for name in ("lr", "moon_tau", "beta"):
        check_number(config, name, lambda value: value > 0, "positive")
    for name in ("prox_mu", "moon_mu"):
        check_number(config, name, lambda value: value >= 0, "zero or positive")
    check_number(config, "momentum", lambda value: 0 <= value < 1, "in [0, 1)")
    check_number(config, "epsilon", lambda value: 0 <= value <= 1, "in [0, 1]")
    check_number(config, "fraction", lambda value: 0 < value <= 1, "in (0, 1]")


def settle_selection(settings: object) -> None:
    """Gives `selection` its default, and refuses entropy, selection and pools_only that do not go together."""
    check_one_of(settings, "entropy", (True, False))
    check_one_of(settings, "pools_only", (True, False))
    if settings.selection is None:
        object.__setattr__(settings, "selection", "pools" if settings.entropy else "uniform")
    check_one_of(settings, "selection", SELECTIONS)
    if not settings.entropy and (settings.selection != "uniform" or settings.pools_only):
        raise ValueError("selection and pools_only belong to FedEntropy: set entropy=True as well")
    if settings.pools_only and settings.selection != "pools":
        raise ValueError(f"pools_only needs selection 'pools'; got {settings.selection!r}")


def check_one_of(settings: object, name: str, choices: tuple) -> None:
    value = getattr(settings, name)
    # 1 == True == 1.0 in Python, and would give one run two keys.
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_integer(settings: object, name: str, least: int) -> None:
    value = getattr(settings, name)
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on; got {value!r}")


def check_number(settings: object, name: str, good, what: str) -> None:
    value = getattr(settings, name)
    if type(value) not in (int, float) or not good(value) or value == float("inf"):
        raise ValueError(f"{name} must be {what}; got {value!r}")
    object.__setattr__(settings, name, float(value))
