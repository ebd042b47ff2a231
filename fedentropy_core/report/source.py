"""What made a table or figure: its notebook, and the records it was computed from."""

import hashlib
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Source:
    """`digest` is sha256 over the last digests of all records, each of which stands for every round of its run."""

    notebook: str
    studies: tuple[str, ...] = ()
    records: int = 0
    digest: str = ""

    def __str__(self) -> str:
        made = f"made by notebooks/{self.notebook}.ipynb"
        if not self.studies:
            return f"{made} from no records"
        studies = " and ".join(f"“{name}”" for name in self.studies)
        return f"{made} from {self.records} records of {studies}, digest {self.digest}"


def made_by(notebook: str, *frames: pd.DataFrame) -> Source:
    """The source of what a notebook makes from these runs; it follows from the records alone, whatever their order."""
    if not frames:
        return Source(notebook)
    digests = sorted(record.about["final_digest"] for frame in frames for record in frame["record"])
    digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]
    return Source(notebook, tuple(frame.attrs["study"] for frame in frames), len(digests), digest)
