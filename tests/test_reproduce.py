"""What `make reproduce` says of runs trained anew, and what it refuses."""

import pytest
from conftest import write_record

from fedentropy_core import RunConfig
from fedentropy_core.paper import reproduce as reproduction
from fedentropy_core.paper.reproduce import AuditFailed, _compare, reproduce
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.runs.record import RecordError

ROUNDS, PAPER = [0.3] * 1000, STUDIES["paper"]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_RESULTS", str(tmp_path / "shipped"))
    return tmp_path / "shipped", tmp_path / "fresh"


def test_fresh_runs_are_compared_with_the_shipped_ones(folders, capsys):
    shipped, fresh = folders
    for folder in folders:
        write_record(folder, ROUNDS, engine="native")
    write_record(shipped, ROUNDS, seed=1)
    _compare([RunConfig(dataset="synthetic"), RunConfig(dataset="synthetic", seed=2)], fresh, PAPER)
    assert capsys.readouterr().out.splitlines() == [
        "1 of 2 runs trained anew, 1 of them shipped as well",
        "same  synthetic/1/fedavg/0 after 1000 rounds: 30.00%, shipped 30.00%",
    ]


@pytest.mark.parametrize(("engine", "fails"), [("native", True), ("batched", False)])
def test_other_weights_fail_where_bits_must_be_the_same(engine, fails, folders, capsys):
    for folder, weights in zip(folders, ("1" * 16, "2" * 16), strict=True):
        write_record(folder, ROUNDS, weights=weights, engine=engine)
    if fails:
        with pytest.raises(AuditFailed, match="1 runs of the native engine"):
            _compare([RunConfig(dataset="synthetic")], folders[1], PAPER)
    else:
        _compare([RunConfig(dataset="synthetic")], folders[1], PAPER)
    assert "OTHER synthetic/1/fedavg/0" in capsys.readouterr().out


@pytest.mark.usefixtures("folders")
def test_other_records_do_not_get_into_the_project():
    with pytest.raises(ValueError, match=r"FEDENTROPY_RESULTS is .*shipped, but the README"):
        reproduce(records=1, rounds=1)


def test_a_record_that_comes_in_meanwhile_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDENTROPY_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr("fedentropy_core.paper.pages.write_pages", list)
    for name, value in (
        ("project_root", tmp_path),
        ("notebook_paths", []),
        ("_fetch", []),
        ("check", []),
    ):
        monkeypatch.setattr(reproduction, name, lambda *_, value=value: value)
    monkeypatch.setattr(reproduction, "execute", lambda *_: write_record(tmp_path / "results", ROUNDS))
    with pytest.raises(RecordError, match="a record came in meanwhile"):
        reproduce(records=1, rounds=1)
    monkeypatch.setattr(reproduction, "execute", lambda *_: None)
    reproduce(records=1, rounds=1)
    assert "reused:  1 recorded runs" in capsys.readouterr().out
