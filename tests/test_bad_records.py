"""A damaged, forged or misplaced record is named and left out, by whatever lists records; the rest is used."""

import json
import shutil
import warnings
from dataclasses import asdict, replace

import pytest
from conftest import MADE, forge, write_record
from hypothesis import given
from hypothesis import strategies as st

from fedentropy_core.cli import main
from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.paper.study import STUDIES, find_run, shown_runs, study_runs
from fedentropy_core.report.explore_runs import runs_panel
from fedentropy_core.runs import audit
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import Ignored, load_records, record_paths
from fedentropy_core.runs.record import RecordError, load_record
from fedentropy_core.runs.study import Study, overview
from fedentropy_core.runs.train import Means, run, run_all

SMOKE = {"dataset": "synthetic", "rounds": 5, "devices": 20, "fraction": 0.25, "epochs": 1}
METHODS = ("fedavg", "moon", "scaffold")
RUNS = tuple(RunConfig(**SMOKE, method=method) for method in METHODS)


@pytest.fixture
def three(tmp_path):
    """Three records of a study; tests spoil the second."""
    return [write_record(tmp_path, [0.1, 0.2, 0.3, 0.2, 0.3], **SMOKE, method=method) for method in METHODS]


def reforge(**about):
    return lambda files: forge(files, files.csv.read_text(), **about)


def without(name):
    def spoil(files):
        about = json.loads(files.json.read_text())
        del about[name]
        files.json.write_text(json.dumps(about))

    return spoil


def edit(old, new):
    return lambda files: forge(files, files.csv.read_text().replace(old, new, 1))


def made(**fields):
    return reforge(provenance=MADE | {"wall_seconds": 1.0} | fields)


def in_place_of(other):
    def spoil(files):
        theirs = files.csv.parents[1] / other / files.csv.name
        for suffix in (".csv", ".json"):
            shutil.copy(theirs.with_suffix(suffix), files.csv.with_suffix(suffix))

    return spoil


def as_folder(files):
    files.csv.unlink()
    files.csv.mkdir()


def bad_byte(attribute):
    return lambda files: getattr(files, attribute).write_bytes(getattr(files, attribute).read_bytes()[:-9] + b"\xff")


