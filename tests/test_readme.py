"""The README's code runs, and its table is that of the records."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedentropy_core import RunConfig, federation, judge, load_dataset
from fedentropy_core.data.catalogue import Spec
from fedentropy_core.engines import make_engine
from fedentropy_core.methods import FedAvg, RoundOutcome
from fedentropy_core.paper.reproduce import GENERATED, markers, write_generated

TEXT = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


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


@pytest.fixture
def own_records(monkeypatch):
    monkeypatch.delenv("FEDENTROPY_RESULTS", raising=False)


@pytest.mark.usefixtures("own_records")
@pytest.mark.parametrize("name", GENERATED)
def test_generated_parts_are_those_of_the_records(name):
    start, end = markers(name)
    shown = f"{start}\n{GENERATED[name]()}{end}"
    assert shown in TEXT, f"the records are not those of the README's {name}: `make reproduce` renews them"


def test_what_is_generated_leaves_the_rest_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("fedentropy_core.paper.reproduce.GENERATED", {"a": lambda: "one\n", "b": lambda: "two\n"})
    page = tmp_path / "page.md"
    (start, end), (start_b, end_b) = markers("a"), markers("b")
    page.write_text(f"before {start} old {end} between {start_b}{end_b} after\n")
    write_generated(page)
    made = f"before {start}\none\n{end} between {start_b}\ntwo\n{end_b} after\n"
    assert page.read_text() == made
    write_generated(page)
    assert page.read_text() == made
    page.write_text("no markers")
    with pytest.raises(ValueError, match="has lost its markers"):
        write_generated(page)
    assert page.read_text() == "no markers"


def test_extensions_are_short():
    assert all(len(text.splitlines()) < 15 for text in BLOCKS)


def test_every_file_named_exists():
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", TEXT):
        assert (root / target).exists(), target
