"""The command line: fedentropy data | run | plan | train | audit | reproduce | smoke | bench."""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

from fedentropy_core.cli_options import (
    add_audit_size,
    add_bench,
    add_choice,
    add_configuration,
    add_engine,
    add_results,
    add_study,
    add_training,
    duration,
    part_of,
)
from fedentropy_core.config import RunConfig, profile_config
from fedentropy_core.data.catalogue import DATASETS
from fedentropy_core.data.load import load_dataset, prepare
from fedentropy_core.engines import BuildError, make_engine
from fedentropy_core.extras import MissingExtra
from fedentropy_core.files import results_root
from fedentropy_core.interrupts import Stopped, stop_on_signals
from fedentropy_core.paper.notebooks import NotebookError
from fedentropy_core.paper.reproduce import AuditFailed, announce_fresh, check, finish_fresh, reproduce, smoke
from fedentropy_core.paper.study import STUDIES, find_study
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.listing import Ignored, record_paths
from fedentropy_core.runs.names import named
from fedentropy_core.runs.record import RecordError, RunRecord
from fedentropy_core.runs.study import Study, estimate, overview
from fedentropy_core.runs.train import Means, run, run_all

_REFUSALS = (ValueError, OSError, MemoryError, BuildError, MissingExtra, RecordError, AuditFailed, NotebookError)
_MARKS = {"recorded": "x", "begun": "~", "missing": ".", "bad": "!"}


def main(arguments: list[str] | None = None) -> None:
    """Runs one command; a bad request ends with a message and exit code 1, Ctrl-C with 130, SIGTERM with 143."""
    try:
        stop_on_signals()
        options = _parser().parse_args(arguments)
        with _ignored_files_named():
            options.act(options)
    except _REFUSALS as error:
        sys.exit(f"error: {error}")
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        sys.exit(stopped.exit_code)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


