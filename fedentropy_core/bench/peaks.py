"""What the machine can do at most: bare fused multiply-adds, and the matrix product of a tuned library."""

import ctypes
import platform
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fedentropy_core.engines.build import compiler

SOURCE = Path(__file__).with_name("peaks.cpp")
GEMM_SIZE = 2_048
FMA_STEPS = 5_000_000  # a call: about 15 ms with AVX-512


@dataclass(frozen=True)
class Peaks:
    """GFLOP/s of float32 on so many threads; without a C++ compiler `fma` and `instructions` are None."""

    threads: int
    gemm: float
    fma: float | None
    instructions: str | None


def measure_peaks(threads: int, seconds: float = 0.5) -> Peaks:
    """Both, each kept up for about as long as a round."""
    library = _library()
    fma = _fma_rate(library, threads, seconds) if library else None
    instructions = library.instructions().decode() if library else None
    return Peaks(threads, _gemm_rate(threads, seconds), fma, instructions)


def median_peaks(turns: Sequence[Peaks]) -> Peaks:
    first = turns[0]
    fma = None if first.fma is None else statistics.median(turn.fma for turn in turns)
    return Peaks(first.threads, statistics.median(turn.gemm for turn in turns), fma, first.instructions)


def _gemm_rate(threads: int, seconds: float) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.rand(GEMM_SIZE, GEMM_SIZE), torch.rand(GEMM_SIZE, GEMM_SIZE)

    def product() -> int:
        torch.mm(a, b)
        return 2 * GEMM_SIZE**3

    rate = _rate(product, seconds)
    torch.set_num_threads(before)
    return rate


def _fma_rate(library: ctypes.CDLL, threads: int, seconds: float) -> float:
    with ThreadPoolExecutor(threads) as pool:
        return _rate(lambda: sum(pool.map(library.multiply_add, [FMA_STEPS] * threads)), seconds)


def _rate(action: Callable[[], int], seconds: float) -> float:
    """GFLOP/s of an action that says how many operations it has done."""
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        done += action()
    return done / spent / 1e9


@lru_cache
def _library() -> ctypes.CDLL | None:
    cxx = compiler()
    if cxx is None:
        return None
    cpu = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peaks.so"
        command = [cxx, "-std=c++17", "-O3", cpu, "-fPIC", "-shared", str(SOURCE), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            warnings.warn(f"{Path(cxx).name} could not compile {SOURCE.name}:\n{done.stderr}", stacklevel=2)
            return None
        library = ctypes.CDLL(str(path))
    library.multiply_add.argtypes, library.multiply_add.restype = [ctypes.c_int64], ctypes.c_int64
    library.instructions.restype = ctypes.c_char_p
    return library
