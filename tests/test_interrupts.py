"""Ctrl-C, SIGTERM, SIGHUP: at any moment, again and again, no crash, and the same record in the end."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from conftest import random_device

from fedentropy_core import RunConfig, cli, run
from fedentropy_core.config import profile_config
from fedentropy_core.engines import build
from fedentropy_core.engines.base import results_of, stop_flag
from fedentropy_core.engines.native import NativeEngine
from fedentropy_core.engines.reference import ReferenceEngine
from fedentropy_core.federation import Federation
from fedentropy_core.interrupts import SIGNALS, Halted, Stop, Stopped, stop_on_signals
from fedentropy_core.model import initial_weights, parameter_count
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import load_record
from fedentropy_core.work import LocalRule

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _usual_handlers():
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    for signum in SIGNALS:
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


# ------------------------------------------------------------------------------------------------ what tells it


def test_a_stop_is_due_when_asked_or_late():
    assert not Stop().due
    assert Stop(time.monotonic() - 1).due
    assert not Stop(time.monotonic() + 1000).due
    stop = Stop(time.monotonic() + 1000)
    stop.ask()
    assert stop.due
    assert not stop.late


def test_whoever_works_hears_of_it():
    """Also who begins after it was asked; who has ended is not told."""
    stop = Stop()
    with stop.flag() as ended:
        pass
    with stop.flag() as one, stop.flag() as other:
        assert (one[0], other[0]) == (0, 0)
        stop.ask()
        assert (one[0], other[0]) == (1, 1)
    with stop.flag() as late:
        assert late[0] == 1
    assert ended[0] == 0


def test_signals_end_a_command_unless_they_are_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as after nohup
    stop_on_signals()
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(Stopped) as stopped:
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.exit_code == CODES[signal.SIGTERM]
    assert Stopped("why").exit_code == CODES[signal.SIGINT]


# ------------------------------------------------------------------------------------------------ work in threads


@pytest.mark.parametrize("why", [ValueError, None])
def test_no_call_is_left_behind(why):
    """The first job fails, or asks all to stop; the others run until they are told, and a little longer."""
    stop, started, ended, others = stop_flag(), [], [], threading.Barrier(2)

    def work(job):
        if job == 0:
            others.wait()
            if why is None:
                stop[0] = 1
                return
            raise why
        started.append(job)
        if job == 1:
            others.wait()
        while not stop[0]:
            time.sleep(0.001)
        time.sleep(0.01)
        ended.append(job)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(why or Halted):
            results_of(pool, work, range(1000), stop)
        assert sorted(ended) == sorted(started)
        left = list(started)
    assert started == left
    assert 1 <= len(started) < 999
    assert stop[0] == 1


def test_results_stand_in_the_order_of_their_jobs():
    stop = stop_flag()
    with ThreadPoolExecutor(4) as pool:
        assert results_of(pool, lambda job: time.sleep((8 - job) / 1000) or job, range(8), stop) == list(range(8))
    assert stop[0] == 0


def test_jobs_that_cannot_be_made_stop_those_that_were():
    stop, seen = stop_flag(), []

    def jobs():
        yield 1
        raise MemoryError

    def work(job):
        while not stop[0]:
            time.sleep(0.001)
        seen.append(job)

    with ThreadPoolExecutor(1) as pool, pytest.raises(MemoryError):
        results_of(pool, work, jobs(), stop)
    assert seen in ([1], [])


@needs_compiler
@pytest.mark.parametrize("told", [0, 1])
def test_a_native_call_that_is_told_to_stop_leaves_its_results_alone(told, dataset):
    engine, weights = NativeEngine(dataset, threads=1), initial_weights(10, np.random.default_rng(0))
    trained, soft_label = np.full(parameter_count(10), np.nan, np.float32), np.full(10, np.nan, np.float32)
    rule, device = LocalRule(0.01, 0.5, 10), random_device(np.arange(30), epochs=2)
    job = engine._job(
        rule,
        weights,
        device,
        "device",
        trained=trained,
        soft_label=soft_label,
        loss=np.zeros(1),
        first_loss=None,
        stop=np.full(1, told, np.int32),
    )
    assert engine.library.train(job.struct) == 0
    for result in (trained, soft_label):
        assert np.isnan(result).all() if told else np.isfinite(result).all()


# ------------------------------------------------------------------------------------------------ one run

SMALL = {"case": "iid", "devices": 10, "fraction": 0.4, "epochs": 1, "rounds": 4, "lr": 0.02}
VARIANTS = {
    "fedavg": {},
    "scaffold+entropy": {"method": "scaffold", "entropy": True},
    "moon+value": {"method": "moon", "entropy": True, "selection": "value"},
}


@pytest.fixture(scope="module")
def engine(dataset):
    return ReferenceEngine(dataset)


@pytest.fixture
def go(dataset, engine, tmp_path):
    """Runs a configuration on the small data set, in a folder by name; its files."""

    def run_it(config, name="disturbed"):
        run(config, engine, progress=False, results=tmp_path / name, dataset=dataset)
        return RunFiles(config, tmp_path / name, fingerprint=dataset.fingerprint)

    return run_it


def send_in(patch, owner, method, number, *signums):
    """The signals come in the numbered call of a method, which goes on once the run has been asked to stop."""
    original, calls, asked, ask = getattr(owner, method), count(1), threading.Event(), Stop.ask

    def signalled(*arguments):
        if next(calls) == number:
            for signum in signums:
                os.kill(os.getpid(), signum)
            assert asked.wait(60)
        return original(*arguments)

    patch.setattr(Stop, "ask", lambda stop: (ask(stop), asked.set()))
    patch.setattr(owner, method, signalled)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize(("moment", "done"), [("begin_round", 1), ("train_many", 1), ("settle_round", 2)])
def test_a_run_stops_where_it_can_be_saved(variant, signum, moment, done, go, engine, monkeypatch):
    """In round 2: training is given up, what follows it is finished."""
    stop_on_signals()
    config = RunConfig(**SMALL | VARIANTS[variant])
    expected = go(config, "undisturbed").csv.read_bytes()
    with monkeypatch.context() as patch:
        send_in(patch, engine if moment == "train_many" else Federation, moment, 2, signum)
        with pytest.raises(Stopped) as stopped:
            go(config)
    assert str(stopped.value).endswith(f"stopped after round {done}; the same command goes on")
    assert stopped.value.exit_code == CODES[signum]
    trained, train = [], engine.train_many
    monkeypatch.setattr(engine, "train_many", lambda *work: trained.append(1) or train(*work))
    files = go(config)
    assert len(trained) == config.rounds - done
    assert files.csv.read_bytes() == expected
    assert [path.suffix for path in sorted(files.folder.iterdir())] == [".csv", ".json"]


def test_a_signal_in_the_last_round_leaves_the_record(go, monkeypatch):
    with monkeypatch.context() as patch:
        send_in(patch, Federation, "settle_round", 4, signal.SIGINT)
        with pytest.raises(Stopped):
            go(RunConfig(**SMALL))
    assert len(load_record(go(RunConfig(**SMALL)).csv).rounds) == 4


# ------------------------------------------------------------------------------------------------ child processes

# Importing PyTorch takes seconds, a fork of a process that has it does not. The child goes on after the loop and ends
# as any interpreter does; its parent can signal it at any moment, for only the parent clears it away.
FORKS = """
import gc, json, os, runpy, signal, sys, time
from pathlib import Path
import fedentropy_core.cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins by ignoring it
fedentropy_core.load_dataset("synthetic")
gc.freeze()  # what is shared with the children need not be taken apart in each
for line in sys.stdin:
    code, output, after, moment, signum = json.loads(line)
    ready, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        break
    os.close(begun)
    os.read(ready, 1)
    os.close(ready)
    ended, started = 0, None
    while signum and not ended and (started is None or time.monotonic() < started + moment):
        if started is None and Path(after).exists():
            started = time.monotonic()
        time.sleep(0.001)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        if signum:
            os.kill(pid, signum)
        ended, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()
