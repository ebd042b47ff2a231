"""Several runs at once: the same bytes as alone, one deadline, and one stop for all."""

from dataclasses import replace

import pytest

from fedentropy_core import RunConfig, run
from fedentropy_core.federation import Federation
from fedentropy_core.interrupts import Stopped
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import RecordError
from fedentropy_core.runs.train import Means, run_all

SETTING = {"dataset": "synthetic", "case": 2, "devices": 50, "fraction": 0.1, "epochs": 1, "rounds": 6}
RUNS = [
    RunConfig(**SETTING, method=method, entropy=entropy)
    for method, entropy in (("fedavg", False), ("scaffold", True), ("moon", True), ("fedprox", False))
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    for config in RUNS:
        run(config, progress=False, results=folder)
    return {config: RunFiles(config, folder).csv.read_bytes() for config in RUNS}


def assert_as_alone(alone, folder):
    assert {config: RunFiles(config, folder).csv.read_bytes() for config in RUNS} == alone
    assert not list(folder.rglob("*.ckpt")) + list(folder.rglob("*.lock"))


@pytest.mark.parametrize("jobs", [3, 9])
def test_the_bytes_are_those_of_runs_alone(jobs, alone, tmp_path):
    records = run_all(RUNS, Means(jobs=jobs), tmp_path, progress=False)
    assert [record.config for record in records] == RUNS
    assert_as_alone(alone, tmp_path)


@pytest.mark.parametrize("means", [Means("reference", jobs=1), Means("batched", "cpu")])
def test_other_engines_train_the_same_runs(means, tmp_path):
    short = [replace(config, rounds=1) for config in RUNS]
    assert [record.config for record in run_all(short, means, tmp_path, progress=False)] == short


def test_a_stop_saves_all_of_them(alone, tmp_path, monkeypatch):
    """Ctrl-C while three are under way; the same command then goes on."""
    settle, played = Federation.settle_round, []

    def settle_and_count(self, cohort):
        played.append(self.config)
        return settle(self, cohort)

    def interrupted(event):
        if len(played) > 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "settle_round", settle_and_count)
    with monkeypatch.context() as patch:
        patch.setattr("fedentropy_core.runs.train.Display.show", lambda self, event: interrupted(event))
        with pytest.raises(Stopped, match=r"stopped after round \d.*; the same command goes on"):
            run_all(RUNS, Means(jobs=3), tmp_path, progress=False)
    assert list(tmp_path.rglob("*.ckpt"))
    assert not list(tmp_path.rglob("*.lock"))
    before = len(played)
    run_all(RUNS, Means(jobs=3), tmp_path, progress=False)
    assert len(played) - before < 6 * len(RUNS)
    assert_as_alone(alone, tmp_path)


def test_an_error_stops_the_others_with_their_rounds_saved(alone, tmp_path, monkeypatch):
    begin = Federation.begin_round

    def begin_or_fail(self):
        if self.config == RUNS[0] and self.round == 4:
            raise MemoryError("no room for round 5")
        return begin(self)

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "begin_round", begin_or_fail)
        with pytest.raises(MemoryError, match="no room for round 5"):
            run_all(RUNS, Means(jobs=4), tmp_path, progress=False)
    assert not list(tmp_path.rglob("*.lock"))
    run_all(RUNS, Means(jobs=4), tmp_path, progress=False)
    assert_as_alone(alone, tmp_path)


def test_one_deadline_for_all(alone, tmp_path, capsys):
    run_all(RUNS, Means(jobs=2), tmp_path, seconds=0)
    assert "time is up; synthetic case 2 fedavg seed 0: stopped after round 1" in capsys.readouterr().out
    run_all(RUNS, Means(jobs=2), tmp_path, progress=False)
    assert_as_alone(alone, tmp_path)


def test_the_same_run_twice_is_one_run(tmp_path):
    assert len(run_all([RUNS[0], RUNS[0]], Means(jobs=2), tmp_path, progress=False)) == 1


def test_what_is_played_can_be_watched(tmp_path, alone):
    rows = []
    record = run(RUNS[1], results=tmp_path, progress=False, on_round=rows.append)
    assert [row.accuracy for row in rows] == list(record.rounds["accuracy"])


def test_an_error_of_the_watcher_keeps_what_was_played(tmp_path, alone):
    def watch(row):
        if row.round == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(RUNS[1], results=tmp_path, progress=False, on_round=watch)
    rows = []
    run(RUNS[1], results=tmp_path, progress=False, on_round=rows.append)
    assert rows[0].round > 3
    assert RunFiles(RUNS[1], tmp_path).csv.read_bytes() == alone[RUNS[1]]


def test_no_jobs_are_refused():
    with pytest.raises(ValueError, match="jobs must be at least 1; got 0"):
        Means(jobs=0)


def test_a_taken_run_is_an_error_alone(tmp_path):
    with RunFiles(RUNS[0], tmp_path).locked(), pytest.raises(RecordError, match="another process"):
        run(RUNS[0], results=tmp_path, progress=False)
