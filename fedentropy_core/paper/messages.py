"""What the paper says of the size of messages: true or false by arithmetic, whatever the training does."""

import numpy as np
import pandas as pd

from fedentropy_core.paper.reported import BASELINES
from fedentropy_core.report.looks import NAMES

Found = tuple[bool | None, str]
NEGLIGIBLE = 0.01  # share of the upload


def downlink_is_the_same(frame: pd.DataFrame) -> Found:
    ratios = _a_round(frame, "bytes_down", BASELINES)
    if "scaffold" not in ratios:
        return None, "no runs of SCAFFOLD"
    shown = ", ".join(f"{NAMES[method]} {ratio:.0f}" for method, ratio in ratios.items())
    return set(ratios.values()) == {1.0}, f"bytes to the devices over FedAvg's: {shown}; SCAFFOLD's need c as well"


def scaffold_doubles(frame: pd.DataFrame) -> Found:
    ratios = _a_round(frame, "bytes_up", ("scaffold",))
    if not ratios:
        return None, "no runs of SCAFFOLD"
    return bool(ratios["scaffold"] == 2), f"{ratios['scaffold']:.2f} times FedAvg's upload in a round"


def upload_is_at_most_fedavgs(frame: pd.DataFrame) -> Found:
    ratios = _a_round(frame, "bytes_up", ("fedavg+entropy",))
    if not ratios:
        return None, "no runs"
    runs = frame[frame["variant"] == "fedavg+entropy"]
    mean = float(np.mean([r.rounds["models_up"].mean() / r.config.chosen_per_round for r in runs["record"]]))
    most = ratios["fedavg+entropy"]
    why = f"a round with soft labels is at most {most:.4f} of FedAvg's bytes, {mean:.0%} of its models on average"
    return bool(most <= 1.001), why


def soft_labels_are_negligible(frame: pd.DataFrame) -> Found:
    runs = frame[frame["variant"] == "fedavg+entropy"]
    if runs.empty:
        return None, "no runs"
    share = max(_soft_label_share(record.rounds, record.config.chosen_per_round) for record in runs["record"])
    return bool(share < NEGLIGIBLE), f"{share:.3%} of the upload at most; less than {NEGLIGIBLE:.0%} counts"


def _soft_label_share(rounds: pd.DataFrame, chosen: int) -> float:
    """What of a run's upload is not models; FedEntropy's downlink is models alone."""
    model = rounds["bytes_down"].iloc[0] / chosen
    return 1 - rounds["models_up"].sum() * model / rounds["bytes_up"].sum()


def _a_round(frame: pd.DataFrame, direction: str, variants: tuple[str, ...]) -> dict[str, float]:
    """The largest bytes of a round over those of FedAvg on the same data, for each variant that has both runs."""
    most = frame.assign(bytes=[record.rounds[direction].max() for record in frame["record"]])
    of = most.groupby(["variant", "dataset"])["bytes"].max().to_dict()
    ratios = {
        variant: [of[v, d] / of["fedavg", d] for v, d in of if v == variant and ("fedavg", d) in of]
        for variant in variants
    }
    return {variant: max(found) for variant, found in ratios.items() if found}
