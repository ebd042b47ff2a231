"""Whole runs: repeatable, resumable after kill -9 at any round, and as the paper says."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from conftest import write_record

from fedentropy_core import RunConfig, load_dataset, partition, run
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.build import available
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.model import build, parameter_count
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RecordError, load_record
from fedentropy_core.runs.train import OutOfTime

SETTING = {"dataset": "synthetic", "case": 2, "devices": 50, "fraction": 0.1, "epochs": 1, "rounds": 7}
SMALL = RunConfig(**SETTING)
VARIANTS = {
    "fedavg": {"method": "fedavg"},
    "fedprox+entropy": {"method": "fedprox", "entropy": True},
    "scaffold+entropy": {"method": "scaffold", "entropy": True},
    "moon+entropy": {"method": "moon", "entropy": True},
    "scaffold-authors+entropy": {"method": "scaffold-authors", "entropy": True},
    "authors' pools": {"entropy": True, "selection": "pools-authors"},
    "a global step": {"global_step": 0.5},
    "value": {"entropy": True, "selection": "value"},
    "no pools": {"entropy": True, "selection": "uniform"},
    "pools only": {"entropy": True, "pools_only": True},
}


@pytest.fixture(scope="module")
def engine():
    return make_engine("reference", load_dataset("synthetic"))


def train(config, folder, engine):
    return run(config, engine, progress=False, results=folder)


def contents(config, folder):
    """What two equal runs have in common: the CSV, and the JSON but for its provenance."""
    files = RunFiles(config, folder)
    return files.csv.read_bytes(), files.json.read_text().partition('"provenance"')[0]


@pytest.fixture(scope="module")
def undisturbed(engine, tmp_path_factory):
    """The contents of a run that nothing happened to; trained once a configuration."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def contents_of(config):
        train(config, folder, engine)
        return contents(config, folder)

    return contents_of


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_same_configuration_same_bytes(variant, tmp_path, engine):
    config = RunConfig(**SETTING | VARIANTS[variant] | {"rounds": 3})
    for name in ("a", "b"):
        train(config, tmp_path / name, engine)
    assert contents(config, tmp_path / "a") == contents(config, tmp_path / "b")


@pytest.mark.slow
def test_threads_do_not_change_a_byte(tmp_path):
    config = RunConfig(**SETTING | {"case": 3, "entropy": True, "rounds": 3})
    for threads in (1, 2, 3):
        train(config, tmp_path / str(threads), ReferenceEngine(load_dataset("synthetic"), threads))
    assert contents(config, tmp_path / "1") == contents(config, tmp_path / "2") == contents(config, tmp_path / "3")


KILLED = """
import os, signal
from pathlib import Path
import fedentropy_core.runs.journal as journal
from fedentropy_core import RunConfig, run
from fedentropy_core.federation import Federation

journal.CHECKPOINT_ROUNDS = 2

def die():
    os.kill(os.getpid(), signal.SIGKILL)

{trap}
run(RunConfig(**{config}), "reference", progress=False, results={results!r})
"""
IN_A_ROUND = """
transfer_bytes = Federation._transfer_bytes
Federation._transfer_bytes = lambda self: die() if self.round == {round} else transfer_bytes(self)
"""
WHILE_SAVING = """
replace, writes = Path.replace, []
Path.replace = lambda self, target: die() if writes.append(1) or len(writes) == {round} else replace(self, target)
"""


# Five files are renamed in a run of seven rounds that saves every second one: three checkpoints, the JSON, the CSV.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "trap", "moment"),
    [
        ("fedavg", IN_A_ROUND, 1),
        ("scaffold+entropy", IN_A_ROUND, 4),
        ("moon+entropy", IN_A_ROUND, 7),
        ("value", IN_A_ROUND, 3),
        ("fedavg", WHILE_SAVING, 5),
        ("scaffold+entropy", WHILE_SAVING, 2),
        ("moon+entropy", WHILE_SAVING, 4),
        ("value", WHILE_SAVING, 1),
    ],
)
def test_kill_9_and_resume(variant, trap, moment, tmp_path, engine, undisturbed):
    config = RunConfig(**SETTING | VARIANTS[variant])
    script = KILLED.format(trap=trap.format(round=moment), config=asdict(config), results=str(tmp_path / "killed"))
    process = subprocess.run([sys.executable, "-c", script])
    assert process.returncode == -signal.SIGKILL, f"not killed at {moment}"
    assert not RunFiles(config, tmp_path / "killed").csv.exists()
    train(config, tmp_path / "killed", engine)
    assert contents(config, tmp_path / "killed") == undisturbed(config), f"killed at {moment}"


