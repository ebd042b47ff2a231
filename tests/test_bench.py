"""The benchmark counts operations as PyTorch does, and measures what it says."""

import json

import pytest
import torch
from conftest import random_dataset
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fedentropy_core.bench import against, command, peaks, rounds
from fedentropy_core.bench.page import PAGE, times, write_times
from fedentropy_core.bench.peaks import Peaks
from fedentropy_core.bench.rounds import Setting
from fedentropy_core.cli import main
from fedentropy_core.engines import build
from fedentropy_core.engines.build import available
from fedentropy_core.files import project_root
from fedentropy_core.model import CNN


def test_operations_are_those_pytorch_counts():
    model, images = CNN(10), torch.rand(4, 3, 32, 32)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(images)
    with FlopCounterMode(display=False) as step:
        F.cross_entropy(model(images), torch.zeros(4, dtype=torch.int64)).backward()
    setting = Setting(devices=1, images=4, epochs=3, batch_size=4, test_images=8)
    assert rounds.flops(setting) == 3 * step.get_total_flops() + 3 * forward.get_total_flops()


def test_the_papers_round():
    assert round(rounds.flops(Setting()) / 1e9, 1) == 99.7


@pytest.fixture
def quick(monkeypatch):
    """Peaks that need no time."""
    found = Peaks(2, 100.0, 300.0, "AVX2")
    monkeypatch.setattr(rounds, "measure_peaks", lambda threads: found)
    monkeypatch.setattr(rounds, "TRAIN_IMAGES", 100)
    return found


def test_every_engine_and_method_has_its_turns(quick):
    setting = Setting(devices=2, images=10, epochs=1, batch_size=5, test_images=20)
    timings, found = rounds.bench(
        ("reference",), ("fedavg", "moon"), rounds=3, setting=setting, dataset=random_dataset(train=100)
    )
    assert [(t.engine, t.method, len(t.train), len(t.evaluate)) for t in timings] == [
        ("reference", "fedavg", 3, 3),
        ("reference", "moon", 3, 3),
    ]
    assert found == quick
    assert all(t.median > 0 for t in timings)


def test_timings_are_written_only_when_asked(tmp_path, monkeypatch, capsys, quick):
    small = Setting(devices=1, images=10, epochs=1, batch_size=5, test_images=20)
    monkeypatch.setattr(command, "synthetic_dataset", lambda: random_dataset(train=100))
    monkeypatch.setattr(command, "Setting", lambda: small)
    monkeypatch.setattr(rounds, "Setting", lambda: small)
    renewed = []
    monkeypatch.setattr(command, "write_times", lambda: renewed.append(True))
    order = ["bench", "--engines", "reference", "--methods", "fedavg", "--rounds", "1", "--no-growth"]
    main(order)
    assert list(tmp_path.iterdir()) == renewed == []
    main([*order, "--write", str(tmp_path / "bench.json")])
    assert "s/round" in capsys.readouterr().out
    report = json.loads((tmp_path / "bench.json").read_text())
    assert report["engines"][0]["engine"] == "reference"
    assert report["machine"] | {"fma_gflops": 300.0, "gemm_gflops": 100.0, "instructions": "AVX2"} == report["machine"]
    assert renewed == [True]


def test_peaks():
    found = peaks.measure_peaks(threads=1, seconds=0.01)
    assert found.gemm > 0
    if available():
        assert found.fma > 0
        assert found.instructions in ("AVX-512", "AVX2", "NEON")
    middle = peaks.median_peaks([Peaks(1, gemm, 2 * gemm, "AVX2") for gemm in (3.0, 1.0, 2.0)])
    assert middle == Peaks(1, 2.0, 4.0, "AVX2")


def test_without_a_compiler_there_is_no_fma_peak(monkeypatch):
    peaks._library.cache_clear()
    monkeypatch.setattr(peaks, "compiler", lambda: None)
    assert peaks.measure_peaks(threads=1, seconds=0.01).fma is None
    assert peaks.median_peaks([Peaks(1, 1.0, None, None)]).fma is None
    peaks._library.cache_clear()


def test_the_pages_seconds_are_those_of_the_files(tmp_path):
    text = (project_root() / PAGE).read_text()
    (tmp_path / PAGE).parent.mkdir()
    (tmp_path / PAGE).write_text(text.replace("AMD", "another"))
    write_times(tmp_path)
    assert (tmp_path / PAGE).read_text() == text, "`make bench WRITE=results/bench.json` renews the page"
    assert times() in text


def test_seconds_of_a_file(tmp_path):
    machine = {"processor": "Abacus", "instructions": None, "threads": 3, "gemm_gflops": 10.0, "fma_gflops": 30.0}
    entries = [
        {"engine": engine, "method": method, "median": seconds, "gflops": 15.0}
        for engine, method, seconds in (
            ("reference", "fedavg", 4.0),
            ("native", "fedavg", 1.0),
            ("native", "moon", 2.0),
        )
    ]
    (tmp_path / "bench_1.json").write_text(json.dumps({"machine": machine, "engines": entries}))
    assert times(tmp_path).splitlines() == [
        "| file | CPU | engine | FedAvg | Moon |",
        "| --- | --- | --- | --- | --- |",
        "| `bench_1.json` | Abacus, 3 threads | reference | 4.00 | — |",
        "| `bench_1.json` | Abacus, 3 threads | native | 1.00 | 2.00 |",
        "",
        "- `bench_1.json`: FedAvg by the native engine at 15 GFLOP/s; in the same run PyTorch's matrix product at 10 "
        "and bare fused multiply-adds at 30",
    ]


@pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
@pytest.mark.skipif(not (project_root() / ".git").exists(), reason="no checkout")
def test_this_version_beside_another_commit(monkeypatch, capsys):
    """Here beside the last commit: the times are what they are, the bits are frozen."""
    tiny = {"dataset": "synthetic", "case": "iid", "devices": 4, "fraction": 0.5, "epochs": 1, "augment": "none"}
    monkeypatch.setattr(against, "SETTING", tiny)
    monkeypatch.setattr(against, "WARM_UP", 1)
    monkeypatch.setattr(against, "instruction_sets", lambda: ["native"])
    main(["bench", "--against", "HEAD", "--methods", "fedavg", "moon", "--rounds", "2"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [("native", "fedavg", "same"), ("native", "moon", "same")]
    assert all(float(row[2]) >= 0 and row[4].endswith("×") for row in rows)


def test_a_commit_that_does_not_exist_is_refused():
    with pytest.raises(SystemExit, match="no sources of 'no-such-commit'"):
        main(["bench", "--against", "no-such-commit"])
