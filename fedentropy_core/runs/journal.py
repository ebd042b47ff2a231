"""One run on its way to its record: rows, digests, checkpoints, resuming."""

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, Future

import numpy as np

from fedentropy_core.config import RunConfig
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.machine import provenance
from fedentropy_core.runs.about import about_run
from fedentropy_core.runs.files import RunFiles
from fedentropy_core.runs.record import OtherEngine, check_chain, first_digest, next_digest
from fedentropy_core.work import Cohort, Round

CHECKPOINT_ROUNDS, CHECKPOINT_SECONDS = 25, 60.0
NEW = {"seconds": 0.0, "made": []}  # the history of a run that has none


class Journal:
    """One run on its way to its record: the rows so far, their digests, checkpoints, and on what they were made.

    `made` has the provenance of every process that worked on the run, taken when it began; equal ones count once.
    """

    def __init__(self, files: RunFiles, federation: Federation, resume: bool = True, keep_weights: bool = False):
        self.files, self.federation, self.config = files, federation, federation.config
        self.keep_weights = keep_weights
        dataset = federation.dataset
        test_images = np.bincount(dataset.test_labels, minlength=len(dataset.classes)).tolist()
        self.about = about_run(self.config, dataset.fingerprint, federation.engine.name, test_images)
        self.lines, history = _restore(files, federation, self.about) if resume else ([], NEW)
        engine = federation.engine
        self.seconds, here = history["seconds"], provenance(engine.threads, engine.device)
        self.made = [*(before for before in history["made"] if before != here), here]
        self.digest = self.lines[-1].rpartition(",")[2] if self.lines else first_digest(self.about)
        self.counted = self.saved = time.monotonic()
        self.pending: Future[Round] | None = None  # the row of the last round, while its model is evaluated
        self.diverged = False

    @property
    def complete(self) -> bool:
        """Whether no round is left to play."""
        return self.diverged or self.played == self.config.rounds

    def end_round(self, cohort: Cohort, beside: Executor) -> None:
        """Settles what was trained; the new global model is evaluated `beside` whatever comes next."""
        try:
            self.pending = beside.submit(self.federation.settle_round(cohort))
        except Diverged as why:
            self.diverged = True
            advice = f"a lower lr (now {self.config.lr}) may help"
            warnings.warn(f"{title(self.config)} diverged in {why}; {advice}", stacklevel=2)

    def take_down(self, share: float = 1.0) -> Iterator[Round]:
        """The row of the last round, once its model is evaluated; nothing if it is taken down already.

        `share` is the part of the time since the round before that this run is charged with.
        """
        if self.pending is None:
            return
        row, self.pending = self.pending.result(), None
        self.digest = next_digest(self.digest, row.line())
        self.lines.append(f"{row.line()},{self.digest}")
        now = time.monotonic()
        self.seconds, self.counted = self.seconds + share * (now - self.counted), now
        yield row

    @property
    def played(self) -> int:
        """Rounds, with the last one that may not be taken down yet."""
        return len(self.lines) + (self.pending is not None)

    @property
    def save_due(self) -> bool:
        return self.played % CHECKPOINT_ROUNDS == 0 or time.monotonic() - self.saved > CHECKPOINT_SECONDS

    def save(self) -> None:
        """A checkpoint of the rounds so far, if there are any; between rounds, with every row taken down."""
        if self.lines:
            history = {"seconds": self.seconds, "made": self.made}
            self.files.save_checkpoint(self.about | history, self.lines, self.federation.arrays())
            self.saved = time.monotonic()

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


def title(config: RunConfig) -> str:
    """A run's name in progress bars and notices."""
    return f"{config.dataset} case {config.case} {config.label} seed {config.seed}"
