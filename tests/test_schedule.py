"""Schedules worked out by hand."""

import pytest
from conftest import random_dataset

from fedentropy_core import RunConfig
from fedentropy_core.bench import schedule as module
from fedentropy_core.bench.schedule import Parts, measure, schedule, table
from fedentropy_core.engines.build import available


def test_a_round_on_one_core_takes_all_its_parts():
    parts = Parts(devices=(3.0, 2.0), chunks=(1.0,), settle=0.5, prepare=0.25)
    found = schedule(parts, cores=1, rounds=1)
    assert found.seconds == 6.5
    assert found.busy == pytest.approx(6 / 6.5)
    assert found.rounds_an_hour == pytest.approx(3600 / 6.5)


def test_devices_go_to_the_first_free_core_in_their_order():
    # Core 1: 3, then 3 from 3 to 6. Core 2: 2, then 2 from 2 to 4. A chunk each from 6 on.
    assert schedule(Parts((3.0, 2.0, 2.0, 3.0), (1.0, 1.0)), cores=2, rounds=1).seconds == 7


def test_the_next_round_trains_beside_the_evaluation():
    # Two cores, one device, one chunk of half its length: 2 + 1 each round, or 2 each round and 1 at the end.
    parts = Parts((2.0,), (1.0,))
    assert schedule(parts, cores=2, overlap=False, rounds=3).seconds == 9
    found = schedule(parts, cores=2, overlap=True, rounds=3)
    assert found.seconds == 7
    assert found.busy == pytest.approx(9 / 14)


def test_a_round_is_settled_after_the_evaluation_of_the_one_before():
    # Evaluations from 1 to 4 and from 4 to 7, since round 2, trained at 2, is settled at 4 only.
    assert schedule(Parts((1.0,), (3.0,)), cores=2, rounds=2).seconds == 7


def test_the_runs_own_work_keeps_it_from_the_pool():
    # 1 train, 1 settle, evaluation from 2 to 3, prepared at 4: 4 to 5, settled 6, evaluation to 7.
    assert schedule(Parts((1.0,), (1.0,), settle=1.0, prepare=2.0), cores=2, rounds=2).seconds == 7


def test_another_run_fills_the_gaps():
    # Three devices on two cores leave one idle a third of the time; two runs need three devices' time each core.
    parts = Parts((1.0, 1.0, 1.0), ())
    alone, together = (schedule(parts, cores=2, runs=runs, rounds=1) for runs in (1, 2))
    assert (alone.seconds, together.seconds) == (2, 3)
    assert (alone.busy, together.busy) == (0.75, 1)
    assert together.rounds_an_hour == 2 * 3600 / 3


def test_jobs_of_several_runs_wait_in_one_queue():
    # One core: A's device to 1, B's to 2; A's chunk waits behind B's device and ends at 3, B's chunk at 4.
    assert schedule(Parts((1.0,), (1.0,)), cores=1, runs=2, rounds=1).seconds == 4


def test_table(monkeypatch):
    monkeypatch.setattr(module, "CORES", (2,))
    report = {
        "machine": {"processor": "Abacus"},
        "parts": {"devices": [1.0] * 10, "chunks": [1.0], "settle": 0.0, "prepare": 0.0},
    }
    title, _, *rows = table(report).splitlines()
    assert "computed, not measured" in title
    assert [row.split()[:2] for row in rows] == [["2", "1"], ["2", "1"], ["2", "2"], ["2", "4"]]
    assert [row.endswith("as `make train` does") for row in rows] == [False, False, True, False]


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_parts_are_measured():
    config = RunConfig(case="iid", devices=4, fraction=0.5, epochs=1, entropy=True)
    parts = measure(1, config, random_dataset(train=200, test=1000))
    assert (len(parts.devices), len(parts.chunks)) == (2, 2)
    assert min(*parts.devices, *parts.chunks, parts.settle, parts.prepare) >= 0
    assert sum(parts.devices) > 0
