"""Configurations: the paper's setting, keys, profiles, and errors that name the field."""

import hashlib
import json
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedentropy_core import RunConfig
from fedentropy_core.config import NEUTRAL, PROFILES, profile_config, stored_config

FIRST_FIELDS = (
    *("dataset", "case", "method", "entropy", "selection", "pools_only", "seed", "rounds", "devices", "fraction"),
    *("epochs", "batch_size", "lr", "momentum", "prox_mu", "moon_mu", "moon_tau", "epsilon", "beta", "augment"),
)
METHODS = ("fedavg", "fedprox", "scaffold", "scaffold-authors", "moon")


def test_defaults_are_the_papers_setting():
    config = RunConfig()
    assert (config.devices, config.chosen_per_round, config.rounds) == (100, 10, 1000)
    assert (config.lr, config.momentum, config.batch_size, config.epochs) == (0.01, 0.5, 50, 5)
    assert (config.prox_mu, config.moon_mu, config.moon_tau) == (0.01, 0.1, 0.5)
    assert (config.epsilon, config.beta) == (0.8, 0.1)
    assert config.profile == "paper"


@pytest.mark.parametrize(
    ("devices", "fraction", "chosen"), [(100, 0.1, 10), (7, 0.1, 1), (3, 0.01, 1), (5, 0.5, 3), (30, 1.0, 30)]
)
def test_chosen_is_the_rounded_share(devices, fraction, chosen):
    assert RunConfig(devices=devices, fraction=fraction).chosen_per_round == chosen


def test_only_its_own_method_has_a_term():
    terms = {m: (RunConfig(method=m).local_rule.prox_mu, RunConfig(method=m).local_rule.moon_mu) for m in METHODS}
    plain = dict.fromkeys(("fedavg", "scaffold", "scaffold-authors"), (0, 0))
    assert terms == plain | {"fedprox": (0.01, 0), "moon": (0, 0.1)}
    inside = {m: RunConfig(method=m).local_rule.correction_in_momentum for m in METHODS}
    assert inside == dict.fromkeys(METHODS, False) | {"scaffold-authors": True}


def test_selection_follows_from_entropy():
    assert RunConfig().selection == "uniform"
    assert RunConfig(entropy=True).selection == "pools"


def test_labels():
    assert RunConfig().label == "fedavg"
    assert RunConfig(method="moon", entropy=True).label == "moon+entropy"
    assert RunConfig(entropy=True, selection="uniform").label == "fedavg+entropy-no-pools"
    assert RunConfig(entropy=True, selection="value").label == "fedavg+entropy-value"
    assert RunConfig(entropy=True, pools_only=True).label == "fedavg+entropy-pools-only"


def test_key_changes_with_every_field():
    config = RunConfig(entropy=True, case=3)
    changes = {
        "dataset": "cifar100",
        "case": 2,
        "method": "moon",
        "selection": "value",
        "pools_only": True,
        "augment": "mirror",
    }
    numbers = {name: value + 1 for name, value in asdict(config).items() if type(value) is int and name != "case"}
    halves = {name: value / 2 for name, value in asdict(config).items() if type(value) is float}
    others = [replace(config, **{name: value}) for name, value in (changes | numbers | halves).items()]
    others.append(RunConfig(case=3))
    assert len({config.key, *(other.key for other in others)}) == len(others) + 1
    assert len(others) == len(asdict(config))


def test_the_key_is_of_the_first_twenty_fields_and_of_later_ones_that_are_not_neutral():
    neutral = RunConfig(case=3, entropy=True, seed=2, lr=0.02, **NEUTRAL)
    assert asdict(neutral).keys() == {*FIRST_FIELDS, *NEUTRAL}
    fields = {name: getattr(neutral, name) for name in FIRST_FIELDS}
    assert neutral.key == sha256_of(fields)
    for later in ({"partition_seed": 0}, {"partition_seed": 5}, {"global_step": 0.5}):
        assert replace(neutral, **later).key == sha256_of(fields | later)


def sha256_of(fields):
    return hashlib.sha256(json.dumps(dict(sorted(fields.items()))).encode()).hexdigest()[:16]


