"""Records: what is measured from them, and that an edit, a full disk or a bad folder never passes unseen."""

import errno
import json
import os

import numpy as np
import pandas as pd
import pytest
from conftest import TEST_IMAGES, forge, write_record

from fedentropy_core import RunConfig, load_records
from fedentropy_core.files import atomic_write
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RecordError, load_record
from fedentropy_core.work import weights_hash


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix in (".tmp", ".lock")]


def test_a_record_reads_back_as_it_was_written(tmp_path):
    accuracies = [0.1, 1 / 3, 0.7]
    record = load_record(write_record(tmp_path, accuracies).csv)
    assert record.rounds["accuracy"].tolist() == accuracies
    assert record.rounds["round"].tolist() == [1, 2, 3]
    assert record.rounds["chosen"].tolist() == [(3, 1)] * 3
    assert record.rounds["kept"].tolist() == [(1,)] * 3
    assert record.rounds["bytes_up"].dtype == np.int64
    assert record.config == RunConfig(dataset="synthetic", rounds=3)


def test_measures_of_a_run(tmp_path):
    accuracies = [0.5] * 50 + [0.9] + [0.3] * 99 + [0.4] * 10
    record = load_record(write_record(tmp_path, accuracies).csv)
    assert record.final_accuracy == pytest.approx(0.4)
    assert record.last_hundred_accuracy == pytest.approx(0.9 * 0.3 + 0.1 * 0.4)
    assert record.best_accuracy == 0.9


def test_rounds_to_target_counts_from_one(tmp_path):
    record = load_record(write_record(tmp_path, [0.1, 0.3, 0.2, 0.4]).csv)
    assert record.rounds_to(0.05) == 1
    assert record.rounds_to(0.3) == 2
    assert record.rounds_to(0.35) == 4
    assert record.rounds_to(0.41) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2,0.3,", "2,0.4,", "round 2 does not match its digest"),
        ("3 1", "3 2", "round 1 does not match its digest"),
        ("round,accuracy", "round,precision", "its first line does not have the columns of a record"),
        ("weights,correct,digest", "weights,digest", "round 1 does not match"),
        ("\n3,0.2,", "\n\n3,0.2,", "not the 3 rounds"),
    ],
)
def test_an_edited_csv_is_caught(tmp_path, old, new, message):
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    files.csv.write_text(files.csv.read_text().replace(old, new, 1))
    with pytest.raises(RecordError, match=message) as caught:
        load_record(files.csv)
    assert str(files.csv) in str(caught.value)


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ("90001 0", "right test images of round 2 do not add up to its accuracy"),
        ("89999 1", "right test images of round 2 do not add up"),  # there are none of the second class
        ("90001 -1", "right test images of round 2 do not add up"),
        ("9" * 30 + " 0", "right test images of round 2 do not add up"),
        ("90000", "right test images of round 2 are of 1 classes, those in its JSON of 2"),
        ("90000 0 0", "right test images of round 2 are of 3 classes"),
        ("90000.0 0", "correct of round 2 is no list of whole numbers"),
        ("", "correct of round 2 is no list of whole numbers"),
        ("90000 0,7", "round 2 does not have the columns of the first line"),
    ],
)
def test_right_images_that_cannot_be_are_caught_in_a_forged_record(tmp_path, forged, message):
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    forge(files, files.csv.read_text().replace(",90000 0,", f",{forged},"))
    with pytest.raises(RecordError, match=message) as caught:
        load_record(files.csv)
    assert str(files.csv) in str(caught.value)


@pytest.mark.parametrize(
    ("test_images", "message"),
    [
        (None, "does not say how many test images of each class there are"),
        ([], "does not say how many"),
        ([0, 0], "does not say how many"),
        ([300_001, -1], "does not say how many"),
        ([300_000.0, 0], "does not say how many"),
        ("300000", "does not say how many"),
        ([300_001, 0], "right test images of round 1 do not add up"),
        ([200_000, 0, 100_000], "right test images of round 1 are of 2 classes, those in its JSON of 3"),
    ],
)
def test_a_forged_number_of_test_images_is_caught(tmp_path, test_images, message):
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    forge(files, files.csv.read_text(), test_images=test_images)
    with pytest.raises(RecordError, match=message) as caught:
        load_record(files.csv)
    assert str(files.csv) in str(caught.value)