def test_resuming_does_not_start_again(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("fedentropy_core.runs.journal.CHECKPOINT_ROUNDS", 2)
    interrupt_at(5, monkeypatch)
    with pytest.raises(RuntimeError):
        train(SMALL, tmp_path, engine)
    monkeypatch.undo()
    played = count_rounds(monkeypatch)
    train(SMALL, tmp_path, engine)
    assert played == [5, 6, 7]
    assert not RunFiles(SMALL, tmp_path).checkpoint.exists()


def interrupt_at(number, monkeypatch):
    """As an error that nobody foresees would: nothing is saved on its account."""
    begin = Federation.begin_round

    def begin_or_stop(self):
        if self.round + 1 == number:
            raise RuntimeError
        return begin(self)

    monkeypatch.setattr(Federation, "begin_round", begin_or_stop)


def count_rounds(monkeypatch):
    settle, played = Federation.settle_round, []

    def settle_and_count(self, cohort):
        played.append(self.round)
        return settle(self, cohort)

    monkeypatch.setattr(Federation, "settle_round", settle_and_count)
    return played


def half_done(folder, engine, monkeypatch):
    """A run stopped in round 5, with a checkpoint of round 4."""
    with monkeypatch.context() as patch:
        patch.setattr("fedentropy_core.runs.journal.CHECKPOINT_ROUNDS", 2)
        interrupt_at(5, patch)
        with pytest.raises(RuntimeError):
            train(SMALL, folder, engine)
    return RunFiles(SMALL, folder)


@pytest.mark.parametrize(
    "damage", ["truncated", "noise", "empty", "flipped", "other zip", "other shape", "other line", "no history"]
)
def test_a_corrupt_checkpoint_is_kept_aside(damage, tmp_path, engine, monkeypatch, undisturbed):
    files = half_done(tmp_path / "corrupt", engine, monkeypatch)
    good = files.checkpoint.read_bytes()
    about, lines, arrays = files.load_checkpoint()
    if damage == "other shape":
        files.save_checkpoint(about, lines, arrays | {"weights": np.zeros(3, np.float32)})
    elif damage == "other line":
        files.save_checkpoint(about, [lines[0].replace("1,0.", "1,0.9"), *lines[1:]], arrays)
    elif damage == "no history":
        files.save_checkpoint({name: value for name, value in about.items() if name != "made"}, lines, arrays)
    else:
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
        version = good.index(b"PK\x01\x02") + 6  # of the zip format, in the file's directory
        newer = good[:version] + b"\xff" + good[version + 1 :]
        bad = {"truncated": good[:middle], "noise": os.urandom(1000), "empty": b"", "flipped": flipped}
        files.checkpoint.write_bytes((bad | {"other zip": newer})[damage])
    found = files.checkpoint.read_bytes()
    played = count_rounds(monkeypatch)
    with pytest.warns(UserWarning, match=r"seed0.*\.ckpt .*kept aside as .*starting from round 0"):
        train(SMALL, tmp_path / "corrupt", engine)
    assert played == list(range(1, 8))
    assert files.checkpoint.with_suffix(".ckpt.bad").read_bytes() == found
    assert contents(SMALL, tmp_path / "corrupt") == undisturbed(SMALL)


def test_a_record_names_everything_that_worked_on_it(tmp_path, engine, monkeypatch):
    """Begun by one commit, finished by another: the record has both, the last one as its provenance."""
    monkeypatch.setattr("fedentropy_core.machine._commit", lambda: "first")
    half_done(tmp_path, engine, monkeypatch)
    monkeypatch.setattr("fedentropy_core.machine._commit", lambda: "second")
    about = train(SMALL, tmp_path, engine).about
    assert about["provenance"]["commit"] == "second"
    assert [before["commit"] for before in about["begun_on"]] == ["first"]


def test_a_record_says_how_many_cores_it_took(tmp_path):
    for threads in (1, 3):
        engine = make_engine("reference", load_dataset("synthetic"), threads)
        record = train(replace(SMALL, rounds=1), tmp_path / str(threads), engine)
        assert record.about["provenance"]["cores"] == threads


def test_a_checkpoint_of_another_engine_is_refused(tmp_path, engine, monkeypatch):
    files = half_done(tmp_path, engine, monkeypatch)
    other = ReferenceEngine(load_dataset("synthetic"))
    other.name = "other"
    with pytest.raises(RecordError, match="made by the reference engine"):
        train(SMALL, tmp_path, other)
    assert files.checkpoint.exists()


def test_a_finished_run_is_not_trained_again(tmp_path, engine, monkeypatch):
    config = replace(SMALL, rounds=2)
    first = train(config, tmp_path, engine)
    played = count_rounds(monkeypatch)
    assert train(config, tmp_path, engine).rounds.equals(first.rounds)
    assert played == []


def test_a_finished_record_is_not_overwritten(tmp_path, engine):
    config = replace(SMALL, rounds=2)
    train(config, tmp_path, engine)
    before = contents(config, tmp_path)
    with pytest.raises(RecordError, match="exists: delete it"):
        run(config, engine, resume=False, progress=False, results=tmp_path)
    assert contents(config, tmp_path) == before


def test_restart_ignores_the_checkpoint(tmp_path, engine, monkeypatch):
    half_done(tmp_path, engine, monkeypatch)
    played = count_rounds(monkeypatch)
    run(SMALL, engine, resume=False, progress=False, results=tmp_path)
    assert played == list(range(1, 8))


def test_a_deadline_saves_and_stops(tmp_path, engine, undisturbed):
    with pytest.raises(OutOfTime, match="stopped after round 1"):
        run(SMALL, engine, progress=False, results=tmp_path / "late", seconds=0)
    train(SMALL, tmp_path / "late", engine)
    assert contents(SMALL, tmp_path / "late") == undisturbed(SMALL)


def test_an_unknown_data_set_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown data set 'mnist'; choose one of cifar10, cifar100"):
        run(RunConfig(dataset="mnist"), results=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lr", [1e6, 1e12])
@pytest.mark.parametrize("entropy", [False, True])
def test_divergence_is_named(lr, entropy, tmp_path, engine):
    """With 1e12 on one batch of a device weights may stay finite while outputs do not."""
    config = RunConfig(**SETTING | {"lr": lr, "entropy": entropy})
    with pytest.warns(UserWarning, match="diverged in round .* a lower lr"):
        record = train(config, tmp_path, engine)
    assert record.diverged == len(record.rounds) + 1


def test_a_run_that_diverges_leaves_the_rounds_before(tmp_path, engine, undisturbed, monkeypatch):
    settle_round = Federation.settle_round

    def settle_or_diverge(self, cohort):
        if self.round == 4:
            raise Diverged("round 4: a local model is not finite")
        return settle_round(self, cohort)

    files, (whole, _) = RunFiles(SMALL, tmp_path), undisturbed(SMALL)
    monkeypatch.setattr(Federation, "settle_round", settle_or_diverge)
    with pytest.warns(UserWarning, match="round 4"):
        train(SMALL, tmp_path, engine)
    assert files.csv.read_bytes().splitlines() == whole.splitlines()[:4]
    assert not files.checkpoint.exists()
    assert train(SMALL, tmp_path, engine).diverged == 4


@pytest.mark.parametrize("diverged", [3, 5, None, "4"])
def test_a_record_ends_where_its_json_says(diverged, tmp_path):
    files = write_record(tmp_path, [0.1] * 3, rounds=7)
    assert load_record(files.csv).diverged == 4
    files.json.write_text(json.dumps(json.loads(files.json.read_text()) | {"diverged": diverged}))
    with pytest.raises(RecordError, match="not the 7 rounds of its configuration"):
        load_record(files.csv)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_and_uploads(variant, tmp_path, engine):
    """4 bytes a parameter; SCAFFOLD twice; FedEntropy 4 bytes a class and 8 for every chosen device."""
    config = RunConfig(**SETTING | VARIANTS[variant])
    rounds = train(config, tmp_path, engine).rounds
    model = 4 * parameter_count(10) * (2 if config.method.startswith("scaffold") else 1)
    soft_labels = 5 * (4 * 10 + 8) if config.entropy else 0
    judged = config.entropy and not config.pools_only
    uploads = rounds["kept"].map(len) if judged else 5
    assert (rounds["chosen"].map(len) == 5).all()
    assert (rounds["models_up"] == uploads).all()
    assert (rounds["bytes_up"] == uploads * model + soft_labels).all()
    assert (rounds["bytes_down"] == 5 * model).all()
    assert all(set(kept) <= set(chosen) for kept, chosen in zip(rounds["kept"], rounds["chosen"], strict=True))
    if config.entropy:
        assert (rounds["entropy_after"] >= rounds["entropy_before"]).all()
        assert (rounds["kept"].map(len) < 5).any()
    else:
        assert (rounds["entropy_after"] == rounds["entropy_before"]).all()


def test_methods_of_a_seed_share_partition_and_start(engine):
    dataset = load_dataset("synthetic")
    one = Federation(SMALL, dataset, engine)
    other = Federation(RunConfig(**SETTING, method="moon", entropy=True), dataset, engine)
    assert all(np.array_equal(a, b) for a, b in zip(one.parts, other.parts, strict=True))
    assert np.array_equal(one.weights, other.weights)
    assert one.play_round().chosen == Federation(replace(SMALL, lr=0.02), dataset, engine).play_round().chosen


def test_mirroring_is_half_of_the_visits_and_can_be_off(engine):
    dataset = load_dataset("synthetic")
    on, off = (Federation(replace(SMALL, augment=augment), dataset, engine) for augment in ("mirror", "none"))
    flags = np.concatenate([on._device_work(device).mirror.ravel() for device in range(50)])
    assert abs(flags.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(flags))
    assert not off._device_work(0).mirror.any()
    order = on._device_work(0).order
    assert all(sorted(epoch) == list(range(100)) for epoch in order.tolist())


def test_training_learns(tmp_path, engine):
    """On even data a few passes over the synthetic set bring it well above chance."""
    config = replace(SMALL, case="iid", devices=5, fraction=0.6, rounds=8, lr=0.05)
    assert train(config, tmp_path, engine).best_accuracy > 0.3


def right_by_hand(model, dataset):
    """Right test images by class: plain PyTorch."""
    x = (torch.tensor(dataset.test_images) / 255 - 0.5) / 0.5
    labels = torch.tensor(dataset.test_labels)
    right = model(x).argmax(1) == labels
    return tuple(int(right[labels == label].sum()) for label in range(10))


@pytest.mark.parametrize("name", ["reference", "native", "batched"])
def test_every_round_says_how_many_test_images_of_each_class_are_right(name):
    if name == "native" and not available():
        pytest.skip("no C++ compiler")
    dataset = load_dataset("synthetic")
    engine = make_engine(name, dataset, device="cpu")
    federation = Federation(RunConfig(**SETTING | {"case": "iid", "lr": 0.05}, entropy=True), dataset, engine)
    for _ in range(3):
        row = federation.play_round()
        assert row.correct == right_by_hand(build(federation.weights, 10), dataset)
        assert row.accuracy == sum(row.correct) / 1000
    assert sum(right > 0 for right in row.correct) > 1


# ------------------------------------------------------------------------------------------------------ final weights


def npz(config, folder):
    return RunFiles(config, folder).weights


@pytest.fixture(scope="module")
def kept(engine, tmp_path_factory):
    """A finished run that kept its weights."""
    return run(SMALL, engine, progress=False, results=tmp_path_factory.mktemp("kept"), keep_weights=True)


def test_kept_weights_are_the_model_of_the_last_round(kept):
    last = kept.rounds.iloc[-1]
    assert kept.weights.dtype == np.float32
    assert hashlib.sha256(kept.weights.astype("<f4").tobytes()).hexdigest()[:16] == last["weights"]
    right = right_by_hand(kept.model(), load_dataset("synthetic"))
    assert right == last["correct"]
    assert sum(right) / 1000 == last["accuracy"]


def test_weights_stand_beside_the_record_and_change_nothing_in_it(kept, undisturbed, tmp_path, engine):
    assert kept.path.with_suffix(".npz").exists()
    assert kept.path.read_bytes() == undisturbed(SMALL)[0]
    train(SMALL, tmp_path, engine)
    assert not npz(SMALL, tmp_path).exists()
    with pytest.raises(RecordError, match="finished without keeping weights"):
        run(SMALL, engine, progress=False, results=tmp_path, keep_weights=True)


def test_an_interrupted_run_keeps_the_same_weights(kept, tmp_path, engine, monkeypatch):
    """Asked for at its beginning or at its end."""
    half_done(tmp_path, engine, monkeypatch)
    assert not npz(SMALL, tmp_path).exists()
    record = run(SMALL, engine, progress=False, results=tmp_path, keep_weights=True)
    assert record.weights.tobytes() == kept.weights.tobytes()
    again = run(SMALL, engine, progress=False, results=tmp_path, keep_weights=True)
    assert again.weights.tobytes() == kept.weights.tobytes()


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_run_that_diverges_keeps_the_weights_of_the_round_before(tmp_path, engine, monkeypatch):
    settle_round = Federation.settle_round

    def settle_or_diverge(self, cohort):
        if self.round == diverges_in:
            raise Diverged(f"round {self.round}: a local model is not finite")
        return settle_round(self, cohort)

    monkeypatch.setattr(Federation, "settle_round", settle_or_diverge)
    for diverges_in in (1, 3):
        folder = tmp_path / str(diverges_in)
        for _ in ("trained", "finished before"):
            record = run(SMALL, engine, progress=False, results=folder, keep_weights=True)
        assert npz(SMALL, folder).exists() == (diverges_in > 1)
    assert right_by_hand(record.model(), load_dataset("synthetic")) == record.rounds["correct"].iloc[1]


# ---------------------------------------------------------------------------------------------------- the partition


@pytest.mark.parametrize("case", [1, 2, 3, "shards", "iid"])
def test_one_partition_for_all_seeds_or_one_for_each(case, engine):
    """The one is that which seed 0 has of its own."""
    dataset = load_dataset("synthetic")
    setting = {"dataset": "synthetic", "case": case, "devices": 20}

    def parts(**fields):
        return [part.tolist() for part in Federation(RunConfig(**setting | fields), dataset, engine).parts]

    shared = [parts(seed=seed) for seed in range(3)]
    own = [parts(seed=seed, partition_seed=None) for seed in range(3)]
    assert shared == [own[0]] * 3
    assert own[0] != own[1] != own[2] != own[0]
    assert parts(seed=1, partition_seed=2) == own[2]
    assert own == [[part.tolist() for part in partition(dataset.train_labels, case, 20, s)] for s in range(3)]


def test_seeds_with_one_partition_differ_in_all_else(engine):
    one, other = (Federation(replace(SMALL, seed=seed), load_dataset("synthetic"), engine) for seed in (0, 1))
    assert not np.array_equal(one.weights, other.weights)
    assert one.begin_round().devices[0].order.tolist() != other.begin_round().devices[0].order.tolist()
    assert one.chosen != other.chosen
    assert one._device_work(7).order.tolist() != other._device_work(7).order.tolist()
