"""How data sets and variants are named, and variants drawn, everywhere: a row a variant."""

from dataclasses import dataclass

from fedentropy_core.data.catalogue import SPECS

DATASET_NAMES = {name: spec.title for name, spec in SPECS.items()} | {"synthetic": "synthetic"}


@dataclass(frozen=True)
class Look:
    """`dashes` as matplotlib takes them; `wide` lines are seen under others that lie on them."""

    title: str
    colour: str
    dashes: tuple | str = "-"
    wide: bool = False


# Pairs of one hue, light without and dark with FedEntropy, after the colour-blind safe set of Okabe and Ito; dashes
# tell them apart in grey print. FedAvg and FedEntropy are wide since FedProx, broken, lies on them.
LOOKS = {
    "fedavg": Look("FedAvg", "#a0a0a0", (0, (4, 1.5)), wide=True),
    "fedprox": Look("FedProx", "#56b4e9", (0, (1, 1))),
    "scaffold": Look("SCAFFOLD", "#e69f00", (0, (4, 1, 1, 1))),
    "moon": Look("Moon", "#7fcfb6", (0, (6, 1, 1, 1, 1, 1))),
    "fedavg+entropy": Look("FedEntropy", "#d55e00", wide=True),
    "fedprox+entropy": Look("FedProx + FedEntropy", "#0072b2", (0, (2.5, 1.5))),
    "scaffold+entropy": Look("SCAFFOLD + FedEntropy", "#5c3d00"),
    "moon+entropy": Look("Moon + FedEntropy", "#009e73", (0, (8, 1.5))),
    "scaffold-authors": Look("SCAFFOLD (authors' form)", "#c9b458", (0, (4, 1, 1, 1, 1, 1))),
    "scaffold-authors+entropy": Look("SCAFFOLD (authors' form) + FedEntropy", "#4d3319"),
    "fedavg+entropy-no-pools": Look("FedEntropy without pools", "#cc79a7", (0, (3, 1))),
    "fedavg+entropy-pools-only": Look("pools only", "#332288", (0, (1, 1))),
    "fedavg+entropy-value": Look("FedEntropy, authors' values", "#000000", (0, (5, 1, 1, 1))),
    "fedavg+entropy-pools-authors": Look("FedEntropy, authors' pools", "#117733", (0, (4, 2))),
}
NAMES = {variant: look.title for variant, look in LOOKS.items()}
COLOURS = {variant: look.colour for variant, look in LOOKS.items()}


def line(variant: str) -> dict:
    """How a variant's curve is drawn."""
    look = LOOKS[variant]
    return {"color": look.colour, "linestyle": look.dashes, "linewidth": 1.9 if look.wide else 1.1}
