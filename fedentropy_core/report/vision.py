"""How colours look to others: without a kind of cone, and in grey print."""

import numpy as np

from fedentropy_core.extras import needs

with needs("report"):
    from matplotlib.colors import to_rgb

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB; grey is luminance.
SIGHTS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "grey": ((0.2126, 0.7152, 0.0722),) * 3,
}
_XYZ = np.array(((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)))


def seen(colour: str, sight: str | None = None) -> np.ndarray:
    """CIE L*a*b* of a colour, as someone with this sight sees it."""
    value = np.array(to_rgb(colour))
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    if sight:
        linear = np.clip(np.array(SIGHTS[sight]) @ linear, 0, 1)
    x, y, z = (lambda t: np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116))(_XYZ @ linear / _XYZ.sum(axis=1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, sight: str | None = None) -> float:
    """How far apart two colours look (ΔE of 1976); above 10 they are told apart at a glance."""
    return float(np.linalg.norm(seen(one, sight) - seen(other, sight)))
