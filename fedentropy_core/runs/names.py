"""A run's name among the files of its study, <data set>/<case>/<variant>/seed<k>, and what a path says of its run."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from fedentropy_core.config import RunConfig
from fedentropy_core.data.catalogue import pinned_fingerprint

STEM = r"seed([0-9]+)(?:-([0-9a-f]{16}))?"
_RECORD = re.compile(rf"(?:^|/)([^/]+)/runs/(([^/]+)/([^/]+)/([^/]+)/{STEM})\.csv$")


class Named(NamedTuple):
    """A record's file and the run that its path names, which is readable even where the record is not."""

    path: Path
    study: str
    name: str
    dataset: str
    case: int | str
    label: str
    seed: int
    identity: str | None  # None where the study fixes all else


def named(path: Path) -> Named | None:
    """…/paper/runs/cifar10/case1/moon/seed0.csv; None for a file that does not stand where records do."""
    match = _RECORD.search(path.absolute().as_posix())
    if not match:
        return None
    study, name, dataset, case, label, seed, identity = match.groups()
    number = case.removeprefix("case")
    return Named(path, study, name, dataset, int(number) if number.isdecimal() else case, label, int(seed), identity)


def run_name(config: RunConfig, study: str, other_images: str | None = None) -> str:
    """Of a run in a study's folder: two runs that differ in anything have different ones.

    Only the folder of the profile that a configuration belongs to fixes all settings; elsewhere the name must tell the
    runs of a seed apart. `other_images`: the fingerprint of images other than those that the data set's name stands
    for, which no folder fixes.
    """
    case = f"case{config.case}" if isinstance(config.case, int) else config.case
    identity = f"-{config.key}" if study != config.profile or study == "custom" else ""
    if other_images is not None:
        identity = f"-{short_hash(f'{config.key} {other_images}')}"
    return f"{config.dataset}/{case}/{config.label}/seed{config.seed}{identity}"


def possible_names(config: RunConfig, study: str, fingerprint: str) -> list[str]:
    """Of a record with these images; two where the data set's name stands for no images in particular."""
    pinned = pinned_fingerprint(config.dataset)
    own, others = run_name(config, study), run_name(config, study, fingerprint)
    if pinned is None:
        return [own, others]
    return [own if fingerprint == pinned else others]


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
