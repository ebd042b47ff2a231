"""Every finding can be overturned by records: each is, at least once, where runs, rows or signs are exchanged."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedentropy_core.paper import diagnosis as diagnosis_tables
from fedentropy_core.paper import heterogeneity as heterogeneity_tables
from fedentropy_core.paper import judgment_quality, participation
from fedentropy_core.paper.controls import ages_table
from fedentropy_core.paper.findings import (
    accuracy,
    communication,
    diagnosis,
    headlines,
    heterogeneity,
    judgment,
    synergy,
)
from fedentropy_core.paper.study import shown_runs, study_runs
from fedentropy_core.report.frame import frame

OF_RUNS = (
    headlines,
    accuracy.accuracy,
    accuracy.scaffold,
    accuracy.level,
    accuracy.noise,
    accuracy.curves,
    communication.rounds,
    communication.upload,
    communication.by_upload,
    synergy.synergy,
    synergy.table_3,
    synergy.ablation,
    synergy.group_entropy,
    judgment.entropy_and_accuracy,
    heterogeneity.concentrated,
)


# ------------------------------------------------------------------------------------------------ runs


@pytest.fixture(scope="module")
def runs():
    """The study that has all of Table 1, its synergy and its ablation."""
    return shown_runs("mirrored")


def rebuilt(runs, records):
    made = frame(records)
    made.attrs["study"] = runs.attrs["study"]
    return made


def exchanged(runs, order):
    """Within a data set, case and seed the runs of its variants change places, by `order` of their number."""
    records = []
    for _, rows in runs.groupby(["dataset", "case", "seed"]):
        own = rows.sort_values("variant")["record"].tolist()
        for record, other in zip(own, [own[k] for k in order(len(own))], strict=True):
            about = {name: value for name, value in record.about.items() if name != "diverged"}
            records.append(replace(record, rounds=other.rounds, about=about))
    return rebuilt(runs, records)


def changed(runs, change):
    return rebuilt(runs, [replace(r, rounds=change(r.rounds.copy(), r.config)) for r in runs["record"]])


def accuracy_upside_down(rounds, config):
    return rounds.assign(accuracy=0.6 - rounds["accuracy"])


def best_rounds_last(rounds, config):
    """Sorted: smooth to the end, and the best round is the last."""
    return rounds.assign(accuracy=np.sort(rounds["accuracy"]))


def all_uploaded(rounds, config):
    return rounds.assign(models_up=config.chosen_per_round, bytes_up=rounds["bytes_up"] * (9 if config.entropy else 1))


def entropy_upside_down(rounds, config):
    return rounds.assign(entropy_before=3 - rounds["entropy_before"])


def prox_elsewhere(rounds, config):
    """FedProx ten points ahead of what it has."""
    return rounds.assign(accuracy=rounds["accuracy"] + 0.1 * (config.method == "fedprox"))


def learns_as_in_the_paper(rounds, config):
    """The paper's level in every method and case, but for FedEntropy's, which is lower."""
    return rounds.assign(accuracy=0.4 - 0.1 * config.entropy)


PERTURBED = {
    "reversed": lambda runs: exchanged(runs, lambda n: list(range(n))[::-1]),
    "shifted": lambda runs: exchanged(runs, lambda n: [*range(1, n), 0]),
    "shuffled": lambda runs: exchanged(runs, lambda n: np.random.default_rng(n).permutation(n).tolist()),
    **{
        change.__name__: lambda runs, change=change: changed(runs, change)
        for change in (
            accuracy_upside_down,
            best_rounds_last,
            all_uploaded,
            entropy_upside_down,
            prox_elsewhere,
            learns_as_in_the_paper,
        )
    },
}


@pytest.fixture(scope="module")
def perturbed(runs):
    return {name: perturb(runs) for name, perturb in PERTURBED.items()}


@pytest.mark.parametrize("topic", OF_RUNS, ids=lambda topic: topic.__name__)
def test_exchanged_runs_overturn_every_finding(runs, perturbed, topic):
    said = {finding.sentence for finding in topic(runs)}
    overturned = {f.sentence for other in perturbed.values() for f in topic(other) if not f.holds}
    assert said
    assert said <= overturned, said - overturned


@pytest.mark.parametrize("topic", OF_RUNS, ids=lambda topic: topic.__name__)
def test_without_runs_there_is_nothing_to_say(topic, tmp_path):
    assert topic(shown_runs("paper", tmp_path)) == ()


def test_what_is_shown_holds(runs):
    """Of the records as they are nothing that README and docs take is overturned."""
    assert [str(finding) for finding in headlines(runs) if not finding.holds] == []
    assert 5 <= len(headlines(runs)) <= 8


# ------------------------------------------------------------------------------------------------ tables


def turned(table, names):
    """The table with these numbers in reverse order, of the other sign, at zero, and each far up and far down."""

    def with_numbers(change, changed=names):
        other = table.copy()
        other[list(changed)] = change(other[list(changed)].astype(float))
        return other

    yield with_numbers(lambda numbers: numbers.to_numpy()[::-1])
    yield with_numbers(lambda numbers: -numbers)
    yield with_numbers(lambda numbers: 0 * numbers)
    for name in names:
        yield with_numbers(lambda numbers: 100 * numbers + 100, [name])
        yield with_numbers(lambda numbers: -numbers - 100, [name])


def test_tables_with_other_numbers_overturn_every_finding(runs):
    rng = np.random.default_rng(0)
    changed_runs = study_runs("diagnosis")
    causes = diagnosis_tables.diagnosis_table(runs, changed_runs)
    ages = ages_table(runs, changed_runs)
    drawn = pd.concat(judgment_quality.drawn_rounds("cifar10", case, rounds=20) for case in (1, 2, 3))
    greedy = judgment_quality.greedy_table(drawn, ["case"])
    index = heterogeneity_tables.index_table(seeds=(0,))
    draws = heterogeneity_tables.seeds_table(seeds=(0, 1, 2))
    recorded = judgment_quality.recorded_table(runs, ["cifar100"], (3,))
    who = participation.participation_table(runs, ["cifar100"])
    growth = pd.DataFrame({"case": [1, "iid"], "local epochs": [5, 5], 1: [1.0, 1.0], 2: [3.0, 1.5]})
    names = ("random", "all chosen", "judgment, soft labels", "judgment, true labels", "best group, soft labels")
    groups = pd.DataFrame({"case": 1, "group": names, "points": [-1.0, 0, 2, 2, 2.5]})
    groups["true_entropy"] = [1.8, 1.9, 2.1, 2.1, 2.2]
    distances = pd.DataFrame({"case": [1] * 4, "round": [1, 1, 2, 2], "distance": [0.4, 0.3, 0.05, 0.02]})
    measures = [name for name in index if name not in ("dataset", "case")]
    accuracies = [name for name in causes if name.endswith(("last_ten", "last_hundred"))]
    tables = [
        (diagnosis.level, causes, accuracies),
        (diagnosis.scaffold, causes, accuracies),
        (diagnosis.ages, ages, ["median age"]),
        (diagnosis.growth, growth, [2]),
        (judgment.greedy, greedy, ["gain", "kept"]),
        (judgment.recorded, recorded, ["all", "judgment", "uniform"]),
        (judgment.participation, who, ["largest quarter"]),
        (heterogeneity.cases, index, measures),
        (heterogeneity.draws, draws, ["most images", "largest share of a label on a device"]),
        (lambda table: judgment.against_random(table, "a set"), groups, ["points"]),
        (lambda table: judgment.soft_labels(distances, table), groups, ["true_entropy"]),
        (lambda table: judgment.soft_labels(table, groups), distances, ["distance"]),
    ]
    left = {}
    for topic, table, names in tables:
        said = {finding.sentence for finding in topic(table)}
        assert said
        others = [other for rows in (table, table.sample(frac=1, random_state=rng)) for other in turned(rows, names)]
        overturned = {f.sentence for other in others for f in topic(other) if not f.holds}
        for sentence in said:
            left[sentence] = left.get(sentence, False) or sentence in overturned
    assert [sentence for sentence, turned_over in left.items() if not turned_over] == []
