"""Options that commands share, and how their values are read."""

import argparse
import re
from dataclasses import fields
from pathlib import Path

from fedentropy_core.config import AUGMENTATIONS, PROFILES, SELECTIONS, RunConfig
from fedentropy_core.data.catalogue import DATASETS
from fedentropy_core.engines import ENGINES
from fedentropy_core.methods import METHODS
from fedentropy_core.paper.study import STUDIES
from fedentropy_core.partition import CASES
from fedentropy_core.runs.study import Run, choose

_SETTINGS = {
    "seed": "initial weights, selection and batches follow from it",
    "partition_seed": "the partition follows from it; none: from the seed, a partition of its own for each",
    "rounds": "rounds T",
    "devices": "devices N",
    "fraction": "share C of the devices that is chosen each round",
    "epochs": "local epochs E",
    "batch_size": "images in a local step",
    "lr": "learning rate",
    "momentum": "of the local SGD; the buffer starts at zero every round",
    "prox_mu": "FedProx's μ",
    "moon_mu": "Moon's μ",
    "moon_tau": "Moon's τ",
    "epsilon": "probability of drawing from the positive pool",
    "beta": "Dirichlet's β in case 3",
    "global_step": "η: the new global model is w_g + η·(mean − w_g)",
}


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Every setting of a run; one that is not given is left out, so that the profile's holds."""
    parser.add_argument("--profile", default="paper", choices=PROFILES, help="settings to start from")
    parser.add_argument("--dataset", default="cifar10", choices=DATASETS)
    parser.add_argument("--case", type=_case, default=1, choices=CASES, help="how images are spread over devices")
    parser.add_argument("--method", default="fedavg", choices=METHODS)
    parser.add_argument("--entropy", action="store_true", help="FedEntropy on top of the method")
    parser.add_argument(
        "--selection", choices=SELECTIONS, help="FedEntropy's way to choose devices; pools if not given"
    )
    parser.add_argument("--pools-only", action="store_true", help="judge, but let every chosen device upload")
    parser.add_argument("--augment", choices=AUGMENTATIONS, help="training images; the profile's if not given")
    types = {field.name: field.type for field in fields(RunConfig)}
    for name, text in _SETTINGS.items():
        kind = {int | None: _seed_or_none}.get(types[name], types[name])
        flag = "--" + name.replace("_", "-")
        parser.add_argument(
            flag, type=kind, metavar="X", default=argparse.SUPPRESS, help=text + "; the profile's if not given"
        )


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--device", help="torch device of the engine; what suits the engine if not given")


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, help="folder of records; FEDENTROPY_RESULTS or results/ if not given")


def add_training(parser: argparse.ArgumentParser) -> None:
    add_engine(parser)
    parser.add_argument("--jobs", type=int, help="runs trained side by side; as many as fill the machine if not given")
    parser.add_argument("--stack-seeds", action="store_true", help="seeds of a method side by side (batched engine)")
    parser.add_argument("--ray", metavar="ADDRESS", help="train on a Ray cluster; auto: the one of this machine")
    parser.add_argument("--cpus", type=int, default=1, help="of a run on the cluster (default: 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="of a run on the cluster (default: 0)")


def add_study(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(STUDIES)
    parser.add_argument(
        "--study", default="paper", metavar="STUDY", help=f"one of {known}, or a file with a list `runs`"
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--datasets", nargs="*", default=(), help="such as cifar10 cifar100; all if not given")
    parser.add_argument("--methods", nargs="*", default=(), help="such as fedavg fedavg+entropy; all if not given")
    parser.add_argument("--cases", nargs="*", type=_case, default=(), help="such as 1 2 3 shards; all if not given")
    parser.add_argument("--seeds", nargs="*", type=int, default=(), help="of 0 1 2; all if not given")
    add_results(parser)


def add_audit_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=6, metavar="N", help="how many recorded runs (default: 6)")
    parser.add_argument("--audit-rounds", dest="rounds", type=int, default=3, metavar="R", help="of each (default: 3)")


def part_of(runs: list[Run], options: argparse.Namespace) -> list[Run]:
    return choose(runs, options.datasets, options.methods, options.cases, options.seeds)


def duration(text: str) -> float:
    """90s, 150m, 2h or plain seconds."""
    match = re.fullmatch(r"([0-9.]+)([smh]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"a time such as 90s, 150m or 2h; got {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _case(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _seed_or_none(text: str) -> int | None:
    try:
        return None if text == "none" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number or none; got {text!r}") from None


def add_bench(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--against", metavar="COMMIT", help="the native engine beside that of another commit")
    what.add_argument("--scale", action="store_true", help="what a round costs as it grows")
    what.add_argument("--peers", action="store_true", help="the same round in other frameworks; `make bench PEERS=1`")
    what.add_argument("--schedule", action="store_true", help="what more cores would give, computed")
    parser.add_argument("--show", action="store_true", help="what --scale, --peers or --schedule measured before")
    parser.add_argument("--engines", nargs="+", metavar="ENGINE", help="default: reference, and native where built")
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help="default: all")
    parser.add_argument("--rounds", type=int, help="timed rounds of each, after warming up (default: 7; against: 20)")
    parser.add_argument("--threads", type=int, help="default: all usable cores")
    parser.add_argument("--device", help="torch device of the engines that can use another than the CPU")
    parser.add_argument("--no-growth", action="store_true", help="leave out how the cost grows")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write all timings as JSON")
