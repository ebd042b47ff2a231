"""Stacked runs: the records that the same runs leave alone, whatever happens to the stack."""

import time
from dataclasses import replace

import pytest
from conftest import random_dataset

from fedentropy_core import load_dataset, run
from fedentropy_core.config import profile_config
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.batched import BatchedEngine
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.interrupts import Stop
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RecordLocked, load_record
from fedentropy_core.runs.train import OutOfTime
from fedentropy_core.runs.training import Order, Paused, Workshop, seed_stacks, train_stack


def seeds(count=3, **fields):
    settings = {"dataset": "synthetic", "case": 3, "rounds": 4, "devices": 8, "fraction": 0.4, "epochs": 1}
    return [profile_config("smoke", **settings | {"seed": seed} | fields) for seed in range(count)]


def contents(config, folder):
    """What two equal runs have in common: the CSV, and the JSON but for its provenance."""
    files = RunFiles(config, folder)
    return files.csv.read_bytes(), files.json.read_text().partition('"provenance"')[0]


@pytest.fixture(scope="module")
def dataset():
    """Small, for on a CPU this engine is slow."""
    return random_dataset(train=300, test=40)


@pytest.fixture(autouse=True)
def _small_data(dataset, monkeypatch):
    monkeypatch.setattr("fedentropy_core.runs.training.load_dataset", lambda name: dataset)
    monkeypatch.setattr("fedentropy_core.data.catalogue.SYNTHETIC_FINGERPRINT", dataset.fingerprint)


@pytest.fixture(scope="module")
def engine(dataset):
    return BatchedEngine(dataset, "cpu")


@pytest.fixture(scope="module")
def alone(engine, tmp_path_factory):
    """The contents of a run that had the engine to itself."""
    folder = tmp_path_factory.mktemp("alone")

    def contents_of(config):
        run(config, engine, progress=False, results=folder)
        return contents(config, folder)

    return contents_of


def train_stacked(configs, engine, folder, stop=None):
    """The records that there are then, and what was told."""
    orders, events = [Order(RunFiles(config, folder)) for config in configs], []
    train_stack(orders, Workshop(engine), stop or Stop(), events.append)
    return [load_record(order.files.csv) for order in orders if order.files.csv.exists()], events


def assert_as_alone(configs, folder, alone):
    for config in configs:
        assert contents(config, folder) == alone(config)
        assert not RunFiles(config, folder).checkpoint.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"entropy": True},
        {"method": "fedprox"},
        {"method": "scaffold", "entropy": True},
        {"method": "scaffold-authors", "entropy": True},
        {"method": "moon"},
    ],
    ids=["fedavg+entropy", "fedprox", "scaffold+entropy", "scaffold-authors+entropy", "moon"],
)
def test_stacked_records_are_those_of_runs_alone(fields, tmp_path, engine, alone):
    configs = seeds(**fields)
    records, _ = train_stacked(configs, engine, tmp_path)
    assert [record.config for record in records] == configs
    assert_as_alone(configs, tmp_path, alone)


@pytest.mark.exhaustive
def test_the_smoke_profile(tmp_path, monkeypatch):
    monkeypatch.undo()
    engine = BatchedEngine(load_dataset("synthetic"), "cpu")
    configs = [profile_config("smoke", dataset="synthetic", case=2, seed=seed, entropy=True) for seed in (0, 1)]
    train_stacked(configs, engine, tmp_path / "stacked")
    for config in configs:
        run(config, engine, progress=False, results=tmp_path / "alone")
        assert contents(config, tmp_path / "stacked") == contents(config, tmp_path / "alone")


def test_runs_with_one_rule_may_differ_otherwise(tmp_path, engine, alone):
    """One leaves the stack early; FedAvg and FedEntropy have the same local rule."""
    configs = [*seeds(1, rounds=2), *seeds(1, entropy=True, case=2), *seeds(1, epochs=2, fraction=0.2, rounds=3)]
    train_stacked(configs, engine, tmp_path)
    assert_as_alone(configs, tmp_path, alone)


