"""FedAvg in pfl-research's simulation; torchrun starts a process for each core, each with a part of the cohort."""

import numpy as np
import torch
from peer import CNN, EVALUATION_BATCH, Turns, noise, read_job, test_images
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F


class Model(CNN):
    """With what pfl asks of a model."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        logits = self(x)
        right, loss = int((logits.argmax(1) == y).sum()), float(F.cross_entropy(logits, y, reduction="sum"))
        return {"accuracy": Weighted(right, len(y)), "loss": Weighted(loss, len(y))}


class TakeTurns(TrainingProcessCallback):
    """Only the first process speaks; the others wait for it."""

    def __init__(self):
        self.turns = Turns()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        return self._end_round()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        return False, self._end_round()

    def _end_round(self) -> Metrics:
        if distributed.global_rank == 0:
            self.turns.ended()
        if distributed.world_size > 1:
            torch.distributed.barrier()
        return Metrics()


if __name__ == "__main__":
    job = read_job()
    torch.set_num_threads(1)
    users = {device: noise(job["images"], device) for device in range(job["devices"])}
    data = FederatedDataset(
        lambda device: PyTorchTensorDataset(users[device], user_id=str(device)),
        get_user_sampler("minimize_reuse", list(users)),
    )
    network = Model()
    model = PyTorchModel(
        network,
        lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=job["momentum"]),
        torch.optim.SGD(network.parameters(), lr=1.0),
    )
    evaluation = NNEvalHyperParams(local_batch_size=EVALUATION_BATCH)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job["rounds"],
            evaluation_frequency=np.iinfo(np.int32).max,  # of the devices' own images: never
            train_cohort_size=job["devices"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_batch_size=job["batch_size"], local_num_epochs=job["epochs"], local_learning_rate=job["lr"]
        ),
        evaluation,
        [CentralEvaluationCallback(PyTorchTensorDataset(test_images(job)), evaluation), TakeTurns()],
        send_metrics_to_platform=False,
    )
