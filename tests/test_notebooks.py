"""Every notebook is paired with its script; figures and stored notebooks hold nothing that changes from run to run."""

import re
from itertools import combinations
from pathlib import Path

import jupytext
import nbformat
import pytest
from conftest import write_record
from matplotlib import pyplot as plt
from PIL import Image

from fedentropy_core.paper.notebooks import cleaned, notebook_paths
from fedentropy_core.paper.round_figure import round_diagram
from fedentropy_core.paper.study import shown_runs
from fedentropy_core.report import figures as plots
from fedentropy_core.report.frame import frame
from fedentropy_core.report.looks import COLOURS, NAMES
from fedentropy_core.report.source import Source

NOTEBOOKS = notebook_paths()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_and_script_are_the_same(path):
    def cells(notebook):
        return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]

    assert cells(nbformat.read(path, as_version=4)) == cells(jupytext.read(path.with_suffix(".py")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_are_clean(path):
    notebook = nbformat.read(path, as_version=4)
    assert cleaned(notebook) == nbformat.read(path, as_version=4)
    text = path.read_text()
    assert not re.search(r"/(home|root|tmp|Users)/", text)
    assert "Traceback" not in text


def test_reading_order_has_no_gap():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number:02}" for number in range(1, len(NOTEBOOKS) + 1)]


def test_the_same_figure_is_the_same_file(tmp_path):
    for name in ("a", "b"):
        figure = plots.convergence(frame([]), ["cifar10"], ["fedavg", "fedavg+entropy"], cases=[1])
        plots.save(figure, name, tmp_path, Source("a"))
        plt.close(figure)
    for kind in ("pdf", "png"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert {path.suffix for path in Path(tmp_path).iterdir()} == {".pdf", ".png"}


def test_a_mean_curve_is_of_the_same_seeds_throughout(tmp_path):
    write_record(tmp_path, [0.2] * 1000, dataset="cifar10", seed=0)
    write_record(tmp_path, [0.4] * 600, dataset="cifar10", seed=1, rounds=1000)
    figure = plots.convergence(shown_runs("paper", tmp_path), ["cifar10"], ["fedavg"], cases=[1])
    (curve,) = figure.axes[0].lines
    assert curve.get_xdata().tolist() == list(range(1, 601))
    assert curve.get_ydata() == pytest.approx(30)
    plt.close(figure)


def test_a_panel_compares_the_same_seeds(tmp_path):
    for seed, accuracy in ((0, 0.2), (1, 0.4)):
        write_record(tmp_path, [accuracy] * 30, dataset="cifar10", seed=seed, rounds=30)
    write_record(tmp_path, [0.3] * 30, dataset="cifar10", entropy=True, rounds=30)
    methods = ["fedavg", "fedavg+entropy", "moon"]
    figure = plots.convergence(shown_runs("custom", tmp_path), ["cifar10"], methods, cases=[1])
    assert [curve.get_ydata()[-1] for curve in figure.axes[0].lines] == pytest.approx([20, 30])
    assert figure.axes[0].get_title() == "CIFAR-10, case 1 (1 seed)"
    plt.close(figure)


def test_colours_are_distinct():
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert set(COLOURS) == set(NAMES)


def test_a_figure_says_what_made_it(tmp_path):
    figure = plots.convergence(frame([]), ["cifar10"], ["fedavg"], cases=[1])
    plots.save(figure, "a", tmp_path, Source("03_accuracy", ("paper",), 2, "0123"))
    text = "made by notebooks/03_accuracy.ipynb from 2 records of “paper”, digest 0123"
    assert Image.open(tmp_path / "a.png").info["Description"] == text
    assert b"03_accuracy" in (tmp_path / "a.pdf").read_bytes().replace(b"\x00", b"")
    plt.close(figure)


def test_bands_are_ranges_and_the_papers_numbers_stand_at_the_edge(tmp_path):
    for seed, accuracy in enumerate((0.2, 0.3, 0.7)):
        write_record(tmp_path, [accuracy] * 30, dataset="cifar10", seed=seed, rounds=30)
    runs = shown_runs("custom", tmp_path)
    figure = plots.convergence(runs, ["cifar10"], ["fedavg"], [1], reported={("cifar10", 1, "fedavg"): 27.08})
    axes = figure.axes[0]
    (band,) = axes.collections
    assert {round(float(y), 6) for y in band.get_paths()[0].vertices[:, 1]} == {20.0, 70.0}
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(40)
    assert axes.lines[1].get_ydata() == pytest.approx([27.08])
    plt.close(figure)


def test_the_diagram_of_a_round_has_no_words_outside_or_over_each_other():
    figure = round_diagram()
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert all(figure.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1) for box in boxes)
    assert not [one for one, other in combinations(boxes, 2) if one.overlaps(other)]
    plt.close(figure)
