"""FedEntropy for any Flower app: any torch.nn.Module, any data, any number of classes."""

from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedentropy_core.config import SELECTIONS
from fedentropy_core.flower.protocol import Arrays
from fedentropy_core.flower.server_method import Plain, ServerMethod
from fedentropy_core.flower.session import Evaluate, Result, RoundReport, Session


@dataclass(frozen=True)
class FedEntropyStrategy:
    """The settings of the server's side; `start` plays the rounds. The devices' side is `client_app`.

    A round goes to max(1, round(fraction·devices)) devices. One that is not connected, answers with an error, not
    within `timeout` seconds, or with a malformed soft label or model counts as removed. A round in which fewer than
    `min_devices` soft labels, or, of the models of the kept devices, fewer than `min_devices` arrive although more
    were kept, is played again with others, `max_attempts` times at most.
    """

    classes: int
    devices: int | None = None  # None: as many as are connected at the start
    fraction: float = 0.1
    epsilon: float = 0.8
    selection: str = "pools"
    entropy: bool = True  # False: no judgment, every chosen device uploads
    pools_only: bool = False
    seed: int = 0
    min_devices: int = 1
    wait_for: int | None = None  # devices to wait for before the first round; None: `devices`, else min_devices
    timeout: float = 600.0
    max_attempts: int = 10
    method: Callable[[Arrays, int], ServerMethod] = Plain

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection must be one of {', '.join(SELECTIONS)}; got {self.selection!r}")
        for name in ("classes", "devices", "min_devices", "wait_for", "max_attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1]; got {self.fraction}")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be in [0, 1]; got {self.epsilon}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be positive; got {self.timeout}")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        evaluate_fn: Evaluate | None = None,
        on_round: Callable[[RoundReport, ArrayRecord], None] | None = None,
    ) -> Result:
        """Plays the rounds of Algorithm 2.

        evaluate_fn(round, arrays) gives metrics of the new global model, as in Flower's own strategies; on_round is
        told every finished round.
        """
        session = Session(self, grid, initial_arrays)
        reports = []
        for round in range(1, num_rounds + 1):
            report = session.play(round, evaluate_fn)
            reports.append(report)
            if on_round is not None:
                on_round(report, session.arrays())
        return Result(session.arrays(), tuple(reports))
