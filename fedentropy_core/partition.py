"""How the training images are spread over the devices: the paper's cases 1 to 3, the authors' shards, and iid."""

import numpy as np

from fedentropy_core.randomness import generator

CASES = (1, 2, 3, "shards", "iid")
MIN_DIRICHLET_IMAGES = 10
MAX_DIRICHLET_DRAWS = 10_000


def partition(labels: np.ndarray, case: int | str, devices: int, seed: int, beta: float = 0.1) -> list[np.ndarray]:
    """The image positions of each device, sorted; every image belongs to exactly one device.

    case 1: one label a device. case 2: two different labels a device, half and half. case 3: for each label a
    Dirichlet(beta) share over the devices. "shards": case 2 as in the authors' code, where a device's two labels may
    be the same. "iid": an even random split.
    """
    labels = _checked_labels(labels, devices)
    if case not in CASES:
        raise ValueError(f"case must be one of {', '.join(map(str, CASES))}; got {case!r}")
    rng = generator(seed, "partition")
    if case == 3:
        parts = _dirichlet(labels, devices, beta, rng)
    elif case == "shards":
        parts = _two_shards_each(labels, devices, rng)
    elif case == "iid":
        parts = np.array_split(rng.permutation(len(labels)), devices)
    else:
        parts = _labels_per_device(labels, devices, case, rng)
    return [np.sort(part) for part in parts]


def _checked_labels(labels: np.ndarray, devices: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be a vector of integers; got shape {labels.shape}, {labels.dtype}")
    if devices < 1:
        raise ValueError(f"devices must be at least 1; got {devices}")
    if len(labels) < devices:
        raise ValueError(f"{len(labels)} images cannot be spread over {devices} devices")
    return labels


def _labels_per_device(labels: np.ndarray, devices: int, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """k shards of k different labels for each device; a label's shards are of equal size."""
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < k:
        raise ValueError(f"case {k} needs at least {k} labels; the data has {len(classes)}")
    shards = _shards_per_label(counts, devices, k)
    owners = _spread(shards, devices, k, rng)
    parts: list[list[np.ndarray]] = [[] for _ in range(devices)]
    for label, count, holders in zip(classes, counts, owners, strict=True):
        if count < len(holders):
            raise ValueError(f"label {label} has {count} images, too few for {len(holders)} devices")
        images = rng.permutation(np.flatnonzero(labels == label))
        for device, shard in zip(holders, np.array_split(images, len(holders)), strict=True):
            parts[device].append(shard)
    return [np.concatenate(part) for part in parts]


def _shards_per_label(counts: np.ndarray, devices: int, k: int) -> np.ndarray:
    """How many of the k·devices shards each label is cut into, so that shards are as even as can be.

    Starting from one shard a label, the next shard goes to the label whose shards are largest; a label is never
    cut into more shards than there are devices, since no device may hold it twice.
    """
    if k * devices < len(counts):
        raise ValueError(f"{devices} devices with {k} label(s) each cannot cover {len(counts)} labels")
    shards = np.ones(len(counts), dtype=np.int64)
    for _ in range(k * devices - len(counts)):
        size = np.where(shards < devices, counts / shards, -1.0)
        shards[np.argmax(size)] += 1
    return shards


def _spread(shards: np.ndarray, devices: int, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """For each label the devices that get one of its shards, all different.

    k = 1: neighbouring devices share a label. k = 2: shards are dealt at random, then a device that got a label
    twice swaps one of the two with a random device for which the swap leaves no repetition.
    """
    hands = np.repeat(np.arange(len(shards)), shards)
    if k == 2:
        hands = rng.permutation(hands)
    hands = hands.reshape(devices, k)
    for device in np.flatnonzero(hands[:, 0] == hands[:, -1]) if k == 2 else ():
        label = hands[device, 0]
        if hands[device, 1] != label:
            continue
        partners = np.flatnonzero(~(hands == label).any(axis=1))
        partner, side = rng.choice(partners), rng.integers(2)
        hands[device, 1], hands[partner, side] = hands[partner, side], label
    return [np.flatnonzero((hands == label).any(axis=1)) for label in range(len(shards))]


def _two_shards_each(labels: np.ndarray, devices: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Images in random order are sorted by label and cut into equal shards; each device gets two of them at random."""
    if len(labels) < 2 * devices:
        raise ValueError(f"{len(labels)} images are too few for two shards on each of {devices} devices")
    images = rng.permutation(len(labels))
    shards = np.array_split(images[np.argsort(labels[images], kind="stable")], 2 * devices)
    return [np.concatenate([shards[a], shards[b]]) for a, b in rng.permutation(2 * devices).reshape(devices, 2)]


def _dirichlet(labels: np.ndarray, devices: int, beta: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Shares drawn until every device has at least ten images, then filled with a random choice of images."""
    if not beta > 0:
        raise ValueError(f"beta must be positive; got {beta}")
    if len(labels) < MIN_DIRICHLET_IMAGES * devices:
        raise ValueError(
            f"case 3 gives every device at least {MIN_DIRICHLET_IMAGES} images: "
            f"{len(labels)} images are too few for {devices} devices"
        )
    classes, counts = np.unique(labels, return_counts=True)
    for _ in range(MAX_DIRICHLET_DRAWS):
        cuts = _dirichlet_cuts(counts, devices, beta, rng)
        if np.diff(cuts, axis=1).sum(axis=0).min() >= MIN_DIRICHLET_IMAGES:
            break
    else:
        raise ValueError(
            f"no draw in {MAX_DIRICHLET_DRAWS:,} gave each of {devices} devices {MIN_DIRICHLET_IMAGES} images: "
            f"use a larger beta (now {beta}) or fewer devices"
        )
    parts: list[list[np.ndarray]] = [[] for _ in range(devices)]
    for label, cut in zip(classes, cuts, strict=True):
        images = rng.permutation(np.flatnonzero(labels == label))
        for device in range(devices):
            parts[device].append(images[cut[device] : cut[device + 1]])
    return [np.concatenate(part) for part in parts]


def _dirichlet_cuts(counts: np.ndarray, devices: int, beta: float, rng: np.random.Generator) -> np.ndarray:
    """cuts[label, device]: where a device's images begin in the label's shuffled images; the last cut is its count.

    A device that already holds total/devices images gets no more (the NIID-Bench form).
    """
    held = np.zeros(devices, dtype=np.int64)
    cuts = np.zeros((len(counts), devices + 1), dtype=np.int64)
    for row, count in zip(cuts, counts, strict=True):
        share = rng.dirichlet(np.full(devices, beta)) * (held < counts.sum() / devices)
        if share.sum() == 0:
            # Every open device drew a share that underflowed to zero, which a tiny beta can do.
            return np.zeros_like(cuts)
        row[1:] = (np.cumsum(share / share.sum()) * count).astype(np.int64)
        row[-1] = count
        held += np.diff(row)
    return cuts
