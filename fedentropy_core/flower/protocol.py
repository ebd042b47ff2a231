"""What goes over the wire, and how an answer is checked before anything is done with it.

    message            to the device                              back
    query.device       nothing                                    its number            once for each node
    train.soft_label   global model (SCAFFOLD: and c)             soft label p_k, size l_k
    query.upload       the round's number, to kept devices only   model w_k (SCAFFOLD: and Δc_k)

The names of records are those of Flower's own strategies: "arrays" is the model, "config" holds "server-round".
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedentropy_core.judgment import soft_label_problem

WHO, TRAIN, UPLOAD = "query.device", "train.soft_label", "query.upload"
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
CONTROL = "control"  # SCAFFOLD's c on the way down, Δc_k on the way up
DEVICE, ROUND, CONFIRMED, SOFT_LABEL, SIZE = "device", "server-round", "confirmed-round", "soft-label", "size"
NO_NUMBER = -1  # the answer of a node that was given no partition-id

Arrays = dict[str, np.ndarray]


class Malformed(ValueError):
    """A device's answer breaks the protocol; the message says how."""


def round_config(round: int, confirmed: int) -> ConfigRecord:
    """`confirmed`: the last round in which the server used this device's upload; 0 for none."""
    return ConfigRecord({ROUND: round, CONFIRMED: confirmed})


def content_bytes(content: RecordDict) -> int:
    """Bytes of all records, by Flower's own count: serialised arrays, eight bytes a number, and the names."""
    return sum(record.count_bytes() for record in content.values())


def pack(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def unpack(record: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in record.items()}


def read_number(content: RecordDict) -> int:
    """The device number in an answer to WHO."""
    number = _metrics(content).get(DEVICE)
    if type(number) is not int or number < NO_NUMBER:
        raise Malformed(f"device number {number!r}")
    return number


def read_soft_label(content: RecordDict, classes: int) -> tuple[np.ndarray, int]:
    """(p_k, l_k) in an answer to TRAIN."""
    metrics = _metrics(content)
    label, size = metrics.get(SOFT_LABEL), metrics.get(SIZE)
    if not isinstance(label, list) or len(label) != classes:
        found = len(label) if isinstance(label, list) else type(label).__name__
        raise Malformed(f"soft label must have {classes} entries; got {found}")
    if type(size) is not int:
        raise Malformed(f"size must be a whole number; got {size!r}")
    label = np.array(label, dtype=np.float64)
    problem = soft_label_problem(label, size)
    if problem:
        raise Malformed(f"soft label: {problem}")
    return label, size


def read_arrays(content: RecordDict, name: str, like: Arrays) -> Arrays:
    """One ArrayRecord of an answer to UPLOAD; it must have the names, shapes and types of `like`, and be finite."""
    record = content.array_records.get(name)
    if record is None:
        raise Malformed(f"no arrays named {name!r}")
    if set(record) != set(like):
        raise Malformed(f"{name}: wrong array names {sorted(set(record) ^ set(like))}")
    return {key: _checked(f"{name}[{key!r}]", record[key], like[key]) for key in like}


def _checked(name: str, sent: Array, like: np.ndarray) -> np.ndarray:
    try:
        array = sent.numpy()
    except Exception as error:  # bytes that are no array can make numpy raise nearly anything
        raise Malformed(f"{name} cannot be read: {error}") from error
    if array.shape != like.shape or array.dtype != like.dtype:
        raise Malformed(f"{name} is {array.dtype}{list(array.shape)}, not {like.dtype}{list(like.shape)}")
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise Malformed(f"{name} is not finite")
    return array


def _metrics(content: RecordDict) -> MetricRecord:
    record = content.metric_records.get(METRICS)
    if record is None:
        raise Malformed(f"no metrics; got {sorted(content)}")
    return record
