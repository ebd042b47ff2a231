"""The ClientApp of the paper's configurations: local training by the core's engines, one device a node."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from flwr.app import Context, Message

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import device_work
from fedentropy_core.flower.device import LocalResult, TrainFunction, client_app, confirmed_extra, previous_arrays
from fedentropy_core.flower.protocol import ARRAYS, CONFIG, CONTROL, ROUND, pack
from fedentropy_core.flower.settings import Settings, read_settings
from fedentropy_core.methods import SCAFFOLDS, control_change
from fedentropy_core.partition import partition
from fedentropy_core.work import Cohort, Engine, Work

FLAT = "weights"  # the one array of a record: the flat vector of the core
_DEVICE_CONTROL = "scaffold.control"


def local_training(settings_of: Callable[[Context], Settings]) -> TrainFunction:
    """The train function of a device of RunConfig; its number is its node's `partition-id`."""

    def train(message: Message, context: Context) -> LocalResult:
        settings = settings_of(context)
        trainers = dict.fromkeys(SCAFFOLDS, _train_scaffold) | {"moon": _train_moon}
        trainer = trainers.get(settings.config.method, _train_plain)
        return trainer(_Bench(settings, message, context), message, context)

    return train


class _Bench:
    """A device at work in one round: its images, the engine, the global weights."""

    def __init__(self, settings: Settings, message: Message, context: Context):
        self.config = settings.config
        self.device, self.round = _device_number(context, self.config), message.content[CONFIG][ROUND]
        self.engine, parts = workshop(self.config, settings.engine)
        self.images = parts[self.device]
        self.weights = message.content[ARRAYS][FLAT].numpy()

    def train(self, **terms: np.ndarray | None) -> Cohort:
        """Local training by the core: a cohort of one."""
        work = device_work(self.config, self.images, self.round, self.device, **terms)
        return self.engine.train(Work(self.weights, self.config.local_rule, (work,)))

    def result(self, cohort: Cohort, **extra: np.ndarray) -> LocalResult:
        records = {name: pack({FLAT: array}) for name, array in extra.items()}
        return LocalResult(pack({FLAT: cohort.weights[0]}), cohort.soft_labels[0], len(self.images), records)


def _device_number(context: Context, config: RunConfig) -> int:
    number = context.node_config.get("partition-id")
    if number is None or not 0 <= int(number) < config.devices:
        raise ValueError(
            f'a SuperNode needs --node-config "partition-id=K" with K from 0 to {config.devices - 1}; got {number}'
        )
    return int(number)


def _train_plain(bench: _Bench, message: Message, context: Context) -> LocalResult:
    """FedAvg and FedProx."""
    return bench.result(bench.train())


def _train_moon(bench: _Bench, message: Message, context: Context) -> LocalResult:
    """The previous model is the one in memory, whether it was kept or removed."""
    previous = previous_arrays(context)
    return bench.result(bench.train(previous=None if previous is None else previous[FLAT].numpy()))


def _train_scaffold(bench: _Bench, message: Message, context: Context) -> LocalResult:
    """c_k becomes c_k⁺ once the server confirms that it has used this device's upload; a removed device keeps c_k."""
    control = message.content[CONTROL][FLAT].numpy()
    own = np.zeros_like(control)
    if previous_arrays(context) is not None:
        own = context.state[_DEVICE_CONTROL][FLAT].numpy()
    change = confirmed_extra(message, context, CONTROL)
    if change is not None:
        own = own + change[FLAT].numpy()
    cohort = bench.train(correction=control - own)
    # Only now: had training failed, the change would be added again.
    context.state[_DEVICE_CONTROL] = pack({FLAT: own})
    divisor = SCAFFOLDS[bench.config.method].divisor(int(cohort.steps[0]), bench.config.lr)
    return bench.result(cohort, **{CONTROL: control_change(bench.weights, cohort.weights[0], control, divisor)})


@lru_cache(maxsize=2)
def workshop(config: RunConfig, engine: str) -> tuple[Engine, list[np.ndarray]]:
    """The engine and every device's images; kept by a process that serves several devices, as in a simulation."""
    dataset = load_dataset(config.dataset)
    parts = partition(dataset.train_labels, config.case, config.devices, config.partition_draw, config.beta)
    return make_engine(engine, dataset, threads=1), parts


app = client_app(local_training(lambda context: read_settings(context.run_config)))
