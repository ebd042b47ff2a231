"""The GPU engine: a whole cohort, or those of several runs, as one program; a step trains every device at once.

One device at a time, the workload is bound by kernel launches: its step is some seventy kernels of microseconds each.
With the devices' weights stacked, [K, P], a round of ten devices takes the launches of one.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from fedentropy_core.engines.base import check_layers, usable_device
from fedentropy_core.engines.stacked_cnn import Layers, affine, contrastive_losses, features, patches_of
from fedentropy_core.interrupts import Halted
from fedentropy_core.model import layers
from fedentropy_core.work import Cohort, DeviceWork, LocalRule, Work

# Fixed, so that sums over images run in one order whatever else is in the stack; patches take 235 kB an image.
SOFT_LABEL_BATCH = 100  # images of each device
EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Plan:
    """Which images the K devices of a stack visit in T steps, B places a step.

    At each step only the devices up to the last one with something to do are computed. A batch shorter than B is
    padded with image 0, and the padding weighs nothing.
    """

    active: list[int]  # [T]: height of the stack at each step
    visits: torch.Tensor  # int64 [T, K, B]: positions in the training set
    real: torch.Tensor  # [T, K, B]: 1, or 0 where padded


@dataclass(frozen=True)
class Terms:
    """What the devices of a stack add to plain SGD; None where no device does."""

    start: torch.Tensor  # [K, P]: the global model of each device's run
    correction: torch.Tensor | None  # [K, P]
    previous: torch.Tensor | None  # [K, P]
    moon_mu: torch.Tensor  # [K, 1]: zero for a device without a previous model


class BatchedEngine:
    """Trains all devices of a round, or of a round of several runs, in lockstep on one torch device.

    A device's numbers are computed from its own rows only, whoever shares the stack. On a CPU (where this engine is
    for tests) its results are the same bits in any company. On a GPU cuBLAS may choose its kernels by the height of
    the stack: company may then change the last bits, and only the same stack gives the same bits.
    """

    name = "batched"

    def __init__(self, dataset, device: str = "cuda", dtype: torch.dtype = torch.float32):
        self.device, self.dtype = usable_device(device), dtype
        self.threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        check_layers(self.name, len(dataset.classes))
        self.layers = layers(len(dataset.classes))
        self.train_count = len(dataset.train_images)
        self.evaluated: tuple | None = None
        with _memory_advice(self.device, "uploading the data"):
            # Every image and its mirror image, as bytes: mirroring then costs no kernel, only another position.
            images = torch.tensor(dataset.train_images, device=self.device)
            self.images = torch.cat([images, images.flip(-1)])
            self.labels = torch.tensor(dataset.train_labels, device=self.device).repeat(2)
        self.pixel_values = self._upload(dataset.pixel_values).flatten()
        self.channel_offset = torch.arange(0, 3 * 256, 256, device=self.device).view(3, 1, 1)

    def train(self, work: Work) -> Cohort:
        return self.train_many([work])[0]

    def train_many(self, works: Sequence[Work], stop: np.ndarray | None = None) -> list[Cohort]:
        """The cohorts of several runs from one stack; the runs may differ in all but the rule."""
        rule = _common_rule(works)
        members = [(work.weights, device) for work in works for device in work.devices]
        steps = np.array([_steps(device, rule) for _, device in members], dtype=np.int64)
        longest_first = np.argsort(-steps, kind="stable")  # so that finished devices drop off the end of the stack
        starts, devices = zip(*(members[k] for k in longest_first), strict=True)
        with _one_cpu_thread(self.device), _memory_advice(self.device, f"training {len(devices)} stacked devices"):
            # All uploads come before the first step: each waits for the GPU, nothing after them does.
            terms = self._terms(rule, np.stack(starts), devices)
            # No device has more images than there are: a wider batch would be all padding.
            width = min(rule.batch_size, self.train_count)
            training = self._plan([_visits(device, self.train_count) for device in devices], width)
            own_images = self._plan([device.images[None] for device in devices], SOFT_LABEL_BATCH)
            weights = self._train(rule, terms, training, stop)
            soft_labels, losses = self._look(weights, own_images)
            wanted = any(work.first_losses for work in works)
            first = self._look(terms.start, own_images)[1] if wanted else torch.zeros_like(losses)
            results = [
                tensor.cpu().numpy()[np.argsort(longest_first)] for tensor in (weights, soft_labels, losses, first)
            ]
        ends = np.cumsum([len(work.devices) for work in works])[:-1]
        parts = zip(*(np.split(array, ends) for array in (*results, steps)), strict=True)
        return [
            Cohort(trained, soft_labels, steps, losses, first if work.first_losses else None)
            for work, (trained, soft_labels, losses, first, steps) in zip(works, parts, strict=True)
        ]

    @torch.no_grad()
    def evaluate(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """How many images of each class are right, and mean cross-entropy, of uint8 images [n, 3, 32, 32]."""
        with _one_cpu_thread(self.device), _memory_advice(self.device, "evaluating"):
            pixels, targets = self._uploaded(images, labels)
            model = self._views(self._upload(weights[None]))
            right, loss = torch.zeros(self.layers[-1].size, dtype=torch.int64, device=self.device), []
            for x, y in zip(pixels.split(EVALUATION_BATCH), targets.split(EVALUATION_BATCH), strict=True):
                logits = affine(model[-1], features(model, self._patches(x[None])))
                right.index_add_(0, y, (logits[0].argmax(0) == y).long())
                loss.append(F.cross_entropy(logits, y[None], reduction="sum"))
            return right.cpu().numpy(), float(torch.stack(loss).cpu().double().sum()) / len(images)

    def _train(self, rule: LocalRule, terms: Terms, plan: Plan, stop: np.ndarray | None) -> torch.Tensor:
        """The trained weights, [K, P], each step as LocalRule says."""
        shares = plan.real / plan.real.sum(2, keepdim=True).clamp(min=1)
        weights = terms.start.clone()
        velocity = torch.zeros_like(weights)
        for step, active in enumerate(plan.active):
            if stop is not None and stop[0]:
                raise Halted
            gradient = self._gradient(weights[:active], rule, terms, plan.visits[step, :active], shares[step, :active])
            if terms.correction is not None and rule.correction_in_momentum:
                gradient.add_(terms.correction[:active])
            velocity[:active].mul_(rule.momentum).add_(gradient)
            weights[:active].sub_(velocity[:active], alpha=rule.lr)
            if terms.correction is not None and not rule.correction_in_momentum:
                weights[:active].sub_(terms.correction[:active], alpha=rule.lr)
        return weights

    def _gradient(
        self, weights: torch.Tensor, rule: LocalRule, terms: Terms, visits: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """∇ of each device's loss, [K, P]. The sum over devices keeps them apart: ∂Σ/∂w_k has no other device in it."""
        active, weights = len(weights), weights.detach().requires_grad_()
        patches, model = self._patches(self.images[visits]), self._views(weights)
        z = features(model, patches)
        loss = F.cross_entropy(affine(model[-1], z), self.labels[visits], reduction="none")
        if terms.previous is not None:
            with torch.no_grad():
                z_global = features(self._views(terms.start[:active]), patches)
                z_previous = features(self._views(terms.previous[:active]), patches)
            loss = loss + terms.moon_mu[:active] * contrastive_losses(z, z_global, z_previous, rule.moon_tau)
        (gradient,) = torch.autograd.grad((loss * shares).sum(), weights)
        if rule.prox_mu:
            gradient.add_(weights.detach() - terms.start[:active], alpha=rule.prox_mu)
        return gradient

    @torch.no_grad()
    def _look(self, weights: torch.Tensor, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        """Over each device's own images: p_k = (1/l_k)·Σ softmax(model_k(x)), [K, C], and mean cross-entropy, [K]."""
        shares = plan.real / plan.real.sum((0, 2), keepdim=True)
        soft_labels = weights.new_zeros(len(weights), self.layers[-1].size)
        losses = torch.zeros(len(weights), dtype=torch.float64, device=self.device)
        for step, active in enumerate(plan.active):
            model, visits = self._views(weights[:active]), plan.visits[step, :active]
            logits = affine(model[-1], features(model, self._patches(self.images[visits])))
            soft_labels[:active] += (logits.softmax(1) * shares[step, :active, None]).sum(2)
            each = F.cross_entropy(logits, self.labels[visits], reduction="none")
            losses[:active] += (each * shares[step, :active]).double().sum(1)
        return soft_labels, losses

    def _plan(self, visits: list[np.ndarray], width: int) -> Plan:
        """Batches of `width` places from each device's visits [E, n]."""
        batches = [_padded_batches(order, width) for order in visits]
        stacked = np.full((max(map(len, batches)), len(batches), width), -1, dtype=np.int64)
        for place, device in enumerate(batches):
            stacked[: len(device), place] = device
        active = [max(k + 1 for k, device in enumerate(batches) if len(device) > step) for step in range(len(stacked))]
        positions = torch.tensor(stacked, device=self.device)
        return Plan(active, positions.clamp(min=0), (positions >= 0).to(self.dtype))

    def _terms(self, rule: LocalRule, starts: np.ndarray, devices: Sequence[DeviceWork]) -> Terms:
        previous = [device.previous if rule.moon_mu else None for device in devices]
        return Terms(
            start=self._upload(starts),
            correction=self._upload_rows([device.correction for device in devices], np.zeros_like(starts)),
            previous=self._upload_rows(previous, starts),
            moon_mu=self._upload(np.array([[rule.moon_mu * (row is not None)] for row in previous])),
        )

    def _upload_rows(self, rows: list[np.ndarray | None], missing: np.ndarray) -> torch.Tensor | None:
        """The rows, with those of `missing` where there is none; None where there are none at all."""
        if all(row is None for row in rows):
            return None
        return self._upload(np.stack([other if row is None else row for row, other in zip(rows, missing, strict=True)]))

    def _views(self, flat: torch.Tensor) -> Layers:
        """Stacked flat vectors [K, P] as layers."""
        pieces = zip(flat.split([layer.size for layer in self.layers], dim=1), self.layers, strict=True)
        tensors = [piece.unflatten(1, (layer.shape[0], -1)) for piece, layer in pieces]
        return list(zip(tensors[::2], tensors[1::2], strict=True))

    def _patches(self, pixels: torch.Tensor) -> torch.Tensor:
        """The first convolution's input from uint8 images [K, B, 3, 32, 32]: normalised by table, then im2col."""
        return patches_of(self.pixel_values[pixels + self.channel_offset].transpose(1, 2))

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.tensor(array, dtype=self.dtype, device=self.device)

    def _uploaded(self, images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """A set to evaluate on; the last one stays on the device, as every round asks for it, if it cannot change."""
        if self.evaluated is None or self.evaluated[0] is not images or self.evaluated[1] is not labels:
            tensors = torch.tensor(images, device=self.device), torch.tensor(labels, device=self.device)
            if images.flags.writeable or labels.flags.writeable:
                return tensors
            self.evaluated = images, labels, tensors
        return self.evaluated[2]


# ---------------------------------------------------------------------------------------------------- helpers


def _steps(device: DeviceWork, rule: LocalRule) -> int:
    """E·⌈n/B⌉."""
    return len(device.order) * -(-len(device.images) // rule.batch_size)


def _visits(device: DeviceWork, train_count: int) -> np.ndarray:
    """The images in the order of the visits, [E, n]; mirror images stand `train_count` after their originals."""
    return device.images[device.order] + train_count * device.mirror


def _padded_batches(visits: np.ndarray, width: int) -> np.ndarray:
    """[E, n] → [E·⌈n/width⌉, width], the last batch of each epoch padded with −1."""
    epochs, n = visits.shape
    padded = np.full((epochs, -(-n // width) * width), -1, dtype=np.int64)
    padded[:, :n] = visits
    return padded.reshape(-1, width)


def _common_rule(works: Sequence[Work]) -> LocalRule:
    if len({work.rule for work in works}) != 1:
        raise ValueError("works to be stacked must be at least one, all with the same rule")
    if not all(len(device.images) for work in works for device in work.devices):
        raise ValueError("every device must hold at least one image")
    return works[0].rule


@contextmanager
def _one_cpu_thread(device: torch.device) -> Iterator[None]:
    """One thread on a CPU: with more, a product over a small stack is split inside its sums, over a large one not."""
    if device.type != "cpu":
        yield
        return
    with _cpu:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


_cpu = threading.Lock()  # the number of threads is the whole process's


@contextmanager
def _memory_advice(device: torch.device, doing: str) -> Iterator[None]:
    """Turns running out of memory into an error that says what to lower."""
    try:
        yield
    except RuntimeError as error:
        # CUDA raises OutOfMemoryError, MPS and a CPU a plain RuntimeError.
        known = ("out of memory", "can't allocate memory", "not enough memory")
        if not isinstance(error, torch.OutOfMemoryError) and not any(words in str(error) for words in known):
            raise
        raise MemoryError(
            f"{device} ran out of memory while {doing}: lower fraction (devices a round) or batch_size, "
            "or train one seed at a time (no --stack-seeds)"
        ) from error
