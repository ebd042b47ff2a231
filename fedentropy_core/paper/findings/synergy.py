"""Findings on FedEntropy on top of other methods (Table 3, Figures 3a and 6), and on its parts (Figure 3b)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedentropy_core.paper.findings.common import LIKE_FEDAVG, OURS, datasets, gain, in_cases, places
from fedentropy_core.paper.reported import papers_number
from fedentropy_core.report.findings import Finding, Findings, listed, say
from fedentropy_core.report.frame import NEAR_CHANCE, SMOOTH, cell, same_seeds
from fedentropy_core.report.looks import DATASET_NAMES, NAMES
from fedentropy_core.runs.record import VERDICT_ROUNDS

JUDGMENT, POOLS, VALUES = f"{OURS}-no-pools", f"{OURS}-pools-only", f"{OURS}-value"


def synergy(runs: pd.DataFrame) -> Findings:
    """What FedEntropy adds to each method."""
    topics = (gains, best_round_gains, scaffold_loses, scaffold_ends)
    return Findings(f for dataset in datasets(runs) for topic in topics for f in topic(runs, dataset))


def gains(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = {m: [gain(pairs) for _, pairs in places(runs, dataset, f"{m}+entropy", m)] for m in LIKE_FEDAVG}
    found = {method: np.concatenate(each) for method, each in found.items() if each}
    if found:
        each = np.concatenate(list(found.values()))
        yield say(
            "On {data} FedEntropy adds {means} points to {methods} over the last {hundred} rounds, mean over cases and "
            "seeds; {ahead} of {pairs} pairs gain.",
            lambda ahead, pairs, least: 2 * ahead > pairs and least > 0,
            data=DATASET_NAMES[dataset],
            means=listed((values.mean() for values in found.values()), ".1f"),
            methods=listed(NAMES[method] for method in found),
            hundred=VERDICT_ROUNDS,
            ahead=int((each > 0).sum()),
            pairs=len(each),
            least=float(min(values.mean() for values in found.values())),
        )


def best_round_gains(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    """A higher best round in case 1; elsewhere the same accuracy sooner and steadier."""
    by_case: dict[int, list[np.ndarray]] = {}
    for method in LIKE_FEDAVG:
        for case, pairs in places(runs, dataset, f"{method}+entropy", method):
            by_case.setdefault(case, []).append(gain(pairs, "best"))
    means = {case: float(np.concatenate(each).mean()) for case, each in by_case.items()}
    if 1 in means and len(means) > 1:
        others = [case for case in sorted(means) if case != 1]
        yield say(
            "By the best round there is less to gain on {data} outside case {first}: {one:.1f} points there, {rest} "
            "in {others}, so that elsewhere FedEntropy gets to the same accuracy sooner and swings less, but "
            "no higher.",
            lambda one, most: most < one,
            data=DATASET_NAMES[dataset],
            first=1,
            one=means[1],
            rest=listed((means[case] for case in others), ".1f"),
            others=in_cases(others),
            most=max(means[case] for case in others),
        )


def scaffold_loses(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = {
        case: float(gain(pairs).mean())
        for case, pairs in places(runs, dataset, "scaffold+entropy", "scaffold")
        if not pairs["at_chance_other"].all()
    }
    if found:
        yield say(
            "With its pools FedEntropy takes from SCAFFOLD where that learns: {changes} points in {cases} of "
            "{data} over the last {hundred} rounds, where the paper has it gain.",
            lambda average: average < 0,
            changes=listed(found.values(), "+.1f"),
            cases=in_cases(found),
            data=DATASET_NAMES[dataset],
            hundred=VERDICT_ROUNDS,
            average=float(np.mean(list(found.values()))),
        )


def scaffold_ends(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    found = runs[(runs["dataset"] == dataset) & (runs["variant"] == "scaffold+entropy") & (runs["case"] == 1)]
    if len(found):
        yield say(
            "SCAFFOLD with FedEntropy ends within {near:g} point of chance in case {case} of {data} with {chance} of "
            "{seeds} seeds; {diverged} of them diverged.",
            lambda chance, seeds: chance == seeds,
            near=NEAR_CHANCE,
            case=1,
            data=DATASET_NAMES[dataset],
            chance=int(found["at_chance"].sum()),
            seeds=len(found),
            diverged=int(found["diverged"].sum()),
        )


def table_3(runs: pd.DataFrame) -> Findings:
    """Which measure the paper's Table 3 holds: its row FedAvg + FedEntropy is the method of Table 1."""
    findings = []
    for dataset in datasets(runs):
        papers = [papers_number(table, dataset, 1, OURS) for table in ("table1", "table3")]
        found = cell(runs, dataset, 1, OURS)
        if None not in papers and len(found):
            ten, best = float(found["last_ten"].mean()), float(found["best"].mean())
            (first, _), (third, _) = papers
            findings.append(
                say(
                    "FedEntropy in case {case} of {data}: {first:.2f} in the paper's Table {one}, {third:.2f} in its "
                    "Table {three}. Ours by the last ten rounds is {ten:.2f}, by the best round {best:.2f}: Table "
                    "{three} probably holds best rounds.",
                    lambda ten, best, first, third: (
                        abs(ten - first) < abs(best - first) and abs(best - third) < abs(ten - third)
                    ),
                    case=1,
                    data=DATASET_NAMES[dataset],
                    one=1,
                    three=3,
                    first=first,
                    third=third,
                    ten=ten,
                    best=best,
                )
            )
    return Findings(findings)