FEW_VALUES = {
    "case": (1, 2, "shards"),
    "entropy": (False, True),
    "rounds": (1, 1000),
    "lr": (1, 1.0, 0.01),
    "momentum": (0, 0.0, -0.0, 0.5),
    "prox_mu": (0, -0.0, 1e-300, 0.01),
    "augment": ("none", "mirror"),
    "partition_seed": (None, 0, 1),
    "global_step": (1, 1.0, 0.5),
}
SOME_FIELDS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FEW_VALUES.items()})
ONE_FIELD = st.sampled_from([(name, value) for name, values in FEW_VALUES.items() for value in values])


@given(fields=SOME_FIELDS, change=ONE_FIELD)
def test_keys_are_equal_if_and_only_if_configurations_are(fields, change):
    one, other = RunConfig(**fields), RunConfig(**fields | dict([change]))
    assert (one.key == other.key) == (one == other)
    assert stored_config(json.loads(json.dumps(asdict(one)))) == one


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0, -0.0)])
def test_equal_numbers_have_equal_keys(one, other):
    assert RunConfig(prox_mu=one).key == RunConfig(prox_mu=other).key


def test_a_stored_configuration_without_a_later_field_has_its_neutral_value():
    stored = asdict(RunConfig(seed=3, partition_seed=4, global_step=0.5))
    for name in NEUTRAL:
        less = {field: value for field, value in stored.items() if field != name}
        assert stored_config(less) == RunConfig(**less | {name: NEUTRAL[name]})


@pytest.mark.parametrize("lacking", [("lr",), ("augment", "seed")])
def test_a_stored_configuration_must_have_the_first_fields(lacking):
    stored = {name: value for name, value in asdict(RunConfig()).items() if name not in lacking}
    with pytest.raises(ValueError, match=f"its configuration lacks {', '.join(lacking)}"):
        stored_config(stored)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (asdict(RunConfig()) | {"warmup": 3, "colour": "red"}, "has colour, warmup, unknown to this version"),
        ([], "is no table of fields"),
    ],
)
def test_a_stored_configuration_of_something_else_is_refused(stored, message):
    with pytest.raises(ValueError, match=f"its configuration {message}"):
        stored_config(stored)


def test_profiles_are_recognised():
    for name in PROFILES:
        assert profile_config(name, seed=4, case=3, method="moon", entropy=True).profile == name
    assert RunConfig(rounds=20).profile == "custom"
    assert RunConfig(lr=0.1).profile == "custom"
    with pytest.raises(ValueError, match="profile must be one of paper, mirrored, quick, smoke"):
        profile_config("papers")


def test_a_configuration_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RunConfig().lr = 1.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataset": ""}, "dataset must be a name; got ''"),
        ({"dataset": 10}, "dataset must be a name; got 10"),
        ({"case": 4}, "case must be one of 1, 2, 3, shards, iid; got 4"),
        ({"case": True}, "case must be one of"),
        ({"case": "1"}, "case must be one of"),
        ({"method": "fedavgg"}, "method must be one of fedavg"),
        ({"selection": "pool", "entropy": True}, "selection must be one of"),
        ({"selection": "pools"}, "set entropy=True"),
        ({"pools_only": True}, "set entropy=True"),
        ({"pools_only": True, "entropy": True, "selection": "value"}, "pools_only needs selection 'pools'"),
        ({"augment": "flip"}, "augment must be one of none, mirror"),
        ({"rounds": 0}, "rounds must be a whole number from 1 on; got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"devices": -1}, "devices must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0 on"),
        ({"partition_seed": -1}, "partition_seed must be a whole number from 0 on"),
        ({"partition_seed": 0.0}, "partition_seed must be a whole number from 0 on; got 0.0"),
        ({"global_step": 0}, "global_step must be positive"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"lr": 0}, "lr must be positive"),
        ({"lr": float("nan")}, "lr must be positive"),
        ({"lr": float("inf")}, "lr must be positive"),
        ({"lr": "0.1"}, "lr must be positive"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        ({"epsilon": 1.1}, r"epsilon must be in \[0, 1\]"),
        ({"fraction": 0}, r"fraction must be in \(0, 1\]"),
        ({"fraction": 1.5}, r"fraction must be in \(0, 1\]"),
        ({"beta": -1}, "beta must be positive"),
        ({"prox_mu": -0.1}, "prox_mu must be zero or positive"),
        ({"entropy": 1}, "entropy must be one of True, False; got 1"),
    ],
)
def test_bad_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**fields)
