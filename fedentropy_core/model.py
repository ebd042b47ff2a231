"""The paper's CNN (Table 5), and its weights as one flat vector.

Everything outside this file sees a model as a vector of P numbers in PyTorch's parameter order; only here
do names and shapes exist.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class CNN(nn.Module):
    """conv 5×5 3→6, pool, ReLU; conv 5×5 6→16, pool, ReLU; fc 400→120→84→classes.

    The paper pools after the ReLU. max and ReLU are both monotone, so pooling first gives the same numbers
    with a quarter of the ReLU's work.
    """

    def __init__(self, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """z: the 84 outputs of fc2 after ReLU, which Moon compares between models."""
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.relu(self.fc2(x))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc3(self.features(images))


@dataclass(frozen=True)
class Layer:
    """One parameter tensor of the CNN: its name, shape and number of inputs to each output."""

    name: str
    shape: tuple[int, ...]
    fan_in: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def layers(classes: int) -> list[Layer]:
    """The parameter tensors in the order in which they stand in the flat vector."""
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in CNN(classes).named_parameters()}
    fan_in = {name.split(".")[0]: int(np.prod(shape[1:])) for name, shape in shapes.items() if name.endswith("weight")}
    return [Layer(name, shape, fan_in[name.split(".")[0]]) for name, shape in shapes.items()]


def parameter_count(classes: int) -> int:
    """P; 62,006 for 10 classes."""
    return sum(layer.size for layer in layers(classes))


def initial_weights(classes: int, rng: np.random.Generator) -> np.ndarray:
    """uniform(−1/√fan_in, 1/√fan_in) for weights and biases: PyTorch's default for these layers."""
    parts = []
    for layer in layers(classes):
        bound = np.float32(1 / np.sqrt(layer.fan_in))
        unit = rng.random(layer.size, dtype=np.float32)
        parts.append((2 * unit - 1) * bound)
    return np.concatenate(parts)


def build(weights: np.ndarray, classes: int, device: torch.device | str = "cpu") -> CNN:
    """A CNN on `device` holding a copy of the flat vector, in the vector's precision."""
    flat = torch.from_numpy(np.ascontiguousarray(weights)).to(device)
    with torch.device("meta"):
        model = CNN(classes)
    model = model.to(flat.dtype).to_empty(device=device)
    pieces = flat.split([parameter.numel() for parameter in model.parameters()])
    with torch.no_grad():
        for parameter, piece in zip(model.parameters(), pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))
    return model


def flatten(model: nn.Module) -> np.ndarray:
    """The flat vector of a model's weights."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu().numpy()
