"""The Flower rounds against `run`, their faults, and the three ways to run them.

Most tests play the rounds on a grid in this process, which can spoil answers at will; the last two use Ray and real
SuperLink and SuperNode processes.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an optional extra: pip install -e .[flower]")

import tomllib  # not in Python 3.10, but neither is flwr 1.41
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedentropy_core import RunConfig, load_dataset, partition, run
from fedentropy_core.engines import build
from fedentropy_core.flower import exchange as exchange_module
from fedentropy_core.flower import session as session_module
from fedentropy_core.flower.client import FLAT, local_training
from fedentropy_core.flower.device import LocalResult, client_app, previous_arrays, soft_label
from fedentropy_core.flower.protocol import ARRAYS, CONTROL, METRICS, TRAIN, UPLOAD, WHO, pack
from fedentropy_core.flower.server import serve
from fedentropy_core.flower.server_method import ScaffoldServer
from fedentropy_core.flower.session import Session, TooFewDevices, _as_before
from fedentropy_core.flower.settings import Settings, read_settings
from fedentropy_core.flower.strategy import FedEntropyStrategy
from fedentropy_core.selection import make_selection

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "native" if build.available() else "reference"
CONFIG = RunConfig(
    dataset="synthetic", case=1, entropy=True, devices=10, fraction=0.5, rounds=4, epochs=1, batch_size=100
)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """What Flower's runtime sets before an app starts; and no waiting for answers that are there or never come."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(exchange_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(session_module, "WAIT_SECONDS", 0.01)


class LocalGrid:
    """A grid in this process. `spoil(device, message, reply)` may change a reply; None means that none is sent."""

    def __init__(self, app, devices: int, spoil=lambda device, message, reply: reply, numbered: bool = True):
        self.app, self.spoil, self.numbered = app, spoil, numbered
        self.nodes: dict[int, Context] = {}
        self.queue: dict[str, Message] = {}
        self.sent: list[tuple[str, int, int]] = []  # kind, round, device
        self.replies: list[Message] = []
        for device in range(devices):
            self.join(1000 + device, device)

    def join(self, node: int, device: int) -> None:
        node_config = {"partition-id": device} if self.numbered else {}
        self.nodes[node] = Context(1, node, node_config, RecordDict(), {})

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages) -> list[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message {len(self.sent)}"
            device = self.nodes[message.metadata.dst_node_id].node_config.get("partition-id", -1)
            self.sent.append((message.metadata.message_type, int(message.metadata.group_id), device))
            self.queue[message.metadata.message_id] = message
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids) -> list[Message]:
        answered = [self._answer(self.queue.pop(name)) for name in message_ids if name in self.queue]
        replies = [reply for reply in answered if reply is not None]
        self.replies += replies
        return replies

    def _answer(self, message: Message) -> Message | None:
        context = self.nodes.get(message.metadata.dst_node_id)
        if context is None:
            return None
        try:
            reply = self.app(message, context)
            return self.spoil(context.node_config.get("partition-id", -1), message, reply)
        except Exception as error:
            return Message(Error(2, str(error)), reply_to=message)


def play(config: RunConfig, engine: str = ENGINE, **grid):
    """(rows, reports, grid) of a configuration on a LocalGrid."""
    settings = Settings(config, engine, timeout=1.0)
    grid = LocalGrid(client_app(local_training(lambda context: settings)), config.devices, **grid)
    rows, reports = [], []
    serve(grid, settings, lambda row, report: (rows.append(row), reports.append(report)))
    return rows, reports, grid


def recorded(config: RunConfig, folder: Path, engine: str = ENGINE) -> list:
    return list(run(config, engine, progress=False, results=folder).rounds.itertuples())


def assert_same_rounds(rows, record) -> None:
    """Everything but the bytes, which are those of the messages' content."""
    assert len(rows) == len(record)
    for row, expected in zip(rows, record, strict=True):
        for name in (
            "round",
            "chosen",
            "kept",
            "weights",
            "accuracy",
            "loss",
            "entropy_before",
            "entropy_after",
            "correct",
        ):
            assert getattr(row, name) == getattr(expected, name), name
        assert row.models_up == expected.models_up


