"""What a round costs as it grows: the cohort, the batch, threads, runs side by side; the native engine, FedAvg."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedentropy_core.bench.files import about
from fedentropy_core.bench.probe import Probe
from fedentropy_core.bench.rounds import Setting, flops
from fedentropy_core.engines.build import available
from fedentropy_core.machine import usable_cores
from fedentropy_core.runs.train import side_by_side

FILE = Path("results/scale.json")
COHORTS, BATCHES = (10, 30, 100, 1_000), (10, 50, 200)
LINEAR = 0.05  # of a line's time a cohort may be off it


def probes(rounds: int, cores: int) -> dict[str, list[Probe]]:
    """For each axis its settings; rounds of large cohorts are fewer."""
    threads = sorted({*(2**power for power in range(cores.bit_length())), cores})
    return {
        "cohort": [Probe(Setting(devices=count), cores, None, max(1, rounds * 10 // count)) for count in COHORTS],
        "batch": [Probe(Setting(batch_size=size), cores, None, rounds) for size in BATCHES],
        "threads": [Probe(Setting(), count, None, rounds) for count in threads],
        "runs": [Probe(Setting(), cores, count, rounds) for count in range(1, side_by_side(cores) + 2)],
    }


def measured(rounds: int = 7, axes: dict[str, list[Probe]] | None = None) -> dict:
    """What is written to the file."""
    if not available():
        raise ValueError("scale is measured of the native engine, which needs a C++ compiler")
    report, found = about(), {}
    for axis, series in (axes or probes(rounds, usable_cores())).items():
        found[axis] = []
        for probe in series:
            entry = probe.measure()
            print(f"{axis} {value(axis, entry):,}: {statistics.median(entry['seconds']):.3f} s", flush=True)
            found[axis].append(entry)
    return {**report, "axes": found}


def value(axis: str, entry: dict) -> int:
    """Where an entry stands on its axis."""
    return {**entry["setting"], **entry}[{"cohort": "devices", "batch": "batch_size"}.get(axis, axis)]


def shares(entry: dict) -> tuple[float | None, float]:
    """Of the FMA peak and of sgemm's; operations are counted densely, zeros that the engine leaves out included."""
    rate = flops(Setting(**entry["setting"])) / statistics.median(entry["seconds"]) / 1e9
    fma = entry["peaks"]["fma_gflops"]
    return fma and rate / fma, rate / entry["peaks"]["gemm_gflops"]


def line(cohorts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, list[float]]:
    """a + b·devices, and by what share of it each time is off; fitted so that these shares are small."""
    sizes, times = np.array(cohorts, float), np.array(seconds)
    terms = np.stack([np.ones_like(sizes), sizes], axis=1) / times[:, None]
    (start, slope), *_ = np.linalg.lstsq(terms, np.ones_like(times), rcond=None)
    return float(start), float(slope), (times / (start + slope * sizes) - 1).tolist()


def linearity(report: dict) -> str:
    """Whether time and CPU time are linear in the cohort, and where not; other work lengthens the former only."""
    return "\n".join(f"{name} {_linear(report['axes']['cohort'], name)}" for name in ("seconds", "cpu_seconds"))


def _linear(series: Sequence[dict], name: str) -> str:
    cohorts = [value("cohort", entry) for entry in series]
    start, slope, off = line(cohorts, [statistics.median(entry[name]) for entry in series])
    fit = f"{1e3 * start:.0f} ms + {1e3 * slope:.1f} ms a device"
    bent = [f"{d:+.0%} at {n:,}" for n, d in zip(cohorts, off, strict=True) if abs(d) > LINEAR]
    if not bent:
        return f"linear in the cohort: {fit}, all within {max(map(abs, off)):.1%}"
    return f"not linear in the cohort everywhere: {fit}, but {', '.join(bent)} devices"


def table(report: dict) -> str:
    """A block an axis, a row a setting."""
    first = next(iter(report["axes"].values()))[0]
    instructions = first["peaks"]["instructions"] or "no compiler"
    load = report["machine"]["load_before"]
    lines = [
        f"the native engine's FedAvg round; {report['machine']['processor']}, {instructions}, load {load:g} before"
    ]
    head = f"{'s/round':>10}{'spread':>17}{'CPU s':>8}{'of FMA':>8}{'of sgemm':>10}{'peak MB':>9}{'before':>8}"
    for axis, series in report["axes"].items():
        lines.append(f"\n{axis:>8}{head}")
        for entry in series:
            seconds, (fma, gemm) = entry["seconds"], shares(entry)
            cpu = statistics.median(entry["cpu_seconds"])
            spread = f"{min(seconds):.3f}–{max(seconds):.3f}"
            lines.append(
                f"{value(axis, entry):8,}{statistics.median(seconds):10.3f}{spread:>17}{cpu:8.3f}"
                f"{'–' if fma is None else f'{fma:.0%}':>8}{gemm:10.0%}"
                f"{entry['peak_memory_mb']:9,}{entry['memory_before_mb']:8,}"
            )
    return "\n".join([*lines, "", linearity(report)])
