"""The study: the right runs in the right order, trained within a time, never twice."""

from dataclasses import replace

import pytest
from conftest import write_record

from fedentropy_core.cli import main
from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.paper.study import SHOWN, STUDIES, find_study, label_fields
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import load_records
from fedentropy_core.runs.record import load_record
from fedentropy_core.runs.study import Study, choose, estimate, overview
from fedentropy_core.runs.train import Means, run_all
from fedentropy_core.work import weights_hash

REFERENCE = Means("reference")
TINY = {"dataset": "synthetic", "case": 2, "devices": 50, "rounds": 2}
RUNS = [profile_config("smoke", **TINY, fraction=0.1, seed=seed, entropy=True) for seed in range(3)]


def labels_of(runs, **fields):
    return {run.label for run in runs if all(getattr(run, name) == value for name, value in fields.items())}


def test_the_papers_runs():
    runs = STUDIES["paper"].runs
    assert len({run.key for run in runs}) == len(runs)
    assert all(run.profile == "paper" for run in runs)
    cifar10, cifar100, cinic10 = ([r for r in runs if r.dataset == name] for name in ("cifar10", "cifar100", "cinic10"))
    assert (len(cifar10), len(cifar100), len(cinic10)) == (114, 69, 69)
    assert labels_of(cifar10, case="shards") == {"fedavg", "fedavg+entropy"}
    assert labels_of(cifar10, case=1) - labels_of(cifar10, case=2) == {
        "fedavg+entropy-pools-only",
        "fedavg+entropy-value",
        "fedavg+entropy-pools-authors",
    }
    assert labels_of(cifar100, seed=1) == {
        "fedavg",
        "fedavg+entropy",
        "fedprox",
        "scaffold",
        "moon",
        "scaffold-authors",
    }
    assert [r.label for r in cifar100] == [r.label for r in cinic10]


def test_most_valuable_first():
    runs = STUDIES["paper"].runs
    blocks = [(r.dataset, r.seed) for r in runs]
    order = list(dict.fromkeys(blocks))
    assert order == [(name, seed) for name in ("cifar10", "cifar100", "cinic10") for seed in (0, 1, 2)]
    assert blocks == sorted(blocks, key=order.index)
    assert [r.label for r in runs[:15:3]] == ["fedavg", "fedavg+entropy", "fedprox", "scaffold", "moon"]


def test_weights_are_kept_of_fedavg_and_fedentropy():
    kept = STUDIES["paper"].with_weights
    assert {(run.dataset, run.label, run.case, run.seed) for run in kept} == {
        ("cifar10", label, case, seed)
        for label in ("fedavg", "fedavg+entropy")
        for case in (1, 2, 3)
        for seed in (0, 1, 2)
    }


def test_the_first_records_are_all_in_a_study():
    """And nothing else is: a study that is not continued lists exactly what there is."""
    for name, count in (("mirrored", 108), ("diagnosis", 18)):
        runs = STUDIES[name].runs
        assert len({run.key for run in runs}) == len(runs) == count
        assert {record.config for record in load_records(name)} == set(runs)
        assert set(overview(runs, study=STUDIES[name])["state"]) == {"recorded"}


def test_studies_have_names():
    assert SHOWN in STUDIES
    with pytest.raises(ValueError, match="study must be one of paper, mirrored, diagnosis or a file"):
        find_study("papers")


def test_a_label_stands_for_its_configuration():
    for run in STUDIES["paper"].runs:
        assert profile_config("paper", **label_fields(run.label)).label == run.label


def test_choosing_a_part():
    part = choose(STUDIES["paper"].runs, datasets=["cifar10"], cases=[1], methods=["moon"])
    assert [(run.method, run.entropy, run.seed) for run in part] == [("moon", False, seed) for seed in (0, 1, 2)]
    with pytest.raises(ValueError, match="no run has method 'mooon'; there are fedavg, "):
        choose(STUDIES["paper"].runs, methods=["mooon"])


