"""What a measurement is written with: on which machine, by which versions."""

import json
import os
import platform
import resource
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from fedentropy_core.bench.peaks import Peaks
from fedentropy_core.files import atomic_write
from fedentropy_core.machine import cpu_model, usable_cores


def about() -> dict:
    """The machine, what it had to do just before, and the versions."""
    return {
        "machine": {"processor": cpu_model(), "cores": usable_cores(), "load_before": round(os.getloadavg()[0], 2)},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }


def peaks_record(peaks: Peaks) -> dict:
    """GFLOP/s by the names that the files have had from the start."""
    fields = asdict(peaks)
    return {"gemm_gflops": fields.pop("gemm"), "fma_gflops": fields.pop("fma"), **fields}


def write(path: Path, report: dict) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(report, indent=1) + "\n").encode())
    print(f"wrote {path}")


def peak_memory() -> float:
    """MB that this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss of Linux starts with what the parent process held
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS
