"""One setting of the native engine in a process of its own, so that its peak memory is its own.

python -m fedentropy_core.bench.probe '{"setting": {…}, "threads": 2, "runs": null, "rounds": 5}' prints what it took.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

from fedentropy_core.bench.files import peak_memory, peaks_record
from fedentropy_core.bench.peaks import measure_peaks, median_peaks
from fedentropy_core.bench.rounds import Setting, round_seconds, round_work, synthetic_dataset, timed
from fedentropy_core.engines import make_engine
from fedentropy_core.work import Dataset, Engine, Work

ROUNDS_TOGETHER = 3  # that each of the runs side by side plays in a turn


@dataclass(frozen=True)
class Probe:
    """`runs` side by side in one engine's pool, each evaluating beside its next round's training, as `make train` does;
    None: a round's training, then its evaluation."""

    setting: Setting
    threads: int
    runs: int | None
    rounds: int

    def measure(self) -> dict:
        """By a child process."""
        command = [sys.executable, "-m", __spec__.name, json.dumps(asdict(self))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"{self} failed:\n{done.stderr[-2_000:]}")
        return asdict(self) | json.loads(done.stdout)


def measured(probe: Probe, dataset: Dataset) -> dict:
    """Seconds and CPU seconds a round, the peaks in turns with them, and the most memory held for the rounds."""
    engine = make_engine("native", dataset, probe.threads)
    work = round_work("fedavg", probe.setting)
    ready = peak_memory()
    turn, played = _turn(probe, engine, work, dataset), probe.runs * ROUNDS_TOGETHER if probe.runs else 1
    engine.train(replace(work, devices=work.devices[: probe.threads]))  # to warm up
    seconds, cpu_seconds, peaks, memory = [], [], [], []
    for _ in range(probe.rounds):
        before = time.process_time()
        seconds.append(turn() / played)
        cpu_seconds.append((time.process_time() - before) / played)
        memory.append(peak_memory())
        peaks.append(measure_peaks(probe.threads))
    held = {"memory_before_mb": round(ready), "peak_memory_mb": round(memory[0])}  # without that of measuring peaks
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peaks": peaks_record(median_peaks(peaks)), **held}


def _turn(probe: Probe, engine: Engine, work: Work, dataset: Dataset) -> Callable[[], float]:
    """Plays one round, or those of the runs side by side; the seconds it took."""
    if probe.runs is None:
        return lambda: sum(round_seconds(engine, work, dataset, probe.setting))
    together = partial(_side_by_side, probe.runs, partial(_play, engine, work, dataset, probe.setting))
    return lambda: timed(together)[0]


def _side_by_side(runs: int, play: Callable[[], None]) -> None:
    with ThreadPoolExecutor(runs) as pool:
        for done in [pool.submit(play) for _ in range(runs)]:
            done.result()


def _play(engine: Engine, work: Work, dataset: Dataset, setting: Setting) -> None:
    """A run's rounds."""
    images, labels = dataset.test_images[: setting.test_images], dataset.test_labels[: setting.test_images]
    evaluation: Future | None = None
    with ThreadPoolExecutor(1) as beside:
        for _ in range(ROUNDS_TOGETHER):
            engine.train(work)
            if evaluation is not None:
                evaluation.result()
            evaluation = beside.submit(engine.evaluate, work.weights, images, labels)


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(json.dumps(measured(Probe(**wanted | {"setting": Setting(**wanted["setting"])}), synthetic_dataset())))
