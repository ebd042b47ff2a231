"""The diagnosis: one setting changed at a time, its records apart from the paper's, both in one table."""

from dataclasses import asdict

from conftest import write_record

from fedentropy_core.paper import diagnosis
from fedentropy_core.paper.diagnosis import diagnosis_table
from fedentropy_core.paper.study import CAUSES, STUDIES, study_runs

MIRRORED = {"augment": "mirror", "partition_seed": None}


def test_a_run_differs_from_the_papers_in_its_cause_only():
    specified = {
        (run.method, run.entropy, run.case): run for run in STUDIES["mirrored"].runs if run.label.count("-") == 0
    }
    causes = [(cause, case) for cause in CAUSES for _, case in cause.runs]
    for (cause, case), run in zip(causes, STUDIES["diagnosis"].runs, strict=True):
        base = asdict(specified[run.method, run.entropy, case])
        changed = {name for name, value in asdict(run).items() if value != base[name]} - {"dataset", "seed"}
        assert changed == set(cause.fields)
        assert (run.dataset, run.seed, run.rounds * run.chosen_per_round) == ("cifar10", 0, 10_000)
    assert len({run.key for run in STUDIES["diagnosis"].runs}) == len(STUDIES["diagnosis"].runs)


def table_of(folder):
    return diagnosis_table(study_runs("mirrored", folder), study_runs("diagnosis", folder))


def test_the_table_has_both_runs(tmp_path):
    """As specified 50 % with one round of 60 %; without momentum 40 % with one round of 45 %."""
    config = {"dataset": "cifar10", "case": 2}
    write_record(tmp_path, [0.6] + [0.5] * 999, **config, **MIRRORED)
    write_record(tmp_path, [0.45] + [0.4] * 999, **config, **MIRRORED, momentum=0.0, study="diagnosis")
    table = table_of(tmp_path)
    row = table[(table["change"] == "no momentum") & (table["case"] == 2)].iloc[0]
    assert [round(float(number), 6) for number in row.iloc[3:]] == [48.9, 0.47, 50, 50, 60, 0, 40, 40, 45, 0]
    shown = diagnosis.shown(table).table
    ours = ["50.00 / 50.00 / 60.00", "40.00 / 40.00 / 45.00"]
    assert list(shown.iloc[0]) == ["no momentum", "FedAvg", 2, "48.90 ± 0.47", *ours]
    assert shown.iloc[1]["changed"] == "—"


def test_a_run_that_diverged_is_marked(tmp_path):
    fields = {"dataset": "cifar10", "case": 2, "momentum": 0.0, "rounds": 1000, **MIRRORED}
    write_record(tmp_path, [0.4] * 3, **fields, study="diagnosis")
    assert diagnosis.shown(table_of(tmp_path)).table["changed"][0] == "40.00 / 40.00 / 40.00 (diverged)"
