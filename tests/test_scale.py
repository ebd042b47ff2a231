"""What a round costs as it grows: settings, table, figure; measured on next to nothing."""

import json

import pytest

from fedentropy_core.bench import command, scale
from fedentropy_core.bench.probe import Probe, measured
from fedentropy_core.bench.rounds import Setting
from fedentropy_core.bench.scale_figure import scale_figure
from fedentropy_core.cli import main
from fedentropy_core.engines.build import available
from fedentropy_core.report import figures

SMALL = Setting(devices=2, images=10, epochs=1, batch_size=5, test_images=20)


def entry(seconds=(1.0, 2.0, 3.0), threads=2, runs=None, fma=200.0, **setting):
    peaks = {"gemm_gflops": 100.0, "fma_gflops": fma, "threads": threads, "instructions": fma and "AVX2"}
    return {
        "setting": {"devices": 10, "images": 500, "epochs": 5, "batch_size": 50, "test_images": 10_000} | setting,
        "threads": threads,
        "runs": runs,
        "seconds": list(seconds),
        "cpu_seconds": [2.0 * second for second in seconds],
        "peaks": peaks,
        "memory_before_mb": 400,
        "peak_memory_mb": 500,
    }


def report(**fields):
    axes = {
        "cohort": [entry([0.1 * devices] * 3, devices=devices, **fields) for devices in (10, 100, 1000)],
        "batch": [entry(batch_size=size, **fields) for size in (10, 50)],
        "threads": [entry(threads=threads, **fields) for threads in (1, 2)],
        "runs": [entry(runs=runs, **fields) for runs in (1, 2)],
    }
    return {"machine": {"processor": "Abacus", "cores": 2, "load_before": 0.5}, "axes": axes}


def test_every_axis_starts_at_the_papers_setting_or_includes_it():
    axes = scale.probes(7, cores=6)
    assert [probe.setting.devices for probe in axes["cohort"]] == [10, 30, 100, 1000]
    assert [probe.setting.batch_size for probe in axes["batch"]] == [10, 50, 200]
    assert [probe.threads for probe in axes["threads"]] == [1, 2, 4, 6]
    assert [probe.runs for probe in axes["runs"]] == [1, 2, 3, 4]
    assert all(probe.setting == Setting() for axis in ("threads", "runs") for probe in axes[axis])


def test_a_line_is_found():
    start, slope, off = scale.line([10, 100, 1000], [1.1, 2.0, 11.0])
    assert (start, slope) == (pytest.approx(1.0), pytest.approx(0.01))
    assert off == pytest.approx([0, 0, 0])


def test_it_says_whether_time_is_linear_and_where_not():
    assert [said.split(":")[0] for said in scale.linearity(report()).splitlines()] == [
        "seconds linear in the cohort",
        "cpu_seconds linear in the cohort",
    ]
    bent = report()
    bent["axes"]["cohort"][2]["seconds"] = [200.0]
    wall, cpu = scale.linearity(bent).splitlines()
    assert wall.startswith("seconds not linear in the cohort everywhere")
    assert "at 1,000" in wall
    assert cpu.startswith("cpu_seconds linear")


def test_shares_of_both_peaks():
    gflop = 99.7
    assert scale.shares(entry()) == (pytest.approx(gflop / 2 / 200, 1e-3), pytest.approx(gflop / 2 / 100, 1e-3))
    assert scale.shares(entry(fma=None))[0] is None


@pytest.mark.parametrize("fma", [200.0, None])
def test_table_and_figure_are_made_from_the_file(fma, tmp_path, monkeypatch, capsys):
    file = tmp_path / "scale.json"
    file.write_text(json.dumps(report(fma=fma)))
    monkeypatch.setattr(figures, "project_root", lambda: tmp_path)
    main(["bench", "--scale", "--show", "--write", str(file)])
    shown = capsys.readouterr().out
    assert all(word in shown for word in (*scale.probes(1, 1), "linear in the cohort"))
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"scale.png", "scale.pdf"}


def test_the_engines_have_nothing_to_show():
    with pytest.raises(SystemExit, match="--show is for"):
        main(["bench", "--show"])


def test_the_figure_says_what_its_axes_are():
    figure = scale_figure(report())
    assert [axes.get_xlabel() for axes in figure.axes[-4:]] == [
        "devices in the cohort",
        "batch size",
        "threads",
        "runs side by side",
    ]


def test_measured_is_what_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scale, "measured", lambda rounds: report() | {"rounds": rounds})
    monkeypatch.setattr(command, "_draw", lambda report: None)
    file = tmp_path / "scale.json"
    main(["bench", "--scale", "--rounds", "3", "--write", str(file)])
    assert json.loads(file.read_text()) == report() | {"rounds": 3}


@pytest.mark.skipif(not available(), reason="no C++ compiler")
@pytest.mark.parametrize("runs", [None, 2])
def test_a_setting_is_measured(runs, dataset, monkeypatch):
    monkeypatch.setattr("fedentropy_core.bench.rounds.TRAIN_IMAGES", 300)
    found = measured(Probe(SMALL, threads=2, runs=runs, rounds=1), dataset)
    assert len(found["seconds"]) == len(found["cpu_seconds"]) == 1
    assert found["peak_memory_mb"] >= found["memory_before_mb"] > 0


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_each_setting_is_measured_by_a_process_of_its_own(capsys):
    report = scale.measured(1, {"threads": [Probe(SMALL, threads=1, runs=None, rounds=1)]})
    (entry,) = report["axes"]["threads"]
    assert entry["setting"]["devices"] == 2
    assert entry["peaks"]["fma_gflops"] > 0
    assert capsys.readouterr().out.startswith("threads 1: ")


def test_a_setting_that_fails_says_why():
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Probe(SMALL, threads=-1, runs=None, rounds=1).measure()
