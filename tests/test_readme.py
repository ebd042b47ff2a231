"""The code of README and docs runs, and their tables are those of the records."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedentropy_core import RunConfig, federation, judge, load_dataset
from fedentropy_core.data.catalogue import Spec
from fedentropy_core.engines import make_engine
from fedentropy_core.methods import FedAvg, RoundOutcome
from fedentropy_core.paper.pages import PAGES, filled

ROOT = Path(__file__).parent.parent
ALL_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = [
    text
    for page in (ROOT / "README.md", ROOT / "docs/extending.md")
    for text in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


def block(word):
    (found,) = [text for text in BLOCKS if word in text]
    return found


def test_the_judgment_example():
    shown = re.search(r"# Judgment\(kept=(.*?), removed=(.*?), entropies=\((.*?)…, (.*?)…\)\)", block("judge("))
    judgment = judge([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], sizes=[500, 500, 500, 500])
    assert (str(judgment.kept), str(judgment.removed)) == shown.groups()[:2]
    assert [f"{value:.8f}"[:6] for value in judgment.entropies] == list(shown.groups()[2:])


def test_the_new_method(monkeypatch):
    names = {"FedAvg": FedAvg, "np": np, "RoundOutcome": RoundOutcome}
    exec(block("class Drift"), names)
    monkeypatch.setattr(federation, "make_method", lambda name, *sizes: names["Drift"](*sizes))
    dataset = load_dataset("synthetic")
    config = RunConfig(dataset="synthetic", devices=50, epochs=1)
    run = federation.Federation(config, dataset, make_engine("reference", dataset))
    run.play_round()
    assert run.method.terms(0)["correction"].any()
    run.play_round()


def test_the_new_data_set():
    classes = tuple(f"class {number}" for number in range(10))
    spec = eval(block('name="stl10"'), {"Spec": Spec, "STL10_CLASSES": classes})
    assert spec.folders["class 3"] == 3


def test_the_new_partition():
    names = {"np": np}
    exec(block("def _sorted_blocks"), names)
    labels = np.array([1, 0, 1, 0])
    assert [labels[part].tolist() for part in names["_sorted_blocks"](labels, 2)] == [[0, 0], [1, 1]]


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_those_of_the_records(page, monkeypatch):
    monkeypatch.delenv("FEDENTROPY_RESULTS", raising=False)
    text = (ROOT / page).read_text()
    assert filled(text, PAGES[page], page) == text, f"the records are not those of {page}: `make reproduce` renews it"


def test_new_parts_leave_the_rest_as_it_was():
    parts = {"a": lambda: "new\n", "b": lambda: "other"}
    text = "before <!-- a: start --> old <!-- a: end --> between <!-- b: start --><!-- b: end --> after"
    made = "before <!-- a: start -->\nnew\n<!-- a: end --> between <!-- b: start -->\nother\n<!-- b: end --> after"
    assert filled(text, parts, "page") == made
    assert filled(made, parts, "page") == made
    with pytest.raises(ValueError, match="page has lost its markers <!-- a: start --> and <!-- a: end -->"):
        filled("no markers", parts, "page")


def test_extensions_are_short():
    assert all(len(text.splitlines()) < 15 for text in BLOCKS)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_file_named_exists(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= 140
