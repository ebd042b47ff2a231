"""This version's rounds beside another commit's: the same runs, round by round in turn, for the ratio of their times.

Each version plays in a process of its own, from its own sources, and is told by a line of JSON what to play. What else
the machine does falls on both alike, and processor time, beside the time that passed, does not count what others take.
"""

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedentropy_core.files import project_root
from fedentropy_core.machine import usable_cores

METHODS = ("fedavg", "fedprox", "scaffold", "moon")
SETTING = {"dataset": "cifar10", "case": 1, "seed": 0, "augment": "none"}
WARM_UP = 8  # rounds; by then most of Moon's devices have a previous model

# Only names that every version has. Of a round it tells its seconds, its processor seconds and the new weights' hash.
PLAYER = """
import json, sys, time
from fedentropy_core import RunConfig, load_dataset
from fedentropy_core.engines.native import NativeEngine
from fedentropy_core.federation import Federation

told = json.loads(sys.stdin.readline())
dataset = load_dataset(told["config"]["dataset"])
engine = NativeEngine(dataset, told["threads"], march=told["march"])
federation = Federation(RunConfig(**told["config"]), dataset, engine)
for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    row = federation.play_round()
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, row.weights]), flush=True)
"""


class Player:
    """A process that plays one version's rounds."""

    def __init__(self, folder: Path, told: dict):
        data = {"FEDENTROPY_DATA": os.environ.get("FEDENTROPY_DATA") or str(project_root() / "data")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PLAYER],
            cwd=folder,
            env={**os.environ, **data, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps(told))

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.communicate()

    def play(self) -> tuple[float, float, str]:
        self._say("")
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError("a version could not play this; what it says is above")
        return tuple(json.loads(answer))

    def _say(self, line: str) -> None:
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise ValueError("a version could not play this; what it says is above") from None


@contextmanager
def sources(commit: str) -> Iterator[Path]:
    """The package as it was at a commit, in a temporary folder."""
    command = ["git", "-C", str(project_root()), "archive", commit, "fedentropy_core"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise ValueError(f"no sources of {commit!r}: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def compare(other: Path, told: dict, rounds: int) -> tuple[list[list[float]], list[list[float]], bool]:
    """Seconds and processor seconds of `rounds` rounds, [other, ours] each; and whether all weights were the same."""
    with ExitStack() as stack:
        players = [stack.enter_context(Player(folder, told)) for folder in (other, project_root())]
        wall, cpu, same = ([], []), ([], []), True
        for turn in range(WARM_UP + rounds):
            played = {k: players[k].play() for k in ((0, 1) if turn % 2 else (1, 0))}
            same = same and played[0][2] == played[1][2]
            for k in (0, 1) if turn >= WARM_UP else ():
                wall[k].append(played[k][0])
                cpu[k].append(played[k][1])
    return list(wall), list(cpu), same


def instruction_sets() -> list[str]:
    """What the engine can be built for here: all that the CPU has, and on x86-64 also AVX2 alone."""
    return ["native", "x86-64-v3"] if platform.machine() == "x86_64" else ["native"]


def main(options: argparse.Namespace) -> None:
    """A row for each instruction set and method: median seconds a round, and ratios, above 1 where now is faster."""
    rounds, threads = options.rounds or 20, options.threads or usable_cores()
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2 for quartiles; got {rounds}")
    described = ", ".join(f"{name} {value}" for name, value in SETTING.items())
    print(
        f"this version (now) against {options.against} (then): {described}; {threads} threads, {rounds} rounds in turn"
    )
    columns = f"{'then':>8}{'now':>8}{'ratio':>8}{'quartiles':>12}{'CPU time':>10}{'quartiles':>12}  bits"
    print(f"{'built for':11}{'method':18}{columns}")
    with sources(options.against) as other:
        for march in instruction_sets():
            for method in options.methods or METHODS:
                told = {"config": {**SETTING, "method": method}, "march": march, "threads": threads}
                wall, cpu, same = compare(other, told, rounds)
                then, now = map(statistics.median, wall)
                print(
                    f"{march:11}{method:18}{then:8.3f}{now:8.3f}{_ratio(wall, 8)}{_ratio(cpu, 10)}"
                    f"  {'same' if same else 'OTHERS'}",
                    flush=True,
                )


def _ratio(seconds: list[list[float]], width: int) -> str:
    """Median and quartiles of the rounds' ratios."""
    low, middle, high = statistics.quantiles((then / now for then, now in zip(*seconds, strict=True)), n=4)
    return f"{middle:.2f}×".rjust(width) + f"{low:.2f}–{high:.2f}".rjust(12)
