"""What cannot be computed, or would be mixed up, is refused by name, before anything is written."""

import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import forge, random_dataset, random_device, write_record
from torch import nn
from torch.nn import functional as F

import fedentropy_core.engines as engines
from fedentropy_core import RunConfig, run
from fedentropy_core.cli import main
from fedentropy_core.engines import UnsuitableModel, build, make_engine, native
from fedentropy_core.engines.batched import BatchedEngine
from fedentropy_core.engines.native import NativeEngine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.federation import Federation
from fedentropy_core.model import CNN, initial_weights
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RecordError
from fedentropy_core.runs.train import OutOfTime
from fedentropy_core.work import LocalRule, Work

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
ENGINES = [pytest.param("native", marks=needs_compiler), "batched"]
SMALL = {"dataset": "synthetic", "case": "iid", "devices": 10, "fraction": 0.2, "epochs": 1, "rounds": 2}


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


# ------------------------------------------------------------------------------------------------ numbers

WHOLE = ("rounds", "devices", "epochs", "batch_size", "seed", "partition_seed")
REAL = ("lr", "momentum", "prox_mu", "moon_mu", "moon_tau", "epsilon", "beta", "fraction", "global_step")


@pytest.mark.parametrize("value", [2**63, 2**64 + 50])
@pytest.mark.parametrize("name", WHOLE)
def test_what_64_bits_cannot_hold_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be at most 9223372036854775807, .* got {value}$"):
        RunConfig(**{name: value})
    assert getattr(RunConfig(**{name: 2**63 - 1}), name) == 2**63 - 1


@pytest.mark.parametrize("value", [10**400, -(10**400)])
@pytest.mark.parametrize("name", REAL)
def test_what_no_float_can_hold_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        RunConfig(**{name: value})


@pytest.mark.parametrize("engine", ["native", "batched", "reference"])
def test_a_batch_larger_than_a_device_is_the_whole_device(engine, dataset):
    """However large it is."""
    if engine == "native" and build.compiler() is None:
        pytest.skip("no C++ compiler")
    worker = make_engine(engine, dataset, device="cpu")
    weights, device = initial_weights(10, np.random.default_rng(0)), random_device(np.arange(40), epochs=2)
    found = [worker.train(Work(weights, LocalRule(0.01, 0.5, size), (device,))) for size in (40, 10**6, 2**63 - 1)]
    for other in found[1:]:
        np.testing.assert_allclose(other.weights, found[0].weights, rtol=0, atol=1e-6)
        assert other.steps.tolist() == [2]


@needs_compiler
def test_a_batch_beyond_the_native_engine_is_refused_by_name(dataset, monkeypatch):
    monkeypatch.setattr(native, "LARGEST_BATCH", 20)
    engine, weights = NativeEngine(dataset), initial_weights(10, np.random.default_rng(0))

    def train(images, batch_size):
        device = random_device(np.arange(images), epochs=1)
        return engine.train(Work(weights, LocalRule(0.01, 0.5, batch_size), (device,)))

    with pytest.raises(ValueError, match="batch_size must be at most 20 for the native engine; got 1,000"):
        train(21, 1000)
    assert train(20, 1000).steps.tolist() == [1]
    assert train(21, 20).steps.tolist() == [2]


@pytest.mark.parametrize("augment", ["none", "mirror"])
def test_a_round_that_memory_cannot_hold_is_refused_before_it_takes_any(augment, dataset):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"^epochs must be less: .* 1,000,000,000 epochs over the 60 images"):
            Federation(RunConfig(**SMALL | {"epochs": 10**9, "augment": augment}), dataset, engine=None)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("augment", ["none", "mirror"])
