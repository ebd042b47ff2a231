"""No number of ours is typed where a reader meets it: decimals in prose are the paper's, settings, or generated."""

import csv
import re
from dataclasses import fields
from pathlib import Path

import jupytext
import pytest

from fedentropy_core.config import RunConfig
from fedentropy_core.paper import protocol
from fedentropy_core.paper.notebooks import notebook_paths

ROOT = Path(__file__).parent.parent
# Pages whose every number is computed; README.md joins them once it is written anew.
PAGES = ["docs/protocol.md"]
# What the protocol says of the noise that it was decided by, before the study was trained.
DECLARED = {"docs/protocol.md": {"2.7", "1.1"}}
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")
GENERATED = re.compile(r"<!-- ([\w-]+): start -->.*?<!-- \1: end -->", re.DOTALL)
NO_PROSE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|https?://\S+", re.DOTALL)
VERSION = re.compile(r"(?:Python|PyTorch|Flower|Ray|version|section)s?\s+\d+\.\d+(?:\s+(?:to|or)\s+\d+\.\d+)?", re.I)


def papers_own():
    """Every number of the paper's tables, as it stands there and with fewer digits, and differences to FedEntropy."""
    with (ROOT / "results" / "reported.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {f"{float(row[name]):.{digits}f}" for row in rows for name in ("mean", "std") for digits in (1, 2)}


def settings():
    """Defaults of a run and of the protocol."""
    values = [field.default for field in fields(RunConfig)]
    values += [value for name, value in vars(protocol).items() if name.isupper()]
    return {str(value) for value in values if isinstance(value, float)}


def decimals(text):
    prose = VERSION.sub("", NO_PROSE.sub("", GENERATED.sub("", text)))
    return [found.group() for found in DECIMAL.finditer(prose)]


def typed(text):
    return [number for number in decimals(text) if number not in papers_own() | settings()]


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_number_of_ours(page):
    allowed = DECLARED.get(page, set())
    assert [number for number in typed((ROOT / page).read_text()) if number not in allowed] == []


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.stem)
def test_notebooks_have_no_number_of_ours(path):
    cells = jupytext.read(path.with_suffix(".py")).cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert [number for text in prose for number in typed(text)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("it leads by 5.1 points", ["5.1"]),
        ("<!-- a: start -->5.1<!-- a: end -->", []),
        ("the paper has 27.08 and 4.93", ["4.93"]),
        ("momentum 0.5, `5.1`, [a](b/5.1.md), Python 3.10 to 3.13", []),
        ("version 1.41.0 and 10.12345/abc", ["10.12345"]),
    ],
)
def test_what_counts(text, found):
    assert typed(text) == found