# ------------------------------------------------------------------------------------------ same result as run(config)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "fedavg"},
        {"method": "fedprox", "case": "iid"},
        {"method": "scaffold"},
        {"method": "moon"},
        {"method": "scaffold", "entropy": False, "selection": None},
        {"method": "fedavg", "pools_only": True},
        {"method": "moon", "selection": "value", "case": 3, "beta": 0.5},
        {"method": "scaffold-authors", "selection": "pools-authors"},
        {"method": "scaffold-authors", "entropy": False, "selection": None, "global_step": 0.5},
        {"global_step": 0.5, "augment": "mirror"},
        {"seed": 1, "case": 3, "beta": 0.5},
        {"seed": 1, "case": 3, "beta": 0.5, "partition_seed": None},
    ],
    ids=str,
)
def test_the_global_model_is_bit_for_bit_that_of_run(changes, tmp_path):
    config = replace(CONFIG, **changes)
    rows, reports, _ = play(config)
    assert_same_rounds(rows, recorded(config, tmp_path))
    assert not any(report.failed for report in reports)


def test_the_reference_engine_gives_the_rounds_of_run_too(tmp_path):
    config = replace(CONFIG, method="scaffold", rounds=2)
    assert_same_rounds(play(config, "reference")[0], recorded(config, tmp_path, "reference"))


def test_a_global_step_by_hand():
    """From 4 half-way to the mean of 0 and 1 with 10 and 11 images; a counter, which is no weight, is just averaged."""

    def train(message, context):
        result = toy_train(message, context)
        arrays = {"w": result.arrays["w"].numpy(), "count": np.array([3])}
        return LocalResult(pack(arrays), result.soft_label, result.size)

    grid, strategy = toy(devices=2, fraction=1.0, train=train, entropy=False, global_step=0.5)
    end = strategy.start(grid, pack({"w": np.full(2, 4, np.float32), "count": np.array([1])}), 1).arrays
    assert end["w"].numpy() == pytest.approx(4 + 0.5 * (11 / 21 - 4))
    assert end["count"].numpy().tolist() == [3]


def test_removed_devices_never_send_a_model():
    rows, _, grid = play(CONFIG)
    for row in rows:
        asked = Counter((kind, device) for kind, round, device in grid.sent if round == row.round)
        assert {device for kind, device in asked if kind == TRAIN} == set(row.chosen)
        assert {device for kind, device in asked if kind == UPLOAD} == set(row.kept)
    assert any(len(row.kept) < len(row.chosen) for row in rows)
    with_arrays = {reply.metadata.message_type for reply in grid.replies if reply.content.array_records}
    assert with_arrays == {UPLOAD}
    assert Counter(kind for kind, _, _ in grid.sent)[WHO] == CONFIG.devices


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_content_is_within_a_fifth_of_a_percent_of_the_recorded_bytes(method, tmp_path):
    config = replace(CONFIG, method=method)
    rows, _, _ = play(config)
    for row, expected in zip(rows, recorded(config, tmp_path), strict=True):
        assert 1 < row.bytes_up / expected.bytes_up < 1.002
        assert 1 < row.bytes_down / expected.bytes_down < 1.002


# ----------------------------------------------------------------------------------------------------------- faults

FAULTY = replace(CONFIG, rounds=2, lr=0.1)  # several devices are kept in its second round


def spoiled(kind: str, device: int, change, round: int = 2):
    """Changes the replies of one device to one kind of message in one round."""

    def spoil(number: int, message: Message, reply: Message) -> Message | None:
        metadata = message.metadata
        if (metadata.message_type, number, metadata.group_id) == (kind, device, str(round)):
            return change(reply)
        return reply

    return spoil


def metrics(**changes):
    def change(reply: Message) -> Message:
        for name, value in changes.items():
            reply.content[METRICS][name.replace("_", "-")] = value
        return reply

    return change


