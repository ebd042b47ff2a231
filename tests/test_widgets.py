"""The panels without a browser: controls are set, pictures and sentences follow."""

import numpy as np
import pytest

from fedentropy_core import RunConfig, judge, run
from fedentropy_core.paper.judgment_quality import greedy_and_best
from fedentropy_core.report import explore, explore_runs


def controls(panel):
    found, stack = {}, list(panel.children)
    while stack:
        widget = stack.pop()
        stack += getattr(widget, "children", ())
        if getattr(widget, "description", ""):
            found[widget.description] = widget
    return found


def test_partition_panel_draws_and_explains_errors():
    panel = explore.partition_panel()
    first, c = panel.picture.value, controls(panel)
    assert not c["β"].disabled
    c["β"].value = 1.0
    assert panel.picture.value != first
    first = panel.picture.value
    c["partition seed"].value = 1
    assert panel.picture.value != first
    c["partition"].value = 1
    assert c["β"].disabled
    assert "<b>0.90</b>" in panel.sentence.value
    c["devices"].value = 5
    assert "cannot cover 10 labels" in panel.sentence.value
    assert panel.picture.value == b""
    c["devices"].value = 20
    assert bytes(panel.picture.value).startswith(b"\x89PNG")


def test_judgment_panel_steps_and_edits():
    panel = explore.judgment_panel()
    c = controls(panel)
    c["removals"].value = 0
    assert "removes device 0" in panel.sentence.value
    c["removals"].value = 5
    assert "devices 2, 3, 4, 5 kept. No single removal raises it, and no other group has more" in panel.sentence.value
    c["example"].value = "one big device"
    c["removals"].value = 0
    assert "removes device 0" in panel.sentence.value
    row = panel.children[2].children
    row[1].value = -1
    assert "device 0 needs numbers" in panel.sentence.value


def test_examples_are_what_their_names_say():
    labels, sizes = explore.EXAMPLES["the judgment stops early"]
    outcome = greedy_and_best(explore.normalised(labels), sizes)
    assert (outcome["kept"], outcome["best_kept"]) == (6, 2)
    assert outcome["best"] == pytest.approx(np.log(4))
    for labels, sizes in explore.EXAMPLES.values():
        judge(explore.normalised(labels), sizes)


def test_runs_panel(tmp_path):
    assert "No runs are recorded yet" in explore_runs.runs_panel(tmp_path).sentence.value
    small = {"dataset": "synthetic", "case": 2, "devices": 20, "fraction": 0.25, "epochs": 1}
    run(RunConfig(**small, rounds=5), progress=False, results=tmp_path)
    other = RunConfig(**small, rounds=3, entropy=True, partition_seed=None, global_step=0.5)
    run(other, progress=False, results=tmp_path)
    panel = explore_runs.runs_panel(tmp_path)
    assert "Choose runs" in panel.sentence.value
    chooser = panel.children[0]
    assert len(chooser.options) == 2
    assert any("rounds 3" in name and "partition_seed None · global_step 0.5" in name for name in chooser.options)
    chooser.value = chooser.options
    assert panel.picture.value
    for measure in explore_runs.SHOWN_OF_A_RUN:
        controls(panel)["shown"].value = measure
        assert panel.picture.value


def test_what_a_notebook_stores_is_stable():
    explore._made.clear()
    first = explore.judgment_panel()._repr_mimebundle_()
    explore._made.clear()
    assert explore.judgment_panel()._repr_mimebundle_() == first
    assert first["text/plain"] == "Panel 'judgment': run the notebook to use its controls."
    assert set(first) == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}
