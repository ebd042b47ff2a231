"""On what a record was made: versions, machine, time, commit. Nothing here is compared between runs."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from fedentropy_core.engines.base import usable_cores
from fedentropy_core.paths import project_root


def provenance(seconds: float) -> dict:
    """What a record's JSON says of its making."""
    return {
        "commit": _commit(),
        "cores": usable_cores(),
        "cpu": cpu_model(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "torch")},
        "wall_seconds": round(seconds, 1),
    }


def _commit() -> str:
    """The checkout's commit, with "+changes" if files that git tracks differ from it."""
    git = ["git", "-C", str(project_root())]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "fedentropy_core"]).returncode
        return commit + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_model() -> str:
    """The name of this machine's CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