def arrays(make):
    def change(reply: Message) -> Message:
        weights = reply.content[ARRAYS][FLAT].numpy()
        reply.content[ARRAYS] = pack(make(weights))
        return reply

    return change


def garbage(reply: Message) -> Message:
    reply.content[ARRAYS] = ArrayRecord({FLAT: Array("float32", (62006,), "numpy.ndarray", b"\x93NUMPY no array")})
    return reply


def failing(reply: Message) -> Message:
    raise RuntimeError("out of memory")


LABEL_FAULTS = {
    "out of memory": failing,
    "no answer within": lambda reply: None,
    "not finite": metrics(soft_label=[float("nan")] * 10),
    "must have 10 entries; got 9": metrics(soft_label=[1 / 9] * 9),
    "negative entry": metrics(soft_label=[-0.5, 1.5] + [0.0] * 8),
    "sums to": metrics(soft_label=[0.5] * 10),
    "size must be positive; got -500": metrics(size=-500),
    "size must be a whole number": metrics(size=0.5),
}
MODEL_FAULTS = {
    "out of memory": failing,
    "no answer within": lambda reply: None,
    "is not finite": arrays(lambda w: {FLAT: np.where(np.arange(len(w)) == 7, np.float32("nan"), w)}),
    "not float32[62006]": arrays(lambda w: {FLAT: w[:-1]}),
    "is float64[62006]": arrays(lambda w: {FLAT: w.astype(np.float64)}),
    "wrong array names": arrays(lambda w: {"other": w}),
    "cannot be read": garbage,
}


@pytest.fixture(scope="module")
def undisturbed():
    """The second round of an undisturbed run, which the faults hit."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        return play(FAULTY)[0][1]


@pytest.mark.parametrize("reason", LABEL_FAULTS)
def test_a_device_with_a_bad_soft_label_is_removed(reason, undisturbed, caplog):
    victim = undisturbed.kept[0]
    rows, reports, grid = play(FAULTY, spoil=spoiled(TRAIN, victim, LABEL_FAULTS[reason]))
    assert reason in reports[1].failed[victim]
    assert list(reports[1].failed) == [victim]
    assert rows[1].chosen == undisturbed.chosen
    assert victim not in rows[1].kept
    assert rows[1].kept
    assert (UPLOAD, 2, victim) not in grid.sent
    assert f"round 2: device {victim} is removed" in caplog.text


@pytest.mark.parametrize("reason", MODEL_FAULTS)
def test_a_device_with_a_bad_model_is_removed(reason, undisturbed, caplog):
    assert len(undisturbed.kept) > 1, "the test needs another device that is kept"
    victim = undisturbed.kept[0]
    rows, reports, _ = play(FAULTY, spoil=spoiled(UPLOAD, victim, MODEL_FAULTS[reason]))
    assert reason in reports[1].failed[victim]
    assert rows[1].kept == undisturbed.kept[1:]
    assert rows[1].models_up == len(undisturbed.kept) - 1
    assert rows[1].weights != undisturbed.weights
    assert f"round 2: device {victim} is removed" in caplog.text


def toy_train(message: Message, context: Context) -> LocalResult:
    """A model of one number, which becomes the device's own; every device has its own label."""
    device = context.node_config.get("partition-id", context.node_id % 3)
    return LocalResult(pack({"w": np.full(2, device, np.float32)}), np.eye(3)[device % 3], 10 + device)


def toy(devices: int = 6, spoil=lambda device, message, reply: reply, train=toy_train, numbered=True, **settings):
    grid = LocalGrid(client_app(train), devices, spoil, numbered)
    defaults = {"classes": 3, "devices": devices, "fraction": 0.5, "timeout": 0.2}
    return grid, FedEntropyStrategy(**defaults | settings)


START = pack({"w": np.zeros(2, np.float32)})