def test_a_forger_who_changes_nothing_is_not_caught(tmp_path):
    """So that it is the change that the tests above see."""
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    before = files.csv.read_text()
    forge(files, before, test_images=list(TEST_IMAGES))
    assert files.csv.read_text() == before
    assert load_record(files.csv).rounds["correct"].tolist() == [(30_000, 0), (90_000, 0), (60_000, 0)]


def test_a_dropped_last_round_is_caught(tmp_path):
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    files.csv.write_text("\n".join(files.csv.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(RecordError, match="not the 3 rounds"):
        load_record(files.csv)


def test_an_edited_json_is_caught(tmp_path):
    files = write_record(tmp_path, [0.1, 0.3, 0.2])
    about = json.loads(files.json.read_text())
    about["config"]["lr"] = 0.02
    files.json.write_text(json.dumps(about))
    with pytest.raises(RecordError, match="key is not the key of its configuration"):
        load_record(files.csv)
    about["key"] = RunConfig(**about["config"]).key
    files.json.write_text(json.dumps(about))
    with pytest.raises(RecordError, match="round 1 does not match"):
        load_record(files.csv)
    for unreadable in ("{", "[]", json.dumps(about | {"config": None})):
        files.json.write_text(unreadable)
        with pytest.raises(RecordError, match="cannot be read"):
            load_record(files.csv)


def test_another_records_json_is_caught(tmp_path):
    files, other = write_record(tmp_path / "a", [0.1, 0.3]), write_record(tmp_path / "b", [0.1, 0.2])
    files.json.write_bytes(other.json.read_bytes())
    with pytest.raises(RecordError, match="its last digest is not the one in its JSON"):
        load_record(files.csv)
    files.json.unlink()
    with pytest.raises(RecordError, match="is missing"):
        load_record(files.csv)


def test_records_of_a_profile(tmp_path):
    smoke = {"devices": 20, "fraction": 0.25, "epochs": 1}
    for seed in (1, 0):
        write_record(tmp_path, [0.1] * 5, seed=seed, **smoke)
    write_record(tmp_path, [0.1] * 6, **smoke)
    assert [record.config.seed for record in load_records("smoke", tmp_path)] == [0, 1]
    assert len(load_records("custom", tmp_path)) == 1
    assert load_records("paper", tmp_path) == []


def test_every_configuration_has_its_own_files(tmp_path):
    configs = [
        RunConfig(seed=1),
        RunConfig(),
        RunConfig(case="iid"),
        RunConfig(entropy=True),
        RunConfig(entropy=True, selection="uniform"),
        RunConfig(entropy=True, selection="value"),
        RunConfig(entropy=True, pools_only=True),
        RunConfig(lr=0.1),
        RunConfig(lr=0.2),
        RunConfig(rounds=100),
    ]
    assert len({RunFiles(config, tmp_path).csv for config in configs}) == len(configs)
    path = RunFiles(RunConfig(entropy=True, seed=2), tmp_path).csv
    assert path == tmp_path / "paper/runs/cifar10/case1/fedavg+entropy/seed2.csv"


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    files = RunFiles(RunConfig(), tmp_path)
    files.save_checkpoint({"engine": "reference"}, ["line"], {"weights": np.arange(3.0)})

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left on device") as caught:
        files.save_checkpoint({"engine": "reference"}, ["line", "more"], {"weights": np.arange(4.0)})
    assert str(files.checkpoint) in str(caught.value)
    about, lines, arrays = files.load_checkpoint()
    assert (about, lines) == ({"engine": "reference"}, ["line"])
    assert arrays["weights"].tolist() == [0, 1, 2]
    assert leftovers(tmp_path) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_half():
        with atomic_write(path) as file:
            file.write(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == []


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "results").write_text("a file where the folder should be")
    files = RunFiles(RunConfig(), tmp_path / "results")
    with pytest.raises(RecordError, match="cannot write to") as caught, files.locked():
        pass
    assert str(files.folder) in str(caught.value)


def test_one_process_at_a_time(tmp_path):
    first, second = RunFiles(RunConfig(), tmp_path), RunFiles(RunConfig(), tmp_path)
    with first.locked(), pytest.raises(RecordError, match="another process is working on"), second.locked():
        pass
    with second.locked():
        pass
    assert leftovers(tmp_path) == []


def test_weights_hash_sees_every_bit():
    weights = np.zeros(10, dtype=np.float32)
    other = weights.copy()
    other[3] = -0.0
    assert weights_hash(weights) != weights_hash(other)
    assert weights_hash(weights) == weights_hash(weights.copy())


@pytest.fixture
def kept_weights(tmp_path):
    """A record with weights, and the weights."""
    weights = np.random.default_rng(0).normal(size=100).astype(np.float32)
    files = write_record(tmp_path, [0.1, 0.3], weights=weights_hash(weights))
    np.savez(files.weights, weights=weights)
    return files, weights


def test_weights_are_read_back(kept_weights):
    files, weights = kept_weights
    assert load_record(files.csv).weights.tobytes() == weights.tobytes()


DAMAGES = {
    "one bit": lambda weights: {"weights": (weights.view(np.uint32) ^ (np.arange(100) == 7)).view(np.float32)},
    "shorter": lambda weights: {"weights": weights[:-1]},
    "another shape": lambda weights: {"weights": weights.reshape(10, 10)},
    "doubles": lambda weights: {"weights": weights.astype(np.float64)},
    "objects": lambda weights: {"weights": weights.astype(object)},
    "another name": lambda weights: {"model": weights},
}


@pytest.mark.parametrize("damage", [*DAMAGES, "truncated", "empty", "no zip", "missing"])
def test_damaged_weights_are_refused_by_name(damage, kept_weights):
    files, weights = kept_weights
    if damage in DAMAGES:
        np.savez(files.weights, **DAMAGES[damage](weights))
    elif damage == "missing":
        files.weights.unlink()
    else:
        whole = files.weights.read_bytes()
        files.weights.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "no zip": b"weights"}[damage])
    record = load_record(files.csv)
    reason = "is not there: weights are kept by" if damage == "missing" else "cannot be read|are not those of"
    for read in (lambda: record.weights, record.model):
        with pytest.raises(RecordError, match=reason) as caught:
            read()
        assert str(files.weights) in str(caught.value)


