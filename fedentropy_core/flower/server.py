"""The ServerApp of the paper's configurations: the rounds of `fedentropy_core.run`, over a Grid."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedentropy_core.data.load import load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.flower.client import FLAT
from fedentropy_core.flower.protocol import pack
from fedentropy_core.flower.server_method import Plain, ScaffoldServer
from fedentropy_core.flower.session import RoundReport
from fedentropy_core.flower.settings import Settings, read_settings
from fedentropy_core.flower.strategy import FedEntropyStrategy
from fedentropy_core.methods import SCAFFOLDS
from fedentropy_core.model import initial_weights
from fedentropy_core.partition import partition
from fedentropy_core.randomness import generator
from fedentropy_core.work import Round, weights_hash

OnRow = Callable[[Round, RoundReport], None]


def serve(grid: Grid, settings: Settings, on_row: OnRow) -> None:
    """Plays all rounds; a row is what `run` records, but that its bytes are those of the messages' content."""
    config = settings.config
    dataset = load_dataset(config.dataset)
    # A partition that cannot be made is an error here, not a fault of every device.
    partition(dataset.train_labels, config.case, config.devices, config.partition_draw, config.beta)
    engine = make_engine(settings.engine, dataset)
    strategy = FedEntropyStrategy(
        classes=len(dataset.classes),
        devices=config.devices,
        fraction=config.fraction,
        epsilon=config.epsilon,
        selection=config.selection,
        entropy=config.entropy,
        pools_only=config.pools_only,
        seed=config.seed,
        min_devices=settings.min_devices,
        timeout=settings.timeout,
        max_attempts=settings.max_attempts,
        method=ScaffoldServer if config.method in SCAFFOLDS else Plain,
        global_step=config.global_step,
    )

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        right, loss = engine.evaluate(arrays[FLAT].numpy(), dataset.test_images, dataset.test_labels)
        accuracy = int(right.sum()) / len(dataset.test_images)
        return MetricRecord({"accuracy": accuracy, "loss": loss, "correct": right.tolist()})

    weights = initial_weights(len(dataset.classes), generator(config.seed, "weights"))
    strategy.start(
        grid,
        pack({FLAT: weights}),
        config.rounds,
        evaluate,
        lambda report, arrays: on_row(_row(report, arrays), report),
    )


def _row(report: RoundReport, arrays: ArrayRecord) -> Round:
    return Round(
        round=report.round,
        accuracy=report.metrics["accuracy"],
        loss=report.metrics["loss"],
        chosen=report.chosen,
        kept=report.kept,
        entropy_before=report.entropy_before,
        entropy_after=report.entropy_after,
        models_up=report.models_up,
        bytes_up=report.bytes_up,
        bytes_down=report.bytes_down,
        weights=weights_hash(arrays[FLAT].numpy()),
        correct=tuple(report.metrics["correct"]),
    )


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = read_settings(context.run_config)
    if settings.output and Path(settings.output).exists():
        raise ValueError(f"{settings.output} exists: move it away, or choose another output")

    def write(row: Round, report: RoundReport) -> None:
        if settings.output:
            line = json.dumps(asdict(row) | {"failed": report.failed, "attempts": report.attempts})
            with Path(settings.output).open("a") as file:
                file.write(line + "\n")

    serve(grid, settings, write)
