"""FedEntropy between real machines, on Flower. The core does not import this package; it needs `flwr`."""

from fedentropy_core.extras import needs

with needs("flower"):
    from fedentropy_core.flower.device import LocalResult, client_app, previous_arrays, soft_label
    from fedentropy_core.flower.session import Result, RoundReport, TooFewDevices
    from fedentropy_core.flower.strategy import FedEntropyStrategy

__all__ = [
    "FedEntropyStrategy",
    "LocalResult",
    "Result",
    "RoundReport",
    "TooFewDevices",
    "client_app",
    "previous_arrays",
    "soft_label",
]