def test_training_what_is_missing(tmp_path):
    run_all(RUNS[:1], REFERENCE, tmp_path, progress=False)
    first = RunFiles(RUNS[0], tmp_path).csv
    before = first.stat().st_mtime_ns
    assert list(overview(RUNS, tmp_path)["state"]) == ["recorded", "missing", "missing"]
    run_all(RUNS, REFERENCE, tmp_path, progress=True)
    assert list(overview(RUNS, tmp_path)["state"]) == ["recorded"] * 3
    assert first.stat().st_mtime_ns == before


def test_the_time_of_a_record_counts_by_its_cores(tmp_path, monkeypatch):
    """One second on two cores for four rounds: half a core-second a round."""
    write_record(tmp_path, [0.1] * 4, method="fedavg")
    write_record(tmp_path, [], method="scaffold", rounds=4)  # diverged at once
    runs = [RunConfig(dataset="synthetic", method=method, rounds=4) for method in ("fedavg", "moon", "scaffold")]
    paces = overview(runs, tmp_path)["pace"]
    monkeypatch.setattr("fedentropy_core.runs.study.usable_cores", lambda: 4)
    assert estimate(144_000, paces).startswith("about 5.0 h on 4 cores, at the 0.5 core-seconds")
    assert estimate(144_000, paces[1:]) == "no estimate yet"


def test_the_time_is_kept_and_training_goes_on(tmp_path, capsys):
    run_all(RUNS, REFERENCE, tmp_path, seconds=0)
    assert list(overview(RUNS, tmp_path)["state"]) == ["begun", "missing", "missing"]
    assert "time is up" in capsys.readouterr().out
    run_all(RUNS[:1], REFERENCE, tmp_path, progress=False)
    assert RunFiles(RUNS[0], tmp_path).csv.exists()


def test_a_run_of_another_process_is_left_to_it(tmp_path, capsys):
    with RunFiles(RUNS[0], tmp_path).locked():
        run_all(RUNS[:2], REFERENCE, tmp_path)
    assert list(overview(RUNS[:2], tmp_path)["state"]) == ["missing", "recorded"]
    assert "another process is working on" in capsys.readouterr().out


def test_missing_data_is_skipped_with_a_notice(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path / "nothing"))
    run_all([profile_config("smoke", dataset="cinic10"), RUNS[0]], REFERENCE, tmp_path)
    assert "skipped cinic10 case 1 fedavg seed 0: CINIC-10 is not at" in capsys.readouterr().out
    assert RunFiles(RUNS[0], tmp_path).csv.exists()


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_run_that_diverges_or_was_begun_elsewhere_does_not_stop_the_others(tmp_path, capsys):
    diverging = profile_config("smoke", **TINY, lr=1e30)
    run_all(RUNS[:1], Means("batched", "cpu"), tmp_path, progress=False, seconds=0)
    run_all([diverging, *RUNS[:2]], REFERENCE, tmp_path)
    assert list(overview(RUNS[:2], tmp_path)["state"]) == ["begun", "recorded"]
    shown = capsys.readouterr().out
    assert "diverged in round 1" in shown
    assert "was made by the batched engine: go on with that one" in shown


@pytest.mark.slow
def test_stacked_seeds_leave_the_same_records(tmp_path):
    run_all(RUNS[:2], Means("batched", "cpu"), tmp_path / "alone", progress=False)
    run_all(RUNS[:2], Means("batched", "cpu", stack_seeds=True), tmp_path / "stacked", progress=False)
    for config in RUNS[:2]:
        alone, stacked = (RunFiles(config, tmp_path / name).csv.read_bytes() for name in ("alone", "stacked"))
        assert alone == stacked


@pytest.mark.slow
@pytest.mark.parametrize("stack_seeds", [False, True])
def test_a_study_says_whose_weights_are_kept(stack_seeds, tmp_path):
    sweep = Study("sweep", "some", tuple(RUNS[:2]), with_weights=(RUNS[1],))
    run_all(RUNS[:2], Means("batched", "cpu", stack_seeds=stack_seeds), tmp_path, False, sweep)
    without, kept = (load_record(RunFiles(config, tmp_path, "sweep").csv) for config in RUNS[:2])
    assert not without.path.with_suffix(".npz").exists()
    assert weights_hash(kept.weights) == kept.rounds["weights"].iloc[-1]


