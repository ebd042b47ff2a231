"""The exhaustive search against itertools, and what follows from it."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from conftest import write_record
from matplotlib import pyplot as plt

from fedentropy_core import RunConfig, judge, run
from fedentropy_core.judgment import group_entropy
from fedentropy_core.paper import judgment_figures as paper_figures
from fedentropy_core.paper import judgment_quality as optimal
from fedentropy_core.paper.played import play, play_all_on, play_on, with_weights
from fedentropy_core.paper.study import shown_runs, study_runs
from fedentropy_core.report import groups
from fedentropy_core.report import judgment_figures as plots_judgment
from fedentropy_core.report.groups import all_groups, best_group


def random_devices(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.3), n), rng.integers(1, 500, n)


def groups_of(n: int):
    return itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(1, n + 1))


@pytest.mark.parametrize(("n", "classes"), [(1, 3), (2, 2), (5, 4), (8, 10)])
def test_every_group_has_the_entropy_of_its_devices(n, classes):
    soft_labels, sizes = random_devices(n, classes, seed=n)
    groups = all_groups(soft_labels, sizes)
    expected = {g: group_entropy(soft_labels[list(g)], sizes[list(g)]) for g in groups_of(n)}
    assert len(groups.entropies) == 2**n - 1 == len(expected)
    for group, value in expected.items():
        assert groups.entropy_of(group) == pytest.approx(value, abs=1e-12)
    assert [groups.members(g) for g in range(2**n - 1)] == sorted(
        expected, key=lambda group: sum(1 << k for k in group)
    )


@pytest.mark.parametrize("seed", range(20))
def test_best_group_is_that_of_brute_force_and_never_worse_than_greedy(seed):
    soft_labels, sizes = random_devices(7, 5, seed)
    best = max(groups_of(7), key=lambda g: group_entropy(soft_labels[list(g)], sizes[list(g)]))
    assert best_group(soft_labels, sizes) == best
    outcome = optimal.greedy_and_best(soft_labels, sizes)
    assert outcome["all"] <= outcome["judgment"] <= outcome["best"] + 1e-12
    assert outcome["judgment"] == pytest.approx(judge(soft_labels, sizes).entropies[-1], abs=1e-12)
    assert outcome["equal"] == (outcome["best"] - outcome["judgment"] <= 1e-12)


def test_random_drop_is_the_mean_over_all_groups_of_that_size():
    soft_labels, sizes = random_devices(6, 4, seed=1)
    groups = all_groups(soft_labels, sizes)
    values = [group_entropy(soft_labels[list(g)], sizes[list(g)]) for g in itertools.combinations(range(6), 4)]
    assert groups.mean_entropy(4) == pytest.approx(np.mean(values), abs=1e-12)


def test_ties_go_to_more_devices_then_to_earlier_ones():
    assert best_group([[1, 0], [0, 1], [1, 0], [0, 1]], [1, 1, 1, 1]) == (0, 1, 2, 3)
    assert best_group([[1, 0], [1, 0], [0, 1]], [1, 1, 1]) == (0, 2)


def test_greedy_can_stop_early():
    """Six labels held by 2, 2, 2, 2, 1, 1 devices: no single removal helps, removing four doubles does."""
    soft_labels = np.eye(6)[[0, 0, 1, 1, 2, 2, 3, 3, 4, 5]]
    outcome = optimal.greedy_and_best(soft_labels, [500] * 10)
    assert outcome["kept"] == 10
    assert outcome["best_kept"] == 6
    assert outcome["best"] == pytest.approx(math.log(6))
    assert not outcome["equal"]


def test_too_many_devices_and_bad_soft_labels_are_errors():
    with pytest.raises(ValueError, match="21 devices form too many groups"):
        all_groups(np.full((21, 2), 0.5), np.ones(21))
    with pytest.raises(ValueError, match="device 1"):
        all_groups([[0.5, 0.5], [0.9, 0.9]], [1, 1])


def test_groups_of_more_than_one_chunk(monkeypatch):
    soft_labels, sizes = random_devices(7, 3, seed=3)
    whole = all_groups(soft_labels, sizes).entropies
    monkeypatch.setattr(groups, "CHUNK", 10)
    np.testing.assert_allclose(all_groups(soft_labels, sizes).entropies, whole, rtol=0, atol=1e-13)


SMALL = {"dataset": "synthetic", "case": 2, "devices": 20, "fraction": 0.25, "epochs": 1, "entropy": True}


def test_play_is_the_run_itself_and_its_tables_add_up(tmp_path):
    config = RunConfig(**SMALL, rounds=2)
    played = play(config)
    record = run(config, progress=False, results=tmp_path)
    compared = [optimal.compare_groups(r) for r in played]
    for rows, row in zip(compared, record.rounds.itertuples(), strict=True):
        by_group = rows.set_index("group")
        assert by_group.loc["judgment, soft labels", "accuracy"] == row.accuracy
        assert by_group.loc["judgment, soft labels", "kept"] == len(row.kept)
        assert by_group.loc["all chosen", "soft_entropy"] == pytest.approx(row.entropy_before)
        assert by_group.loc["best group, true labels", "true_entropy"] == by_group["true_entropy"].max()
        assert by_group.loc["best group, soft labels", "soft_entropy"] == by_group["soft_entropy"].max()
    rounds = pd.concat(compared)
    table = optimal.groups_table(rounds)
    assert list(table["group"]) == list(paper_figures.GROUP_LOOKS)
    assert (table.loc[table["group"] == "all chosen", "points"] == 0).all()
    assert optimal.groups_text(table).table["points over all chosen"][0] == "—"
    plt.close(paper_figures.judgment_quality(played, rounds, data="synthetic set"))


def test_recorded_runs(tmp_path):
    record = run(RunConfig(**SMALL, rounds=5), progress=False, results=tmp_path)  # the smoke profile
    rounds = optimal.recorded_rounds(record)
    assert (rounds["judgment"] <= rounds["best"] + 1e-12).all()
    assert list(rounds["kept"]) == list(record.rounds["models_up"])
    table = optimal.recorded_table(shown_runs("smoke", tmp_path), ["synthetic", "cifar10"], cases=(2,))
    assert list(table["seeds"]) == [1, 0]
    text = optimal.recorded_text(table)
    assert text.table["entropy, best group"].tolist() == [f"{rounds['best'].mean():.3f}"]
    assert text.note == "No runs of CIFAR-10 yet."


@pytest.mark.parametrize("shown", [None, 0, 1])
def test_the_picture_of_a_judgment(shown):
    soft_labels, sizes = np.eye(3)[[0, 0, 1, 2]], np.full(4, 10)
    judgment = judge(soft_labels, sizes)
    figure = plots_judgment.judgment_steps(soft_labels, sizes, judgment, shown=shown)
    path = figure.axes[2].lines[0].get_ydata()
    assert list(path) == list(judgment.entropies[: 2 if shown is None else shown + 1])
    plt.close(figure)


# ------------------------------------------------------------------------------------------------ played on


def test_a_recorded_run_goes_on_as_it_would_have(tmp_path):
    """Its next rounds from the record are those of a run that was never interrupted."""
    longer = play(RunConfig(**SMALL, rounds=5))[3:]
    record = run(RunConfig(**SMALL, rounds=3), progress=False, results=tmp_path, keep_weights=True)
    for one, other in zip(play_on(record, rounds=2), longer, strict=True):
        assert one.round == other.round
        np.testing.assert_array_equal(one.counts, other.counts)
        assert one.accuracies == other.accuracies


def test_only_runs_with_weights_are_played_on(tmp_path):
    for case in (1, 2):
        files = write_record(tmp_path, [0.3] * 1000, dataset="cifar10", case=case, entropy=True)
    files.csv.with_suffix(".npz").write_bytes(b"")
    assert with_weights(study_runs("paper", tmp_path))["case"].tolist() == [2]
    assert with_weights(study_runs("mirrored", tmp_path)).empty


def test_without_the_data_nothing_is_played_on(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path))
    write_record(tmp_path, [0.3] * 1000, dataset="cifar10", entropy=True)
    assert play_all_on(study_runs("paper", tmp_path), rounds=1) == []