def test_each_run_resumes_from_its_own_checkpoint(tmp_path, engine, alone, monkeypatch):
    configs = seeds(entropy=True)
    with pytest.raises(OutOfTime, match="stopped after round 1"):
        run(configs[1], engine, progress=False, results=tmp_path, seconds=0)
    _, events = train_stacked(configs, engine, tmp_path, Stop(deadline=time.monotonic()))
    paused = [(event.order.config.seed, event.rounds) for event in events if isinstance(event, Paused)]
    assert paused == [(0, 1), (1, 2), (2, 1)]
    begin, begun = Federation.begin_round, []
    monkeypatch.setattr(
        Federation, "begin_round", lambda self: begun.append((self.config.seed, self.round + 1)) or begin(self)
    )
    train_stacked(configs, engine, tmp_path)
    assert begun == [(0, 2), (1, 3), (2, 2), (0, 3), (1, 4), (2, 3), (0, 4), (2, 4)]
    assert_as_alone(configs, tmp_path, alone)


def test_a_checkpoint_with_all_rounds_only_needs_its_record(tmp_path, engine, alone, monkeypatch):
    """The disk was full after the last checkpoint."""
    configs = seeds(2, rounds=2)
    monkeypatch.setattr("fedentropy_core.runs.journal.CHECKPOINT_ROUNDS", 2)

    def full(self, *contents):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(RunFiles, "write_record", full)
        with pytest.raises(OSError, match="no space left"):
            train_stacked(configs, engine, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "train_many", None)
        train_stacked(configs, engine, tmp_path)
    assert_as_alone(configs, tmp_path, alone)


def test_finished_runs_are_not_trained_again(tmp_path, engine, alone, monkeypatch):
    configs = seeds(2)
    run(configs[0], engine, progress=False, results=tmp_path)
    before = RunFiles(configs[0], tmp_path).csv.stat().st_mtime_ns
    assert len(train_stacked(configs, engine, tmp_path)[0]) == 2
    assert RunFiles(configs[0], tmp_path).csv.stat().st_mtime_ns == before
    assert_as_alone(configs, tmp_path, alone)
    monkeypatch.setattr(engine, "train_many", None)
    assert len(train_stacked(configs, engine, tmp_path)[0]) == 2


def test_a_locked_run_stops_the_stack_before_it_starts(tmp_path, engine):
    configs = seeds(2)
    with RunFiles(configs[1], tmp_path).locked(), pytest.raises(RecordLocked):
        train_stacked(configs, engine, tmp_path)
    assert not RunFiles(configs[0], tmp_path).lock.exists()
    assert not RunFiles(configs[0], tmp_path).csv.exists()


def test_a_run_that_diverges_leaves_the_others(tmp_path, engine, alone, monkeypatch):
    configs = seeds(2)
    settle_round = Federation.settle_round

    def settle_or_diverge(self, cohort):
        if self.config.seed == 1 and self.round == 2:
            raise Diverged("round 2: a local model is not finite")
        return settle_round(self, cohort)

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "settle_round", settle_or_diverge)
        with pytest.warns(UserWarning, match="seed 1 diverged in round 2"):
            records, _ = train_stacked(configs, engine, tmp_path)
    assert [(record.diverged, len(record.rounds)) for record in records] == [(None, configs[0].rounds), (2, 1)]
    assert_as_alone(configs[:1], tmp_path, alone)


def test_the_time_is_shared_between_the_runs(tmp_path, engine):
    started = time.monotonic()
    records, _ = train_stacked(seeds(rounds=2), engine, tmp_path)
    passed = time.monotonic() - started
    assert sum(record.about["provenance"]["wall_seconds"] for record in records) < passed + 0.2


@pytest.mark.parametrize("name", ["reference", "native"])
def test_any_engine_stacks(name, tmp_path, dataset):
    engine = make_engine(name, dataset)
    configs = seeds(2, rounds=2, entropy=True)
    train_stacked(configs, engine, tmp_path / "stacked")
    for config in configs:
        run(config, engine, progress=False, results=tmp_path / "alone")
        assert contents(config, tmp_path / "stacked") == contents(config, tmp_path / "alone")


def test_runs_of_different_rules_are_not_stacked(tmp_path, engine):
    first, second = seeds(2)
    with pytest.raises(ValueError, match="same rule"):
        train_stacked([first, replace(second, lr=0.1)], engine, tmp_path)


def test_seeds_make_stacks():
    runs = STUDIES["paper"].runs
    stacks = [[order.config for order in stack] for stack in seed_stacks([Order(RunFiles(run)) for run in runs])]
    assert {tuple(config.seed for config in stack) for stack in stacks} == {(0, 1, 2), (0,)}
    assert sum(map(len, stacks)) == len(runs)
    assert stacks[0][0] == runs[0]
