"""How the engines' timings are printed."""

import statistics

from fedentropy_core.bench.peaks import Peaks
from fedentropy_core.bench.rounds import Timing


def comparison(timings: list[Timing], peaks: Peaks) -> str:
    """A row an engine and method; the ratio is to the first engine's median with the same method."""
    lines = [
        f"{'method':10}{'engine':11}{'s/round':>9}{'spread':>15}{'evaluation':>12}{'ratio':>8}{'vs fedavg':>11}{_RATES}"
    ]
    first: dict[str, float] = {}
    plain = {timing.engine: timing.median for timing in timings if timing.method == "fedavg"}
    for timing in timings:
        ratio = first.setdefault(timing.method, timing.median) / timing.median
        to_plain = f"{timing.median / plain[timing.engine]:.2f}" if timing.engine in plain else "–"
        share = statistics.median(timing.evaluate) / timing.median
        lines.append(
            f"{timing.method:10}{timing.engine:11}{timing.median:9.3f}{_spread(timing):>15}{share:12.0%}{ratio:7.2f}×"
            f"{to_plain:>11}{_rates(timing, peaks)}"
        )
    return "\n".join(lines)


def growth_table(series: list[Timing], peaks: Peaks) -> str:
    """A row a setting."""
    lines = [f"{'devices':>8}{'images':>8}{'threads':>9}{'s/round':>9}{'spread':>15}{_RATES}"]
    lines += [
        f"{timing.setting.devices:8}{timing.setting.images:8}{timing.threads:9}{timing.median:9.3f}"
        f"{_spread(timing):>15}{_rates(timing, peaks)}"
        for timing in series
    ]
    return "\n".join(lines)


_RATES = f"{'GFLOP/s':>9}{'of FMA':>8}{'of GEMM':>9}"


def _rates(timing: Timing, peaks: Peaks) -> str:
    fma = f"{timing.gflops / peaks.fma:.0%}" if peaks.fma else "–"
    return f"{timing.gflops:9.0f}{fma:>8}{timing.gflops / peaks.gemm:9.0%}"


def _spread(timing: Timing) -> str:
    return f"{min(timing.rounds):.3f}–{max(timing.rounds):.3f}"
