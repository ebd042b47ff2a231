"""What needs no PyTorch does not load it, and what needs no extra works without; which one is missing is said."""

import json
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


PLAN = """
from fedentropy_core.cli import main
main(["plan"])
"""


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "code", ["import fedentropy_core", READING, TABLES, PLAN], ids=["import", "reading", "tables", "plan"]
)
def test_no_torch(code):
    check = "import sys; assert 'torch' not in sys.modules, 'torch was imported'"
    done = python(f"{code}\n{check}")
    assert done.returncode == 0, done.stderr


CORE_ONLY = """
import sys
from importlib import import_module

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in ("matplotlib", "seaborn", "papermill", "nbconvert", "ipywidgets", "IPython", "scipy", "ray", "flwr"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
COMMANDS = """
from fedentropy_core.cli import main

results = ["--results", sys.argv[1]]
main(["plan", *results])
tiny = ["--rounds", "1", "--epochs", "1", "--devices", "20", "--engine", "reference"]
main(["run", "--dataset", "synthetic", *tiny, *results])
main(["audit", "--study", "custom", *results])
"""
IMPORTS = """
import json
from pkgutil import walk_packages
import fedentropy_core

refused = {}
for module in walk_packages(fedentropy_core.__path__, "fedentropy_core."):
    if module.name.endswith("_peer"):  # run by itself, in the environment of its framework
        continue
    try:
        import_module(module.name)
    except ImportError as error:
        refused[module.name.removeprefix("fedentropy_core.")] = str(error)
json.dump(refused, sys.stdout)
"""
REFUSED = """
from fedentropy_core.cli import main

for command in (["smoke"], ["reproduce"], ["reproduce", "--fresh"], ["train", "--ray", "auto"]):
    try:
        main([*command])
    except SystemExit as stopped:
        print(stopped)
"""


@pytest.mark.slow
def test_the_core_alone_trains_and_plans(tmp_path):
    done = python(CORE_ONLY + COMMANDS, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "0 of 252 runs recorded" in done.stdout
    assert "exact" in done.stdout or "within" in done.stdout


def test_a_module_says_which_extra_it_misses():
    """And every other module is the core's."""
    done = python(CORE_ONLY + IMPORTS)
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout)
    assert refused["report.figures"] == "this needs matplotlib: pip install 'fedentropy-core[report]'"
    assert refused["runs.cluster"] == "this needs ray: pip install 'fedentropy-core[flower]', on Python 3.11 or newer"
    assert all(why.startswith("this needs ") for why in refused.values()), refused
    assert {name.partition(".")[0] for name in refused} == {"bench", "flower", "paper", "report", "runs"}


def test_a_command_says_what_it_misses_before_it_works(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDENTROPY_DATA", str(tmp_path))
    done = python(CORE_ONLY + REFUSED)
    report = "error: this needs papermill: pip install 'fedentropy-core[report]'"
    ray = "error: this needs ray: pip install 'fedentropy-core[flower]', on Python 3.11 or newer"
    assert done.stdout.splitlines() == [report, report, report, ray], done.stderr
