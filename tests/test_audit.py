"""The audit passes what was trained and catches what was edited or forged."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import MADE, forge

from fedentropy_core import load_dataset, run
from fedentropy_core.cli import main
from fedentropy_core.config import profile_config
from fedentropy_core.data.load import DatasetMissing
from fedentropy_core.engines import make_engine
from fedentropy_core.runs import audit
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import record_paths
from fedentropy_core.runs.names import named
from fedentropy_core.runs.record import COLUMNS

CONFIGS = [profile_config("smoke", dataset="synthetic", case=2, method=m, entropy=True) for m in ("fedavg", "moon")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, engine = tmp_path_factory.mktemp("trained"), make_engine("reference", load_dataset("synthetic"))
    for config in CONFIGS:
        run(config, engine, progress=False, results=folder)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path, dirs_exist_ok=True)


def findings(folder, rounds=2):
    return audit.audit(record_paths("smoke", folder), rounds, progress=False)


def rewrite(files, old, new, forged):
    """Changes a record; a forger also computes all digests again."""
    text = files.csv.read_text().replace(old, new)
    if forged:
        forge(files, text)
    else:
        files.csv.write_text(text)


def missing(name):
    raise DatasetMissing(name)


def accuracy(files, number):
    return files.csv.read_text().splitlines()[number].split(",")[1]


@pytest.mark.slow
def test_honest_records_pass(folder):
    assert [(f.ok, f.how, f.rounds) for f in findings(folder)] == [(True, "exact", 2)] * 2


def test_an_edited_record_is_caught(folder):
    files = RunFiles(CONFIGS[0], folder)
    rewrite(files, f"\n5,{accuracy(files, 5)}", "\n5,0.99", forged=False)
    bad, good = findings(folder)
    assert (bad.ok, good.ok) == (False, True)
    assert "round 5" in bad.note


@pytest.mark.slow
def test_a_forged_record_is_caught_by_training(folder):
    files = RunFiles(CONFIGS[0], folder)
    loss = files.csv.read_text().splitlines()[2].split(",")[2]
    rewrite(files, loss, "1.5", forged=True)
    assert findings(folder, rounds=1)[0].ok
    assert findings(folder, rounds=2)[0].note == "round 2 comes out otherwise"


def test_a_forged_accuracy_contradicts_the_right_images(folder):
    files = RunFiles(CONFIGS[0], folder)
    rewrite(files, f"\n4,{accuracy(files, 4)}", "\n4,0.99", forged=True)
    assert findings(folder, rounds=1)[0].note.endswith("the right test images of round 4 do not add up to its accuracy")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*diverged")
def test_a_divergence_must_come_again(folder, tmp_path):
    """One record really diverged; the other was cut after two rounds, and its JSON says that it diverged."""
    diverging = profile_config("smoke", dataset="synthetic", lr=1e30)
    run(diverging, "reference", progress=False, results=tmp_path)
    (finding,) = audit.audit([RunFiles(diverging, tmp_path).csv], 2, progress=False)
    assert (finding.ok, finding.rounds) == (True, 0)
    files = RunFiles(CONFIGS[0], folder)
    lines = files.csv.read_text().splitlines()[:3]
    about = json.loads(files.json.read_text()) | {"diverged": 3, "final_digest": lines[-1].rpartition(",")[2]}
    files.json.write_text(json.dumps(about))
    files.csv.write_text("\n".join(lines) + "\n")
    assert findings(folder, rounds=2)[0].ok
    assert findings(folder, rounds=3)[0].note == "round 3 does not diverge here"


def test_tolerance_where_bits_cannot_be_asked_for(folder, monkeypatch):
    monkeypatch.setattr(audit, "cpu_model", lambda: "another CPU")
    assert [(f.ok, f.how) for f in findings(folder)] == [(True, "tolerance")] * 2
    monkeypatch.setattr(audit, "TOLERANT_ROUNDS", 3)
    assert findings(folder, rounds=1000)[0].note.endswith(": only the first 3 rounds can be compared")
    files = RunFiles(CONFIGS[0], folder)
    rewrite(files, f"\n2,{accuracy(files, 2)}", "\n2,0.99", forged=True)
    assert "accuracy" in findings(folder)[0].note


def test_no_exactness_for_what_another_cpu_began(folder):
    files = RunFiles(CONFIGS[0], folder)
    files.json.write_text(
        json.dumps(json.loads(files.json.read_text()) | {"begun_on": [MADE | {"cpu": "another CPU"}]})
    )
    assert [f.how for f in findings(folder)] == ["tolerance", "exact"]


@pytest.mark.parametrize("column", ["kept", "models_up", "bytes_up", "bytes_down", "entropy_after"])
def test_a_forged_column_that_cannot_be_is_caught_in_any_round(folder, column):
    """Round 5 is not trained again; that it contradicts itself shows all the same."""
    files = RunFiles(CONFIGS[0], folder)
    old = files.csv.read_text().splitlines()[5]
    forged = {"kept": "0 0", "models_up": "19", "bytes_up": "1", "bytes_down": "1", "entropy_after": "0.0"}[column]
    values = old.split(",")
    values[COLUMNS.index(column)] = forged
    rewrite(files, old, ",".join(values), forged=True)
    bad, good = findings(folder)
    assert (bad.ok, good.ok) == (False, True)
    assert bad.note.startswith("round 5: ")
    assert column in bad.note


@pytest.mark.parametrize(("option", "value"), [("--records", "0"), ("--audit-rounds", "0"), ("--audit-rounds", "-5")])
def test_an_audit_of_nothing_is_an_error(folder, option, value):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "--study", "smoke", "--results", str(folder), option, value])
    assert "at least one record and one round" in str(stopped.value)


def test_an_audit_without_records_or_data_fails(folder, tmp_path_factory, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "--study", "smoke", "--results", str(tmp_path_factory.mktemp("empty"))])
    assert "nothing was checked" in str(stopped.value)
    monkeypatch.setattr(audit, "load_dataset", missing)
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "--study", "smoke", "--results", str(folder)])
    assert "nothing was checked" in str(stopped.value)


def test_the_command_fails_on_a_mismatch(folder, capsys):
    command = ["audit", "--study", "smoke", "--results", str(folder), "--audit-rounds", "1"]
    main(command)
    assert "MISMATCH" not in capsys.readouterr().out
    files = RunFiles(CONFIGS[1], folder)
    rewrite(files, f"\n1,{accuracy(files, 1)}", "\n1,0.99", forged=True)
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert "does not come out again" in str(stopped.value)
    assert "MISMATCH" in capsys.readouterr().out


def test_a_missing_data_set_is_said(folder, monkeypatch):
    monkeypatch.setattr(audit, "load_dataset", missing)
    assert [(f.ok, f.note) for f in findings(folder)] == [(None, "the data set is not here")] * 2


def test_records_can_be_chosen(folder, capsys):
    command = ["audit", "--study", "smoke", "--results", str(folder), "--audit-rounds", "1"]
    main([*command, "--methods", "moon+entropy", "--cases", "2", "--seeds", "0"])
    shown = capsys.readouterr().out
    assert "synthetic/case2/moon+entropy/seed0" in shown
    assert "fedavg" not in shown
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--methods", "scaffold"])
    assert "no run has method 'scaffold'; there are fedavg+entropy, moon+entropy" in str(stopped.value)


def test_a_path_names_its_run():
    """As RunFiles builds it, whatever the case and the settings are."""
    for fields in ({"case": 3, "seed": 12}, {"case": "iid", "lr": 0.5}):
        config = profile_config("paper", entropy=True, **fields)
        name = named(RunFiles(config, "anywhere").csv)
        assert (name.dataset, name.case, name.label, name.seed) == (
            config.dataset,
            config.case,
            config.label,
            config.seed,
        )
    assert named(Path("paper/runs/cifar10/case1/moon/notes.csv")) is None


def test_samples_are_spread():
    assert audit.sample(list(range(101)), 3) == [0, 50, 100]
    assert audit.sample(list(range(4)), 10) == [0, 1, 2, 3]
