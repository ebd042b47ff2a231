"""The studies of this repository: which runs each of them has, in the order of training.

`paper` is the paper's own setting. `mirrored` came first, with mirrored training images and a partition a seed; it
stays as a test of robustness. `diagnosis` changes single settings of `mirrored` to find causes of differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fedentropy_core.config import PROFILES, RunConfig, profile_config
from fedentropy_core.files import results_root
from fedentropy_core.paper.protocol import SEEDS
from fedentropy_core.report.frame import frame, told_apart
from fedentropy_core.report.source import Source
from fedentropy_core.report.tables import Shown, write_table
from fedentropy_core.runs.listing import ignore, load_records
from fedentropy_core.runs.names import named
from fedentropy_core.runs.record import RunRecord
from fedentropy_core.runs.study import Study, study_in

SHOWN = "mirrored"  # the study of README, notebooks and figures: "paper" once its CIFAR-10 part is complete

# Table 1 and Figure 2; with the second row Table 3 and Figures 3a and 6; the third is Figure 3b and the authors' rules.
TABLE_1 = ("fedavg", "fedavg+entropy", "fedprox", "scaffold", "moon")
SYNERGY = ("fedprox+entropy", "scaffold+entropy", "moon+entropy")
ABLATION = ("fedavg+entropy-no-pools", "fedavg+entropy-pools-only", "fedavg+entropy-value")
AUTHORS_SCAFFOLD = ("scaffold-authors", "scaffold-authors+entropy")
PAPER_CASES = (1, 2, 3)

Rows = Sequence[tuple[str, Sequence[int | str]]]  # labels, and the cases of each


@dataclass(frozen=True)
class Cause:
    """A setting that the authors may have used instead, and the runs (label and case) to try it on."""

    name: str
    fields: dict[str, float | int | str]
    runs: tuple[tuple[str, int], ...]


MIDDLE_CASES = (2, 3)  # where seed 0 is above the paper, and SCAFFOLD with FedEntropy below SCAFFOLD
_FEDAVG = tuple(("fedavg", case) for case in MIDDLE_CASES)
CAUSES = (
    Cause("no momentum", {"momentum": 0.0}, (*_FEDAVG, ("scaffold", 1), ("scaffold", 2), ("scaffold", 3))),
    # Case 1 is where our numbers are the paper's: a cause of the other cases' level should change little there.
    Cause("no mirroring", {"augment": "none"}, (("fedavg", 1), *_FEDAVG)),
    Cause("neither momentum nor mirroring", {"momentum": 0.0, "augment": "none"}, (("fedavg", 3),)),
    Cause("batches of 10", {"batch_size": 10}, _FEDAVG),
    Cause("authors' shards", {"case": "shards"}, (("fedavg", 2),)),
    # 100 rounds of all devices are as many local trainings as 1,000 rounds of ten, but no c_k is older than a round.
    Cause("all devices each round, 100 rounds", {"fraction": 1.0, "rounds": 100}, (("scaffold", 1),)),
    Cause("one local epoch", {"epochs": 1}, (("scaffold", 1),)),
    Cause(
        "all devices each round, 100 rounds, one local epoch",
        {"fraction": 1.0, "rounds": 100, "epochs": 1},
        (("scaffold", 1),),
    ),
    Cause("without pools", {"selection": "uniform"}, tuple(("scaffold+entropy", case) for case in MIDDLE_CASES)),
    Cause("authors' values", {"selection": "value"}, (("fedavg+entropy", 2),)),
)


def label_fields(label: str) -> dict:
    """The RunConfig fields that a label stands for."""
    method, _, variant = label.partition("+entropy")
    selection = {"": {}, "no-pools": {"selection": "uniform"}, "pools-only": {"pools_only": True}}
    variant = variant.removeprefix("-")
    return {"method": method, "entropy": "+" in label, **selection.get(variant, {"selection": variant})}


def specified_run(label: str, case: int) -> RunConfig:
    """The run whose settings the diagnosis changes: CIFAR-10, seed 0, mirrored."""
    return profile_config("mirrored", case=case, **label_fields(label))


def changed_run(cause: Cause, label: str, case: int) -> RunConfig:
    return replace(specified_run(label, case), **cause.fields)


def _runs(profile: str, dataset: str, seed: int, rows: Rows) -> list[RunConfig]:
    return [
        profile_config(profile, dataset=dataset, seed=seed, case=case, **label_fields(label))
        for label, cases in rows
        for case in cases
    ]


def _in_all_cases(labels: Sequence[str]) -> Rows:
    return [(label, PAPER_CASES) for label in labels]


def _paper() -> Study:
    cifar10 = [
        *_in_all_cases((*TABLE_1, *SYNERGY, *AUTHORS_SCAFFOLD, ABLATION[0])),
        *((label, (1,)) for label in (*ABLATION[1:], "fedavg+entropy-pools-authors")),
        *((label, ("shards",)) for label in ("fedavg", "fedavg+entropy")),
    ]
    each_seed = _in_all_cases((*TABLE_1, AUTHORS_SCAFFOLD[0]))
    first_seed = [*each_seed, *_in_all_cases((*SYNERGY, AUTHORS_SCAFFOLD[1], ABLATION[0]))]
    runs = [run for seed in SEEDS for run in _runs("paper", "cifar10", seed, cifar10)]
    for dataset in ("cifar100", "cinic10"):
        for seed in SEEDS:
            runs += _runs("paper", dataset, seed, first_seed if seed == 0 else each_seed)
    kept = [run for run in runs if run.dataset == "cifar10" and run.label in TABLE_1[:2] and run.case in PAPER_CASES]
    return Study("paper", "the paper's setting: no mirroring, one partition for all seeds", tuple(runs), tuple(kept))


def _mirrored() -> Study:
    """The runs that there are; it is not continued."""
    cifar10 = [*_in_all_cases(TABLE_1 + SYNERGY), *((label, (1,)) for label in ABLATION)]
    runs = _runs("mirrored", "cifar10", 0, cifar10)
    runs += _runs("mirrored", "cifar100", 0, _in_all_cases(TABLE_1 + SYNERGY))
    runs += [run for seed in (1, 2) for run in _runs("mirrored", "cifar10", seed, cifar10)]
    runs += _runs("mirrored", "cifar100", 1, [(label, (3,)) for label in ("fedavg", "fedavg+entropy", "scaffold")])
    return Study("mirrored", "the robustness study: mirrored training images, a partition a seed", tuple(runs))


def _diagnosis() -> Study:
    runs = tuple(changed_run(cause, label, case) for cause in CAUSES for label, case in cause.runs)
    return Study("diagnosis", "single settings of the mirrored study changed, seed 0", runs)


STUDIES = {study.name: study for study in (_paper(), _mirrored(), _diagnosis())}


def find_study(name: str) -> Study:
    """One of ours by its name, or that of a file such as my_sweep.py."""
    if name in STUDIES:
        return STUDIES[name]
    if not name.endswith(".py"):
        raise ValueError(f"study must be one of {', '.join(STUDIES)} or a file such as my_sweep.py; got {name!r}")
    study = study_in(Path(name))
    if study.name in {*STUDIES, *PROFILES, "custom"}:
        raise ValueError(f"study {name}: the name {study.name} is taken; call the file otherwise")
    return study


def study_runs(study: str, results: Path | str | None = None) -> pd.DataFrame:
    """A study's runs, a row each, `attrs["study"]` its name; but for those that diverged at once, of which there is
    nothing to report."""
    runs = frame(record for record in load_records(study, results) if len(record.rounds) and _own(record, study))
    runs.attrs["study"] = study
    return runs


def _own(record: RunRecord, study: str) -> bool:
    """Whether a run has its study's settings, where that fixes them; one that has not is named."""
    if study in PROFILES and named(record.path).identity:
        ignore(f"{record.path} has other settings or images than the study {study}: tables leave it out")
        return False
    return True


def shown_runs(study: str | None = None, results: Path | str | None = None) -> pd.DataFrame:
    """The runs that tables and figures show of a study; without a name of the one that is shown."""
    return told_apart(study_runs(study or SHOWN, results))


def find_run(runs: pd.DataFrame, config: RunConfig) -> pd.Series | None:
    """The run of a configuration."""
    found = [row for _, row in runs.iterrows() if row["record"].config == config]
    return found[0] if found else None


def caption(runs: pd.DataFrame) -> str:
    """Of which study the runs are, what it is, and how many of its runs there are."""
    name = runs.attrs["study"]
    known = STUDIES.get(name)
    title, of = (f", {known.title}", f" of {len(known.runs)}") if known else ("", "")
    return f"Study “{name}”{title}: {len(runs)}{of} runs"


def save_table(name: str, long: pd.DataFrame, shown: Shown, folder: Path | str | None, source: Source) -> Shown:
    """Writes a table among those of the study that is shown, or to another folder; gives it back to be looked at."""
    write_table(name, long, shown, Path(folder) if folder is not None else results_root() / SHOWN / "tables", source)
    return shown
