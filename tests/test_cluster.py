"""A sweep on a local Ray cluster of two workers, one of which is killed."""

import os
import threading
import time

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: make flower")

from ray.cluster_utils import Cluster  # noqa: E402

from fedentropy_core import load_dataset, run  # noqa: E402
from fedentropy_core.config import profile_config  # noqa: E402
from fedentropy_core.engines import make_engine  # noqa: E402
from fedentropy_core.runs import cluster  # noqa: E402
from fedentropy_core.runs.cluster import Share  # noqa: E402
from fedentropy_core.runs.files import RunFiles  # noqa: E402
from fedentropy_core.runs.record import load_record  # noqa: E402
from fedentropy_core.runs.study import Study  # noqa: E402
from fedentropy_core.runs.train import Means, OutOfTime, run_all  # noqa: E402

RUNS = [
    profile_config("smoke", dataset="synthetic", case=2, seed=seed, method="scaffold", rounds=40) for seed in range(3)
]


@pytest.fixture
def two_workers():
    local = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [local.add_node(num_cpus=1) for _ in range(2)]
    local.wait_for_nodes()
    yield local, nodes
    ray.shutdown()
    local.shutdown()


def means(local):
    return Means("native", ray=local.address)


def contents(config, folder):
    return RunFiles(config, folder).csv.read_bytes()


def test_a_killed_worker_costs_one_slice(two_workers, tmp_path, capsys, monkeypatch):
    local, nodes = two_workers
    engine = make_engine("native", load_dataset("synthetic"))
    for config in RUNS:
        run(config, engine, progress=False, results=tmp_path / "alone")

    def kill_one():
        """Once both workers have brought back a slice, so that each is at its next one."""
        while len(list((tmp_path / "cluster").rglob("*.ckpt"))) < 2:
            time.sleep(0.1)
        local.remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=kill_one)
    killer.start()
    monkeypatch.setattr(cluster, "SLICE_SECONDS", 1.0)
    run_all(RUNS, means(local), tmp_path / "cluster")
    killer.join()
    assert "goes on elsewhere from round" in capsys.readouterr().out
    for config in RUNS:
        assert contents(config, tmp_path / "cluster") == contents(config, tmp_path / "alone")
        assert not RunFiles(config, tmp_path / "cluster").checkpoint.exists()


def test_a_record_of_the_cluster_is_whole(two_workers, tmp_path):
    """Begun on two cores of this machine, finished by a worker of one: it says both, and has all that a record has."""
    config = RUNS[0]
    study = Study("sweep", "a run", (config,), with_weights=(config,))
    engine = make_engine("native", load_dataset("synthetic"), threads=2)
    alone = run(config, engine, progress=False, results=tmp_path / "alone", keep_weights=True)
    with pytest.raises(OutOfTime):
        run(config, engine, progress=False, results=tmp_path, seconds=0, study="sweep")
    run_all([config], means(two_workers[0]), tmp_path, study=study)
    record = load_record(RunFiles(config, tmp_path, "sweep").csv)
    assert record.about["provenance"]["cores"] == 1
    assert [before["cores"] for before in record.about["begun_on"]] == [2]
    assert record.about["test_images"] == [100] * 10
    assert [sum(right) / 1000 for right in record.rounds["correct"]] == record.rounds["accuracy"].tolist()
    assert record.rounds.equals(alone.rounds)
    assert record.weights.tobytes() == alone.weights.tobytes()


def test_a_run_that_diverges_does_not_stop_the_others(two_workers, tmp_path, capsys):
    local, _ = two_workers
    diverging = profile_config("smoke", dataset="synthetic", case=2, lr=1e30)
    fine = profile_config("smoke", dataset="synthetic", case=2, rounds=2)
    run_all([diverging, fine], means(local), tmp_path)
    assert RunFiles(fine, tmp_path).csv.exists()
    assert RunFiles(diverging, tmp_path).csv.exists()
    assert "diverged in round 1" in capsys.readouterr().out


@pytest.mark.parametrize("full_disk", [False, True])
def test_a_run_that_loses_every_worker_is_given_up(full_disk, monkeypatch, tmp_path, two_workers, capsys):
    def lose_it(*arguments):
        if full_disk:
            raise OSError(28, "No space left on device")
        os._exit(1)

    monkeypatch.setattr(cluster, "train_slice", lose_it)
    monkeypatch.setattr(cluster, "MOST_LOSSES", 1)
    run_all(RUNS[:1], means(two_workers[0]), tmp_path)
    assert "skipped synthetic case 2 scaffold seed 0: its worker was lost 2 times" in capsys.readouterr().out


def test_a_worker_that_hangs_does_not_hold_up_the_end(monkeypatch, tmp_path, two_workers, capsys):
    monkeypatch.setattr(cluster, "train_slice", lambda *arguments: time.sleep(600))
    began = time.monotonic()
    monkeypatch.setattr(cluster, "SLICE_SECONDS", 0.5)
    run_all(RUNS[:1], means(two_workers[0]), tmp_path, seconds=1.0)
    assert time.monotonic() - began < 60
    assert "time is up" in capsys.readouterr().out


def test_a_cluster_without_room_is_named(tmp_path, two_workers):
    with pytest.raises(ValueError, match="2 CPUs and 0 GPUs, too few for a run that asks for 1 CPUs and 1 GPUs"):
        run_all(RUNS[:1], Means(ray=two_workers[0].address, gpus=1), tmp_path)
    with pytest.raises(ValueError, match="at least one CPU"):
        Share(cpus=0)
