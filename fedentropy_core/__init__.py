"""FedEntropy: federated learning that uploads only the models whose soft labels raise the group's entropy."""

from fedentropy_core.config import RunConfig
from fedentropy_core.datasets import load_dataset
from fedentropy_core.entropy import judge
from fedentropy_core.partition import partition
from fedentropy_core.records import load_records
from fedentropy_core.runner import run

__all__ = ["RunConfig", "judge", "load_dataset", "load_records", "partition", "run"]
