"""A data set made in code: coloured patterns that a small network learns in seconds."""

import functools

import numpy as np

from fedentropy_core.data.arrays import Arrays, canonical, fingerprint
from fedentropy_core.data.catalogue import SIDE, SYNTHETIC_CLASSES
from fedentropy_core.work import Dataset

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
    step = SIDE // CELLS
    cell, offset = np.divmod(np.arange(SIDE, dtype=np.int32), step)
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
    stray = moved(patterns, rng.integers(0, len(patterns), count), rng.integers(0, SIDE, (2, count)))
    contrast = rng.integers(64, 256, (count, 1, 1, 1), dtype=np.int16)  # in 1/128
    noise = rng.integers(-32, 33, own.shape, dtype=np.int16)
    return np.clip((own * contrast >> 7) + (stray * np.int16(112) >> 7) + noise + 128, 0, 255).astype(np.uint8)


def moved(patterns: np.ndarray, which: np.ndarray, by: np.ndarray) -> np.ndarray:
    """patterns[which], each rolled by its own number of rows and columns."""
    rows, columns = (np.arange(SIDE) + by[..., None]) % SIDE
    channels = np.arange(3)[:, None, None]
    return patterns[which[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]
