"""Trust, but check: train the first rounds of recorded runs again on this machine and compare.

The native engine gives the same bits on any CPU, so its records must come out digest for digest. PyTorch does not
promise that between CPUs: a record of the reference engine is exact on the same CPU model only. Where exactness
cannot be asked for, numbers must agree within a tolerance, which holds for a few rounds: after that training
amplifies rounding. What must hold of any record (who can be kept, how many bytes that takes) is checked in all rounds.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.build import available
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.machine import cpu_model
from fedentropy_core.runs.record import RecordError, RunRecord, first_digest, load_record, next_digest
from fedentropy_core.work import Engine, Round

ACCURACY_TOLERANCE, LOSS_TOLERANCE, ENTROPY_TOLERANCE = 0.005, 0.01, 0.01
TOLERANT_ROUNDS = 5


@dataclass(frozen=True)
class Finding:
    """What the audit says of one record; `ok` None: could not be checked here."""

    record: str
    rounds: int
    how: str
    ok: bool | None
    note: str = ""


class Named(NamedTuple):
    """A record's file and the run that its path names, which is readable even where the record is not."""

    path: Path
    dataset: str
    case: int | str
    label: str
    seed: int


def named(path: Path) -> Named:
    """…/cifar10/case1/moon/seed0.csv, or of a run with settings of its own seed0-<key>.csv."""
    match = re.search(r"([^/]+)/(?:case)?([^/]+)/([^/]+)/seed(\d+)(?:-[^/]+)?\.csv$", path.as_posix())
    if not match:
        raise RecordError(f"{path} is not named as records are: <data set>/<case>/<method>/seed<k>.csv")
    dataset, case, label, seed = match.groups()
    return Named(path, dataset, int(case) if case.isdigit() else case, label, int(seed))


def sample(paths: Sequence[Path], count: int) -> list[Path]:
    """`count` records spread evenly over the list, always the same ones; a larger `count` gets to more methods."""
    places = np.linspace(0, len(paths) - 1, min(count, len(paths))).round().astype(int)
    return [paths[place] for place in dict.fromkeys(places.tolist())]


def audit(paths: Sequence[Path], rounds: int, progress: bool = True) -> list[Finding]:
    """Re-trains the first rounds of each record."""
    engines: dict[tuple[str, str], Engine | None] = {}
    bar = tqdm(paths, desc="audit", unit="record", disable=not progress)
    return [_audit_one(path, rounds, engines) for path in bar]


def table(findings: Sequence[Finding]) -> pd.DataFrame:
    """The findings as a table to print."""
    verdict = {True: "ok", False: "MISMATCH", None: "not checked"}
    rows = [(f.record, f.rounds, f.how, verdict[f.ok], f.note) for f in findings]
    return pd.DataFrame(rows, columns=["record", "rounds", "compared", "result", "note"])


def _audit_one(path: Path, rounds: int, engines: dict[tuple[str, str], Engine | None]) -> Finding:
    name = "/".join(path.with_suffix("").parts[-4:])
    try:
        record = load_record(path)
        if path.with_suffix(".npz").exists():
            _ = record.weights  # checks them
        dataset = load_dataset(record.config.dataset)
    except RecordError as error:
        return Finding(name, 0, "digest chain", False, str(error))
    except DatasetMissing:
        return Finding(name, 0, "", None, "the data set is not here")
    if dataset.fingerprint != record.about["data_fingerprint"]:
        return Finding(name, 0, "data", False, "the record was made from other data")
    test_images = np.bincount(dataset.test_labels, minlength=len(dataset.classes)).tolist()
    if record.about.get("test_images", test_images) != test_images:
        return Finding(name, 0, "data", False, "the record is of other test images")
    exact = _can_be_exact(record)
    engine_name = record.about["engine"] if exact else "auto"
    if (engine_name, dataset.name) not in engines:
        engines[engine_name, dataset.name] = make_engine(engine_name, dataset)
    count = min(rounds if exact else min(rounds, TOLERANT_ROUNDS), record.config.rounds)
    expected = min(count, len(record.rounds))
    federation = Federation(record.config, dataset, engines[engine_name, dataset.name])
    contradiction = _contradiction(record, federation)
    if contradiction:
        return Finding(name, len(record.rounds), "with itself", False, contradiction)
    compare = _exact_difference if exact else _tolerant_difference
    rows = _play(federation, count)
    difference = compare(record, rows)
    if difference is None and len(rows) != expected:
        less = len(rows) < expected
        difference = f"round {min(len(rows), expected) + 1} {'diverges' if less else 'does not diverge'} here"
    limited = not exact and len(record.rounds) > TOLERANT_ROUNDS
    limit = f"only the first {TOLERANT_ROUNDS} rounds can be compared" if limited else ""
    return Finding(name, len(rows), "exact" if exact else "tolerance", difference is None, difference or limit)


def _play(federation: Federation, count: int) -> list[Round]:
    """The first rounds, fewer if the run diverges."""
    rows: list[Round] = []
    with suppress(Diverged):
        while len(rows) < count:
            rows.append(federation.play_round())
    return rows


def _contradiction(record: RunRecord, federation: Federation) -> str | None:
    """The first round whose columns do not fit each other."""
    config = record.config
    for row in record.rounds.itertuples():
        chosen, kept = set(row.chosen), set(row.kept)
        uploads = len(row.chosen) if config.pools_only else len(row.kept)
        fits = {
            "chosen": len(chosen) == len(row.chosen) == config.chosen_per_round,
            "kept": bool(kept) and kept <= chosen and len(kept) == len(row.kept) and (config.entropy or kept == chosen),
            "models_up": row.models_up == uploads,
            "bytes_up": row.bytes_up == federation.bytes_up(uploads),
            "bytes_down": row.bytes_down == federation.bytes_down(),
            "entropy_after": row.entropy_after >= row.entropy_before,
        }
        wrong = [column for column, good in fits.items() if not good]
        if wrong:
            return f"round {row.round}: {', '.join(wrong)} cannot be"
    return None


def _can_be_exact(record: RunRecord) -> bool:
    if record.about["engine"] == "native":
        return available()
    made_on = [record.about["provenance"], *record.about.get("begun_on", [])]
    return record.about["engine"] == "reference" and all(made["cpu"] == cpu_model() for made in made_on)


def _exact_difference(record: RunRecord, rows: Sequence[Round]) -> str | None:
    digest = first_digest(record.about, record.columns)
    for row, recorded in zip(rows, record.rounds["digest"], strict=False):
        digest = next_digest(digest, row.line(record.columns))
        if digest != recorded:
            return f"round {row.round} comes out otherwise"
    return None


def _tolerant_difference(record: RunRecord, rows: Sequence[Round]) -> str | None:
    for row, recorded in zip(rows, record.rounds.itertuples(), strict=False):
        if row.chosen != recorded.chosen:
            return f"round {row.round}: other devices were chosen"
        # Not who was kept: of two devices with the same label either may go, for rounding.
        for column, tolerance in (
            ("accuracy", ACCURACY_TOLERANCE),
            ("loss", LOSS_TOLERANCE),
            ("entropy_before", ENTROPY_TOLERANCE),
            ("entropy_after", ENTROPY_TOLERANCE),
            ("models_up", 0),
        ):
            now, then = getattr(row, column), getattr(recorded, column)
            if abs(now - then) > tolerance:
                return f"round {row.round}: {column} {now} in place of {then}"
    return None
