"""FedEntropy for any Flower app: any torch.nn.Module, any data, any number of classes."""

from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedentropy_core.config import check_integer, check_number, settle_selection
from fedentropy_core.flower.protocol import Arrays
from fedentropy_core.flower.server_method import Plain, ServerMethod
from fedentropy_core.flower.session import Evaluate, Result, RoundReport, Session
from fedentropy_core.selection import cohort_size


@dataclass(frozen=True)
class FedEntropyStrategy:
    """The settings of the server's side; `start` plays the rounds. The devices' side is `client_app`.

    The first round waits up to `timeout` seconds for all devices, then starts with those that are there. A round goes
    to max(1, round(fraction·devices)) of them. One that is not connected, answers with an error, not within `timeout`
    seconds, or with a malformed soft label or model counts as removed. A round in which fewer than `min_devices` soft
    labels, or, of the models of the kept devices, fewer than `min_devices` arrive although more were kept, is played
    again with others, `max_attempts` times at most.
    """

    classes: int
    devices: int
    fraction: float = 0.1
    epsilon: float = 0.8
    selection: str | None = None  # None: pools with FedEntropy, uniform without
    entropy: bool = True  # False: no judgment, every chosen device uploads
    pools_only: bool = False
    seed: int = 0
    min_devices: int = 1
    timeout: float = 600.0
    max_attempts: int = 10
    global_step: float = 1.0  # η: the new global model is w_g + η·(mean − w_g)
    method: Callable[[Arrays, int], ServerMethod] = Plain

    def __post_init__(self) -> None:
        settle_selection(self)
        for name in ("classes", "devices", "min_devices", "max_attempts"):
            check_integer(self, name, least=1)
        check_integer(self, "seed", least=0)
        check_number(self, "fraction", lambda value: 0 < value <= 1, "in (0, 1]")
        check_number(self, "epsilon", lambda value: 0 <= value <= 1, "in [0, 1]")
        for name in ("timeout", "global_step"):
            check_number(self, name, lambda value: value > 0, "positive")
        if self.min_devices > self.cohort:
            raise ValueError(f"min_devices is {self.min_devices}, but a round goes to {self.cohort} devices")

    @property
    def cohort(self) -> int:
        """How many devices a round goes to."""
        return cohort_size(self.fraction, self.devices)

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
