"""Trust, but check: train the first rounds of recorded runs again on this machine and compare.

The native engine gives the same bits on any CPU, so its records must come out digest for digest. PyTorch does not
promise that between CPUs: a record of the reference engine is exact on the same CPU model only. Where exactness
cannot be asked for, numbers must agree within a tolerance, which holds for a few rounds: after that training
amplifies rounding. What must hold of any record (who can be kept, how many bytes that takes) is checked in all rounds.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from fedentropy_core.data.load import DatasetMissing, load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.build import available
from fedentropy_core.federation import Diverged, Federation
from fedentropy_core.machine import cpu_model
from fedentropy_core.runs.record import RecordError, RunRecord, first_digest, load_record, next_digest
from fedentropy_core.work import Dataset, Engine, Round

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


def sample(paths: Sequence[Path], count: int) -> list[Path]:
    """`count` records spread evenly over the list, always the same ones; a larger `count` gets to more methods."""
    places = np.linspace(0, len(paths) - 1, min(count, len(paths))).round().astype(int)
    return [paths[place] for place in dict.fromkeys(places.tolist())]


def audit(paths: Sequence[Path], rounds: int, progress: bool = True) -> list[Finding]:
    """Re-trains the first rounds of each record; whatever is wrong with one is its finding."""
    engines: dict[tuple[str, str], Engine] = {}
    return [
        _audit_one(path, rounds, engines) for path in tqdm(paths, desc="audit", unit="record", disable=not progress)
    ]


def table(findings: Sequence[Finding]) -> pd.DataFrame:
    """The findings as a table to print."""
    verdict = {True: "ok", False: "MISMATCH", None: "not checked"}
    rows = [(f.record, f.rounds, f.how, verdict[f.ok], f.note) for f in findings]
    return pd.DataFrame(rows, columns=["record", "rounds", "compared", "result", "note"])


class _Fault(Exception):
    """Why a record cannot be compared: a fault of its own, or (`ok` None) of this machine."""

    def __init__(self, how: str, why: object, ok: bool | None = False):
        super().__init__(str(why))
        self.how, self.ok = how, ok


def _audit_one(path: Path, rounds: int, engines: dict[tuple[str, str], Engine]) -> Finding:
    name = "/".join(path.with_suffix("").parts[-4:])
    try:
        record = _intact(path)
        dataset = _same_data(record)
        return _compared(name, record, dataset, rounds, engines)
    except _Fault as fault:
        return Finding(name, 0, fault.how, fault.ok, str(fault))
    except Exception as error:  # one record, or one too large for this machine, must not be the end of the others
        return Finding(name, 0, "", None, f"could not be checked here: {type(error).__name__}: {error}")


def _intact(path: Path) -> RunRecord:
    try:
        record = load_record(path)
        if path.with_suffix(".npz").exists():
            _ = record.weights  # checks them
    except RecordError as error:
        raise _Fault("record", error) from None
    return record


def _same_data(record: RunRecord) -> Dataset:
    try:
        dataset = load_dataset(record.config.dataset)
    except DatasetMissing:
        raise _Fault("", "the data set is not here", None) from None
    if dataset.fingerprint != record.about["data_fingerprint"]:
        raise _Fault("data", "the record was made from other data")
    test_images = np.bincount(dataset.test_labels, minlength=len(dataset.classes)).tolist()
    if record.about.get("test_images", test_images) != test_images:
        raise _Fault("data", "the record is of other test images")
    return dataset


def _compared(
    name: str, record: RunRecord, dataset: Dataset, rounds: int, engines: dict[tuple[str, str], Engine]
) -> Finding:
    inexact = _why_inexact(record)
    engine = "auto" if inexact else record.about["engine"]
    if (engine, dataset.name) not in engines:
        engines[engine, dataset.name] = make_engine(engine, dataset)
    try:
        federation = Federation(record.config, dataset, engines[engine, dataset.name])
    except ValueError as error:
        raise _Fault("configuration", f"no run can have its configuration: {error}") from None
    contradiction = _contradiction(record, federation)
    if contradiction:
        return Finding(name, len(record.rounds), "with itself", False, contradiction)
    count = min(min(rounds, TOLERANT_ROUNDS) if inexact else rounds, record.config.rounds)
    rows, expected = _play(federation, count), min(count, len(record.rounds))
    difference = (_tolerant_difference if inexact else _exact_difference)(record, rows)
    if difference is None and len(rows) != expected:
        less = len(rows) < expected
        difference = f"round {min(len(rows), expected) + 1} {'diverges' if less else 'does not diverge'} here"
    how, note = ("tolerance", _limits(record, inexact)) if inexact else ("exact", "")
    return Finding(name, len(rows), how, difference is None, difference or note)


def _limits(record: RunRecord, inexact: str) -> str:
    limited = len(record.rounds) > TOLERANT_ROUNDS
    return inexact + (f": only the first {TOLERANT_ROUNDS} rounds can be compared" if limited else "")


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


def _why_inexact(record: RunRecord) -> str | None:
    """Why the same bits cannot be asked for; None if they can."""
    engine = record.about["engine"]
    if engine == "native":
        return None if available() else "the native engine cannot be built here"
    if engine == "reference":
        made_on = [record.about["provenance"], *record.about.get("begun_on", [])]
        others = sorted({made["cpu"] for made in made_on} - {cpu_model()})
        return (
            f"the reference engine is exact on the same CPU only, this was made on {', '.join(others)}"
            if others
            else None
        )
    if engine == "batched" or engine.startswith("reference on "):
        return f"the engine “{engine}” does not promise the same bits on another machine"
    return f"the engine “{engine}” is unknown here"


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
