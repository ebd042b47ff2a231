"""A run from start to record: resume, progress, checkpoints, deadline."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import Dataset, load_dataset
from fedentropy_core.engines import Cohort, Engine, Work, make_engine
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.interrupts import Interrupts, Stopped
from fedentropy_core.provenance import provenance
from fedentropy_core.records import (
    OtherEngine,
    RecordError,
    Round,
    RunFiles,
    RunRecord,
    about_run,
    check_chain,
    first_digest,
    load_record,
    next_digest,
)

CHECKPOINT_ROUNDS, CHECKPOINT_SECONDS = 25, 60.0
NEW = {"seconds": 0.0, "made": []}  # the history of a run that has none


class OutOfTime(Exception):
    """A run met its deadline; its checkpoint is saved."""


def run(
    config: RunConfig,
    engine: str | Engine = "auto",
    resume: bool = True,
    progress: bool | tqdm = True,
    results: Path | str | None = None,
    deadline: float | None = None,
    dataset: Dataset | None = None,
    keep_weights: bool = False,
    study: str | None = None,
) -> RunRecord:
    """Trains, or loads what was trained before, and returns the record.

    A finished record is returned as it is; an interrupted run goes on from its checkpoint, and its record is byte
    for byte that of an undisturbed run. `resume=False` starts from round 0, and refuses to replace a finished
    record. A run that diverges ends there, with a warning, and its record says so. `deadline` (time.monotonic())
    saves a checkpoint and raises OutOfTime; Ctrl-C and the like save one and raise Stopped. `progress` may be a bar
    that counts the rounds of several runs. A `dataset` other than the one that config.dataset names makes another run.
    `keep_weights` keeps the final global model beside the record. `study`: the folder in `results` to write to.
    """
    files = RunFiles(config, results, study, dataset and dataset.fingerprint)
    with files.locked():
        if files.csv.exists():
            if resume:
                return finished(files, keep_weights)
            raise RecordError(f"{files.csv} exists: delete it, or choose another results folder")
        train_files(files, dataset or load_dataset(config.dataset), engine, resume, progress, deadline, keep_weights)
        return load_record(files.csv)


def train_files(
    files: RunFiles,
    dataset: Dataset,
    engine: str | Engine,
    resume: bool = True,
    progress: bool | tqdm = True,
    deadline: float | None = None,
    keep_weights: bool = False,
) -> None:
    """Trains the run that these files are of, and writes its record; the files are locked, and there is no record."""
    worker = make_engine(engine, dataset) if isinstance(engine, str) else engine
    _train(Journal(files, Federation(files.config, dataset, worker), resume, keep_weights), progress, deadline)


def finished(files: RunFiles, keep_weights: bool = False) -> RunRecord:
    """The record of a run that is done."""
    record = load_record(files.csv)
    if record.config != files.config:
        raise RecordError(f"{files.csv} holds another configuration; delete it, or choose another results folder")
    if files.fingerprint not in (None, record.about["data_fingerprint"]):
        raise RecordError(f"{files.csv} was made from other images; delete it, or choose another results folder")
    if keep_weights and not files.weights.exists() and len(record.rounds):
        raise RecordError(f"{files.csv} was finished without keeping weights; train it into another results folder")
    files.checkpoint.unlink(missing_ok=True)  # a process that was killed at the very end left it
    return record


def title(config: RunConfig) -> str:
    """A run's name in progress bars and notices."""
    return f"{config.dataset} case {config.case} {config.label} seed {config.seed}"


def outcome(record: RunRecord) -> str:
    """A finished run in a line."""
    played = [] if record.rounds.empty else [f"last ten {record.final_accuracy:.2%}, best {record.best_accuracy:.2%}"]
    end = [f"diverged in round {record.diverged}"] if record.diverged else []
    return f"{record.path}: {', '.join(played + end)}"


def is_late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