def test_a_round_with_too_few_devices_is_played_again_with_others(caplog):
    def silent(device, message, reply):
        return None if message.metadata.message_type == TRAIN and device in (0, 1, 2, 3) else reply

    grid, strategy = toy(spoil=silent, min_devices=2, selection="uniform", max_attempts=60)
    result = strategy.start(grid, START, 2)
    for report in result.rounds:
        assert {4, 5} <= set(report.chosen)
        assert set(report.kept) <= {4, 5}
    assert any(report.attempts > 1 for report in result.rounds)
    assert "played again with others" in caplog.text
    # A device that failed in a round is not asked a second time in it.
    assert max(Counter(sent for sent in grid.sent if sent[0] == TRAIN and sent[2] < 4).values()) == 1


def test_a_device_that_has_trained_in_a_round_answers_at_once_when_it_is_played_again():
    calls = Counter()

    def train(message, context):
        calls[message.content["config"]["server-round"], context.node_config["partition-id"]] += 1
        return toy_train(message, context)

    def silent(device, message, reply):
        return None if message.metadata.message_type == TRAIN and device < 3 else reply

    grid, strategy = toy(spoil=silent, train=train, min_devices=3, fraction=0.5, max_attempts=200, selection="uniform")
    report = strategy.start(grid, START, 1).rounds[0]
    assert report.attempts > 1
    assert max(calls.values()) == 1


def test_a_run_without_enough_devices_stops():
    grid, strategy = toy(spoil=lambda *_: None, min_devices=2)
    with pytest.raises(TooFewDevices):
        strategy.start(grid, START, 1)
    grid, strategy = toy(spoil=failing_training, max_attempts=2, fraction=1 / 3)
    with pytest.raises(TooFewDevices, match="2 attempts"):
        strategy.start(grid, START, 1)


def failing_training(device, message, reply):
    return failing(reply) if message.metadata.message_type == TRAIN else reply


def test_a_given_up_draw_leaves_the_pools_but_for_the_lost():
    selection = make_selection("pools", 6, 0.8)
    selection.restore({"positive": np.array([0, 1, 2, 3])})
    assert _as_before(selection, (1, 5)).state()["positive"].tolist() == [0, 2, 3]
    assert selection.negative == {1, 4, 5}
    assert _as_before(make_selection("value", 3, 0.8), (1,)).state()["values"].tolist() == [1, 0.5, 1]


def test_a_node_that_goes_is_removed_and_used_again_when_it_comes_back():
    grid, strategy = toy(devices=3, fraction=1.0)
    session = Session(strategy, grid, START)
    assert session.play(1).failed == {}
    del grid.nodes[1001]
    report = session.play(2)
    assert report.failed == {1: "not connected"}
    assert 1 not in report.kept
    grid.join(77, 1)
    report = session.play(3)
    assert report.failed == {}
    assert 1 in report.kept


def test_the_newer_node_of_a_device_is_used():
    """SuperLink takes a while to notice that the old one is dead."""
    grid, strategy = toy(devices=3, fraction=1.0, spoil=lambda device, message, reply: reply)
    session = Session(strategy, grid, START)
    grid.join(5, 2)
    assert session.roster.connected() == {0: 1000, 1: 1001, 2: 5}


def test_a_silent_node_is_not_waited_for_in_every_round():
    """It is asked, then left alone for a while, then asked again."""
    asked = []

    def silent(device, message, reply):
        if message.metadata.message_type == WHO and device == 1:
            asked.append(device)
            return None
        return reply

    grid, strategy = toy(devices=2, fraction=1.0, spoil=silent, timeout=0.2)
    session = Session(strategy, grid, START)
    for _ in range(5):
        assert session.roster.connected() == {0: 1000}
    assert len(asked) == 1
    time.sleep(10 * strategy.timeout)
    session.roster.connected()
    assert len(asked) == 2


def test_nodes_without_a_number_are_numbered(caplog):
    grid, strategy = toy(devices=3, numbered=False)
    session = Session(strategy, grid, START)
    assert session.roster.connected() == {0: 1000, 1: 1001, 2: 1002}
    del grid.nodes[1001]
    grid.join(7, -1)
    grid.join(8, -1)
    assert session.roster.connected() == {0: 1000, 1: 7, 2: 1002}
    assert "node 8 is not used" in caplog.text


