"""The parts of README and docs that are made from records: what stands between a page's markers."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedentropy_core.files import atomic_write, project_root, results_root
from fedentropy_core.paper.claims import counted, decide_all
from fedentropy_core.paper.findings import headlines
from fedentropy_core.paper.study import SHOWN, TABLE_1, caption, shown_runs
from fedentropy_core.paper.tables import accuracy_table, side_by_side

Part = Callable[[], str]


def cifar10_table() -> str:
    """Table 1 of CIFAR-10, the paper's and ours, by its measure."""
    runs = shown_runs()
    long = accuracy_table(runs, "table1", ["cifar10"], TABLE_1)
    return f"{caption(runs)}.\n\n{side_by_side(long[long['measure'] == 'last_ten']).markdown()}"


def found() -> str:
    """What the records say, and how many of the paper's sentences hold."""
    runs = shown_runs()
    decided = decide_all(runs)
    counts = ", ".join(f"{count} {direction}" for direction, count in counted(decided).items() if count)
    claims = f"Of {len(decided)} sentences of the paper about its results: {counts}."
    return f"{caption(runs)}.\n\n{headlines(runs)._repr_markdown_().strip()}\n- {claims}\n"


def stored_table(name: str) -> str:
    """A table that a notebook made."""
    return (results_root() / SHOWN / "tables" / f"{name}.md").read_text()


def study_shown() -> str:
    return f"{caption(shown_runs())}.\n"


def _tables(*names: str) -> dict[str, Part]:
    return {name: partial(stored_table, name) for name in names}


PAGES: dict[str, dict[str, Part]] = {
    "README.md": {"findings": found, "results": cifar10_table},
    "docs/results.md": {
        "caption": study_shown,
        **_tables("claims", "table1_accuracy", "tables2_and_6_rounds", "megabytes", "table3_synergy", "ablation"),
        **_tables("judgment_groups", "heterogeneity", "two_studies", "mirroring_alone"),
    },
    "docs/notes.md": _tables("diagnosis"),
}


def filled(text: str, parts: dict[str, Part], page: str) -> str:
    """A page with its parts made anew; a ValueError names a part whose markers it has lost."""
    for name, make in parts.items():
        start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
        before, found, rest = text.partition(start)
        _, ends, after = rest.partition(end)
        if not (found and ends):
            raise ValueError(f"{page} has lost its markers {start} and {end}")
        text = f"{before}{start}\n{make().strip()}\n{end}{after}"
    return text


def write_pages(root: Path | None = None) -> list[str]:
    """Makes every part anew; the pages."""
    root = root or project_root()
    for page, parts in PAGES.items():
        text = filled((root / page).read_text(), parts, page)
        with atomic_write(root / page) as file:
            file.write(text.encode())
    return list(PAGES)


def prose(text: str) -> str:
    """A page without what is made from records, and without code."""
    made = re.sub(r"<!-- (\S+): start -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    return re.sub(r"```.*?```|^ {4}.*$|`[^`]*`", "", made, flags=re.DOTALL | re.MULTILINE)