# ------------------------------------------------------------------------------------------------ the parts


def ablation(runs: pd.DataFrame) -> Findings:
    """What the judgment and the pools each do."""
    return Findings(
        f for dataset in datasets(runs) for topic in (parts, shares, authors_values) for f in topic(runs, dataset)
    )


def parts(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    if (each := _gains_of_parts(runs, dataset)) is None:
        return
    judgment, pools, whole = each
    yield say(
        "Each part helps in case {case} of {data}: over the last {hundred} rounds the judgment alone adds "
        "{judgment:.1f} points to FedAvg, the pools alone {pools:.1f}, both {whole:.1f} ({ahead} of {pairs} pairs "
        "gain).",
        lambda judgment, pools, whole: min(judgment, pools, whole) > 0,
        case=1,
        data=DATASET_NAMES[dataset],
        hundred=VERDICT_ROUNDS,
        judgment=float(judgment.mean()),
        pools=float(pools.mean()),
        whole=float(whole.mean()),
        ahead=int(sum((part > 0).sum() for part in (judgment, pools, whole))),
        pairs=3 * len(whole),
    )


def shares(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    if (each := _gains_of_parts(runs, dataset)) is None:
        return
    judgment, _, whole = each
    yield say(
        "The judgment does most of it: {share:.0f} % of what both add; the pools add {more:+.1f} points to the "
        "judgment.",
        lambda share, more: 50 < share < 100 and more > 0,
        share=float(100 * judgment.mean() / whole.mean()),
        more=float((whole - judgment).mean()),
    )


def _gains_of_parts(runs: pd.DataFrame, dataset: str) -> list[np.ndarray] | None:
    """Points over FedAvg in case 1: the judgment alone, the pools alone, both; a value a seed that all have."""
    among = same_seeds(runs, ("fedavg", JUDGMENT, POOLS, OURS))
    each = [dict(places(among, dataset, variant, "fedavg")).get(1) for variant in (JUDGMENT, POOLS, OURS)]
    return None if any(pairs is None for pairs in each) else [gain(pairs) for pairs in each]


def authors_values(runs: pd.DataFrame, dataset: str) -> Iterator[Finding]:
    for case, pairs in places(runs, dataset, VALUES, OURS):
        if case == 1:
            whole_run = [
                100 * float(one.rounds["accuracy"].mean() - two.rounds["accuracy"].mean())
                for one, two in zip(pairs["record"], pairs["record_other"], strict=True)
            ]
            yield say(
                "The authors' values in place of pools end {ten:+.1f} points from FedEntropy over the last ten "
                "rounds, and are {whole:+.1f} from it over the whole run.",
                lambda ten, whole: whole < min(ten, 0),
                ten=float(gain(pairs, "last_ten").mean()),
                whole=float(np.mean(whole_run)),
            )


def group_entropy(runs: pd.DataFrame) -> Findings:
    """How even the groups are that pools draw (CIFAR-10, case 1)."""
    findings = []
    for dataset in datasets(runs):
        among = same_seeds(runs, ("fedavg", POOLS, OURS))
        rows = [cell(among, dataset, 1, variant)["record"] for variant in ("fedavg", POOLS, OURS)]
        if min(map(len, rows)):
            smooth = [[r.rounds["entropy_before"].rolling(SMOOTH).mean() for r in records] for records in rows]
            uniform, pools, whole = (float(np.mean([s.mean() for s in each])) for each in smooth)
            peak, uniform_peak = min(s.max() for s in smooth[1]), max(s.max() for s in smooth[0])
            findings.append(
                say(
                    "Pools alone draw groups as even as FedEntropy's: entropy {pools:.2f} and {whole:.2f} on average, "
                    "uniform draws {uniform:.2f}.",
                    lambda pools, whole, uniform: abs(pools - whole) < abs(pools - uniform) and pools > uniform,
                    pools=pools,
                    whole=whole,
                    uniform=uniform,
                )
            )
            findings.append(
                say(
                    "In bursts they are much more even: means of {window} rounds get to {peak:.2f} or more with every "
                    "seed, those of uniform draws to {uniform:.2f} at most.",
                    lambda peak, uniform: peak > uniform,
                    window=SMOOTH,
                    peak=float(peak),
                    uniform=float(uniform_peak),
                )
            )
    return Findings(findings)
