"""What needs no PyTorch does not load it."""

import subprocess
import sys

import pytest

READING = """
from fedentropy_core import RunConfig, judge, load_records, partition
records = load_records("mirrored")
"""
TABLES = """
from fedentropy_core.paper import claims, diagnosis, heterogeneity, judgment_quality, participation, tables
from fedentropy_core.paper.controls import ages_table
from fedentropy_core.paper.findings import headlines
from fedentropy_core.paper.study import TABLE_1, shown_runs, study_runs
runs, changed, datasets = shown_runs("mirrored"), study_runs("diagnosis"), ["cifar10", "cifar100"]
tables.accuracy_table(runs, "table1", datasets, TABLE_1)
tables.rounds_table(runs, datasets, TABLE_1)
tables.megabytes_table(runs, datasets, TABLE_1)
tables.gains_table(runs, datasets)
participation.participation_table(runs, datasets)
judgment_quality.recorded_table(runs, ["cifar100"], (3,))
heterogeneity.index_table(seeds=(0,))
diagnosis.diagnosis_table(runs, changed)
claims.decide_all(runs)
ages_table(runs, changed)
headlines(runs)
"""


@pytest.mark.parametrize("code", ["import fedentropy_core", READING, TABLES], ids=["import", "reading", "tables"])
def test_no_torch(code):
    check = "import sys; assert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{check}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
