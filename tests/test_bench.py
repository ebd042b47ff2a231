"""The benchmark counts operations as PyTorch does, and measures what it says."""

import json

import torch
from conftest import random_dataset
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fedentropy_core import bench
from fedentropy_core.cli import main
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
