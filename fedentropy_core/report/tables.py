"""Tables: long form as CSV, and what a reader looks at as Markdown and in a notebook."""

import html
import re
from pathlib import Path

import pandas as pd

from fedentropy_core.files import atomic_write
from fedentropy_core.report.source import Source

MISSING = "—"


class Shown:
    """A table as a reader wants it: no index, text to the left, long cells wrapped, **bold** as Markdown has it; and a
    line beneath about what it lacks."""

    def __init__(self, table: pd.DataFrame, note: str = ""):
        self.table, self.note = table, note

    def markdown(self) -> str:
        """A GitHub table."""
        return markdown(self.table) + (f"\n{self.note}\n" if self.note else "")

    def _repr_html_(self) -> str:
        numbers = {name for name in self.table if pd.api.types.is_numeric_dtype(self.table[name])}
        head = "".join(_cell("th", name, name in numbers) for name in self.table)
        body = "".join(
            f"<tr>{''.join(_cell('td', value, name in numbers) for name, value in row.items())}</tr>"
            for row in self.table.to_dict("records")
        )
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def __repr__(self) -> str:
        return self.markdown()


def write_table(name: str, long: pd.DataFrame, shown: Shown, folder: Path, source: Source) -> None:
    """The numbers as CSV beneath a comment (`pandas.read_csv(path, comment="#")`), the table as Markdown."""
    numbers = long.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    for path, text in (
        (folder / f"{name}.csv", f"# {source}\n{numbers}"),
        (folder / f"{name}.md", f"{shown.markdown()}\n<!-- {source} -->\n"),
    ):
        with atomic_write(path) as file:
            file.write(text.encode())


def markdown(table: pd.DataFrame) -> str:
    """A GitHub table."""
    rows = [list(map(str, table.columns)), ["---"] * len(table.columns), *table.astype(str).values.tolist()]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def bold(text: str) -> str:
    return f"**{text}**"


def _cell(kind: str, value: object, number: bool) -> str:
    align = "right" if number else "left"
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(str(value)))
    return f'<{kind} style="text-align: {align}; white-space: normal">{text}</{kind}>'