def test_a_node_without_memory_cannot_upload():
    grid, strategy = toy(devices=2, fraction=1.0)
    session = Session(strategy, grid, START)
    app, context = grid.app, grid.nodes[1000]
    session.play(1)
    context.state.clear()
    message = Message(RecordDict({"config": session_module.round_config(1, 0)}), 1000, UPLOAD)
    with pytest.raises(RuntimeError, match="nothing was trained"):
        app(message, context)


def test_memory_of_another_run_does_not_count():
    context = Context(1, 5, {"partition-id": 0}, RecordDict(), {})
    app = client_app(toy_train)
    content = RecordDict({ARRAYS: START, "config": session_module.round_config(1, 0)})
    app(Message(content, 5, TRAIN), context)
    assert previous_arrays(context) is not None
    assert previous_arrays(replace_run(context, 2)) is None


def replace_run(context: Context, run_id: int) -> Context:
    return Context(run_id, context.node_id, context.node_config, context.state, context.run_config)


def test_scaffold_controls_agree_when_uploads_are_lost(monkeypatch):
    """c = (1/N)·Σ c_k, although in every round an upload is sent but arrives spoiled."""
    seen: dict[int, np.ndarray] = {}
    servers = []

    class Watched(ScaffoldServer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            servers.append(self)

    def spoil(device, message, reply):
        kind, round = message.metadata.message_type, int(message.metadata.group_id)
        if kind == UPLOAD and round % 2 and device % 3 == 0:
            reply.content[CONTROL] = pack({FLAT: np.zeros(3, np.float32)})
        return reply

    monkeypatch.setattr("fedentropy_core.flower.server.ScaffoldServer", Watched)
    config = replace(CONFIG, method="scaffold", fraction=1.0, rounds=5, devices=6, case="iid")
    rows, reports, grid = play(config, spoil=spoil)
    assert any(report.failed for report in reports)
    # One more message to everyone makes each device take over what has been confirmed.
    monkeypatch.setattr("fedentropy_core.flower.client._Bench.result", lambda bench, cohort, **extra: toy_result())
    last = {d: max((row.round for row in rows if d in row.kept), default=0) for d in range(config.devices)}
    for node, context in grid.nodes.items():
        device = context.node_config["partition-id"]
        records = {ARRAYS: pack({FLAT: np.zeros(62006, np.float32)}), **servers[0].outgoing()}
        config_record = session_module.round_config(99, last[device])
        grid.app(Message(RecordDict({**records, "config": config_record}), node, TRAIN), context)
        seen[device] = context.state["scaffold.control"][FLAT].numpy()
    np.testing.assert_allclose(servers[0].control[FLAT], np.mean(list(seen.values()), axis=0), atol=1e-5)


def toy_result() -> LocalResult:
    return LocalResult(START, np.eye(3)[0], 1)


# ------------------------------------------------------------------------------------------------- as a library


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch):
    """A model with whole numbers among its arrays (BatchNorm's counter), three classes."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "flower.md").read_text(), re.S)
    example = next(block for block in blocks if "FedEntropyStrategy(" in block)
    assert len(example.splitlines()) < 40
    names: dict = {}
    exec(example, names)
    monkeypatch.chdir(tmp_path)
    names["main"](LocalGrid(names["client"], 6), None)
    model = names["my_model"]()
    model.load_state_dict(torch.load("model.pt"))
    assert model[1].num_batches_tracked == 9
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_soft_label_is_the_mean_softmax_whatever_the_batches():
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.5))
    x = torch.randn(10, 4)
    expected = model[0](x).softmax(1).mean(0).detach().numpy()
    np.testing.assert_allclose(soft_label(model, x.split(3)), expected, atol=1e-6)
    assert model.training
    with pytest.raises(ValueError, match="at least one"):
        soft_label(model, [])


@pytest.mark.parametrize(
    "bad",
    [
        {"classes": 0},
        {"devices": 0},
        {"fraction": 0.0},
        {"epsilon": 1.5},
        {"selection": "best"},
        {"timeout": 0},
        {"min_devices": 0},
        {"devices": 2.5},
        {"seed": -1},
        {"min_devices": 2},
        {"pools_only": True, "entropy": False},
        {"pools_only": True, "selection": "value"},
        {"selection": "pools", "entropy": False},
        {"global_step": 0.0},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        FedEntropyStrategy(**{"classes": 3, "devices": 6} | bad)


def test_a_strategy_without_judgment_draws_uniformly():
    assert FedEntropyStrategy(classes=3, devices=6, entropy=False).selection == "uniform"
    assert FedEntropyStrategy(classes=3, devices=6).selection == "pools"


# --------------------------------------------------------------------------------------------------- settings


def test_the_app_offers_every_setting():
    app = tomllib.loads((ROOT / "examples" / "flower" / "pyproject.toml").read_text())
    table = app["tool"]["flwr"]["app"]["config"]
    settings = read_settings(table)
    assert settings == Settings(RunConfig(dataset="synthetic", case=3, entropy=True, rounds=5, devices=4, fraction=0.5))
    labels = load_dataset("synthetic").train_labels
    assert len(partition(labels, settings.config.case, settings.config.devices, settings.config.partition_draw)) == 4
    every = {field.name for field in (*fields(RunConfig), *fields(Settings))} - {"config"}
    assert {key.replace("-", "_") for key in table} == every
    assert read_settings(table | {"case": "iid", "selection": "value"}).config.selection == "value"
    assert read_settings(table | {"partition-seed": ""}).config.partition_seed is None
    assert read_settings(table | {"partition-seed": 3, "global-step": 0.5}).config == replace(
        settings.config, partition_seed=3, global_step=0.5
    )
    with pytest.raises(ValueError, match="unknown settings: colour"):
        read_settings({"colour": "red"})


# ------------------------------------------------------------------------------------- Ray, and real processes

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

SIMULATION = """
import json, sys
from dataclasses import asdict
from fedentropy_core import RunConfig
from fedentropy_core.flower.settings import Settings
from fedentropy_core.flower.simulate import simulate
rows = simulate(Settings(RunConfig(**json.loads(sys.argv[1])), sys.argv[3]), cpus=2)
open(sys.argv[2], "w").write("\\n".join(json.dumps(asdict(row)) for row in rows))
"""


@pytest.mark.slow
def test_ray_simulation_gives_the_rounds_of_run(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install -e .[flower]")
    config = replace(CONFIG, method="moon", devices=4, rounds=2, case="iid")
    out = tmp_path / "rounds.jsonl"
    text = json.dumps({field.name: getattr(config, field.name) for field in fields(config)})
    command = [sys.executable, "-c", SIMULATION, text, str(out), ENGINE]
    subprocess.run(command, env=environment(tmp_path), check=True, timeout=170, capture_output=True)
    assert_same_rounds(read_rows(out), recorded(config, tmp_path))


def environment(folder: Path) -> dict[str, str]:
    """The tools of this interpreter, this checkout, and a Flower home of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | QUIET | {"PATH": path, "PYTHONPATH": str(ROOT), "FLWR_HOME": str(folder / "flwr")}


