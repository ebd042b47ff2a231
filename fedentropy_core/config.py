"""A run's configuration, and the profiles. A run is a pure function of its RunConfig."""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass, replace

from fedentropy_core.methods import METHODS
from fedentropy_core.partition import CASES
from fedentropy_core.selection import cohort_size
from fedentropy_core.work import LocalRule

SELECTIONS = ("uniform", "pools", "value", "pools-authors")
AUGMENTATIONS = ("none", "mirror")
MOST = 2**63 - 1  # what the engines' 64 bits hold

# Fields that came after the first records, each with the value that means "as before this field existed". At that value
# a field is left out of the key, and a configuration without the field has that value: so old records keep their keys.
NEUTRAL: dict[str, int | float | None] = {"partition_seed": None, "global_step": 1.0}


@dataclass(frozen=True)
class RunConfig:
    """Defaults are the paper's setting, and where it is silent that of the authors' code of June 2022.

    A `partition_seed` draws one partition for all seeds of a data set and case; None lets every seed draw its own.
    `global_step` η: the new global model is w_g + η·(mean − w_g).

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
    augment: str = "none"
    partition_seed: int | None = 0
    global_step: float = 1.0

    def __post_init__(self) -> None:
        settle_selection(self)
        _validate(self)

    @property
    def chosen_per_round(self) -> int:
        return cohort_size(self.fraction, self.devices)

    @property
    def partition_draw(self) -> int:
        """The seed that the partition is drawn from."""
        return self.seed if self.partition_seed is None else self.partition_seed

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
            correction_in_momentum=self.method == "scaffold-authors",
        )

    @property
    def label(self) -> str:
        """The method with its variant, as it stands in file names: fedavg, fedavg+entropy, fedavg+entropy-value …"""
        if not self.entropy:
            return self.method
        variant = {"pools": "", "uniform": "-no-pools"}.get(self.selection, f"-{self.selection}")
        return f"{self.method}+entropy{variant}{'-pools-only' if self.pools_only else ''}"

    @property
    def key(self) -> str:
        """Names the content: two configurations have the same key if and only if they are equal."""
        fields = {name: v for name, v in asdict(self).items() if name not in NEUTRAL or v != NEUTRAL[name]}
        text = json.dumps(fields, sort_keys=True)
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
PROFILES: dict[str, dict[str, int | float | str | None]] = {
    "paper": {},
    "mirrored": {"augment": "mirror", "partition_seed": None},
    "quick": {"rounds": 100},
    "smoke": {"rounds": 5, "devices": 20, "fraction": 0.25, "epochs": 1},
}


def profile_config(profile: str, **fields) -> RunConfig:
    """A RunConfig of a profile, with some fields set otherwise."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}")
    return RunConfig(**PROFILES[profile] | fields)


def unusual(config: RunConfig) -> dict[str, int | float | str | None]:
    """The settings in which a configuration differs from the paper's."""
    return {name: getattr(config, name) for name, usual in _SETTINGS.items() if getattr(config, name) != usual}


def stored_config(fields: dict) -> RunConfig:
    """The configuration of a record, of any generation; a ValueError names what is missing or unknown."""
    if not isinstance(fields, dict):
        raise ValueError(f"its configuration is no table of fields; got {fields!r}")
    known = RunConfig.__dataclass_fields__.keys()
    missing, unknown = sorted(known - NEUTRAL.keys() - fields.keys()), sorted(fields.keys() - known)
    if missing or unknown:
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}, unknown to this version"
        raise ValueError(f"its configuration {problem}")
    return RunConfig(**NEUTRAL | fields)


def _validate(config: RunConfig) -> None:
    if not (isinstance(config.dataset, str) and config.dataset):
        raise ValueError(f"dataset must be a name; got {config.dataset!r}")
    check_one_of(config, "case", CASES)
    check_one_of(config, "method", METHODS)
    check_one_of(config, "augment", AUGMENTATIONS)
    for name in ("rounds", "devices", "epochs", "batch_size"):
        check_integer(config, name, least=1)
    check_integer(config, "seed", least=0)
    if config.partition_seed is not None:
        check_integer(config, "partition_seed", least=0)
    for name in ("lr", "global_step", "moon_tau", "beta"):
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
    if value > MOST:
        raise ValueError(f"{name} must be at most {MOST}, the largest number of 64 bits; got {value}")


def check_number(settings: object, name: str, good, what: str) -> None:
    value = getattr(settings, name)
    # An int may be larger than any float, and then is as good as infinite.
    if type(value) not in (int, float) or not good(value) or value > sys.float_info.max:
        raise ValueError(f"{name} must be {what}; got {value!r}")
    object.__setattr__(settings, name, float(value) + 0.0)  # -0.0 == 0.0, and would give one run two keys
