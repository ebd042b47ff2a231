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


def put_between(path: Path, start: str, end: str, text: str) -> None:
    """Puts a text between two markers of a file, in place of what is there."""
    before, found, rest = path.read_text().partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{path} has lost its markers {start} and {end}")
    with atomic_write(path) as file:
        file.write(f"{before}{start}\n{text}{end}{after}".encode())
