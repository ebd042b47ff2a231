"""CIFAR-10, CIFAR-100 with its 20 coarse labels, CINIC-10, and a synthetic set made in code.

A data set is four arrays in canonical order: by label, then by pixel bytes. The same images from any source
therefore give the same arrays, the same fingerprint and the same training run.
"""

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedentropy_core import sources
from fedentropy_core.paths import atomic_write, project_root
from fedentropy_core.sources import Arrays, DataError, Spec

__all__ = ["DATASETS", "DataError", "Dataset", "DatasetMissing", "load_dataset", "prepare", "synthetic"]

DATASETS = ("cifar10", "cifar100", "cinic10", "synthetic")


class DatasetMissing(FileNotFoundError):
    """The data set has not been fetched yet; the message says how to."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 [n,3,32,32] and labels int64 [n], read-only, in canonical order."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    fingerprint: str  # sha256 over the four arrays
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            array.setflags(write=False)

    @property
    def pixel_values(self) -> np.ndarray:
        """float32 [3,256]: what a model sees for each channel and pixel byte v, (v/255 − mean)/std.

        The one definition of normalisation: engines look values up here, so none can round differently.
        """
        scaled = np.arange(256, dtype=np.float64) / 255
        mean, std = np.array(self.mean)[:, None], np.array(self.std)[:, None]
        return ((scaled - mean) / std).astype(np.float32)


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """A data set from the cache in `root`, its fingerprint checked; "synthetic" needs no cache.

    `root` is by default the environment variable FEDENTROPY_DATA, else `data/` in the project folder.
    """
    if check_name(name) == "synthetic":
        return synthetic()
    spec, path = sources.SPECS[name], cache_path(name, root)
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
    if check_name(name) == "synthetic":
        return SYNTHETIC_FINGERPRINT
    path = cache_path(name)
    if sources.SPECS[name].fingerprint or not path.exists():
        return sources.SPECS[name].fingerprint
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
    spec, path = sources.SPECS[name], cache_path(name, root)
    if path.exists():
        try:
            dataset = load_dataset(name, root)
            say(f"{spec.title} is ready in {path}")
            return dataset
        except DataError as error:
            say(f"{error}; making it anew")
    with workspace(path.parent) as folder:
        raw, where = sources.fetch(spec, Path(source) if source is not None else None, folder, progress, say)
        try:
            check_arrays(spec, raw)
        except ValueError as error:
            raise sources.wrong(spec, where, str(error)) from error
        arrays = canonical(raw)
        found = fingerprint(arrays)
        if spec.fingerprint not in (None, found):
            raise sources.wrong(spec, where, f"not the images of {spec.title}, fingerprint {found}")
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


# --- order, checks, fingerprint ---------------------------------------------------------------------------------


def canonical(arrays: Arrays) -> Arrays:
    """The same images and labels, by label and then by pixel bytes."""
    train, test = canonical_order(*arrays[:2]), canonical_order(*arrays[2:])
    return Arrays(
        np.ascontiguousarray(arrays.train_images[train]),
        arrays.train_labels[train],
        np.ascontiguousarray(arrays.test_images[test]),
        arrays.test_labels[test],
    )


def canonical_order(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Indices that sort by label, then by the bytes of the image in [3,32,32] order."""
    of_each_label = (np.flatnonzero(labels == label) for label in np.unique(labels))
    return np.concatenate([sorted(indices, key=lambda i: images[i].tobytes()) for indices in of_each_label])


def check_arrays(spec: Spec, arrays: Arrays) -> None:
    """Types, shapes, and as many images of each class as there should be; ValueError if not."""
    for split, size in (("train", spec.train), ("test", spec.test)):
        images, labels = getattr(arrays, f"{split}_images"), getattr(arrays, f"{split}_labels")
        if images.dtype != np.uint8 or images.shape != (size, 3, sources.SIDE, sources.SIDE):
            raise ValueError(f"{split} images are {images.dtype}{list(images.shape)}, {size:,} images expected")
        if labels.dtype != np.int64 or labels.shape != (size,):
            raise ValueError(f"{split} labels are {labels.dtype}{list(labels.shape)}, {size:,} labels expected")
        share = size // len(spec.classes)
        for label, name in enumerate(spec.classes):
            if (count := np.count_nonzero(labels == label)) != share:
                raise ValueError(f"{count:,} {split} images of class {name} in place of {share:,}")


