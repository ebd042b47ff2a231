"""The four arrays of a data set: their order, their checks, their fingerprint.

In canonical order, by label and then by pixel bytes, the same images from any source are the same arrays, and give the
same fingerprint and the same training run.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from fedentropy_core.data.catalogue import SIDE, Spec


class Arrays(NamedTuple):
    """Images uint8 [n,3,32,32] and labels int64 [n] of the two splits."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


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
        if images.dtype != np.uint8 or images.shape != (size, 3, SIDE, SIDE):
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