# What is done to a record, which of its files is blamed, and why.
DAMAGES = {
    "another run in its place": (in_place_of("fedavg"), "csv", "it is synthetic/case1/fedavg/seed0 of the study smoke"),
    "no JSON": (lambda files: files.json.unlink(), "json", "is missing"),
    "empty JSON": (lambda files: files.json.write_text(""), "json", "cannot be read"),
    "bottomless JSON": (lambda files: files.json.write_text("[" * 100_000), "json", "cannot be read"),
    "bad byte in the JSON": (bad_byte("json"), "json", "cannot be read"),
    "bad byte in the CSV": (bad_byte("csv"), "csv", "cannot be read"),
    "empty CSV": (lambda files: files.csv.write_text(""), "csv", "does not have the columns"),
    "CSV is a folder": (as_folder, "csv", "cannot be read"),
    "no engine": (without("engine"), "json", "its engine is missing"),
    "engine is empty": (reforge(engine=""), "json", "its engine is missing or no text"),
    "engine is a number": (reforge(engine=3), "json", "its engine is missing or no text"),
    "no fingerprint": (without("data_fingerprint"), "json", "its data_fingerprint is missing"),
    "no configuration": (without("config"), "json", "its configuration is no table"),
    "no key": (without("key"), "json", "its key is missing"),
    "no provenance": (without("provenance"), "json", "its provenance is missing or no table"),
    "no cores": (made(cores=None), "json", "its provenance does not say cores"),
    "no time": (made(wall_seconds=float("nan")), "json", "its provenance does not say wall_seconds"),
    "no versions": (made(versions=[], cpu=7), "json", "its provenance does not say cpu, versions"),
    "begun on nothing": (reforge(begun_on=[{}]), "json", "its begun_on does not say commit, cores, cpu"),
    "begun on no list": (reforge(begun_on=None), "json", "its begun_on is no list"),
    "diverged is true": (reforge(diverged=True), "csv", "not the 5 rounds"),
    "diverged after the end": (reforge(diverged=6), "csv", "not the 5 rounds"),
    "other images": (reforge(data_fingerprint="mine"), "csv", "by its configuration and images it is"),
    "accuracy is a word": (edit("2,0.2,", "2,high,"), "csv", "its rounds cannot be read"),
    "bytes overflow": (edit(",100,200,", f",{'9' * 30},200,"), "csv", "its rounds cannot be read"),
    "rounds twice": (edit("\n2,", "\n1,"), "csv", "not numbered from 1 on"),
    "unknown device": (edit(",3 1,", ",3 20,"), "csv", "there is no device 20"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_record_is_named_and_the_rest_is_used(damage, three, tmp_path, capsys):
    spoil, blamed, why = DAMAGES[damage]
    spoil(three[1])
    with pytest.raises(RecordError, match=why) as caught:
        load_record(three[1].csv)
    assert str(getattr(three[1], blamed)) in str(caught.value)
    with pytest.warns(Ignored) as named:
        assert [record.path for record in load_records("smoke", tmp_path)] == [three[0].csv, three[2].csv]
    assert [str(warning.message) for warning in named] == [str(caught.value)]
    with pytest.warns(Ignored, match=why):
        assert len(shown_runs("smoke", tmp_path)) == 2
    with pytest.warns(Ignored, match=why):
        table = overview(RUNS, tmp_path)
    assert [*zip(table["state"], table["left"], strict=True)] == [("recorded", 0), ("bad", 0), ("recorded", 0)]
    with pytest.raises(RecordError, match=why):
        run(RUNS[1], "reference", tmp_path, progress=False)
    before = three[1].folder.stat().st_mtime_ns
    assert len(run_all(RUNS, Means("reference"), tmp_path, progress=False)) == 2
    assert f"skipped synthetic case 1 moon seed 0: {caught.value}. Repair it, or delete" in capsys.readouterr().out
    assert three[1].folder.stat().st_mtime_ns == before
    (finding,) = audit.audit([three[1].csv], 1, progress=False)
    assert (finding.ok, finding.how, finding.note) == (False, "record", str(caught.value))


@given(st.sampled_from(["csv", "json"]), st.data())
def test_a_file_of_any_bytes_is_a_record_error(tmp_path_factory, which, data):
    """A piece of a good record in place of one of its files, or bytes put into it."""
    files = write_record(tmp_path_factory.mktemp("any"), [0.1, 0.2], **SMOKE | {"rounds": 2})
    path = getattr(files, which)
    whole = path.read_bytes()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole) - 1)] * 2)))
    spoiled = whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:]
    path.write_bytes(spoiled)
    assert str(files.csv.with_suffix("")) in complaint(files.csv)


def complaint(csv):
    try:
        return str(load_record(csv).path)
    except RecordError as error:
        return str(error)


STRAYS = {
    "runs/notes.csv": "is not where the files of a run are",
    "runs/synthetic/case1/seed0.csv": "is not where the files of a run are",
    "runs/synthetic/case1/moon/old/seed0.csv": "is not where the files of a run are",
    "runs/synthetic/case1/moon/seed0 (copy).csv": "is no file of a run",
    "runs/synthetic/case1/moon/seed0-old.csv": "is no file of a run",
    "runs/synthetic/case1/moon/.DS_Store": "is no file of a run",
    "runs/synthetic/case1/moon/seed7.json": "is left of a record whose seed7.csv is missing",
    "runs/synthetic/case1/moon/seed7.npz": "is left of a record whose seed7.csv is missing",
}
NO_STRAYS = ("seed7.ckpt", "seed7.json", "seed8.lock", "seed8.json", "seed9.ckpt.bad", ".seed9.csv.123.tmp")


