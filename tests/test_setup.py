"""The set-up files agree with each other."""

import re
from importlib.metadata import requires, version
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def pins():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_requirement_is_pinned_exactly():
    for name, number in pins().items():
        assert re.fullmatch(r"[0-9][0-9.]*", number), name
    assert pins()["torch"] == "2.13.0"
    assert pins()["torchvision"] == "0.28.0"


def test_conda_users_get_the_same_versions():
    """environment.yml includes requirements.txt itself and pins no Python package of its own."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert pip == {"pip": ["-r requirements.txt", "-e ."]}
    names = {re.split("[=<> ]", entry)[0] for entry in conda}
    assert names.isdisjoint(pins())


def test_this_environment_has_the_pinned_versions():
    for name, number in pins().items():
        assert version(name).split("+")[0] == number


def packages(*extras):
    """What pyproject.toml says each extra brings; "" is the core."""
    needed = [Requirement(text) for text in requires("fedentropy-core")]
    wanted = (need for need in needed if any(applies(need, extra) for extra in extras))
    return {need.name.lower() for need in wanted} - {"fedentropy-core"}


def applies(need, extra):
    return need.marker is None if not extra else need.marker is not None and need.marker.evaluate({"extra": extra})


def test_the_pins_are_those_of_the_core_report_and_development():
    only_pinned = {"fonttools", "nbclient", "setuptools"}  # they decide on bytes of figures and notebooks, or build
    assert packages("", "report", "dev") == pins().keys() - only_pinned
    assert packages("") == {"torch", "torchvision", "numpy", "pandas", "pillow", "tqdm", "filelock"}


def test_citation_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert paper["title"].startswith("FedEntropy: Efficient Device Grouping")
    assert len(paper["authors"]) == 6