file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(file, 1)
os.dup2(file, 2)
os.write(begun, b"1")
exec(code)
"""


class Children:
    """Child processes that run Python code and are signalled at chosen moments."""

    def __init__(self, folder: Path):
        tests = Path(__file__).parent
        path = os.pathsep.join([str(tests.parent), str(tests), os.environ.get("PYTHONPATH", "")])
        self.output = folder / "output"
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, signum: int = 0, after: Path | None = None, moment: float = 0.0) -> tuple[int, str]:
        """Exit code and output; the signal comes `moment` seconds after a file is there."""
        order = [textwrap.dedent(code), str(self.output), after and str(after), moment, signum]
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), self.output.read_text()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    children = Children(tmp_path_factory.mktemp("children"))
    yield children
    children.close()


NATIVE = {"profile": "smoke", "dataset": "synthetic", "case": 2, "devices": 50, "fraction": 0.2, "rounds": 10}
NATIVE_CONFIG = profile_config(**NATIVE)


def command(folder: Path) -> list[str]:
    settings = [word for name, value in NATIVE.items() for word in (f"--{name}", str(value))]
    return ["run", *settings, "--engine", "native", "--quiet", "--results", str(folder)]


def as_main(*arguments: str) -> str:
    """What `python -m fedentropy_core` does with these arguments."""
    return f"sys.argv = {['fedentropy_core', *arguments]!r}\nrunpy.run_module('fedentropy_core', run_name='__main__')\n"


@pytest.fixture(scope="module")
def undisturbed(children, tmp_path_factory):
    """The record of a native run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, output = children.run(as_main(*command(folder)))
    assert code == 0, output
    return load_record(RunFiles(NATIVE_CONFIG, folder).csv)


