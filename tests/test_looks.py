"""Variants that one figure shows are told apart in grey print and without a kind of cone."""

from itertools import combinations

import pytest

from fedentropy_core.paper.study import ABLATION, SYNERGY, TABLE_1
from fedentropy_core.report.looks import LOOKS
from fedentropy_core.report.vision import SIGHTS, distance

FIGURES = {
    "figure 2": TABLE_1,
    "figures 3a and 6": (*TABLE_1, *SYNERGY),
    "figure 3b": ("fedavg", "fedavg+entropy", *ABLATION, "fedavg+entropy-pools-authors"),
}
AT_A_GLANCE, HELPED_BY_DASHES = 20, 7  # ΔE


def nearest(variants, sight):
    """The pair of variants whose colours look most alike, and how far apart they are."""
    pairs = {pair: distance(*(LOOKS[v].colour for v in pair), sight) for pair in combinations(variants, 2)}
    pair = min(pairs, key=pairs.get)
    return pairs[pair], pair


@pytest.mark.parametrize("variants", FIGURES.values(), ids=FIGURES)
def test_no_two_variants_look_alike(variants):
    for one, other in combinations(variants, 2):
        a, b = LOOKS[one], LOOKS[other]
        if a.dashes == b.dashes:
            seen = {sight: distance(a.colour, b.colour, sight) for sight in (None, *SIGHTS)}
            assert min(seen.values()) >= AT_A_GLANCE, (one, other, seen)


@pytest.mark.parametrize("sight", [None, *(sight for sight in SIGHTS if sight != "grey")])
@pytest.mark.parametrize("variants", FIGURES.values(), ids=FIGURES)
def test_colours_help_where_there_are_colours(variants, sight):
    found, pair = nearest(variants, sight)
    assert found >= HELPED_BY_DASHES, (pair, found)


def test_the_simulator():
    """White and black stay; red and green of one lightness are far apart, less so without the long or middle cones."""
    for sight in SIGHTS:
        assert distance("#ffffff", "#ffffff", sight) == 0
        assert distance("#000000", "#ffffff", sight) == pytest.approx(100, abs=1)
    red, green = "#c05030", "#3a8a3a"
    for sight in ("protanopia", "deuteranopia", "grey"):
        assert distance(red, green, sight) < distance(red, green) / 2
