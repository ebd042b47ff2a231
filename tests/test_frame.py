"""The frame holds what the records do; a sweep over any setting tabulates and plots in a line."""

import numpy as np
import pytest
from conftest import write_record
from matplotlib import pyplot as plt
from scipy import stats

from fedentropy_core.report.compare import compare
from fedentropy_core.report.frame import SETTINGS, frame
from fedentropy_core.runs.listing import load_records
from fedentropy_core.runs.record import load_record


def records(folder, accuracies, **fields):
    return [
        load_record(write_record(folder, row, **fields | {"seed": seed}).csv) for seed, row in enumerate(accuracies)
    ]


def test_a_row_a_run(tmp_path):
    accuracies = [k / 100 for k in range(1, 41)]
    (row,) = frame(records(tmp_path, [accuracies], uploads=3, model=1_000_000), targets=[30, 99]).itertuples()
    assert row.last_ten == pytest.approx(100 * np.mean(accuracies[-10:]))
    assert row.last_hundred == pytest.approx(100 * np.mean(accuracies))
    assert row.best == pytest.approx(40)
    assert (row.rounds_played, row.diverged, row.variant) == (40, False, "fedavg")
    assert (row.models_up, row.megabytes_up) == (120, 120.0)
    assert row.rounds_to_30 == 30
    assert row.smooth_rounds_to_30 == 40  # the mean of rounds 21 to 40 is 30.5 %, of 20 to 39 29.5
    assert row.megabytes_to_30 == 90.0
    assert np.isnan(row.rounds_to_99)
    assert np.isnan(row.megabytes_to_99)


def test_settings_are_those_of_the_run(tmp_path):
    table = frame(records(tmp_path, [[0.5]], beta=0.3, entropy=True, partition_seed=None))
    config = table["record"].iloc[0].config
    assert {name: table[name].iloc[0] for name in SETTINGS} == {name: getattr(config, name) for name in SETTINGS}


def test_chance_and_divergence(tmp_path):
    """The made-up records have two labels: a half is chance."""
    table = frame(records(tmp_path, [[0.505] * 20, [0.52] * 20]))
    assert table["at_chance"].tolist() == [True, False]
    assert frame(records(tmp_path / "b", [[0.6] * 3], rounds=9))["diverged"].tolist() == [True]


def test_no_records_are_an_empty_frame():
    table = frame([])
    assert table.empty
    assert {"beta", "variant", "last_hundred", "record"} <= set(table)


# ------------------------------------------------------------------------------------------------ comparing


@pytest.fixture
def sweep(tmp_path):
    rng = np.random.default_rng(0)
    for beta in (0.1, 1.0, 10.0):
        for entropy in (False, True):
            rows = 0.4 + 0.05 * entropy + 0.01 * rng.normal(size=(3, 1)).round(3) * np.ones(20)
            records(tmp_path, rows.tolist(), beta=beta, entropy=entropy, case=3)
    return frame(load_records("custom", tmp_path))


def test_a_sweep_in_a_line(sweep):
    compared = compare(sweep, by="beta")
    table = compared.table
    assert list(table) == ["variant", "beta", "mean", "low", "high", "n"]
    assert table["n"].tolist() == [3] * 6
    cells = [rows["last_hundred"].to_numpy() for _, rows in sweep.groupby(["variant", "beta"])]
    deviation = np.sqrt(np.mean([cell.var(ddof=1) for cell in cells]))
    half = stats.t.ppf(0.975, 12) * deviation / np.sqrt(3)
    assert table["mean"].to_numpy() == pytest.approx([cell.mean() for cell in cells])
    assert (table["high"] - table["mean"]).to_numpy() == pytest.approx(np.full(6, half))
    figure = compared.figure()
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["FedAvg", "FedEntropy"]
    assert "<table" in compared._repr_html_()
    plt.close(figure)


@pytest.mark.parametrize("by", ["variant", "lr", "seed"])
def test_any_column_will_do(sweep, by):
    figure = compare(sweep, by=by).figure()
    plt.close(figure)


def test_bad_columns_are_named(sweep):
    with pytest.raises(ValueError, match=r"by must be a column of the frame, such as dataset.*; got 'betta'"):
        compare(sweep, by="betta")
    with pytest.raises(ValueError, match="measure must be a column of numbers"):
        compare(sweep, by="beta", measure="variant")
