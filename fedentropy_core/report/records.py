"""Finished runs together, and what is measured of one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedentropy_core.config import PROFILES
from fedentropy_core.data.catalogue import SPECS
from fedentropy_core.runs.listing import ignore, load_records
from fedentropy_core.runs.names import named
from fedentropy_core.runs.record import RunRecord

DATASET_NAMES = {name: spec.title for name, spec in SPECS.items()} | {"synthetic": "synthetic"}
CHANCE = {name: 1 / len(spec.classes) for name, spec in SPECS.items()} | {"synthetic": 0.1}

# Accuracies of a run in percent; the first is the paper's.
MEASURES: dict[str, Callable[[RunRecord], float]] = {
    "last ten": lambda run: 100 * run.final_accuracy,
    "last hundred": lambda run: 100 * run.last_hundred_accuracy,
    "best round": lambda run: 100 * run.best_accuracy,
}


@dataclass(frozen=True)
class Records:
    """The finished runs of a study, by what tables show of them."""

    runs: dict[tuple[str, int | str, str, int], RunRecord]
    study: str

    @classmethod
    def load(cls, study: str, results: Path | str | None = None) -> "Records":
        """A study's runs that tables can tell apart; the others are named in a warning.

        In the folder of a profile those with its settings count, elsewhere those that differ in more than tables show.
        """
        alike: dict[tuple[str, int | str, str, int], list[RunRecord]] = {}
        for record in load_records(study, results):
            config = record.config
            if study in PROFILES and named(record.path).identity:
                ignore(f"{record.path} has other settings or images than the study {study}: tables leave it out")
            elif not record.rounds.empty:  # diverged at once: there is nothing to report
                alike.setdefault((config.dataset, config.case, config.label, config.seed), []).append(record)
        for records in alike.values():
            if len(records) > 1:
                paths = ", ".join(str(record.path) for record in records)
                ignore(f"{paths} differ in settings that tables do not show: tables leave them out")
        return cls({key: records[0] for key, records in alike.items() if len(records) == 1}, study)

    def of(self, dataset: str, case: int | str, method: str) -> list[RunRecord]:
        """The runs of all seeds, by seed."""
        found = {seed: r for (d, c, m, seed), r in self.runs.items() if (d, c, m) == (dataset, case, method)}
        return [found[seed] for seed in sorted(found)]

    def pairs(self, dataset: str, case: int | str, one: str, other: str) -> list[tuple[RunRecord, RunRecord]]:
        """The runs of two methods by seed, for the seeds that both have."""
        ones, others = ({run.config.seed: run for run in self.of(dataset, case, m)} for m in (one, other))
        return [(ones[seed], others[seed]) for seed in sorted(ones.keys() & others.keys())]

    def paired(self, methods: Sequence[str]) -> "Records":
        """The runs to compare these methods by: on a data set and case the seeds of all that have any run there."""
        runs = {key: run for key, run in self.runs.items() if key[2] in methods}
        seeds: dict[tuple, dict[str, set[int]]] = {}
        for *data, method, seed in runs:
            seeds.setdefault(tuple(data), {}).setdefault(method, set()).add(seed)
        shared = {data: set.intersection(*of_methods.values()) for data, of_methods in seeds.items()}
        return Records({key: run for key, run in runs.items() if key[3] in shared[key[:2]]}, self.study)


def ten_round_noise(run: RunRecord) -> float:
    """How much ten rounds differ from other ten at the end of a run: the standard deviation of the means of ten rounds
    over the last 200, in points; NaN for a run of less than 20 rounds."""
    accuracy = 100 * run.rounds["accuracy"].tail(200)
    return float(accuracy.groupby((accuracy.index[-1] - accuracy.index) // 10).mean().std())


def at_chance(run: RunRecord) -> bool:
    """Whether a run ends within a point of guessing: it learned nothing, or diverged."""
    return run.final_accuracy < CHANCE[run.config.dataset] + 0.01


def count_diverged(runs: Iterable[RunRecord]) -> int:
    return sum(run.diverged is not None for run in runs)