class Journal:
    """One run on its way to its record: the rows so far, their digests, checkpoints, and on what they were made.

    `made` has the provenance of every process that worked on the run, taken when it began; equal ones count once.
    """

    def __init__(self, files: RunFiles, federation: Federation, resume: bool = True, keep_weights: bool = False):
        self.files, self.federation, self.config = files, federation, federation.config
        self.title, self.keep_weights = title(self.config), keep_weights
        dataset = federation.dataset
        test_images = np.bincount(dataset.test_labels, minlength=len(dataset.classes)).tolist()
        self.about = about_run(self.config, dataset.fingerprint, federation.engine.name, test_images)
        self.lines, history = _restore(files, federation, self.about) if resume else ([], NEW)
        self.seconds, here = history["seconds"], provenance(federation.engine)
        self.made = [*(before for before in history["made"] if before != here), here]
        self.digest = self.lines[-1].rpartition(",")[2] if self.lines else first_digest(self.about)
        self.counted = self.saved = time.monotonic()
        self.diverged = False

    @property
    def complete(self) -> bool:
        return self.diverged or len(self.lines) == self.config.rounds

    def add(self, row: Round, save: bool = False, share: float = 1.0) -> None:
        """Takes down a round, and saves a checkpoint if one is due or asked for.

        `share` is the part of the time since the last round that this run is charged with.
        """
        self.digest = next_digest(self.digest, row.line())
        self.lines.append(f"{row.line()},{self.digest}")
        now = time.monotonic()
        self.seconds, self.counted = self.seconds + share * (now - self.counted), now
        if save or len(self.lines) % CHECKPOINT_ROUNDS == 0 or now - self.saved > CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """A checkpoint of the rounds so far, if there are any."""
        if self.lines:
            history = {"seconds": self.seconds, "made": self.made}
            self.files.save_checkpoint(self.about | history, self.lines, self.federation.arrays())
            self.saved = time.monotonic()

    def end_diverged(self, why: Diverged) -> None:
        """The run ends with the rounds it has."""
        self.diverged = True
        warnings.warn(f"{self.title} diverged in {why}; a lower lr (now {self.config.lr}) may help", stacklevel=4)

    def write_record(self) -> None:
        """`provenance` is the last process's; where others came before, `begun_on` has theirs."""
        *before, last = self.made
        made = {"final_digest": self.digest, "provenance": last | {"wall_seconds": round(self.seconds, 1)}}
        if before:
            made["begun_on"] = before
        if self.diverged:
            made["diverged"] = len(self.lines) + 1
        weights = self.federation.weights if self.keep_weights and self.lines else None
        self.files.write_record(self.lines, self.about | made, weights)

    def out_of_time(self) -> OutOfTime:
        return OutOfTime(f"{self.title}: stopped after round {len(self.lines)} of {self.config.rounds}")


def cohorts_of(
    journals: Sequence[Journal], train: Callable[[list[Work]], list[Cohort]], interrupts: Interrupts
) -> list[Cohort]:
    """Begins a round of every run and trains its devices; interrupted, the rounds were never begun."""
    works = [journal.federation.begin_round() for journal in journals]
    try:
        with interrupts.at_once():
            return train(works)
    except KeyboardInterrupt:
        for journal in journals:
            journal.federation.abandon_round()
        raise save_and_stop(journals, interrupts) from None


def save_and_stop(journals: Sequence[Journal], interrupts: Interrupts) -> Stopped:
    """Saves every run; what to raise then."""
    for journal in journals:
        journal.save()
    first = journals[0]
    return interrupts.stopped(f"{first.title}: stopped after round {len(first.lines)}; the same command goes on")


def _train(journal: Journal, progress: bool | tqdm, deadline: float | None) -> None:
    federation = journal.federation
    with (
        Interrupts() as interrupts,
        progress_bar(progress, journal.title, journal.config.rounds, len(journal.lines)) as bar,
    ):
        while not journal.complete:
            (cohort,) = cohorts_of([journal], lambda works: [federation.engine.train(works[0])], interrupts)
            try:
                row = federation.end_round(cohort)
            except Diverged as why:
                journal.end_diverged(why)
                break
            late = is_late(deadline)
            journal.add(row, save=late)
            bar.set_postfix_str(f"accuracy {row.accuracy:.2%}, kept {len(row.kept)}/{len(row.chosen)}", refresh=False)
            bar.update()
            if interrupts.received and not journal.complete:
                raise save_and_stop([journal], interrupts)
            if late and not journal.complete:
                raise journal.out_of_time()
        journal.write_record()


@contextmanager
def progress_bar(progress: bool | tqdm, title: str, rounds: int, done: int) -> Iterator[tqdm]:
    """A bar of this run's own, or the given one with the rounds of the checkpoint counted but not timed."""
    if isinstance(progress, bool):
        with tqdm(total=rounds, initial=done, desc=title, unit="round", disable=not progress) as bar:
            yield bar
    else:
        if not progress.disable:
            progress.set_description_str(title)
            progress.initial += done
            progress.n += done
            progress.last_print_n += done
        yield progress


def _restore(files: RunFiles, federation: Federation, about: dict) -> tuple[list[str], dict]:
    """Puts the federation where its checkpoint left it; the lines so far and their history."""
    checkpoint = files.load_checkpoint()
    if checkpoint is None:
        return [], NEW
    saved, lines, arrays = checkpoint
    if saved.get("engine") not in (None, about["engine"]):
        raise OtherEngine(
            f"{files.checkpoint} was made by the {saved['engine']} engine: go on with that one, or start anew "
            "without resuming"
        )
    if {name: saved.get(name) for name in about} != about:
        files.set_checkpoint_aside("belongs to another configuration or other data")
        return [], NEW
    try:
        check_chain(lines, first_digest(about))
        history = {name: saved[name] for name in NEW}
        federation.restore(len(lines), arrays)
        return lines, history
    except (KeyError, ValueError) as error:
        files.set_checkpoint_aside(f"does not fit ({error})")
        return [], NEW
