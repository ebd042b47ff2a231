"""CIFAR-10, CIFAR-100 with its 20 coarse labels, CINIC-10, and a synthetic set made in code.

A data set is four arrays in canonical order: by label, then by pixel bytes. The same images from any source
therefore give the same arrays, the same fingerprint and the same training run.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedentropy_core.data.arrays import Arrays, canonical, check_arrays, fingerprint
from fedentropy_core.data.catalogue import DATASETS, SPECS, DataError, Spec, pinned_fingerprint
from fedentropy_core.data.readers import fetch, wrong
from fedentropy_core.data.synthetic import synthetic
from fedentropy_core.files import atomic_write, project_root
from fedentropy_core.work import Dataset


class DatasetMissing(FileNotFoundError):
    """The data set has not been fetched yet; the message says how to."""


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """A data set from the cache in `root`, its fingerprint checked; "synthetic" needs no cache.

    `root` is by default the environment variable FEDENTROPY_DATA, else `data/` in the project folder.
    """
    if check_name(name) == "synthetic":
        return synthetic()
    spec, path = SPECS[name], cache_path(name, root)
    if not path.exists():
        advice = f" FROM=path/to/it, where it is {spec.origin}" if spec.torchvision is None else ""
        raise DatasetMissing(f"{spec.title} is not at {path}. Run `make data DATASET={name}`{advice}")
    try:
        arrays, stored = read_cache(path)
        check_arrays(spec, arrays)
        found = fingerprint(arrays)
        if found != (spec.fingerprint or stored):
            raise ValueError(f"fingerprint {found} in place of {spec.fingerprint or stored}")
    except PermissionError:
        raise
    except Exception as error:  # one changed byte in a zip or array header can raise nearly anything
        raise DataError(f"{path} is damaged ({error}). Delete it and run `make data DATASET={name}`") from error
    return make_dataset(spec, arrays, found)


def known_fingerprint(name: str) -> str | None:
    """The fingerprint of the images that this name stands for; None while a set that has no fixed one is not cached."""
    pinned, path = pinned_fingerprint(check_name(name)), cache_path(name)
    if pinned or not path.exists():
        return pinned
    try:
        with np.load(path, allow_pickle=False) as cache:
            return str(cache["fingerprint"])
    except Exception:  # a damaged cache can raise nearly anything; load_dataset says so
        return None


def prepare(
    name: str, source: str | Path | None = None, root: str | Path | None = None, progress: bool = True
) -> Dataset:
    """Fetches a data set, or reads it from `source`, and caches it; does nothing when the cache is good.

    A failure raises DataError and leaves neither a cache nor temporary files. `progress` turns messages on.
    """
    say = print if progress else _say_nothing
    if check_name(name) == "synthetic":
        say("The synthetic set is made in code; there is nothing to fetch")
        return synthetic()
    spec, path = SPECS[name], cache_path(name, root)
    if path.exists():
        try:
            dataset = load_dataset(name, root)
            say(f"{spec.title} is ready in {path}")
            return dataset
        except DataError as error:
            say(f"{error}; making it anew")
    with workspace(path.parent) as folder:
        raw, where = fetch(spec, Path(source) if source is not None else None, folder, progress, say)
        try:
            check_arrays(spec, raw)
        except ValueError as error:
            raise wrong(spec, where, str(error)) from error
        arrays = canonical(raw)
        found = fingerprint(arrays)
        if spec.fingerprint not in (None, found):
            raise wrong(spec, where, f"not the images of {spec.title}, fingerprint {found}")
        write_cache(path, arrays, found)
    say(f"{spec.title} from {where} is ready in {path}, fingerprint {found}")
    return make_dataset(spec, arrays, found)


def make_dataset(spec: Spec, arrays: Arrays, found: str) -> Dataset:
    return Dataset(spec.name, *arrays, classes=spec.classes, fingerprint=found, mean=spec.mean, std=spec.std)


def check_name(name: str) -> str:
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; choose one of {', '.join(DATASETS)}")
    return name


def _say_nothing(message: str) -> None:
    pass


def cache_path(name: str, root: str | Path | None = None) -> Path:
    """Where the cache of a data set is, or would be."""
    return (Path(root) if root is not None else default_root()) / f"{name}.npz"


def default_root() -> Path:
    """The folder of caches: FEDENTROPY_DATA, else data/ in the project."""
    return Path(os.environ.get("FEDENTROPY_DATA") or project_root() / "data")


@contextlib.contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A temporary folder for downloads, on the disk that must hold the data anyway."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=root) as folder:
        yield Path(folder)


def write_cache(path: Path, arrays: Arrays, found: str) -> None:
    """Whole or not at all."""
    with atomic_write(path) as file:
        np.savez(file, fingerprint=np.array(found), **arrays._asdict())


def read_cache(path: Path) -> tuple[Arrays, str]:
    """The arrays and the fingerprint they were stored with; not yet compared."""
    with np.load(path, allow_pickle=False) as cache:
        return Arrays(*(cache[name] for name in Arrays._fields)), str(cache["fingerprint"])
