"""The benchmark counts operations as PyTorch does, and measures what it says."""

import json

import pytest
import torch
from conftest import random_dataset
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fedentropy_core import bench, bench_against
from fedentropy_core.cli import main
from fedentropy_core.engines import build
from fedentropy_core.files import project_root
from fedentropy_core.model import CNN


def test_operations_are_those_pytorch_counts():
    model, images = CNN(10), torch.rand(4, 3, 32, 32)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(images)
    with FlopCounterMode(display=False) as step:
        F.cross_entropy(model(images), torch.zeros(4, dtype=torch.int64)).backward()
    setting = bench.Setting(devices=1, images=4, epochs=3, batch_size=4, test_images=8)
    assert bench.flops(setting) == 3 * step.get_total_flops() + 3 * forward.get_total_flops()


def test_the_papers_round():
    assert round(bench.flops(bench.Setting()) / 1e9, 1) == 99.7


def test_every_engine_and_method_has_its_turns(monkeypatch):
    monkeypatch.setattr(bench, "TRAIN_IMAGES", 100)
    monkeypatch.setattr(bench, "gemm_rate", lambda threads: 100.0)
    setting = bench.Setting(devices=2, images=10, epochs=1, batch_size=5, test_images=20)
    timings, peak = bench.bench(
        ("reference",), ("fedavg", "moon"), rounds=3, setting=setting, dataset=random_dataset(train=100)
    )
    assert [(t.engine, t.method, len(t.train), len(t.evaluate)) for t in timings] == [
        ("reference", "fedavg", 3, 3),
        ("reference", "moon", 3, 3),
    ]
    assert peak == 100.0
    assert all(t.median > 0 for t in timings)


def test_timings_are_written_only_when_asked(tmp_path, monkeypatch, capsys):
    small = bench.Setting(devices=1, images=10, epochs=1, batch_size=5, test_images=20)
    monkeypatch.setattr(bench, "TRAIN_IMAGES", 100)
    monkeypatch.setattr(bench, "synthetic_dataset", lambda: random_dataset(train=100))
    monkeypatch.setattr(bench, "Setting", lambda: small)
    command = ["bench", "--engines", "reference", "--methods", "fedavg", "--rounds", "1", "--no-growth"]
    main(command)
    assert list(tmp_path.iterdir()) == []
    main([*command, "--write", str(tmp_path / "bench.json")])
    assert "s/round" in capsys.readouterr().out
    assert json.loads((tmp_path / "bench.json").read_text())["engines"][0]["engine"] == "reference"


@pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
@pytest.mark.skipif(not (project_root() / ".git").exists(), reason="no checkout")
def test_this_version_beside_another_commit(monkeypatch, capsys):
    """Here beside the last commit: the times are what they are, the bits are frozen."""
    tiny = {"dataset": "synthetic", "case": "iid", "devices": 4, "fraction": 0.5, "epochs": 1, "augment": "none"}
    monkeypatch.setattr(bench_against, "SETTING", tiny)
    monkeypatch.setattr(bench_against, "WARM_UP", 1)
    monkeypatch.setattr(bench_against, "instruction_sets", lambda: ["native"])
    main(["bench", "--against", "HEAD", "--methods", "fedavg", "moon", "--rounds", "2"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [("native", "fedavg", "same"), ("native", "moon", "same")]
    assert all(float(row[2]) >= 0 and row[4].endswith("×") for row in rows)


def test_a_commit_that_does_not_exist_is_refused():
    with pytest.raises(SystemExit, match="no sources of 'no-such-commit'"):
        main(["bench", "--against", "no-such-commit"])
