"""FedAvg in Flower's simulation: a plain PyTorch client, as in Flower's tutorials, on its Ray backend."""

import os
from collections.abc import Iterable

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peer import CNN, EVALUATION_BATCH, Turns, noise, read_job, test_images
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Strict(FedAvg):
    """A round in which a device failed is none: Flower would go on without it."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple:
        replies = list(replies)
        if failed := [reply.error for reply in replies if reply.has_error()]:
            raise RuntimeError(f"{len(failed)} devices failed, the first with {failed[0]}")
        return super().aggregate_train(server_round, replies)


def client_app(job: dict) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        images = TensorDataset(*noise(job["images"], context.node_config["partition-id"]))
        model = CNN()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        sgd = torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=job["momentum"])
        for _ in range(job["epochs"]):
            for x, y in DataLoader(images, batch_size=job["batch_size"], shuffle=True):
                sgd.zero_grad()
                F.cross_entropy(model(x), y).backward()
                sgd.step()
        metrics = MetricRecord({"num-examples": len(images)})
        reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=reply, reply_to=message)

    return app


def server_app(job: dict) -> ServerApp:
    app, turns = ServerApp(), Turns()
    tests = list(zip(*(part.split(EVALUATION_BATCH) for part in test_images(job)), strict=True))

    @torch.no_grad()
    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        model = CNN()
        model.load_state_dict(arrays.to_torch_state_dict())
        right, loss = 0, 0.0
        for x, y in tests:
            logits = model(x)
            right += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits, y, reduction="sum"))
        turns.ended()
        return MetricRecord({"accuracy": right / job["test_images"], "loss": loss / job["test_images"]})

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Strict(fraction_evaluate=0.0, min_available_nodes=job["devices"])
        strategy.start(grid, ArrayRecord(CNN().state_dict()), num_rounds=job["rounds"], evaluate_fn=evaluate)

    return app


if __name__ == "__main__":
    job = read_job()
    torch.set_num_threads(job["threads"])
    run_simulation(
        server_app(job),
        client_app(job),
        num_supernodes=job["devices"],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"address": "local", "num_cpus": job["threads"]},
        },
    )