def read_rows(path: Path) -> list:
    """The rows of an output file, with lists as the tuples that they were."""

    class Row:
        def __init__(self, values: dict):
            self.__dict__ = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}

    return [Row(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class Relay(threading.Thread):
    """A TCP relay in front of the SuperLink that counts what goes up to it and what comes down."""

    def __init__(self, target: int):
        super().__init__(daemon=True)
        self.target, self.up, self.down = target, 0, 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.start()

    def run(self) -> None:
        while True:
            client, _ = self.server.accept()
            link = socket.create_connection(("127.0.0.1", self.target))
            for source, sink, name in ((client, link, "up"), (link, client, "down")):
                threading.Thread(target=self._pump, args=(source, sink, name), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        try:
            while data := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Deployment:
    """One SuperLink and several SuperNodes on loopback, as processes of their own, each leading a process group."""

    def __init__(self, folder: Path, devices: int):
        self.folder, self.devices, self.processes = folder, devices, []
        self.started = time.monotonic()
        self.port = free_port()
        (folder / "flwr").mkdir()
        connection = f'[superlink.loopback]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (folder / "flwr" / "config.toml").write_text(connection)
        options = ["--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        self.start("link", "flower-superlink", *options, "--disable-runtime-dependency-installation")
        wait_until(lambda: listening(self.port), 60, "SuperLink")
        self.relay = Relay(self.port)
        self.nodes = [self.start_node(device) for device in range(devices)]

    def start_node(self, device: int, name: str = "node") -> subprocess.Popen:
        options = ["--insecure", "--superlink", f"127.0.0.1:{self.relay.port}", "--port", str(free_port())]
        number = f"partition-id={device} num-partitions={self.devices}"
        return self.start(f"{name}{device}", "flower-supernode", *options, "--node-config", number)

    def start(self, name: str, *command: str) -> subprocess.Popen:
        with self.log(name).open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(self.folder), start_new_session=True
            )
        self.processes.append(process)
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def kill(self, process: subprocess.Popen) -> None:
        """kill -9 of the process and of the ClientApp that it started."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(true, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def deployment(tmp_path):
    running = Deployment(tmp_path, devices=3)
    yield running
    running.close()


@pytest.mark.slow
def test_a_real_deployment_survives_the_death_of_a_supernode(deployment, tmp_path):
    """Two rounds as in run(config); in the third a SuperNode is killed while it trains; it is back in the fourth."""
    config = replace(CONFIG, method="scaffold", devices=3, fraction=1.0, rounds=4, case="iid")
    out, victim = tmp_path / "rounds.jsonl", 1
    settings = {"devices": 3, "fraction": 1.0, "rounds": 4, "epochs": 1, "batch-size": 100, "timeout": 30.0}
    texts = {"method": "scaffold", "case": "iid", "engine": ENGINE, "output": str(out)}
    table = " ".join([*(f"{k}={v}" for k, v in settings.items()), *(f"{k}='{v}'" for k, v in texts.items())])
    deployment.start("run", "flwr", "run", str(ROOT / "examples" / "flower"), "loopback", "--stream", "-c", table)

    wait_until(lambda: len(read_rows(out)) >= 2, 300, "two rounds")
    up, down, seconds = deployment.relay.up, deployment.relay.down, time.monotonic() - deployment.started
    log = deployment.log(f"node{victim}")
    wait_until(lambda: re.search(r"ROUND 3\]\n.*Receiving: train", log.read_text()), 60, "the third round")
    deployment.kill(deployment.nodes[victim])
    deployment.start_node(victim, "again")
    wait_until(lambda: len(read_rows(out)) == 4, 300, "four rounds")

    rows, record = read_rows(out), recorded(config, tmp_path)
    assert_same_rounds(rows[:2], record[:2])
    assert list(rows[2].failed) == [str(victim)]
    assert victim not in rows[2].kept
    assert rows[2].kept
    assert "round 3: device 1 is removed" in deployment.log("run").read_text()
    assert rows[3].failed == {}
    assert victim in rows[3].chosen
    assert "Receiving: train.soft_label" in deployment.log(f"again{victim}").read_text()

    # Beside the content: Flower's requests for each message, and each node's asking for messages every three seconds.
    recorded_up, recorded_down = (sum(getattr(row, name) for row in record[:2]) for name in ("bytes_up", "bytes_down"))
    messages = 3 * config.devices + sum(row.models_up for row in record[:2])
    allowed = 20_000 * messages + 700 * config.devices * seconds
    assert 0 < up - recorded_up * 1.002 < allowed
    assert 0 < down - recorded_down * 1.002 < allowed