@contextmanager
def _ignored_files_named() -> Iterator[None]:
    """A file that is left out of the records is named on stderr, once, in a line of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Ignored)
        others, named_before = warnings.showwarning, set()

        def show(message: Warning | str, category: type[Warning], *where: object) -> None:
            if not issubclass(category, Ignored):
                others(message, category, *where)
            elif str(message) not in named_before:
                named_before.add(str(message))
                print(f"ignored: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedentropy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_data(commands)
    _add_run(commands)
    _add_plan(commands)
    _add_train(commands)
    _add_audit(commands)
    _add_reproduce(commands)
    _add_smoke(commands)
    _add_bench(commands)
    return parser


def _add_data(commands) -> None:
    parser = commands.add_parser("data", help="fetch a data set, check it, cache it")
    parser.add_argument("--dataset", default="cifar10", choices=DATASETS)
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="archive or folder to take it from")
    parser.set_defaults(act=lambda options: prepare(options.dataset, options.source))


def _add_run(commands) -> None:
    parser = commands.add_parser(
        "run",
        help="train one configuration and write its record",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Trains one configuration and writes its record. Run again, it goes on where it stopped.",
    )
    add_configuration(parser)
    add_engine(parser)
    parser.add_argument("--threads", type=int, help="devices trained side by side; all cores if not given")
    add_results(parser)
    parser.add_argument("--keep-weights", action="store_true", help="keep the final global model beside the record")
    parser.add_argument("--restart", action="store_true", help="ignore a checkpoint and start from round 0")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(act=_run)


def _run(options: argparse.Namespace) -> None:
    names = {field.name for field in fields(RunConfig)}
    given = {name: value for name, value in vars(options).items() if name in names}
    given = {name: value for name, value in given.items() if value is not None or name == "partition_seed"}
    config = profile_config(options.profile, **given)
    if RunFiles(config, options.results).csv.exists() and not options.restart:
        print("finished before:")
        engine = options.engine
    else:
        engine = make_engine(options.engine, load_dataset(config.dataset), options.threads, options.device)
    record = run(
        config,
        engine,
        options.results,
        resume=not options.restart,
        progress=not options.quiet,
        keep_weights=options.keep_weights,
    )
    print(_summary(record))
    if record.diverged:
        raise ValueError(f"the run diverged in round {record.diverged} of {config.rounds}; lower lr (now {config.lr})")


def _add_plan(commands) -> None:
    parser = commands.add_parser("plan", help="list the runs of a study and which are recorded")
    add_study(parser)
    add_choice(parser)
    parser.set_defaults(act=_plan)


def _plan(options: argparse.Namespace) -> None:
    study = find_study(options.study)
    runs = overview(part_of(study.runs, options), options.results, study)
    print(f"{study.name}: {study.title}\n")
    marks = runs["state"].map(_MARKS)
    table = runs.assign(marks=marks).pivot_table("marks", ["dataset", "method"], "case", "".join, "", sort=False)
    print(table.to_string())
    counts = runs["state"].value_counts()
    print("\na mark a seed: " + ", ".join(f"{mark} {state}" for state, mark in _MARKS.items()))
    print(f"{counts.get('recorded', 0)} of {len(runs)} runs recorded")
    if "bad" in counts:
        print(f"{counts['bad']} with a bad record (“ignored: …” says why): left alone until it is repaired or deleted")
    left = runs["left"].sum()
    if left:
        print(f"the rest, {left:,} rounds: {estimate(left, runs['pace'])}")


def _add_train(commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a study's runs that are missing",
        description="Trains a study's runs that are missing, most valuable first, at low priority. "
        "Run again, it goes on where it stopped.",
    )
    add_study(parser)
    add_choice(parser)
    parser.add_argument("--time", type=duration, default=duration("150m"), metavar="150m", help="stop after this time")
    add_training(parser)
    parser.set_defaults(act=_train)


def _train(options: argparse.Namespace) -> None:
    os.nice(10)
    study = find_study(options.study)
    _train_runs(part_of(study.runs, options), options, options.results, options.time, study)


def _train_runs(
    runs: list[RunConfig],
    options: argparse.Namespace,
    results: Path | None,
    seconds: float | None = None,
    study: Study | None = None,
) -> None:
    means = Means(**{field.name: getattr(options, field.name) for field in fields(Means)})
    run_all(runs, means, results, study=study, seconds=seconds)


def _add_audit(commands) -> None:
    parser = commands.add_parser("audit", help="train the first rounds of recorded runs again and compare")
    add_audit_size(parser)
    add_study(parser)
    add_choice(parser)
    parser.set_defaults(act=_audit)


def _audit(options: argparse.Namespace) -> None:
    name = (
        find_study(options.study).name if options.study.endswith(".py") else options.study
    )  # or any folder of records
    paths = record_paths(name, options.results)
    chosen = part_of([named(path) for path in paths], options) if paths else []
    findings = check([record.path for record in chosen], options.records, options.rounds)
    if not any(finding.ok for finding in findings):
        raise AuditFailed(
            f"nothing was checked of study {options.study!r}: `make data` fetches a data set, `make train` makes "
            f"records, STUDY= chooses another of {', '.join(STUDIES)}"
        )


def _add_reproduce(commands) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="regenerate every table and figure",
        description="Fetches data, audits a sample of the records, executes every notebook. With --fresh it trains "
        "everything anew into results/fresh first, and goes on where it stopped when run again.",
    )
    add_audit_size(parser)
    add_study(parser)
    add_choice(parser)
    add_training(parser)
    parser.add_argument("--fresh", action="store_true", help="train anew instead of using the records")
    parser.add_argument("--fresh-rounds", type=int, metavar="T", help="rounds of a fresh run (default: the paper's)")
    parser.set_defaults(act=lambda options: _reproduce(options, parser))


def _reproduce(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    _refuse_unused(options, parser)
    if options.fresh:
        rounds = {} if options.fresh_rounds is None else {"rounds": options.fresh_rounds}
        study = find_study(options.study)
        runs = [replace(config, **rounds) for config in part_of(study.runs, options)]
        # Runs of different lengths do not belong in one table.
        length = f"{options.fresh_rounds}-rounds" if options.fresh_rounds else ""
        folder = options.results or results_root() / "fresh" / length
        announce_fresh(runs, folder, study)
        _train_runs(runs, options, folder)
        finish_fresh(runs, folder, study)
    else:
        reproduce(options.records, options.rounds)


def _refuse_unused(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """An option that would do nothing is a misunderstanding."""
    audit = {"records", "rounds"}
    own = vars(options).keys() - audit - {"command", "act", "fresh"}
    given = [name for name in (audit if options.fresh else own) if getattr(options, name) != parser.get_default(name)]
    if given:
        flags = ", ".join(sorted({"rounds": "--audit-rounds"}.get(n, "--" + n.replace("_", "-")) for n in given))
        where = (
            "not with --fresh, which audits nothing" if options.fresh else "only with --fresh (make reproduce FRESH=1)"
        )
        raise ValueError(f"{flags}: {where}")


def _add_smoke(commands) -> None:
    parser = commands.add_parser("smoke", help="everything end to end on the synthetic set, in a temporary folder")
    parser.set_defaults(act=lambda options: smoke())


def _add_bench(commands) -> None:
    parser = commands.add_parser("bench", help="time the engines side by side on this machine")
    add_bench(parser)
    parser.set_defaults(act=_bench)


def _bench(options: argparse.Namespace) -> None:
    from fedentropy_core.bench.command import main  # loads PyTorch, which to plan and to read needs none

    main(options)


def _summary(record: RunRecord) -> str:
    return (
        f"accuracy: last ten rounds {record.final_accuracy:.2%}, best {record.best_accuracy:.2%}\n"
        f"uploaded: {record.rounds['models_up'].sum():,} models, {record.rounds['bytes_up'].sum() / 1e6:,.1f} MB\n"
        f"record:   {record.path}"
    )
