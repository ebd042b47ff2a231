"""What the server keeps besides the global model: nothing, or SCAFFOLD's control c."""

from typing import Protocol

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedentropy_core.flower.protocol import CONTROL, Arrays, pack, read_arrays


class ServerMethod(Protocol):
    def outgoing(self) -> dict[str, ArrayRecord]:
        """Records that go to every chosen device beside the global model."""
        ...

    def read(self, content: RecordDict) -> Arrays:
        """What a kept device sends beside its model, checked."""
        ...

    def absorb(self, uploads: list[Arrays]) -> None:
        """Takes in what `read` gave for the devices whose models were averaged, in the order of selection."""
        ...


class Plain:
    """FedAvg, FedProx, Moon: the server has the global model and no more."""

    def __init__(self, model: Arrays, devices: int):
        pass

    def outgoing(self) -> dict[str, ArrayRecord]:
        return {}

    def read(self, content: RecordDict) -> Arrays:
        return {}

    def absorb(self, uploads: list[Arrays]) -> None:
        pass


class ScaffoldServer:
    """c ← c + (1/N)·Σ Δc_k over the kept devices; c starts at zero, in the shape of the model."""

    def __init__(self, model: Arrays, devices: int):
        self.devices = devices
        self.control = {name: np.zeros_like(array) for name, array in model.items()}

    def outgoing(self) -> dict[str, ArrayRecord]:
        return {CONTROL: pack(self.control)}

    def read(self, content: RecordDict) -> Arrays:
        return read_arrays(content, CONTROL, self.control)

    def absorb(self, uploads: list[Arrays]) -> None:
        for changes in uploads:
            for name, change in changes.items():
                self.control[name] += change / np.float32(self.devices)