def test_memory_holds_what_it_is_said_to_hold(augment, dataset, monkeypatch):
    """The limit is what a round's visits really take: an order and a mirror flag for every image and epoch."""
    config = RunConfig(**SMALL | {"epochs": 7, "augment": augment})
    devices = Federation(config, dataset, engine=None).begin_round().devices
    taken = sum(device.order.nbytes + device.mirror.nbytes for device in devices)
    monkeypatch.setattr("fedentropy_core.federation.physical_memory", lambda: taken)
    Federation(config, dataset, engine=None)
    with pytest.raises(ValueError, match="epochs must be less"):
        Federation(replace(config, epochs=8), dataset, engine=None)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--batch-size", 2**63, "error: batch_size must be at most"),
        ("--batch-size", 2**64 + 50, "error: batch_size must be at most"),
        ("--epochs", 10**9, "error: epochs must be less"),
        ("--lr", "1e400", "error: lr must be positive; got inf"),
        ("--devices", 10**12, "error: 5000 images cannot be spread over 1000000000000 devices"),
    ],
)
def test_the_command_line_refuses_with_a_message(flag, value, message, tmp_path):
    with pytest.raises(SystemExit) as refused:
        main(["run", "--dataset", "synthetic", "--engine", "reference", "--results", str(tmp_path), flag, str(value)])
    assert refused.value.code.startswith(message)
    assert "\n" not in refused.value.code
    assert files_in(tmp_path) == []


# ------------------------------------------------------------------------------------------------ another model


class Wider(CNN):
    def __init__(self, classes):
        super().__init__(classes)
        self.fc1, self.fc2 = nn.Linear(400, 130), nn.Linear(130, 84)


class Deeper(CNN):
    def __init__(self, classes):
        super().__init__(classes)
        self.extra = nn.Linear(84, 84)


class Reordered(CNN):
    """The same layers with the same names, in another place of the flat vector."""

    def __init__(self, classes):
        super().__init__(classes)
        conv1 = self._modules.pop("conv1")
        self.conv1 = conv1


class Linear(CNN):
    """No ReLU after fc1: the same layers, another function."""

    def features(self, images):
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.relu(self.fc2(self.fc1(x.flatten(1))))


