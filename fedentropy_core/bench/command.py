"""python -m fedentropy_core bench: the engines side by side; --against, --scale, --peers, --schedule."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fedentropy_core.bench import against, scale, schedule
from fedentropy_core.bench.files import about, peak_memory, peaks_record, write
from fedentropy_core.bench.page import write_times
from fedentropy_core.bench.peaks import Peaks
from fedentropy_core.bench.rounds import Setting, Timing, bench, growth, synthetic_dataset
from fedentropy_core.bench.tables import comparison, growth_table
from fedentropy_core.engines.build import available
from fedentropy_core.files import project_root
from fedentropy_core.machine import usable_cores
from fedentropy_core.methods import METHODS

ROUNDS = 7


def main(options: argparse.Namespace) -> None:
    """Times and prints tables. The engines' timings are written only if asked."""
    if options.rounds is not None and options.rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {options.rounds}")
    if options.show and not (options.scale or options.peers or options.schedule):
        raise ValueError("--show is for --scale, --peers and --schedule")
    if options.against:
        against.main(options)
    elif options.scale:
        report = _report(options, scale.FILE, scale.measured)
        print(scale.table(report))
        _draw(report)
    elif options.peers:
        from fedentropy_core.bench.peers import compare  # with psutil, which is for this only

        print(compare.table(_report(options, compare.FILE, compare.measured)))
    elif options.schedule:
        print(schedule.table(_report(options, schedule.FILE, schedule.measured)))
    else:
        _engines(options)


def _report(options: argparse.Namespace, file: Path, measure: Callable[[int], dict]) -> dict:
    """What is in the file, measured anew unless only to be shown."""
    path = options.write or project_root() / file
    if options.show:
        return json.loads(path.read_text())
    report = measure(options.rounds or ROUNDS)
    write(path, report)
    return report


def _draw(report: dict) -> None:
    from fedentropy_core.bench.scale_figure import scale_figure  # matplotlib is for figures only
    from fedentropy_core.report.figures import save

    save(scale_figure(report), "scale", None, f"made by `make bench SCALE=1` from {scale.FILE}")


def _engines(options: argparse.Namespace) -> None:
    rounds = options.rounds or ROUNDS
    threads, dataset, has_native = options.threads or usable_cores(), synthetic_dataset(), available()
    engines = tuple(options.engines or (("reference", "native") if has_native else ("reference",)))
    timings, peaks = bench(engines, options.methods or METHODS, rounds, options.device, threads, dataset=dataset)
    fma = f"FMA peak {peaks.fma:.0f}, " if peaks.fma else ""
    print(f"one round of {Setting().text()}, {threads} threads; {fma}GEMM peak {peaks.gemm:.0f} GFLOP/s")
    print(comparison(timings, peaks))
    growing = growth(max(1, rounds // 2), threads, dataset) if has_native and not options.no_growth else {}
    for axis, series in growing.items():
        print(f"\nnative, FedAvg, growing {axis}")
        print(growth_table(series, peaks))
    print(f"\npeak memory {peak_memory():.0f} MB")
    if options.write:
        report = about()
        report["machine"] |= peaks_record(peaks)
        report["engines"] = [_record(timing, peaks) for timing in timings]
        report["growth"] = {axis: [_record(timing, peaks) for timing in series] for axis, series in growing.items()}
        write(options.write, report | {"peak_memory_mb": round(peak_memory())})
        write_times()


def _record(timing: Timing, peaks: Peaks) -> dict:
    measured = {"median": timing.median, "gflops": timing.gflops, "share_of_peak": timing.gflops / peaks.gemm}
    return {**asdict(timing), **measured}
