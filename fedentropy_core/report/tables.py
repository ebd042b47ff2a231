"""Tables as files: long form as CSV, what is shown as Markdown."""

from pathlib import Path

import pandas as pd

from fedentropy_core.files import atomic_write

MISSING = "—"


def write_table(name: str, long: pd.DataFrame, shown: pd.DataFrame, folder: Path) -> None:
    """The numbers as CSV, the table as Markdown."""
    for path, text in (
        (folder / f"{name}.csv", long.to_csv(index=False, float_format="%.6g", lineterminator="\n")),
        (folder / f"{name}.md", markdown(shown)),
    ):
        with atomic_write(path) as file:
            file.write(text.encode())


def markdown(table: pd.DataFrame) -> str:
    """A GitHub table."""
    rows = [list(map(str, table.columns)), ["---"] * len(table.columns), *table.astype(str).values.tolist()]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
