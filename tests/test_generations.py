"""One record of each generation, kept as it was written: it is read, checked and trained again for ever."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from fedentropy_core import RunConfig
from fedentropy_core.engines import build
from fedentropy_core.runs.audit import audit
from fedentropy_core.runs.record import RecordError, load_record

KEPT = {path.parent.name: path for path in (Path(__file__).parent / "records").rglob("*.csv")}
COMMON = {"dataset": "synthetic", "case": 2, "entropy": True, "seed": 1, "rounds": 4}
COMMON |= {"devices": 20, "fraction": 0.25, "epochs": 1}
CONFIGS = {
    "first": RunConfig(**COMMON, method="scaffold", augment="mirror", partition_seed=None),
    "correct": RunConfig(**COMMON, method="scaffold-authors", selection="pools-authors", global_step=0.5),
}
KEYS = {"first": "f5570abb4a261860", "correct": "1a7f806e2d93737c"}
FIRST_COLUMNS = "round accuracy loss chosen kept entropy_before entropy_after models_up bytes_up bytes_down weights"
COLUMNS = {"first": FIRST_COLUMNS.split(), "correct": [*FIRST_COLUMNS.split(), "correct"]}
CHAIN_START = {"first": ("key", "data_fingerprint"), "correct": ("key", "data_fingerprint", "engine")}

each = pytest.mark.parametrize("generation", CONFIGS)


def short_hash(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.fixture
def copy(generation, tmp_path):
    """A copy of the record to spoil, and its JSON."""
    shutil.copy(KEPT[generation], tmp_path)
    shutil.copy(KEPT[generation].with_suffix(".json"), tmp_path)
    csv = tmp_path / KEPT[generation].name
    return csv, json.loads(csv.with_suffix(".json").read_text())


def test_there_is_a_record_of_each_generation():
    assert KEPT.keys() == CONFIGS.keys()


@each
def test_a_record_of_each_generation_is_read(generation):
    record = load_record(KEPT[generation])
    assert record.config == CONFIGS[generation]
    assert record.config.key == record.about["key"] == KEYS[generation]
    assert list(record.columns) == COLUMNS[generation]
    assert record.rounds["round"].tolist() == [1, 2, 3, 4]
    assert record.rounds["chosen"].map(len).tolist() == [5] * 4
    assert record.final_accuracy == record.rounds["accuracy"].mean()
    assert ("test_images" in record.about) == ("correct" in record.columns)


@each
def test_the_chain_of_each_generation_is_as_it_was(generation):
    about = json.loads(KEPT[generation].with_suffix(".json").read_text())
    digest = short_hash(" ".join(about[name] for name in CHAIN_START[generation]))
    for line in KEPT[generation].read_text().splitlines()[1:]:
        body, _, written = line.rpartition(",")
        digest = short_hash(f"{digest} {body}")
        assert digest == written
    assert digest == about["final_digest"]


@each
@pytest.mark.parametrize("flipped", [0x01, 0x80], ids=["another character", "no character at all"])
def test_an_edit_to_any_byte_is_noticed(generation, flipped, copy):
    csv, _ = copy
    content = csv.read_bytes()
    for place in range(len(content)):
        csv.write_bytes(content[:place] + bytes([content[place] ^ flipped]) + content[place + 1 :])
        with pytest.raises(RecordError, match=csv.name):
            load_record(csv)


@pytest.mark.parametrize(
    ("generation", "name"), [(generation, name) for generation, names in CHAIN_START.items() for name in names]
)
def test_an_edit_to_what_the_chain_starts_from_is_noticed(generation, name, copy):
    csv, about = copy
    csv.with_suffix(".json").write_text(json.dumps(about | {name: "0" * 16}))
    with pytest.raises(RecordError, match=csv.stem):
        load_record(csv)


def test_a_record_without_the_later_fields_means_as_before_them():
    """The defaults of today say something else."""
    stored = json.loads(KEPT["first"].with_suffix(".json").read_text())["config"]
    assert len(stored) == 20
    assert not {"partition_seed", "global_step"} & stored.keys()
    config = load_record(KEPT["first"]).config
    assert (config.partition_seed, config.global_step) == (None, 1.0)
    assert RunConfig().partition_seed == 0


@pytest.mark.parametrize(("generation", "name"), [("correct", "partition_seed"), ("correct", "global_step")])
def test_a_later_field_cannot_be_taken_away(generation, name, copy):
    csv, about = copy
    del about["config"][name]
    csv.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(RecordError, match="key is not the key of its configuration"):
        load_record(csv)


@pytest.mark.skipif(not build.available(), reason="the native engine, which made them, cannot be built here")
@each
def test_a_record_of_each_generation_comes_out_again(generation):
    (finding,) = audit([KEPT[generation]], 4, progress=False)
    assert (finding.ok, finding.how, finding.rounds) == (True, "exact", 4), finding.note
