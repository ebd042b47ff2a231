"""Findings on the judgment: against the best group, against chance, on soft and on true labels, and on who is kept."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedentropy_core.paper.findings.common import in_cases
from fedentropy_core.paper.observed import round_correlation
from fedentropy_core.paper.participation import QUARTERS
from fedentropy_core.paper.protocol import CONFIDENCE
from fedentropy_core.report.findings import Finding, Findings, listed, say
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.statistics import paired_difference


def greedy(table: pd.DataFrame) -> Findings:
    """`table`: judgment_quality.greedy_table by case, on true labels."""
    return Findings(
        [
            say(
                "On true labels the judgment finds the best group in {equal} % of draws ({cases}), gets {gain} "
                "% of the entropy that the best group would add, and keeps {more:.1f} devices more than that.",
                lambda least, more: least > 50 and more > 0,
                equal=listed(100 * table["equal"], ".0f"),
                cases=in_cases(table["case"]),
                gain=listed(100 * table["gain"], ".0f"),
                more=float((table["kept"] - table["best_kept"]).mean()),
                least=float(100 * table["gain"].min()),
            )
        ]
    )


def soft_labels(distances: pd.DataFrame, groups: pd.DataFrame) -> Findings:
    """`distances` of soft from true labels: case, round and distance; `groups`: judgment_quality.groups_table."""
    by_case = distances.groupby("case")
    first = [rows.loc[rows["round"] == rows["round"].min(), "distance"].mean() for _, rows in by_case]
    last = [rows.loc[rows["round"] == rows["round"].max(), "distance"].mean() for _, rows in by_case]
    entropy = groups.pivot(index="case", columns="group", values="true_entropy")
    soft, true = entropy["judgment, soft labels"], entropy["judgment, true labels"]
    return Findings(
        [
            say(
                "Soft labels come close to the true ones: distance {first} in the first round of {cases}, "
                "{last} in the last.",
                lambda first_mean, last_mean: last_mean < first_mean / 2,
                first=listed(first, ".2f"),
                cases=in_cases(by_case.groups),
                last=listed(last, ".2f"),
                first_mean=float(np.mean(first)),
                last_mean=float(np.mean(last)),
            ),
            say(
                "So little is lost by judging them: the true entropy of the group is {soft} with soft labels, {true} "
                "with true ones, {everyone} of all chosen.",
                lambda lost, gained: lost < gained / 2,
                soft=listed(soft, ".3f"),
                true=listed(true, ".3f"),
                everyone=listed(entropy["all chosen"], ".3f"),
                lost=float((true - soft).mean()),
                gained=float((true - entropy["all chosen"]).mean()),
            ),
        ]
    )


def against_random(groups: pd.DataFrame, where: str) -> Findings:
    """`groups`: judgment_quality.groups_table; `where` names the data."""
    points = groups.pivot(index="case", columns="group", values="points")
    chosen, random = points["judgment, soft labels"], points["random"]
    best = points["best group, soft labels"]
    over_random = chosen - random
    return Findings(
        [
            say(
                "On {where} the judgment beats a random drop of as many devices: averaged from the same local "
                "models its group is {chosen} points more accurate than all chosen in {cases}, the random drop "
                "{random}.",
                lambda least, over_all: least > 0 and over_all > 0,
                where=where,
                chosen=listed(chosen, "+.1f"),
                cases=in_cases(points.index),
                random=listed(random, "+.1f"),
                least=float(over_random.min()),
                over_all=float(chosen.mean()),
            ),
            say(
                "The judgment's group has most of what there is to gain: the group of most entropy is {best} points "
                "over all chosen, {more} more.",
                lambda more_mean, gain: more_mean < gain,
                best=listed(best, "+.1f"),
                more=listed(best - chosen, "+.1f"),
                more_mean=float((best - chosen).mean()),
                gain=float(chosen.mean()),
            ),
        ]
    )


def recorded(table: pd.DataFrame) -> Findings:
    """`table`: judgment_quality.recorded_table."""
    return Findings(
        finding
        for dataset, rows in table.dropna(subset=["judgment", "uniform"]).groupby("dataset", sort=False)
        for finding in _recorded(dataset, rows)
    )


def _recorded(dataset: str, rows: pd.DataFrame) -> Sequence[Finding]:
    share = 100 * (rows["judgment"] - rows["all"]) / (rows["best"] - rows["all"])
    added, drawn = rows["judgment"] - rows["all"], rows["all"] - rows["uniform"]
    data = DATASET_NAMES[dataset]
    return (
        say(
            "On {data} the judgment, which sees soft labels only, adds {share} % of the true entropy that the best "
            "group would add ({cases}), with {kept:.1f} devices kept on average.",
            lambda least: least > 50,
            data=data,
            share=listed(share, ".0f"),
            cases=in_cases(rows["case"]),
            kept=float(rows["kept"].mean()),
            least=float(share.min()),
        ),
        say(
            "On {data} pools draw groups of more entropy than uniform draws, by {drawn}; the judgment then adds "
            "{added}.",
            lambda least: least > 0,
            data=data,
            drawn=listed(drawn, ".2f"),
            added=listed(added, ".2f"),
            least=float(min(drawn.min(), added.min())),
        ),
    )


def participation(table: pd.DataFrame) -> Findings:
    """`table`: participation.participation_table."""
    findings = []
    for dataset, rows in table.groupby("dataset", sort=False):
        plain, ours = (rows[rows["variant"] == variant] for variant in ("fedavg", "fedavg+entropy"))
        if len(plain) and len(ours):
            (kept, uniform), (images, all_images) = (
                [float(side[column].iloc[0]) for side in (ours, plain)] for column in (QUARTERS[-1], "images a round")
            )
            findings.append(
                say(
                    "Large devices are kept less: in case {case} of {data} one of the largest quarter in {kept:.1f} "
                    "% of rounds, where uniform draws have it in {uniform:.1f} %; a round's model is made from "
                    "{images:,.0f} images in place of {all_images:,.0f}.",
                    lambda kept, uniform: kept < uniform,
                    case=3,
                    data=DATASET_NAMES[dataset],
                    kept=100 * kept,
                    uniform=100 * uniform,
                    images=images,
                    all_images=all_images,
                )
            )
    return Findings(findings)


def entropy_and_accuracy(runs: pd.DataFrame) -> Findings:
    """Does an average of higher entropy serve better? FedAvg's draws do not depend on it."""
    records = runs.loc[runs["variant"] == "fedavg", "record"]
    found = np.array([r for record in records if not np.isnan(r := round_correlation(record))])
    if len(found) < 2:
        return Findings()
    effect = paired_difference(found)
    low, high = effect.interval(CONFIDENCE)
    return Findings(
        [
            say(
                "The more even the devices of a round, the better its model: FedAvg's rounds of more entropy than "
                "their neighbours are more accurate than these (rank correlation {mean:.2f}, {low:.2f} to {high:.2f} "
                "over {runs} runs).",
                lambda low: low > 0,
                mean=effect.mean,
                low=low,
                high=high,
                runs=len(found),
            )
        ]
    )
