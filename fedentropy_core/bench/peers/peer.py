"""What the peers' scripts share: the job, its noise, the paper's CNN, and taking turns with the other peers.

A script gets the path of a job file. Ready, it prints {"ready": true}; for every line on its standard input it then
plays a round and prints {"seconds": …}. It imports nothing of this project but this file.
"""

import json
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 10
EVALUATION_BATCH = 500


class CNN(nn.Module):
    """The paper's."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def read_job() -> dict:
    return json.loads(Path(sys.argv[1]).read_text())


@lru_cache
def noise(images: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised images and their labels; each process makes those of a seed once. A device's seed is its number."""
    rng = np.random.default_rng(seed)
    pixels = torch.from_numpy(rng.integers(0, 256, (images, 3, 32, 32), dtype=np.uint8))
    return pixels.float().div_(127.5).sub_(1), torch.from_numpy(rng.integers(0, CLASSES, images))


def test_images(job: dict) -> tuple[torch.Tensor, torch.Tensor]:
    return noise(job["test_images"], job["devices"])


class Turns:
    """`ended` says that a round is over, and waits until another one is wanted."""

    def __init__(self):
        self._start: float | None = None

    def ended(self) -> None:
        """Of the first call: the script is ready."""
        said = {"ready": True} if self._start is None else {"seconds": time.perf_counter() - self._start}
        print(json.dumps(said), flush=True)
        sys.stdin.readline()
        self._start = time.perf_counter()