def fingerprint(arrays: Arrays) -> str:
    """sha256 over shape and bytes of train images, train labels, test images, test labels; labels little-endian."""
    digest = hashlib.sha256()
    for array, kind in zip(arrays, ("u1", "<i8", "u1", "<i8"), strict=True):
        digest.update(",".join(map(str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()


# --- cache ------------------------------------------------------------------------------------------------------


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


# --- synthetic --------------------------------------------------------------------------------------------------


SYNTHETIC_CLASSES = tuple(f"pattern {i}" for i in range(10))
SYNTHETIC_FINGERPRINT = "a0d68ae2e7957b73cd53c0e504f4c750f789e178c5bae3fa04ccce4399e52372"
CELLS = 4  # a pattern is a 4×4 grid of colours, blended in between
CHUNK = 5000  # images drawn at a time; part of what defines the set


@functools.lru_cache(maxsize=4)
def synthetic(train: int = 5000, test: int = 1000, seed: int = 0) -> Dataset:
    """Ten coloured patterns, moved, of varying contrast, overlaid with a stray pattern and noise.

    The paper's CNN reaches about 80 % in five epochs. Only whole-number draws and arithmetic are used, so the
    bytes are the same on every machine. Classes are equally frequent as far as the sizes allow.
    """
    if train < 1 or test < 1:
        raise ValueError(f"the synthetic set needs at least one image a split, not {train} and {test}")
    of_patterns, of_train, of_test = (np.random.default_rng([seed, part]) for part in range(3))
    patterns = draw_patterns(of_patterns)
    raw = Arrays(*draw_images(patterns, train, of_train), *draw_images(patterns, test, of_test))
    arrays = canonical(raw)
    half = (0.5, 0.5, 0.5)
    return Dataset("synthetic", *arrays, SYNTHETIC_CLASSES, fingerprint(arrays), mean=half, std=half)


def draw_patterns(rng: np.random.Generator) -> np.ndarray:
    """int16 [10,3,32,32] from −128 to 127: a grid of random colours, blended linearly, repeating at the edges."""
    colours = rng.integers(-128, 128, (len(SYNTHETIC_CLASSES), 3, CELLS, CELLS), dtype=np.int32)
    step = sources.SIDE // CELLS
    cell, offset = np.divmod(np.arange(sources.SIDE, dtype=np.int32), step)
    following = (cell + 1) % CELLS
    rows = colours[:, :, cell] * (step - offset)[:, None] + colours[:, :, following] * offset[:, None]
    return ((rows[..., cell] * (step - offset) + rows[..., following] * offset) // step**2).astype(np.int16)


def draw_images(patterns: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count,3,32,32] and their labels."""
    labels = np.arange(count) % len(patterns)
    chunks = np.split(labels, range(CHUNK, count, CHUNK))
    return np.concatenate([draw_chunk(patterns, chunk, rng) for chunk in chunks]), labels


def draw_chunk(patterns: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One image for each label. All sums stay within int16."""
    count = len(labels)
    own = moved(patterns, labels, rng.integers(-4, 5, (2, count)))
    stray = moved(patterns, rng.integers(0, len(patterns), count), rng.integers(0, sources.SIDE, (2, count)))
    contrast = rng.integers(64, 256, (count, 1, 1, 1), dtype=np.int16)  # in 1/128
    noise = rng.integers(-32, 33, own.shape, dtype=np.int16)
    return np.clip((own * contrast >> 7) + (stray * np.int16(112) >> 7) + noise + 128, 0, 255).astype(np.uint8)


def moved(patterns: np.ndarray, which: np.ndarray, by: np.ndarray) -> np.ndarray:
    """patterns[which], each rolled by its own number of rows and columns."""
    rows, columns = (np.arange(sources.SIDE) + by[..., None]) % sources.SIDE
    channels = np.arange(3)[:, None, None]
    return patterns[which[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]