@pytest.mark.parametrize("stray", STRAYS)
def test_a_stray_is_ignored_with_a_word(stray, three, tmp_path):
    path = tmp_path / "smoke" / stray
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("round,accuracy\n")
    for listing in (load_records, record_paths):
        with pytest.warns(Ignored) as named:
            assert len(listing("smoke", tmp_path)) == 3
        (word,) = (str(warning.message) for warning in named)
        assert word.startswith(f"{path} {STRAYS[stray]}")
    with pytest.warns(Ignored, match=STRAYS[stray]):
        assert set(overview(RUNS, tmp_path)["state"]) == {"recorded"}


@pytest.mark.filterwarnings("error")
def test_files_of_a_run_under_way_are_no_strays(three, tmp_path):
    for name in NO_STRAYS:
        (three[0].folder / name).touch()
    assert record_paths("smoke", tmp_path) == [files.csv for files in three]


def test_a_name_without_identity_stands_where_the_study_fixes_all_else(three, tmp_path):
    """And with one only elsewhere: the same run twice would count twice."""
    shutil.copytree(tmp_path / "smoke", tmp_path / "mine")
    with pytest.warns(Ignored) as named:
        assert load_records("mine", tmp_path) == []
    assert len(named) == 3
    with pytest.raises(RecordError, match=r"moon/seed0-\w{16} of the study mine; move it there, or delete it"):
        load_record(tmp_path / "mine/runs/synthetic/case1/moon/seed0.csv")
    for suffix in (".csv", ".json"):
        again = three[0].csv.with_name(f"seed0-{RUNS[0].key}{suffix}")
        shutil.copy(three[0].csv.with_suffix(suffix), again)
    with pytest.raises(RecordError, match="it is synthetic/case1/fedavg/seed0 of the study smoke"):
        load_record(again.with_suffix(".csv"))


def test_a_copy_anywhere_else_is_not_asked_for_its_place(three, tmp_path):
    for name in ("seed3.csv", "copy.csv", "seed0-0123456789abcdef.csv"):
        for suffix in (".csv", ".json"):
            shutil.copy(three[0].csv.with_suffix(suffix), (tmp_path / name).with_suffix(suffix))
        assert load_record(tmp_path / name).config == RUNS[0]


def test_images_that_have_no_pinned_fingerprint_are_those_of_the_record(tmp_path, monkeypatch):
    """A record of CINIC-10 loads whatever is in this machine's cache."""
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path / "no data"))
    own = write_record(tmp_path, [0.1] * 5, **SMOKE | {"dataset": "cinic10"})
    config = load_record(own.csv).config
    others = RunFiles(config, tmp_path, fingerprint="data")
    others.folder.mkdir(parents=True)
    for suffix in (".csv", ".json"):
        shutil.copy(own.csv.with_suffix(suffix), others.csv.with_suffix(suffix))
    assert load_record(others.csv).config == config


def test_two_records_that_differ_in_one_setting_load_side_by_side(tmp_path):
    configs = [RunConfig(**SMOKE, case=3, beta=beta) for beta in (0.1, 0.5)]
    files = [write_record(tmp_path, [0.1] * 5, **SMOKE, case=3, beta=beta, study="sweep") for beta in (0.1, 0.5)]
    assert files[0].csv != files[1].csv
    assert {record.config for record in load_records("sweep", tmp_path)} == set(configs)
    assert len(runs_panel(tmp_path, "sweep").children[0].options) == 2


@pytest.mark.parametrize("study", ["mirrored", "diagnosis", "paper"])
def test_every_shipped_record_loads_without_a_word(study):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_records(study)) == len(record_paths(study)) >= {"mirrored": 108, "diagnosis": 18}.get(study, 1)


def test_the_diagnosis_does_without_a_bad_run(tmp_path):
    config = STUDIES["diagnosis"].runs[0]
    files = RunFiles(config, tmp_path, "diagnosis")
    assert find_run(study_runs("diagnosis", tmp_path), config) is None
    files.folder.mkdir(parents=True)
    files.csv.touch()
    with pytest.warns(Ignored, match=r"\.json is missing"):
        assert find_run(study_runs("diagnosis", tmp_path), config) is None


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setitem(STUDIES, "smoke", Study("smoke", "of made-up records", RUNS))
    return ["--study", "smoke", "--results"]


