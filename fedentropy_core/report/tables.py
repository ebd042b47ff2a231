"""Tables as files: long form as CSV, what is shown as Markdown."""

import html
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


class Shown:
    """A table as a reader wants it: no index, text to the left, long cells wrapped."""

    def __init__(self, table: pd.DataFrame):
        self.table = table

    def _repr_html_(self) -> str:
        numbers = {name for name in self.table if pd.api.types.is_numeric_dtype(self.table[name])}
        head = "".join(_cell("th", name, name in numbers) for name in self.table)
        body = "".join(
            f"<tr>{''.join(_cell('td', value, name in numbers) for name, value in row.items())}</tr>"
            for row in self.table.to_dict("records")
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        return markdown(self.table)


def _cell(kind: str, value: object, number: bool) -> str:
    align = "right" if number else "left"
    return f'<{kind} style="text-align: {align}; white-space: normal">{html.escape(str(value))}</{kind}>'


def markdown(table: pd.DataFrame) -> str:
    """A GitHub table."""
    rows = [list(map(str, table.columns)), ["---"] * len(table.columns), *table.astype(str).values.tolist()]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
