"""make reproduce: data, audit, every notebook, tables, figures, README and docs; and a summary of what was done."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.data.catalogue import SPECS, DataError
from fedentropy_core.data.load import prepare
from fedentropy_core.files import project_root, results_root
from fedentropy_core.paper.notebooks import check_packages, execute, notebook_paths
from fedentropy_core.paper.study import ABLATION, SHOWN, STUDIES, SYNERGY, TABLE_1, label_fields, shown_runs
from fedentropy_core.report.frame import NAMED_BY
from fedentropy_core.runs import audit
from fedentropy_core.runs.listing import record_paths
from fedentropy_core.runs.record import RecordError
from fedentropy_core.runs.study import Study, estimate, overview
from fedentropy_core.runs.train import run_all


class AuditFailed(Exception):
    """A recorded run does not come out again."""


def reproduce(records: int, rounds: int) -> None:
    """Regenerates every table and figure from the records."""
    if results_root().resolve() != (project_root() / "results").resolve():
        raise ValueError(
            f"FEDENTROPY_RESULTS is {results_root()}, but the README and the figures are those of the project's own "
            "records: unset it, or make notebooks of other records with papermill, as the README says"
        )
    check_packages()
    from fedentropy_core.paper.pages import write_pages  # the verdicts in them need the extra, an audit does not

    datasets = _fetch()
    paths = _recorded()
    findings = check(paths, records, rounds)
    notebooks = notebook_paths()
    execute(notebooks, project_root() / "notebooks", {})
    pages = write_pages()
    if _recorded() != paths:
        raise RecordError("a record came in meanwhile, so that notebooks may be of different records: run this again")
    print(
        f"\nreused:  {len(paths)} recorded runs\n"
        f"checked: {_checked(findings)}\n"
        f"data:    {', '.join(datasets) or 'none'}\n"
        f"made:    {len(notebooks)} notebooks, results/{SHOWN}/tables, figures, {', '.join(pages)}"
    )


def _recorded() -> list[Path]:
    return [path for study in STUDIES for path in record_paths(study)]


def announce_fresh(runs: Sequence[RunConfig], folder: Path, study: Study) -> None:
    """Before training anew: the data, how much is to be trained, and how long the shipped records say that takes."""
    check_packages()
    _fetch()
    todo = overview(runs, folder)
    rounds = todo["left"].sum()
    time = estimate(rounds, overview(study.runs, study=study)["pace"])
    print(f"{len(runs)} runs, {rounds:,} rounds to train into {folder}: {time}")


def finish_fresh(runs: Sequence[RunConfig], folder: Path, study: Study) -> None:
    """After training anew: the same notebooks from these records, and how they compare with what is shipped."""
    _execute_on(folder, runs[0].profile)
    print(f"\nmade: notebooks, tables and figures in {folder}\n")
    _compare(runs, folder, study)


def smoke() -> None:
    """Training, audit and every notebook on the synthetic set, in a temporary folder."""
    check_packages()
    labels = (*TABLE_1, *SYNERGY, *ABLATION)
    runs = [profile_config("smoke", dataset="synthetic", case=1, **label_fields(label)) for label in labels]
    runs += [profile_config("smoke", dataset="synthetic", case=case, entropy=True) for case in (2, 3)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run_all(runs, results=folder)
        check(record_paths("smoke", folder), records=len(runs), rounds=2)
        _execute_on(folder, "smoke", datasets=["synthetic"], seeds=[0], rounds=2)
        made = {kind: len(list(folder.rglob(f"*.{kind}"))) for kind in ("ipynb", "md", "pdf")}
    print(f"smoke: {len(runs)} runs, {made['ipynb']} notebooks, {made['md']} tables, {made['pdf']} figures: all well")


def check(paths: Sequence[Path], records: int, rounds: int) -> list[audit.Finding]:
    """Audits a sample of records and prints the table; AuditFailed on a mismatch."""
    if records < 1 or rounds < 1:
        raise ValueError(f"an audit needs at least one record and one round; got {records} and {rounds}")
    findings = audit.audit(audit.sample(paths, records), rounds) if paths else []
    print(audit.table(findings).to_string(index=False) if findings else "audit: there are no records yet")
    if any(finding.ok is False for finding in findings):
        raise AuditFailed("a recorded run does not come out again; see the table above")
    return findings


def _checked(findings: Sequence[audit.Finding]) -> str:
    """Which of the findings say what, in words."""
    trained = [f for f in findings if f.ok]
    rounds = f", trained again for {min(f.rounds for f in trained)} rounds or more" if trained else ""
    return f"{len(trained)} of them{rounds}; {len(findings) - len(trained)} could not be"


def _execute_on(folder: Path, study: str, **parameters: object) -> None:
    """The same notebooks on other records, everything they make in `folder`."""
    places = {"results": str(folder), "tables": str(folder / "tables"), "figures": str(folder / "figures")}
    execute(notebook_paths(), folder / "notebooks", {**places, "study": study, **parameters})


def _fetch() -> list[str]:
    """The data sets that are here or can be fetched; where one cannot be had the reproduction goes on without it."""
    ready = []
    for name in SPECS:
        try:
            prepare(name)
            ready.append(name)
        except DataError as error:
            print(f"without {name}: {error}")
    return ready


def _compare(runs: Sequence[RunConfig], folder: Path, study: Study) -> None:
    """Prints fresh and shipped accuracy of each run that both have; AuditFailed where bits had to be the same."""
    there = (shown_runs(study.name), shown_runs(runs[0].profile, folder))
    shipped, fresh = (found.set_index(NAMED_BY)["record"].to_dict() for found in there)
    both = sorted(shipped.keys() & fresh.keys(), key=str)
    print(f"{len(fresh)} of {len(runs)} runs trained anew, {len(both)} of them shipped as well")
    wrong = 0
    for key in both:
        pair = (shipped[key], fresh[key])
        rounds = min(len(record.rounds) for record in pair)
        then, now = (record.rounds.iloc[rounds - 1] for record in pair)
        same = then["weights"] == now["weights"]
        wrong += not same and all(record.about["engine"] == "native" for record in pair)
        accuracies = f"{now['accuracy']:.2%}, shipped {then['accuracy']:.2%}"
        print(f"{'same' if same else 'OTHER':6}{'/'.join(map(str, key))} after {rounds} rounds: {accuracies}")
    if wrong:
        raise AuditFailed(f"{wrong} runs of the native engine came out otherwise than the shipped ones")
