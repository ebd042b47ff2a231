"""Several runs in lockstep: a round of each, their devices trained as one stack.

One cohort does not fill a GPU, but the seeds of a method can share it. Records, checkpoints and locks are those of
runner.py, a set for each run. How far a run's numbers are those it has alone is the engine's promise: the same bits
on a CPU, the same up to the last bits on a GPU.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tqdm.auto import tqdm

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import load_dataset
from fedentropy_core.engines import Cohort, Engine, Work
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.interrupts import Interrupts
from fedentropy_core.records import RunFiles, RunRecord
from fedentropy_core.runner import Journal, cohorts_of, finished, is_late, progress_bar, save_and_stop


class StackingEngine(Engine, Protocol):
    """An engine that trains the cohorts of several runs at once."""

    def train_many(self, works: Sequence[Work]) -> list[Cohort]: ...


def seed_stacks(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """The runs in groups that differ in nothing but the seed; groups stand in the order of their first run."""
    stacks: dict[RunConfig, list[RunConfig]] = {}
    for config in configs:
        stacks.setdefault(replace(config, seed=0), []).append(config)
    return list(stacks.values())


def run_stacked(
    configs: Sequence[RunConfig],
    engine: StackingEngine,
    results: Path | str | None = None,
    progress: bool | tqdm = True,
    deadline: float | None = None,
    keep_weights: Callable[[RunConfig], bool] = lambda config: False,
    study: str | None = None,
) -> list[RunRecord]:
    """Trains what is missing of runs on one data set with one local rule, and returns the records of all.

    Each run goes on from its own checkpoint, whatever its round, and leaves the stack when it is done or diverges.
    `deadline`, `progress` and `study` are as in `run`, `keep_weights` says it of each run.
    """
    _check(configs, engine)
    everything = [RunFiles(config, results, study) for config in configs]
    with ExitStack() as locks:
        for files in everything:
            locks.enter_context(files.locked())
        missing = [files for files in everything if not files.csv.exists()]
        if missing:
            dataset = load_dataset(configs[0].dataset)
            journals = [
                Journal(files, Federation(files.config, dataset, engine), keep_weights=keep_weights(files.config))
                for files in missing
            ]
            _train(journals, engine, progress, deadline)
        return [finished(files, keep_weights(files.config)) for files in everything]


def _check(configs: Sequence[RunConfig], engine: StackingEngine) -> None:
    if not hasattr(engine, "train_many"):
        raise ValueError(f"the {engine.name} engine does not stack runs; use the batched one")
    if len({config.key for config in configs}) < len(configs):
        raise ValueError("a run cannot be stacked with itself")
    if len({(config.dataset, config.local_rule) for config in configs}) != 1:
        raise ValueError("runs to be stacked must have one data set and one local rule (lr, momentum, batch_size, μ)")


def _train(journals: list[Journal], engine: StackingEngine, progress: bool | tqdm, deadline: float | None) -> None:
    rounds, done = sum(journal.config.rounds for journal in journals), sum(len(journal.lines) for journal in journals)
    name = f"{journals[0].title} and {len(journals) - 1} more"
    with Interrupts() as interrupts, progress_bar(progress, name, rounds, done) as bar:
        running = _record_complete(journals)
        while running:
            cohorts = cohorts_of(running, engine.train_many, interrupts)
            late = is_late(deadline)
            for journal, cohort in zip(running, cohorts, strict=True):
                try:
                    journal.add(journal.federation.end_round(cohort), save=late, share=1 / len(cohorts))
                    bar.update()
                except Diverged as why:
                    journal.end_diverged(why)
            running = _record_complete(running)
            if interrupts.received and running:
                raise save_and_stop(running, interrupts)
            if late and running:
                raise running[0].out_of_time()


def _record_complete(journals: Sequence[Journal]) -> list[Journal]:
    """Writes the records of those that have all rounds, as a checkpoint may from the start; the others."""
    for journal in journals:
        if journal.complete:
            journal.write_record()
    return [journal for journal in journals if not journal.complete]
