"""A run from start to record: resume, progress, checkpoints, deadline."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import load_dataset
from fedentropy_core.engines import Engine, make_engine
from fedentropy_core.federation import Federation
from fedentropy_core.provenance import provenance
from fedentropy_core.records import RecordError, RunFiles, RunRecord, about_run, first_digest, load_record, next_digest

CHECKPOINT_ROUNDS, CHECKPOINT_SECONDS = 25, 60.0


class OutOfTime(Exception):
    """A run met its deadline; its checkpoint is saved."""


def run(
    config: RunConfig,
    engine: str | Engine = "auto",
    resume: bool = True,
    progress: bool | tqdm = True,
    results: Path | str | None = None,
    deadline: float | None = None,
) -> RunRecord:
    """Trains, or loads what was trained before, and returns the record.

    A finished record is returned as it is; an interrupted run goes on from its checkpoint, and its record is byte
    for byte that of an undisturbed run. `resume=False` starts from round 0, and refuses to replace a finished
    record. `deadline` (time.monotonic()) saves a checkpoint and raises OutOfTime. `progress` may be a bar that
    counts the rounds of several runs.
    """
    files = RunFiles(config, results)
    with files.locked():
        if files.csv.exists():
            if resume:
                return _finished(files)
            raise RecordError(f"{files.csv} exists: delete it, or choose another results folder")
        dataset = load_dataset(config.dataset)
        worker = make_engine(engine, dataset) if isinstance(engine, str) else engine
        _train(files, Federation(config, dataset, worker), resume, progress, deadline)
        return load_record(files.csv)


def _finished(files: RunFiles) -> RunRecord:
    record = load_record(files.csv)
    if record.config != files.config:
        raise RecordError(f"{files.csv} holds another configuration; delete it, or choose another results folder")
    return record


def _train(
    files: RunFiles, federation: Federation, resume: bool, progress: bool | tqdm, deadline: float | None
) -> None:
    config, fingerprint = federation.config, federation.dataset.fingerprint
    about = about_run(config, fingerprint, federation.engine.name)
    lines, seconds_before = _restore(files, federation, about) if resume else ([], 0.0)
    digest = lines[-1].rpartition(",")[2] if lines else first_digest(config, fingerprint)
    started = saved = time.monotonic()

    def save() -> None:
        seconds = seconds_before + time.monotonic() - started
        files.save_checkpoint(about | {"seconds": seconds}, lines, federation.arrays())

    title = f"{config.dataset} case {config.case} {config.label} seed {config.seed}"
    with _bar(progress, title, config.rounds, len(lines)) as bar:
        while len(lines) < config.rounds:
            row = federation.play_round()
            digest = next_digest(digest, row.line())
            lines.append(f"{row.line()},{digest}")
            bar.set_postfix_str(f"accuracy {row.accuracy:.2%}, kept {len(row.kept)}/{len(row.chosen)}", refresh=False)
            bar.update()
            late = deadline is not None and time.monotonic() > deadline and len(lines) < config.rounds
            if late or len(lines) % CHECKPOINT_ROUNDS == 0 or time.monotonic() - saved > CHECKPOINT_SECONDS:
                save()
                saved = time.monotonic()
            if late:
                raise OutOfTime(f"{title}: stopped after round {len(lines)} of {config.rounds}")
    seconds = seconds_before + time.monotonic() - started
    files.write_record(lines, about | {"final_digest": digest, "provenance": provenance(seconds)})


@contextmanager
def _bar(progress: bool | tqdm, title: str, rounds: int, done: int) -> Iterator[tqdm]:
    """A bar of this run's own, or the given one with the rounds of the checkpoint counted but not timed."""
    if isinstance(progress, bool):
        with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
            yield bar
    else:
        if not progress.disable:
            progress.set_description_str(title)
            progress.initial += done
            progress.n += done
        yield progress


def _restore(files: RunFiles, federation: Federation, about: dict) -> tuple[list[str], float]:
    """Puts the federation where its checkpoint left it; the lines so far and the seconds they took."""
    checkpoint = files.load_checkpoint()
    if checkpoint is None:
        return [], 0.0
    saved, lines, arrays = checkpoint
    if saved["engine"] != about["engine"]:
        raise RecordError(
            f"{files.checkpoint} was made by the {saved['engine']} engine: go on with that one, or start anew "
            "without resuming"
        )
    if {name: saved[name] for name in about} != about:
        files.set_checkpoint_aside("belongs to another configuration or other data")
        return [], 0.0
    try:
        federation.restore(len(lines), arrays)
    except (KeyError, ValueError) as error:
        files.set_checkpoint_aside(f"does not fit ({error})")
        return [], 0.0
    return lines, saved["seconds"]
