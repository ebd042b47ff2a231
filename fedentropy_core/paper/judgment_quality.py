"""How good the greedy judgment is: measured against every group that the chosen devices can form."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.config import RunConfig
from fedentropy_core.judgment import RESOLUTION, group_entropy, judge
from fedentropy_core.paper.played import PlayedRound, candidate_groups, shares
from fedentropy_core.paper.tables import with_runs
from fedentropy_core.report.frame import cell, same_seeds
from fedentropy_core.report.groups import all_groups
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.partitions import label_counts
from fedentropy_core.report.tables import MISSING, Shown
from fedentropy_core.runs.record import RunRecord

# ------------------------------------------------------------------------------------------------ greedy and best


def judged_rounds(played: Sequence[PlayedRound]) -> pd.DataFrame:
    """greedy_and_best of each round's soft labels. A row a round."""
    return pd.DataFrame(
        [
            {"case": r.case, "seed": r.seed, "round": r.round} | greedy_and_best(r.soft_labels, r.counts.sum(axis=1))
            for r in played
        ]
    )


def greedy_and_best(distributions: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    """One round: the entropy of all chosen devices, of a random drop, of the judgment's group and of the best one."""
    groups, judgment = all_groups(distributions, sizes), judge(distributions, sizes)
    greedy, best = groups.entropy_of(judgment.kept), groups.best
    return {
        "all": float(groups.entropies[-1]),
        "random": groups.mean_entropy(len(judgment.kept)),
        "judgment": greedy,
        "best": groups.entropy_of(best),
        "kept": len(judgment.kept),
        "best_kept": len(best),
        "equal": greedy >= groups.entropies.max() - RESOLUTION,
        "beaten": float((groups.entropies < greedy - RESOLUTION).mean()),
    }


def drawn_rounds(dataset: str, case: int, rounds: int, chosen: int = 10, devices: int = 100) -> pd.DataFrame:
    """Rounds without training: devices chosen uniformly, their true label distributions judged. A row a round."""
    rng = np.random.default_rng([case, rounds])
    counts = label_counts(RunConfig(dataset=dataset, case=case, devices=devices))
    rows = []
    for _ in range(rounds):
        drawn = counts[rng.choice(devices, chosen, replace=False)]
        rows.append({"case": case} | greedy_and_best(*shares(drawn)))
    return pd.DataFrame(rows)


def greedy_table(rounds: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over rounds. `gain`: the judgment's share of the entropy that the best group would add."""
    grouped = rounds.groupby(list(by), sort=False)
    means = grouped[["all", "random", "judgment", "best", "kept", "best_kept", "equal", "beaten"]].mean()
    means["gain"] = (means["judgment"] - means["all"]) / (means["best"] - means["all"])
    means.insert(0, "rounds", grouped.size())
    return means.reset_index()


def greedy_text(table: pd.DataFrame, by: Sequence[str]) -> Shown:
    """The table to read."""
    columns = {"all": "all chosen", "random": "random drop", "judgment": "judgment", "best": "best group"}
    text = {name: table[name].astype(str) for name in by} | {"rounds": table["rounds"].astype(str)}
    text |= {f"entropy, {shown}": table[name].map("{:.3f}".format) for name, shown in columns.items()}
    text |= {"devices kept": table["kept"].map("{:.1f}".format), "by the best": table["best_kept"].map("{:.1f}".format)}
    text["judgment is the best"] = table["equal"].map("{:.0%}".format)
    text["share of the gain"] = table["gain"].map("{:.1%}".format)
    return Shown(pd.DataFrame(text))


# ------------------------------------------------------------------------------------------------ soft and true labels


def compare_groups(played: PlayedRound) -> pd.DataFrame:
    """One round, a row a group: devices and share of images kept, entropy of its soft and true labels, accuracy.

    "random" keeps as many devices as the judgment on soft labels.
    """
    true, sizes = shares(played.counts)
    by_soft, by_true = all_groups(played.soft_labels, sizes), all_groups(true, sizes)
    rows = []
    for name, group in candidate_groups(played.soft_labels, played.counts).items():
        entropies = (by_soft.entropy_of(group), by_true.entropy_of(group))
        rows.append((name, len(group), sizes[list(group)].sum() / sizes.sum(), *entropies, played.accuracies[name]))
        if name == "all chosen":
            kept = len(judge(played.soft_labels, sizes).kept)
            means = (by_soft.mean_entropy(kept), by_true.mean_entropy(kept))
            rows.append(("random", kept, kept / len(sizes), *means, played.accuracies["random"]))
    frame = pd.DataFrame(rows, columns=["group", "kept", "images", "soft_entropy", "true_entropy", "accuracy"])
    return frame.assign(case=played.case, seed=played.seed, round=played.round)


def groups_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Means over rounds and seeds for each case and group.

    `points`: accuracy less that of all chosen devices from the same local models, in points; its mean and standard
    deviation over seeds.
    """
    everyone = rounds[rounds["group"] == "all chosen"].set_index(["case", "seed", "round"])["accuracy"]
    here = pd.MultiIndex.from_frame(rounds[["case", "seed", "round"]])
    rounds = rounds.assign(points=100 * (rounds["accuracy"].to_numpy() - everyone.loc[here].to_numpy()))
    seeds = rounds.groupby(["case", "group", "seed"], sort=False).mean(numeric_only=True).drop(columns="round")
    table = seeds.groupby(["case", "group"], sort=False).mean()
    table["points_std"] = seeds.groupby(["case", "group"], sort=False)["points"].std()
    return table.reset_index()


def groups_text(table: pd.DataFrame) -> Shown:
    """The table to read."""
    points = [
        f"{mean:+.1f} ± {std:.1f}" if std == std else f"{mean:+.1f}"
        for mean, std in zip(table["points"], table["points_std"], strict=True)
    ]
    text = pd.DataFrame(
        {
            "case": table["case"],
            "group": table["group"],
            "devices kept": table["kept"].map("{:.1f}".format),
            "images kept": table["images"].map("{:.0%}".format),
            "entropy of soft labels": table["soft_entropy"].map("{:.3f}".format),
            "entropy of true labels": table["true_entropy"].map("{:.3f}".format),
            "accuracy (%)": table["accuracy"].map(lambda share: f"{100 * share:.1f}"),
            "points over all chosen": np.where(table["group"] == "all chosen", MISSING, points),
        }
    )
    return Shown(text)


def soft_label_distance(played: PlayedRound) -> float:
    """Mean over devices of the total-variation distance between soft label and true label distribution."""
    true, _ = shares(played.counts)
    return float(np.abs(played.soft_labels - true).sum(axis=1).mean() / 2)


# ------------------------------------------------------------------------------------------------ recorded runs


def recorded_rounds(record: RunRecord) -> pd.DataFrame:
    """The true label entropy of every recorded round: of the chosen devices, of a random drop, kept, and at best."""
    counts, rows = label_counts(record.config), []
    for chosen, kept in zip(record.rounds["chosen"], record.rounds["kept"], strict=True):
        groups = all_groups(*shares(counts[list(chosen)]))
        position = {device: k for k, device in enumerate(chosen)}
        rows.append(
            {
                "all": float(groups.entropies[-1]),
                "random": groups.mean_entropy(len(kept)),
                "judgment": groups.entropy_of([position[device] for device in kept]),
                "best": float(groups.entropies.max()),
                "kept": len(kept),
            }
        )
    return pd.DataFrame(rows)


def chosen_entropy(record: RunRecord) -> float:
    """The true label entropy of the chosen devices, mean over rounds."""
    counts = label_counts(record.config)
    return float(np.mean([group_entropy(*shares(counts[list(chosen)])) for chosen in record.rounds["chosen"]]))


def recorded_table(runs: pd.DataFrame, datasets: Sequence[str], cases: Sequence[int]) -> pd.DataFrame:
    """A row a data set and case: means over all recorded rounds of FedEntropy.

    `uniform` is the entropy of devices drawn without pools: FedAvg's, of the same seeds.
    """
    variants = ("fedavg+entropy", "fedavg")
    rows, shared = [], same_seeds(runs, variants)
    for dataset in datasets:
        for case in cases:
            judged, plain = (list(cell(shared, dataset, case, variant)["record"]) for variant in variants)
            row = {"dataset": dataset, "case": case, "variant": variants[0], "seeds": len(judged)}
            row["recorded"] = len(cell(runs, dataset, case, variants[0]))
            row["uniform"] = np.mean([chosen_entropy(record) for record in plain]) if plain else None
            means = pd.concat(map(recorded_rounds, judged)).mean() if judged else pd.Series(dtype=float)
            rows.append(row | {name: means.get(name) for name in ("all", "random", "judgment", "best", "kept")})
    return pd.DataFrame(rows)


def recorded_text(table: pd.DataFrame) -> Shown:
    """The table to read; data sets without runs are named beneath."""
    table, note = with_runs(table)
    columns = {
        "uniform": "uniform draw",
        "all": "all chosen",
        "random": "random drop",
        "judgment": "judgment",
        "best": "best group",
    }
    text = {"data": table["dataset"].map(DATASET_NAMES), "case": table["case"].astype(str)}
    text |= {f"entropy, {shown}": table[name].map(_number(3)) for name, shown in columns.items()}
    text |= {"devices kept": table["kept"].map(_number(1)), "seeds": table["seeds"].astype(str)}
    return Shown(pd.DataFrame(text), note)


def _number(digits: int):
    return lambda value: MISSING if pd.isna(value) else f"{value:.{digits}f}"
