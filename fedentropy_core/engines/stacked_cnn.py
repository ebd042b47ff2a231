"""The paper's CNN for many devices at once: every tensor has the device in front, [K, …].

Every layer is one batched matrix product, W·x + b with x of shape [K, inputs, places]. Convolutions copy their
patches into that form first (im2col). The alternatives lose where channels are as few as here: vmap over conv2d is a
grouped convolution, whose gradients are known to be slow in cuDNN and which rounds to TF32 unless told otherwise;
torch.nn.functional.unfold launches a kernel an image on CUDA. A strided view and one copy is one launch, and Moon's
three models share the copy. CUDA graphs are left out: moving the patches (118 MB for ten devices) should take about as
long as launching the kernels, and stacking more runs hides the launches as well.
"""

import torch
from torch.nn import functional as F

Layers = list[tuple[torch.Tensor, torch.Tensor]]  # weight [K, outputs, inputs] and bias [K, outputs, 1] of each layer


def patches_of(maps: torch.Tensor) -> torch.Tensor:
    """im2col for 5×5 kernels: [K, c, B, h, h] → [K, c·25, B·(h−4)²]."""
    windows = maps.unfold(3, 5, 1).unfold(4, 5, 1)
    return windows.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(maps), maps.shape[1] * 25, -1)


def features(model: Layers, patches: torch.Tensor) -> torch.Tensor:
    """Moon's z of each device's images, [K, 84, B], as CNN.features."""
    conv1, conv2, fc1, fc2, _ = model
    x = pooled(affine(conv1, patches), side=28)
    x = pooled(affine(conv2, patches_of(x)), side=10)
    x = x.permute(0, 1, 3, 4, 2).reshape(len(x), 400, -1)
    return F.relu(affine(fc2, F.relu(affine(fc1, x))))


def affine(layer: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """W·x + b for every device, [K, outputs, places]."""
    weight, bias = layer
    return torch.baddbmm(bias, weight, x)


def pooled(x: torch.Tensor, side: int) -> torch.Tensor:
    """ReLU of the maxima of 2×2 places: [K, c, B·side²] → [K, c, B, side/2, side/2]."""
    return F.relu(F.max_pool2d(x.unflatten(2, (-1, side, side)).flatten(0, 1), 2)).unflatten(0, x.shape[:2])


def contrastive_losses(z: torch.Tensor, z_global: torch.Tensor, z_previous: torch.Tensor, tau: float) -> torch.Tensor:
    """−log(exp(cos(z, z_g)/τ) / (exp(cos(z, z_g)/τ) + exp(cos(z, z_p)/τ))) of each image, [K, B]."""
    near = F.cosine_similarity(z, z_global, dim=1) / tau
    far = F.cosine_similarity(z, z_previous, dim=1) / tau
    return -torch.stack([near, far], dim=-1).log_softmax(-1)[..., 0]