def seconds_of(record) -> float:
    """Of its training; the file says it in tenths."""
    return max(record.about["provenance"]["wall_seconds"], 0.1)


@pytest.mark.slow
@needs_compiler
def test_a_run_is_interrupted_at_twenty_moments(children, undisturbed, tmp_path):
    rng, stops = random.Random(22), []
    folders = [tmp_path / str(number) for number in range(20)]
    for folder in folders:
        signum, moment = rng.choice(SIGNALS), rng.uniform(0, 1.1 * seconds_of(undisturbed))
        files = RunFiles(NATIVE_CONFIG, folder)
        code, output = children.run(as_main(*command(folder)), signum, files.lock, moment)
        assert "Traceback" not in output
        if files.csv.exists():
            assert code in (0, CODES[signum]), output
        else:
            assert code == CODES[signum], output
            assert len(output.splitlines()) <= 2, output  # the first one ends the line of a progress bar
            stops.append(output.splitlines()[-1])
    assert any(line.endswith("the same command goes on") and "stopped after round" in line for line in stops)
    again = f"import fedentropy_core.cli\nfor one in {list(map(command, folders))!r}: fedentropy_core.cli.main(one)"
    code, output = children.run(again)
    assert code == 0, output
    for folder in folders:
        assert RunFiles(NATIVE_CONFIG, folder).csv.read_bytes() == undisturbed.path.read_bytes()


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("step", ["_parser", "load_dataset"])
def test_a_signal_before_training_ends_the_command(step, signum, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, step, lambda *_: signal.raise_signal(signum))
    with pytest.raises(SystemExit) as stopped:
        cli.main(command(tmp_path))
    assert stopped.value.code == CODES[signum]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch("\nstopped.*\n", shown.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_after_the_end_changes_nothing(signum, children, undisturbed):
    """Python takes long to end; the signal comes then."""
    late = f"import atexit\natexit.register(os.kill, os.getpid(), {int(signum)})\n"
    code, output = children.run(late + as_main(*command(undisturbed.path.parents[5])))
    assert code == 0, output
    assert output.startswith("finished before")
    assert output.endswith(f"{undisturbed.path}\n")


@pytest.mark.slow
@needs_compiler
def test_the_command_itself_is_interrupted(children, undisturbed, tmp_path):
    """With no help from a fork: the process that a user has."""
    files = RunFiles(NATIVE_CONFIG, tmp_path)
    program = [sys.executable, "-m", "fedentropy_core", *command(tmp_path)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not files.lock.exists():
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130, errors
    assert errors.endswith(("; the same command goes on\n", "; the same command goes on from the last checkpoint\n"))
    assert "Traceback" not in errors
    assert children.run(as_main(*command(tmp_path)))[0] == 0
    assert files.csv.read_bytes() == undisturbed.path.read_bytes()


SMALL_DATA = """
import signal, random, threading
import fedentropy_core.cli as cli, fedentropy_core.data.catalogue, fedentropy_core.runs.training
from conftest import random_dataset
from fedentropy_core import RunConfig, run
from fedentropy_core.engines import make_engine
from fedentropy_core.runs.files import RunFiles

small = random_dataset()
for module in (cli, fedentropy_core.runs.training):
    module.load_dataset = lambda name: small
fedentropy_core.data.catalogue.SYNTHETIC_FINGERPRINT = small.fingerprint
"""

IN_ONE_PROCESS = """
config, folder = RunConfig(**{fields}), Path({folder!r})
engine, rng, stops = make_engine({engine!r}, small, device="cpu"), random.Random(22), []

def attempt(name):
    files = RunFiles(config, folder / name)
    run(config, engine, progress=False, results=folder / name)
    content = files.csv.read_bytes()
    files.csv.unlink()
    return content

started = time.monotonic()
expected = attempt("undisturbed")
seconds = time.monotonic() - started
while len(stops) < {times}:
    timer = threading.Timer(rng.uniform(0, seconds / 3), os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        content = attempt("disturbed")
        timer.cancel()
        timer.join()
        assert content == expected
    except KeyboardInterrupt as stop:
        stops.append(str(stop))
assert attempt("disturbed") == expected
assert any("stopped after round" in stop for stop in stops), stops
print("same")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "times", "fields"),
    [
        pytest.param("native", 12, {"rounds": 60, "epochs": 5, "entropy": True}, marks=needs_compiler),
        ("batched", 5, {"rounds": 4, "entropy": True}),
        ("reference", 5, {"rounds": 12, "entropy": True}),
    ],
)
def test_a_run_is_interrupted_and_run_again_in_one_process(engine, times, fields, children, tmp_path):
    config = {"dataset": "synthetic"} | SMALL | fields
    code, output = children.run(
        SMALL_DATA + IN_ONE_PROCESS.format(fields=config, folder=str(tmp_path), engine=engine, times=times)
    )
    assert (code, output) == (0, "same\n")


STUDY = """
from fedentropy_core.federation import Federation
from fedentropy_core.interrupts import Stop
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.runs.study import Study

STUDIES["few"] = Study("few", "three seeds", tuple(RunConfig(**{fields}, seed=seed) for seed in range(3)))
settle_round, calls, asked, ask = Federation.settle_round, [], threading.Event(), Stop.ask

def signalled(self, cohort):
    calls.append(self.round)
    if len(calls) == {moment}:
        os.kill(os.getpid(), {signum})
        asked.wait(60)
    return settle_round(self, cohort)

Stop.ask = lambda stop: (ask(stop), asked.set())
Federation.settle_round = signalled
for folder in {folders}:
    cli.main(["train", "--study", "few", "--results", folder, *{options}])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "signum", "moment", "done", "left"),
    [
        (["--engine", "reference", "--jobs", "1"], signal.SIGHUP, 7, 3, [".csv .json", ".ckpt", ""]),
        (["--engine", "batched", "--device", "cpu", "--stack-seeds"], signal.SIGTERM, 5, 2, [".ckpt"] * 3),
    ],
    ids=["one by one", "stacked"],
)
def test_training_a_study_is_interrupted_and_goes_on(options, signum, moment, done, left, children, tmp_path):
    """In the third of the second run's four rounds; in the second round of a stack of three."""

    def train(*names, moment):
        folders, fields = [str(tmp_path / name) for name in names], {"dataset": "synthetic"} | SMALL
        study = STUDY.format(fields=fields, folders=folders, options=options, moment=moment, signum=int(signum))
        code, output = children.run(SMALL_DATA + study)
        assert "Traceback" not in output
        return code, output

    def files(name, seed):
        return sorted((tmp_path / name).rglob(f"seed{seed}*"))

    code, output = train("disturbed", moment=moment)
    assert code == CODES[signum]
    assert output.count(f"stopped after round {done}; the same command goes on") == 1
    assert [" ".join(path.suffix for path in files("disturbed", seed)) for seed in range(3)] == left
    assert train("disturbed", "undisturbed", moment=None)[0] == 0
    for seed in range(3):
        disturbed, undisturbed = (files(name, seed) for name in ("disturbed", "undisturbed"))
        assert [path.suffix for path in disturbed] == [".csv", ".json"]
        assert disturbed[0].read_bytes() == undisturbed[0].read_bytes()
