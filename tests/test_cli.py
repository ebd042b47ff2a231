"""The command line as a user meets it."""

import json
import subprocess
import sys

import pytest

from fedentropy_core.cli import main
from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.runs.record import load_record
from fedentropy_core.runs.study import Study

SMOKE = ["run", "--profile", "smoke", "--dataset", "synthetic", "--case", "2", "--engine", "reference"]


def test_run_writes_a_record_and_says_where(tmp_path, capsys):
    main([*SMOKE, "--entropy", "--rounds", "2", "--results", str(tmp_path)])
    shown = capsys.readouterr()
    (csv,) = tmp_path.rglob("*.csv")
    assert csv.with_suffix(".json").exists()
    assert str(csv) in shown.out
    assert "accuracy: last ten rounds" in shown.out
    assert "kept" in shown.err  # the progress bar
    assert "2/2" in shown.err
    assert "fedavg+entropy" in str(csv)
    main([*SMOKE, "--entropy", "--rounds", "2", "--results", str(tmp_path)])
    assert "finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "-1"], "error: lr must be positive; got -1.0"),
        (["--partition-seed", "-1"], "error: partition_seed must be a whole number from 0 on; got -1"),
        (["--global-step", "0"], "error: global_step must be positive; got 0.0"),
        (["--selection", "pools-authors"], "error: selection and pools_only belong to FedEntropy"),
        (["--selection", "value"], "error: selection and pools_only belong to FedEntropy"),
        (["--devices", "3", "--fraction", "1"], "cannot cover 10 labels"),
    ],
)
def test_bad_requests_end_with_a_message(arguments, message, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main([*SMOKE, "--results", str(tmp_path), "--quiet", *arguments])
    assert message in str(stopped.value)
    assert list(tmp_path.rglob("*.csv")) == []


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ([], {}),
        (["--partition-seed", "3"], {"partition_seed": 3}),
        (["--partition-seed", "none"], {"partition_seed": None}),
        (["--profile", "mirrored", "--partition-seed", "0"], {"augment": "mirror"}),
        (["--profile", "mirrored", "--augment", "none"], {"partition_seed": None}),
        (["--global-step", "0.5"], {"global_step": 0.5}),
        (["--augment", "mirror"], {"augment": "mirror"}),
        (["--method", "scaffold-authors"], {"method": "scaffold-authors"}),
        (["--entropy", "--selection", "pools-authors"], {"entropy": True, "selection": "pools-authors"}),
    ],
    ids=str,
)
def test_a_flag_is_in_the_records_configuration(flags, changed, tmp_path):
    """And nothing else differs from the defaults."""
    tiny = {"rounds": 1, "devices": 20, "fraction": 0.1, "epochs": 1}
    size = [text for name, value in tiny.items() for text in (f"--{name}", str(value))]
    main([*SMOKE[:1], *SMOKE[3:], *size, "--seed", "1", "--results", str(tmp_path), "--quiet", *flags])
    (path,) = tmp_path.rglob("*.json")
    defaults = {"dataset": "synthetic", "case": 2, "seed": 1} | tiny
    expected = RunConfig(**defaults | changed)
    assert json.loads(path.read_text())["config"] == vars(expected)
    assert load_record(path.with_suffix(".csv")).config == expected


def test_weights_are_kept_when_asked_for(tmp_path, capsys):
    command = [*SMOKE, "--rounds", "1", "--results", str(tmp_path), "--quiet"]
    main(command)
    assert list(tmp_path.rglob("*.npz")) == []
    with pytest.raises(SystemExit, match=r"error: .*seed0.*was finished without keeping weights"):
        main([*command, "--keep-weights"])
    main([*command, "--seed", "1", "--keep-weights"])
    (path,) = tmp_path.rglob("*.npz")
    assert load_record(path.with_suffix(".csv")).weights.shape == (62_006,)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--partition-seed", "all"], "argument --partition-seed: a whole number or none; got 'all'"),
        (["--partition-seed", "0.5"], "argument --partition-seed: a whole number or none; got '0.5'"),
        (["--global-step", "half"], "argument --global-step: invalid float value: 'half'"),
        (["--augment", "flip"], "argument --augment: invalid choice: 'flip'"),
        (["--method", "scaffold-author"], "argument --method: invalid choice: 'scaffold-author'"),
        (["--selection", "pool"], "argument --selection: invalid choice: 'pool'"),
    ],
    ids=str,
)
def test_a_value_that_is_none_is_refused(flags, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*SMOKE, "--results", str(tmp_path), *flags])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["plan"], ["train"], ["reproduce", "--fresh"], ["audit"]], ids=str)
def test_an_unknown_study_is_named_with_what_there_is(command, tmp_path, monkeypatch):
    monkeypatch.setattr("os.nice", lambda value: None)
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--study", "papers", "--results", str(tmp_path)])
    message = str(stopped.value)
    assert "'papers'" in message
    assert "paper, mirrored, diagnosis" in message


def test_plan_and_train_take_a_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("os.nice", lambda value: None)
    runs = tuple(profile_config("smoke", dataset="synthetic", case=2, rounds=1, beta=beta) for beta in (0.1, 0.5))
    monkeypatch.setitem(STUDIES, "sweep", Study("sweep", "over β", runs, with_weights=runs[:1]))
    options = ["--study", "sweep", "--results", str(tmp_path)]
    main(["plan", *options])
    assert "0 of 2 runs recorded" in capsys.readouterr().out
    main(["train", *options, "--engine", "reference", "--time", "10m"])
    main(["plan", *options])
    assert "2 of 2 runs recorded" in capsys.readouterr().out
    records = {record.config: record for record in map(load_record, (tmp_path / "sweep").rglob("*.csv"))}
    assert records.keys() == set(runs)
    assert [records[run].path.with_suffix(".npz").exists() for run in runs] == [True, False]


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_run_that_diverges_ends_with_a_message(tmp_path):
    with pytest.raises(SystemExit, match="the run diverged in round 1 of 2; lower lr"):
        main([*SMOKE, "--results", str(tmp_path), "--quiet", "--lr", "1e6", "--rounds", "2"])


def test_missing_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        main(["run", "--dataset", "cifar10", "--results", str(tmp_path)])
    assert "make data" in str(stopped.value)


@pytest.mark.parametrize("command", [[], ["data"], ["run"], ["plan"], ["train"]])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    assert "usage: fedentropy" in capsys.readouterr().out


def test_a_misspelt_option_is_refused():
    process = subprocess.run(
        [sys.executable, "-m", "fedentropy_core", "run", "--method", "fedavgg"], capture_output=True, text=True
    )
    assert process.returncode == 2
    assert "invalid choice: 'fedavgg'" in process.stderr
