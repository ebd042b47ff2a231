"""The command line as a user meets it."""

import subprocess
import sys

import pytest

from fedentropy_core.cli import main

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
        (["--selection", "value"], "error: selection and pools_only belong to FedEntropy"),
        (["--devices", "3", "--fraction", "1"], "cannot cover 10 labels"),
    ],
)
def test_bad_requests_end_with_a_message(arguments, message, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main([*SMOKE, "--results", str(tmp_path), "--quiet", *arguments])
    assert message in str(stopped.value)
    assert list(tmp_path.rglob("*.csv")) == []


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
    assert "usage: python -m fedentropy_core" in capsys.readouterr().out


def test_a_misspelt_option_is_refused():
    process = subprocess.run(
        [sys.executable, "-m", "fedentropy_core", "run", "--method", "fedavgg"], capture_output=True, text=True
    )
    assert process.returncode == 2
    assert "invalid choice: 'fedavgg'" in process.stderr
