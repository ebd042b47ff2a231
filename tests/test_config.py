"""Configurations: the paper's setting, keys, profiles, and errors that name the field."""

from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from fedentropy_core import RunConfig
from fedentropy_core.config import PROFILES, profile_config

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


def test_equal_numbers_have_equal_keys():
    assert RunConfig(prox_mu=1).key == RunConfig(prox_mu=1.0).key


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
        ({"dataset": "mnist"}, "dataset must be one of cifar10"),
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
