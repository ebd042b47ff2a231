"""On what a record was made: versions, machine, time, commit. Nothing here is compared between runs."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def provenance(cores: int, device: "torch.device") -> dict:
    """On what a run is made, with so many cores and on this torch device."""
    import torch  # records are read without it

    return {
        "commit": _commit(),
        "cores": cores,
        "cpu": cpu_model(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "torch")},
    }


def _commit() -> str:
    """The checkout's commit, with "+changes" if files that git tracks differ from it; "unknown" outside a checkout."""
    package = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(package), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != package.parent:
            return "unknown"
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model() -> str:
    """The name of this machine's CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def physical_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
