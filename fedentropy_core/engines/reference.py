"""The yardstick: plain PyTorch autograd, one device after another on each thread.

Obviously right before fast: the other engines are held to this one, and this one to torch.optim.SGD in the tests.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from operator import itemgetter

import numpy as np
import torch
from torch.nn import functional as F

from fedentropy_core.engines.base import results_of, stop_flag, usable_device
from fedentropy_core.machine import usable_cores
from fedentropy_core.model import CNN, build, flatten
from fedentropy_core.work import Cohort, DeviceWork, Work

FORWARD_BATCH = 500  # fixed, so that sums over a data set run in one order whatever the number of threads


class ReferenceEngine:
    """Trains the devices of a round side by side on `threads` single-threaded workers, or on any torch device."""

    def __init__(self, dataset, threads: int | None = None, device: str = "cpu", dtype: torch.dtype = torch.float32):
        self.classes = len(dataset.classes)
        self.device, self.dtype = usable_device(device), dtype
        # A name of its own elsewhere: other devices give other bits.
        self.name = "reference" if self.device.type == "cpu" else f"reference on {self.device.type}"
        self.images, self.labels = dataset.train_images, dataset.train_labels
        self.pixel_values = torch.from_numpy(dataset.pixel_values).to(self.device, dtype)
        self.threads = (threads or usable_cores()) if self.device.type == "cpu" else 1
        # One intra-op thread a worker: the network is too small to share between threads, devices are not.
        self.pool = ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,))

    def train(self, work: Work) -> Cohort:
        return self.train_many([work])[0]

    def train_many(self, works: Sequence[Work], stop: np.ndarray | None = None) -> list[Cohort]:
        """All devices side by side, the largest first, so that no thread is left with a large one at the end."""
        stop = stop_flag() if stop is None else stop
        jobs = [(work, device) for work in works for device in work.devices]
        largest_first = sorted(range(len(jobs)), key=lambda k: -len(jobs[k][1].images))
        trained = results_of(self.pool, lambda k: self._train_device(*jobs[k], stop), largest_first, stop)
        results = iter([result for _, result in sorted(zip(largest_first, trained, strict=True), key=itemgetter(0))])
        return [_cohort(list(islice(results, len(work.devices)))) for work in works]

    def evaluate(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        model = self._build(weights)
        chunks = [slice(start, start + FORWARD_BATCH) for start in range(0, len(images), FORWARD_BATCH)]

        @torch.no_grad()
        def score(chunk: slice) -> tuple[np.ndarray, float]:
            target = torch.tensor(labels[chunk], device=self.device)
            logits = model(self._normalise(images[chunk]))
            loss = F.cross_entropy(logits, target, reduction="sum")
            right = target[logits.argmax(1) == target]
            return right.bincount(minlength=self.classes).cpu().numpy(), float(loss)

        right, loss = zip(*results_of(self.pool, score, chunks, stop_flag()), strict=True)
        return sum(right), sum(loss) / len(images)

    def _train_device(
        self, work: Work, device: DeviceWork, stop: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """The local model, its soft label and the steps taken; None once it is told to stop."""
        model = self._build(work.weights)
        images = self._normalise(self.images[device.images])
        labels = torch.tensor(self.labels[device.images], device=self.device)
        loss_of = self._loss(model, work, device)
        correction = None if device.correction is None else list(self._build(device.correction).parameters())
        parameters = list(model.parameters())
        sgd = torch.optim.SGD(parameters, lr=work.rule.lr, momentum=work.rule.momentum, fused=True)
        steps = 0
        for order, mirror in zip(torch.from_numpy(device.order), torch.from_numpy(device.mirror), strict=True):
            visits = zip(order.split(work.rule.batch_size), mirror.split(work.rule.batch_size), strict=True)
            for batch, flipped in visits:
                if stop[0]:
                    return None
                x = images[batch]
                x[flipped] = x[flipped].flip(-1)
                loss_of(x, labels[batch]).backward()
                if correction is not None and work.rule.correction_in_momentum:
                    torch._foreach_add_([parameter.grad for parameter in parameters], correction)
                sgd.step()
                sgd.zero_grad()
                if correction is not None and not work.rule.correction_in_momentum:
                    with torch.no_grad():
                        torch._foreach_add_(parameters, correction, alpha=-work.rule.lr)
                steps += 1
        soft_label, loss = self._look(model, images, labels)
        first_loss = self._look(self._build(work.weights), images, labels)[1] if work.first_losses else None
        return flatten(model), soft_label, steps, loss, first_loss

    def _loss(self, model: CNN, work: Work, device: DeviceWork):
        """The loss of a batch: cross-entropy, plus what the method adds."""
        rule = work.rule
        anchor = [p.detach().clone() for p in model.parameters()]
        contrast = rule.moon_mu and device.previous is not None
        global_model = self._build(work.weights) if contrast else None
        previous_model = self._build(device.previous) if contrast else None

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            z = model.features(x)
            loss = F.cross_entropy(model.fc3(z), y)
            if rule.prox_mu:
                distance = sum(((p - a) ** 2).sum() for p, a in zip(model.parameters(), anchor, strict=True))
                loss = loss + rule.prox_mu / 2 * distance
            if contrast:
                with torch.no_grad():
                    z_global, z_previous = global_model.features(x), previous_model.features(x)
                loss = loss + rule.moon_mu * contrastive_loss(z, z_global, z_previous, rule.moon_tau)
            return loss

        return loss_of

    @torch.no_grad()
    def _look(self, model: CNN, images: torch.Tensor, labels: torch.Tensor) -> tuple[np.ndarray, float]:
        """p_k = (1/l_k)·Σ softmax(model(x)) over the device's own images, and the mean cross-entropy."""
        logits = [model(chunk) for chunk in images.split(FORWARD_BATCH)]
        total = sum(chunk.softmax(1).sum(0) for chunk in logits)
        targets = labels.split(FORWARD_BATCH)
        losses = (F.cross_entropy(x, y, reduction="sum") for x, y in zip(logits, targets, strict=True))
        return (total / len(images)).cpu().numpy(), sum(map(float, losses)) / len(images)

    def _build(self, weights: np.ndarray) -> CNN:
        return build(weights, self.classes, self.device).to(self.dtype)

    def _normalise(self, images: np.ndarray) -> torch.Tensor:
        """Normalised pixels of uint8 images, by table."""
        pixels = torch.tensor(images, dtype=torch.int32, device=self.device)
        return torch.stack([self.pixel_values[channel][pixels[:, channel]] for channel in range(3)], dim=1)


def _cohort(results: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Cohort:
    weights, soft_labels, steps, losses, first_losses = zip(*results, strict=True)
    first = None if first_losses[0] is None else np.array(first_losses)
    return Cohort(np.stack(weights), np.stack(soft_labels), np.array(steps, dtype=np.int64), np.array(losses), first)


def contrastive_loss(z: torch.Tensor, z_global: torch.Tensor, z_previous: torch.Tensor, tau: float) -> torch.Tensor:
    """−log(exp(cos(z, z_g)/τ) / (exp(cos(z, z_g)/τ) + exp(cos(z, z_p)/τ))), the mean over the batch."""
    near = F.cosine_similarity(z, z_global) / tau
    far = F.cosine_similarity(z, z_previous) / tau
    return F.softplus(far - near).mean()