@pytest.mark.slow
@pytest.mark.parametrize("stack_seeds", [False, True])
def test_a_seed_that_is_taken_does_not_hold_up_the_others(stack_seeds, tmp_path, capsys):
    with RunFiles(RUNS[2], tmp_path).locked():
        run_all(RUNS, Means("batched", "cpu", stack_seeds=stack_seeds), tmp_path)
    assert list(overview(RUNS, tmp_path)["state"]) == ["recorded", "recorded", "missing"]
    assert "skipped synthetic case 2 fedavg+entropy seed 2" in capsys.readouterr().out


def test_a_study_has_a_folder_of_its_own(tmp_path):
    """Where its name does not fix all settings, the file's name tells the runs apart."""
    runs = (RUNS[0], replace(RUNS[0], beta=0.5))
    sweep = Study("sweep", "over β", runs, with_weights=runs[1:])
    run_all(runs, REFERENCE, tmp_path, progress=False, study=sweep)
    assert list(overview(runs, tmp_path, sweep)["state"]) == ["recorded"] * 2
    assert list(overview(runs, tmp_path)["state"]) == ["missing"] * 2
    found = {record.config: record for record in load_records("sweep", tmp_path)}
    assert set(found) == set(runs)
    assert {record.path.parent for record in found.values()} == {tmp_path / "sweep/runs/synthetic/case2/fedavg+entropy"}
    assert len(found[runs[1]].weights) == 62_006
    assert not found[runs[0]].path.with_suffix(".npz").exists()


def test_the_plan_on_the_command_line(tmp_path, capsys):
    main(["plan", "--datasets", "cifar10", "--seeds", "0", "--results", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "0 of 38 runs recorded" in shown
    assert "fedavg+entropy-value" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--methods", "fedavg+entropy-value", "--cases", "2"], "no run has all of these"),
        (["train", "--ray", "auto", "--device", "cuda"], "device, stack_seeds and jobs are not for a cluster"),
        (["train", "--gpus", "1"], "give ray as well"),
        (["reproduce", "--cases", "1", "--fresh-rounds", "3"], "--cases, --fresh-rounds: only with --fresh"),
        (["reproduce", "--engine", "reference", "--cpus", "7"], "--cpus, --engine: only with --fresh"),
        (["reproduce", "--fresh", "--records", "9", "--audit-rounds", "5"], "--audit-rounds, --records: not with"),
    ],
)
def test_options_that_would_do_nothing_are_refused(arguments, message, monkeypatch):
    monkeypatch.setattr("os.nice", lambda value: None)
    with pytest.raises(SystemExit, match=message):
        main(arguments)


def test_times_on_the_command_line(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--time", "soon"])
    assert "90s, 150m or 2h" in capsys.readouterr().err


SWEEP = """
'''Over β.'''
from fedentropy_core.config import profile_config
runs = [profile_config("smoke", dataset="synthetic", case=3, beta=beta, rounds=2) for beta in (0.5, 1.0)]
"""


def test_a_study_of_ones_own_is_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.nice", lambda value: None)
    file = tmp_path / "my_sweep.py"
    file.write_text(SWEEP)
    where = ["--study", str(file), "--results", str(tmp_path)]
    main(["train", *where, "--engine", "reference"])
    main(["plan", *where])
    assert "my_sweep: Over β." in capsys.readouterr().out
    main(["audit", *where])
    assert "exact" in capsys.readouterr().out
    found = load_records("my_sweep", tmp_path)
    assert [record.config.beta for record in sorted(found, key=lambda record: record.config.beta)] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.py", None, "no such file"),
        ("broken.py", "runs = [", "cannot be read: SyntaxError"),
        ("empty.py", "runs = []", "must have a list `runs` of RunConfig"),
        ("other.py", "runs = [1]", "must have a list `runs` of RunConfig"),
        ("paper.py", SWEEP, "the name paper is taken"),
        ("sweep", None, "study must be one of paper, mirrored, diagnosis or a file such as my_sweep.py; got 'sweep'"),
    ],
)
def test_bad_studies_are_named(name, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        find_study(name)
