"""The seconds in docs/running.md, made from results/bench*.json."""

import json
from pathlib import Path

import pandas as pd

from fedentropy_core.files import atomic_write, project_root
from fedentropy_core.paper.pages import filled
from fedentropy_core.report.looks import NAMES
from fedentropy_core.report.tables import MISSING, markdown

PAGE = Path("docs/running.md")


def times(folder: Path | None = None) -> str:
    """Median seconds a round of every engine and method, and how near the native engine comes to the peaks."""
    paths = sorted((folder or project_root() / "results").glob("bench*.json"))
    reports = {path.name: json.loads(path.read_text()) for path in paths}
    rows = [row for name, report in reports.items() for row in _rows(name, report)]
    rates = [rate for name, report in reports.items() for rate in _rates(name, report)]
    return markdown(pd.DataFrame(rows).fillna(MISSING)) + "".join(f"\n{rate}" for rate in rates) + "\n"


def write_times(root: Path | None = None) -> None:
    """Puts them between the page's markers."""
    path = (root or project_root()) / PAGE
    text = filled(path.read_text(), {"times": times}, str(PAGE))
    with atomic_write(path) as file:
        file.write(text.encode())


def _rows(name: str, report: dict) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    machine = report["machine"]
    for entry in report["engines"]:
        row = rows.setdefault(entry["engine"], {"file": f"`{name}`", "CPU": _cpu(machine), "engine": entry["engine"]})
        row[NAMES[entry["method"]]] = f"{entry['median']:.2f}"
    return list(rows.values())


def _cpu(machine: dict) -> str:
    parts = [machine["processor"], machine["instructions"], f"{machine['threads']} threads"]
    return ", ".join(part for part in parts if part)


def _rates(name: str, report: dict) -> list[str]:
    """A line of a list for the native engine's FedAvg round."""
    machine = report["machine"]
    peaks = {"PyTorch's matrix product": machine["gemm_gflops"], "bare fused multiply-adds": machine["fma_gflops"]}
    return [
        f"- `{name}`: FedAvg by the native engine at {entry['gflops']:.0f} GFLOP/s; in the same run "
        + " and ".join(f"{what} at {peak:.0f}" for what, peak in peaks.items() if peak)
        for entry in report["engines"]
        if (entry["engine"], entry["method"]) == ("native", "fedavg")
    ]