class Averaging(CNN):
    def features(self, images):
        x = F.relu(F.avg_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.relu(self.fc2(F.relu(self.fc1(x.flatten(1)))))


MODELS = {
    Wider: r"in this model fc1.weight is \(130, 400\)",
    Deeper: r"in this model extra.weight is \(84, 84\)",
    Reordered: "in this model its layers are in another order",
    Linear: "this model gives other outputs",
    Averaging: "this model gives other outputs",
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_an_edited_model_is_refused_by_name(model, name, dataset, monkeypatch):
    monkeypatch.setattr("fedentropy_core.model.CNN", model)
    with pytest.raises(UnsuitableModel, match=f"the {name} engine computes the paper's CNN only, and {MODELS[model]}"):
        make_engine(name, dataset, device="cpu")


@pytest.mark.parametrize("engine", [pytest.param(NativeEngine, marks=needs_compiler), BatchedEngine])
@pytest.mark.parametrize("model", [Wider, Deeper, Reordered])
def test_other_layers_are_refused_by_the_engine_itself(model, engine, dataset, monkeypatch):
    monkeypatch.setattr("fedentropy_core.model.CNN", model)
    with pytest.raises(UnsuitableModel, match=MODELS[model]):
        engine(dataset, **{"device": "cpu"} if engine is BatchedEngine else {})


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_auto_takes_the_reference_engine_for_an_edited_model(model, name, dataset, monkeypatch, capsys):
    monkeypatch.setattr(engines, "fastest", lambda *_: name)
    monkeypatch.setattr("fedentropy_core.model.CNN", model)
    engine = make_engine("auto", dataset, device="cpu")
    assert isinstance(engine, ReferenceEngine)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.endswith(": the reference engine is taken\n")
    row = Federation(RunConfig(**SMALL), dataset, engine).play_round()
    assert np.isfinite(row.loss)
    plain = model(10)
    assert row.bytes_down == 2 * 4 * sum(parameter.numel() for parameter in plain.parameters())


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("classes", [1, 3, 10, 20])
def test_the_papers_model_is_not_refused(classes, name, monkeypatch, capsys):
    monkeypatch.setattr(engines, "fastest", lambda *_: name)
    assert make_engine("auto", random_dataset(classes), device="cpu").name == name
    assert capsys.readouterr().err == ""


def test_a_reordered_model_still_computes_the_same():
    """Or the order of its layers would not be what its refusal is about."""
    model, images = CNN(10), torch.rand(2, 3, 32, 32)
    other = Reordered(10)
    other.load_state_dict(model.state_dict())
    assert [name for name, _ in other.named_parameters()] != [name for name, _ in model.named_parameters()]
    assert torch.equal(other(images), model(images))


# ------------------------------------------------------------------------------------------------ other images

CONFIG = RunConfig(**SMALL)
MINE = random_dataset(seed=1)


@pytest.fixture
def named(dataset, monkeypatch):
    """Makes the small data set the one that "synthetic" stands for."""
    monkeypatch.setattr("fedentropy_core.runs.training.load_dataset", lambda name: dataset)
    monkeypatch.setattr("fedentropy_core.data.catalogue.SYNTHETIC_FINGERPRINT", dataset.fingerprint)
    return dataset


@pytest.fixture
def mine(named):
    return replace(MINE, fingerprint="mine")


def trained(folder, images=None, **options):
    """The global models' hashes, round by round."""
    return (
        run(CONFIG, "reference", progress=False, results=folder, dataset=images, **options).rounds["weights"].tolist()
    )


def direct(images):
    federation = Federation(CONFIG, images, ReferenceEngine(images))
    return [federation.play_round().weights for _ in range(CONFIG.rounds)]


@pytest.mark.parametrize("first", ["named", "mine"])
def test_runs_on_other_images_are_other_runs(first, tmp_path, named, mine):
    """Whichever comes first; and each is found again."""
    order = [None, mine] if first == "named" else [mine, None]
    expected = {None: direct(named), mine: direct(mine)}
    for _ in range(2):
        for images in order:
            assert trained(tmp_path, images) == expected[images]
    assert len(list(tmp_path.rglob("*.csv"))) == 2
    assert expected[None] != expected[mine]


def test_the_same_images_handed_over_are_the_same_run(tmp_path, named):
    assert trained(tmp_path) == trained(tmp_path, replace(named, name="a copy"))
    assert len(list(tmp_path.rglob("*.csv"))) == 1


def test_checkpoints_on_other_images_are_apart(tmp_path, named, mine):
    for images in (None, mine):
        with pytest.raises(OutOfTime):
            trained(tmp_path, images, seconds=0)
    assert len(list(tmp_path.rglob("*.ckpt"))) == 2
    assert trained(tmp_path, mine) == direct(mine)
    assert trained(tmp_path) == direct(named)
    assert sorted(path.suffix for path in files_in(tmp_path)) == [".csv", ".csv", ".json", ".json"]


def test_a_record_of_other_images_in_a_runs_place_is_refused_by_name(tmp_path, named):
    files = write_record(tmp_path, [0.1, 0.2], **SMALL)
    assert files.csv == RunFiles(CONFIG, tmp_path).csv
    forge(files, files.csv.read_text(), data_fingerprint="mine")
    before = files.csv.read_bytes()
    with pytest.raises(RecordError, match=rf"^record {files.csv} stands in another's place: .*; move it"):
        trained(tmp_path)
    assert files.csv.read_bytes() == before


def test_a_checkpoint_of_other_images_in_a_runs_place_is_kept_aside(tmp_path, named, mine):
    with pytest.raises(OutOfTime):
        trained(tmp_path, mine, seconds=0)
    theirs, ours = RunFiles(CONFIG, tmp_path, fingerprint="mine"), RunFiles(CONFIG, tmp_path)
    ours.folder.mkdir(parents=True, exist_ok=True)
    theirs.checkpoint.rename(ours.checkpoint)
    with pytest.warns(UserWarning, match="belongs to another configuration or other data: kept aside"):
        assert trained(tmp_path) == direct(named)


def test_a_refusal_ends_the_command_with_a_line_and_code_1(tmp_path):
    files = write_record(tmp_path, [0.1, 0.2], **SMALL)
    forge(files, files.csv.read_text(), data_fingerprint="mine")
    before = files_in(tmp_path)
    flags = ["--case", "iid", "--devices", "10", "--fraction", "0.2", "--epochs", "1", "--rounds", "2"]
    command = ["run", "--dataset", "synthetic", *flags, "--results", str(tmp_path)]
    process = subprocess.run([sys.executable, "-m", "fedentropy_core", *command], capture_output=True, text=True)
    assert process.returncode == 1
    assert re.fullmatch(r"error: record .*seed0-\w+\.csv stands in another's place: .*\n", process.stderr)
    assert files_in(tmp_path) == before
