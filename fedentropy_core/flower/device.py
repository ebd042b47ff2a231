"""A device's side of the protocol, around any train function.

What a device must remember between messages is in its Context's state and never leaves it unless asked for: the
model it trained last with its soft label, and whatever the train function puts there itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedentropy_core.flower.protocol import (
    ARRAYS,
    CONFIG,
    CONFIRMED,
    DEVICE,
    METRICS,
    NO_NUMBER,
    ROUND,
    SIZE,
    SOFT_LABEL,
    TRAIN,
    UPLOAD,
    WHO,
)

_WHEN, _ANSWER, _UPLOAD = "fedentropy.when", "fedentropy.answer", "fedentropy.upload."


@dataclass(frozen=True)
class LocalResult:
    """What local training gives: the model, p_k, l_k; `extra` is uploaded with the model if the device is kept."""

    arrays: ArrayRecord
    soft_label: np.ndarray
    size: int
    extra: dict[str, ArrayRecord] = field(default_factory=dict)


TrainFunction = Callable[[Message, Context], LocalResult]


@torch.no_grad()
def soft_label(model: torch.nn.Module, inputs: Iterable[torch.Tensor]) -> np.ndarray:
    """p_k = (1/l_k)·Σ softmax(model(x)) over batches of the device's own training inputs, not augmented."""
    was_training = model.training
    model.eval()
    total, count = 0, 0
    for batch in inputs:
        total = total + model(batch).softmax(1).sum(0, dtype=torch.float64)
        count += len(batch)
    model.train(was_training)
    if count == 0:
        raise ValueError("a soft label needs at least one input")
    return (total / count).cpu().numpy()


def client_app(train: TrainFunction, app: ClientApp | None = None) -> ClientApp:
    """A ClientApp that speaks the protocol; `train(message, context)` is an ordinary Flower train function.

    It finds the global model in message.content["arrays"] and the round in message.content["config"], and returns a
    LocalResult in place of a reply. A given `app` gets the three handlers on top of its own.
    """
    app = app or ClientApp()

    @app.query(WHO.partition(".")[2])
    def who(message: Message, context: Context) -> Message:
        number = int(context.node_config.get("partition-id", NO_NUMBER))
        return Message(RecordDict({METRICS: MetricRecord({DEVICE: number})}), reply_to=message)

    @app.train(TRAIN.partition(".")[2])
    def first(message: Message, context: Context) -> Message:
        round = message.content[CONFIG][ROUND]
        # A round that is played again starts from the same model: what was trained in it still holds.
        if _trained_round(context) != round:
            _remember(context, round, train(message, context))
        return Message(RecordDict({METRICS: context.state[_ANSWER]}), reply_to=message)

    @app.query(UPLOAD.partition(".")[2])
    def second(message: Message, context: Context) -> Message:
        round = message.content[CONFIG][ROUND]
        if _trained_round(context) != round:
            raise RuntimeError(f"nothing was trained in round {round} by this node")
        return Message(RecordDict(_kept_records(context)), reply_to=message)

    return app


def previous_arrays(context: Context) -> ArrayRecord | None:
    """The model that this device trained last in this run, such as Moon compares with; None the first time."""
    return context.state[_UPLOAD + ARRAYS] if _trained_round(context) else None


def confirmed_extra(message: Message, context: Context, name: str) -> ArrayRecord | None:
    """The last result's extra record, if the server has used that upload; else it is as if it had never been."""
    confirmed = message.content[CONFIG][CONFIRMED]
    return context.state[_UPLOAD + name] if confirmed and confirmed == _trained_round(context) else None


def _trained_round(context: Context) -> int:
    """The round of the model in memory; 0 if there is none. A node may keep its memory from one run to another."""
    when = context.state.config_records.get(_WHEN)
    return when[ROUND] if when is not None and when["run"] == str(context.run_id) else 0


def _remember(context: Context, round: int, result: LocalResult) -> None:
    label = [float(share) for share in np.asarray(result.soft_label)]
    context.state[_ANSWER] = MetricRecord({SOFT_LABEL: label, SIZE: int(result.size)})
    for name, record in {ARRAYS: result.arrays, **result.extra}.items():
        context.state[_UPLOAD + name] = record
    context.state[_WHEN] = ConfigRecord({"run": str(context.run_id), ROUND: round})


def _kept_records(context: Context) -> dict[str, ArrayRecord]:
    records = context.state.array_records
    return {name.removeprefix(_UPLOAD): record for name, record in records.items() if name.startswith(_UPLOAD)}
