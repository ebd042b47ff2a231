"""The same round in other frameworks' simulations and in ours, taking turns; each in processes of its own."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fedentropy_core.bench.files import about
from fedentropy_core.bench.peers import tree
from fedentropy_core.bench.rounds import Setting
from fedentropy_core.config import RunConfig
from fedentropy_core.extras import needs
from fedentropy_core.files import project_root
from fedentropy_core.machine import usable_cores

with needs("dev"):
    import psutil

FOLDER = Path(__file__).parent
FILE = Path("results/peers.json")


@dataclass(frozen=True)
class Peer:
    """A framework: its script, and what of our round it leaves out."""

    title: str
    script: str
    leaves_out: str
    engine: str | None = None  # of ours
    torchrun: bool = False  # whether it wants a process for each core

    def command(self, job: Path, threads: int) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={threads}"]
        return [self._python(), *(launcher if self.torchrun else []), str(FOLDER / self.script), str(job)]

    def _python(self) -> str:
        if self.engine:
            return sys.executable
        path = project_root() / ".peers/bin/python"
        if not path.exists():
            raise ValueError(f"{path} is missing; `make bench PEERS=1` makes the other frameworks' environment")
        return str(path)


PEERS = (
    Peer("ours, native engine", "our_peer.py", "nothing", engine="native"),
    Peer("ours, reference engine", "our_peer.py", "nothing", engine="reference"),
    Peer(
        "Flower",
        "flower_peer.py",
        "soft labels, judgment; evaluates on all cores in the server's process, while its Ray workers wait",
    ),
    Peer(
        "pfl-research",
        "pfl_peer.py",
        "soft labels, judgment, shuffling; each process trains its devices one after the other",
        torchrun=True,
    ),
)


class Running:
    """A peer at work, as seen from here; what its script says to us is JSON, all other output goes to the log."""

    def __init__(self, peer: Peer, process: subprocess.Popen, log: Path):
        self.peer, self.process, self.log, self.tree = peer, process, log, psutil.Process(process.pid)
        self._answer("ready")

    def play(self) -> tuple[float, float]:
        """Seconds and CPU seconds of a round."""
        before = tree.cpu_seconds(self.tree)
        seconds = self._round()
        return seconds, tree.cpu_seconds(self.tree) - before

    def peak_memory(self) -> float:
        """MB held at most during a round, which looking at it slows."""
        with tree.peak_memory(self.tree) as peak:
            self._round()
        return peak[0]

    def _round(self) -> float:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer("seconds")

    def _answer(self, word: str) -> float:
        for line in self.process.stdout:
            if line.startswith(f'{{"{word}"'):
                return json.loads(line)[word]
        raise ValueError(f"{self.peer.title} ended without a round:\n" + self.log.read_text()[-2_000:])


@contextmanager
def started(peer: Peer, setting: Setting, rounds: int, threads: int, folder: Path) -> Iterator[Running]:
    """The peer, ready to play; its processes are ended with the context."""
    paper = RunConfig()
    names = {"rounds": rounds, "threads": threads, "engine": peer.engine, "lr": paper.lr, "momentum": paper.momentum}
    place = folder / (peer.engine or peer.script)
    job, log = place.with_suffix(".json"), place.with_suffix(".log")
    job.write_text(json.dumps(asdict(setting) | names))
    paths = [str(FOLDER), *([str(project_root())] if peer.engine else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with log.open("w") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        process = subprocess.Popen(peer.command(job, threads), env=environment, cwd=folder, **pipes)
    try:
        yield Running(peer, process, log)
    finally:
        if process.poll() is None:
            tree.end(psutil.Process(process.pid))
        for pipe in (process.stdin, process.stdout):
            pipe.close()
        process.wait()


def measured(
    rounds: int = 7, peers: Sequence[Peer] = PEERS, setting: Setting | None = None, threads: int | None = None
) -> dict:
    """What is written to the file: rounds in turn after one to warm up, what each costs; one more for the memory."""
    setting, threads = setting or Setting(), threads or usable_cores()
    report = about()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = [stack.enter_context(started(peer, setting, rounds + 2, threads, Path(folder))) for peer in peers]
        turns = [[each.play() for each in running] for _ in range(rounds + 1)][1:]
        memory = [each.peak_memory() for each in running]
    costs = [
        {
            "title": peer.title,
            "leaves_out": peer.leaves_out,
            "seconds": [turn[place][0] for turn in turns],
            "cpu_seconds": [turn[place][1] for turn in turns],
            "peak_memory_mb": memory[place],
        }
        for place, peer in enumerate(peers)
    ]
    others = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if "==" in line]
    return {**report, "requirements": others, "threads": threads, "setting": asdict(setting), "peers": costs}


def table(report: dict) -> str:
    """A row a peer; the ratio is to the first one's seconds."""
    rows, first = [], None
    for peer in report["peers"]:
        seconds, cpu = peer["seconds"], statistics.median(peer["cpu_seconds"])
        median = statistics.median(seconds)
        first = first or median
        spread = f"{min(seconds):.2f}–{max(seconds):.2f}"
        rows.append(
            f"{peer['title']:24}{median:9.2f}{spread:>15}{median / first:7.1f}×{cpu:13.2f}"
            f"{peer['peak_memory_mb']:9,.0f}  {peer['leaves_out']}"
        )
    setting = Setting(**report["setting"])
    head = f"{'':24}{'s/round':>9}{'spread':>15}{'':8}{'CPU s/round':>13}{'peak MB':>9}  leaves out"
    machine = report["machine"]
    where = f"{machine['processor']}, {report['threads']} threads, load {machine['load_before']:g} before"
    return "\n".join([f"one round of {setting.text()}; {where}", head, *rows])