def test_floats_survive_the_text(tmp_path):
    values = (np.random.default_rng(0).integers(0, 300_001, 50) / 300_000).tolist()
    record = load_record(write_record(tmp_path, values).csv)
    assert pd.Series(values).equals(record.rounds["accuracy"])


# ------------------------------------------------------------------------------------------------ to look at


def test_a_record_is_a_line_and_a_small_page(tmp_path):
    record = load_record(write_record(tmp_path, [0.2, 0.4], entropy=True, beta=0.3, seed=2).csv)
    assert repr(record) == "RunRecord(synthetic, case 1, fedavg+entropy, seed 2: 2 rounds, last ten 30.00%)"
    page = record._repr_html_()
    assert all(text in page for text in (">beta</td>", ">0.3</td>", "30.00 %", "40.00 %", "2 models, 0 MB", "<svg"))
    assert ">lr</td>" not in page


def test_a_record_that_diverged_says_so(tmp_path):
    record = load_record(write_record(tmp_path, [0.2, 0.4], rounds=9).csv)
    assert repr(record).endswith("2 rounds, last ten 30.00%, diverged in round 3)")
    empty = load_record(write_record(tmp_path, [], rounds=8).csv)
    assert repr(empty).endswith("0 rounds, diverged in round 1)")
    assert "<svg" not in empty._repr_html_()
