"""What several test files share: a tiny data set that looks like the real ones, and work for an engine."""

import json
import os

import numpy as np
import pytest
import torch
from hypothesis import settings

from fedentropy_core import RunConfig
from fedentropy_core.runs.about import about_run
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import first_digest, next_digest
from fedentropy_core.work import Dataset, DeviceWork, Round

# Examples are drawn from a fixed seed: a test that is green stays green until the code changes.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

if "PYTEST_XDIST_WORKER" in os.environ:  # workers side by side would wait for each other's threads
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def random_dataset(classes: int = 10, train: int = 300, test: int = 60, seed: int = 0) -> Dataset:
    """Random pixels and labels: enough to hold engines to each other."""
    rng = np.random.default_rng(seed)
    return Dataset(
        name="random",
        train_images=rng.integers(0, 256, (train, 3, 32, 32), dtype=np.uint8),
        train_labels=rng.integers(0, classes, train),
        test_images=rng.integers(0, 256, (test, 3, 32, 32), dtype=np.uint8),
        test_labels=rng.integers(0, classes, test),
        classes=tuple(f"class {label}" for label in range(classes)),
        fingerprint="random",
        mean=(0.5, 0.4, 0.3),
        std=(0.5, 0.25, 0.2),
    )


def random_device(images: np.ndarray, epochs: int, seed: int = 0, **terms) -> DeviceWork:
    """A device's work on these images, in a random order and with random mirroring."""
    rng = np.random.default_rng(seed)
    order = np.stack([rng.permutation(len(images)) for _ in range(epochs)])
    return DeviceWork(images, order, rng.random(order.shape) < 0.5, **terms)


MADE = {"commit": "unknown", "cores": 2, "cpu": "a CPU", "platform": "", "python": "3", "versions": {"numpy": "2"}}
TEST_IMAGES = (300_000, 0)  # an accuracy is that of the first class


def write_record(folder, accuracies, uploads=1, model=100, weights="0" * 16, engine="reference", study=None, **fields):
    """A record with these accuracies, `uploads` models of `model` bytes a round; everything else in it is made up.

    With fewer accuracies than rounds it is that of a run that diverged.
    """
    config = RunConfig(**{"dataset": "synthetic", "rounds": len(accuracies)} | fields)
    files = RunFiles(config, folder, study)
    about = about_run(config, files.fingerprint or "data", engine, TEST_IMAGES)
    digest, lines = first_digest(about), []
    for number, accuracy in enumerate(accuracies, start=1):
        correct = (round(accuracy * sum(TEST_IMAGES)), 0)
        shown = correct[0] / sum(TEST_IMAGES)
        sent = (uploads, model * uploads, 2 * model)
        row = Round(number, shown, 2.0, (3, 1), (1,), 0.1, 0.2, *sent, weights, correct)
        digest = next_digest(digest, row.line())
        lines.append(f"{row.line()},{digest}")
    made = {"final_digest": digest, "provenance": MADE | {"wall_seconds": 1.0}}
    about |= made
    if len(accuracies) < config.rounds:
        about["diverged"] = len(accuracies) + 1
    files.write_record(lines, about)
    return files


def forge(files, text, **about):
    """Makes `text` the CSV, changes the JSON, and computes all digests again, as a forger would."""
    header, *lines = text.splitlines()
    about = json.loads(files.json.read_text()) | about
    digest, forged = first_digest(about, header.split(",")), [header]
    for line in lines:
        body = line.rpartition(",")[0]
        digest = next_digest(digest, body)
        forged.append(f"{body},{digest}")
    files.csv.write_text("\n".join(forged) + "\n")
    files.json.write_text(json.dumps(about | {"final_digest": digest}))


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return random_dataset()