def test_the_plan_marks_a_bad_record_and_names_it_once(three, tmp_path, study, capsys):
    three[1].csv.write_text("nothing")
    (tmp_path / "smoke/runs/notes.txt").touch()
    main(["plan", *study, str(tmp_path)])
    shown = capsys.readouterr()
    assert [line.split()[-1] for line in shown.out.splitlines() if " moon " in line] == ["!"]
    assert "! bad" in shown.out
    assert "2 of 3 runs recorded\n1 with a bad record" in shown.out
    assert "the rest" not in shown.out
    stray, bad = shown.err.splitlines()
    assert stray.startswith(f"ignored: {tmp_path / 'smoke/runs/notes.txt'} is not where")
    assert bad.startswith(f"ignored: record {three[1].csv}: ")


def test_an_audit_fails_on_a_bad_record(three, tmp_path, study, capsys):
    three[1].json.unlink()
    (three[1].folder / "seed0.txt").touch()
    with pytest.raises(SystemExit, match="does not come out again"):
        main(["audit", *study, str(tmp_path), "--methods", "moon"])
    shown = capsys.readouterr()
    assert "MISMATCH" in shown.out
    assert "seed0.json is missing" in shown.out
    assert f"ignored: {three[1].folder / 'seed0.txt'} is no file of a run" in shown.err


ENGINES = {
    "batched": "the engine “batched” does not promise the same bits on another machine",
    "reference on cuda": "the engine “reference on cuda” does not promise the same bits",
    "quantum": "the engine “quantum” is unknown here",
    "native": "the native engine cannot be built here",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_audit_says_when_an_engine_rules_out_exactness(engine, tmp_path, monkeypatch):
    config = profile_config("smoke", dataset="synthetic", rounds=1)
    files = RunFiles(config, tmp_path)
    run(config, "reference", tmp_path, progress=False)
    forge(files, files.csv.read_text(), engine=engine)
    monkeypatch.setattr(audit, "available", lambda: False)
    (finding,) = audit.audit([files.csv], 1, progress=False)
    assert (finding.ok, finding.how, finding.rounds) == (True, "tolerance", 1)
    assert finding.note.startswith(ENGINES[engine])


@pytest.mark.parametrize(
    ("fields", "ok", "note"),
    [
        ({"devices": 100_000}, False, "no run can have its configuration: "),
        ({"dataset": "letters"}, None, "could not be checked here: ValueError: unknown data set 'letters'"),
    ],
)
def test_the_audit_goes_on_after_a_run_that_cannot_be_trained(fields, ok, note, tmp_path):
    """Forged copies, for their places would give them away."""
    config = profile_config("smoke", dataset="synthetic", rounds=1)
    files, copy = RunFiles(config, tmp_path), tmp_path / "copy.csv"
    run(config, "reference", tmp_path, progress=False)
    changed = replace(config, **fields)
    good = files.csv.read_bytes(), files.json.read_bytes()
    forge(files, files.csv.read_text(), config=asdict(changed), key=changed.key)
    files.csv.rename(copy)
    files.json.rename(copy.with_suffix(".json"))
    files.csv.write_bytes(good[0])
    files.json.write_bytes(good[1])
    bad, honest = audit.audit([copy, files.csv], 1, progress=False)
    assert (bad.ok, honest.ok) == (ok, True)
    assert bad.note.startswith(note)


def test_the_audit_goes_on_where_no_engine_can_be_made(tmp_path, monkeypatch):
    config = profile_config("smoke", dataset="synthetic", rounds=1)
    run(config, "reference", tmp_path, progress=False)

    def refuse(*_):
        raise MemoryError("too large")

    monkeypatch.setattr(audit, "make_engine", refuse)
    (finding,) = audit.audit([RunFiles(config, tmp_path).csv], 1, progress=False)
    assert (finding.ok, finding.note) == (None, "could not be checked here: MemoryError: too large")
