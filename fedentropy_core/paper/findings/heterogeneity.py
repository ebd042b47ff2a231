"""Findings on how unequal devices are (Figure 5), and on draws in which one device holds most of a label."""

from collections.abc import Sequence

import pandas as pd

from fedentropy_core.paper.heterogeneity import concentration
from fedentropy_core.paper.study import TABLE_1
from fedentropy_core.report.findings import Findings, say
from fedentropy_core.report.frame import same_seeds
from fedentropy_core.report.looks import DATASET_NAMES
from fedentropy_core.report.partitions import label_counts

MOST_OF_A_LABEL = 0.5


def cases(index: pd.DataFrame) -> Findings:
    """`index`: heterogeneity.index_table."""
    measures = [name for name in index if name not in ("dataset", "case")]
    tables = [index.pivot(index="dataset", columns="case", values=measure) for measure in measures]
    first = sum(int((table.idxmax(axis=1) == 1).sum()) for table in tables)
    third = sum(int((table[3] < table[2]).sum()) for table in tables)
    of = sum(map(len, tables))
    return Findings(
        [
            say(
                "Case {first} is the most heterogeneous by {count} of {of} measures and data sets, the reverse of the "
                "paper's “increases from case {first} to case {third}”.",
                lambda count, of: count == of,
                first=1,
                third=3,
                count=first,
                of=of,
            ),
            say(
                "Which of cases {second} and {third} is more even depends on the measure: case {third} by {count} of "
                "{of}.",
                lambda count, of: 0 < count < of,
                second=2,
                third=3,
                count=third,
                of=of,
            ),
        ]
    )


def draws(table: pd.DataFrame) -> Findings:
    """`table`: heterogeneity.seeds_table."""
    largest = table["largest share of a label on a device"]
    held = table[largest > MOST_OF_A_LABEL]
    return Findings(
        [
            say(
                "What does increase is the inequality of sizes: in case {case} devices hold {fewest} to {most:,} "
                "images.",
                lambda fewest, most: most > 2 * fewest,
                case=3,
                fewest=int(table["fewest images"].min()),
                most=int(table["most images"].max()),
            ),
            say(
                "In {held} of {draws} draws one device holds more than half of a label ({which}); uniform draws "
                "leave it out of nine rounds in ten.",
                lambda held: held > 0,
                held=len(held),
                draws=len(table),
                which="; ".join(f"{DATASET_NAMES[row.dataset]}, seed {row.seed}" for row in held.itertuples()),
            ),
        ]
    )


def concentrated(runs: pd.DataFrame) -> Findings:
    """What such draws do to SCAFFOLD, in case 3."""
    runs = same_seeds(runs[runs["case"] == 3], TABLE_1)
    held, others = _scaffolds_places(runs)
    if not held:
        return Findings()
    return Findings(
        [
            say(
                "Where one device holds more than half of a label SCAFFOLD is the last of the {methods} methods with "
                "{last} of {held} draws of case {case}; on the others with {last_others} of {others}.",
                lambda last, held: last == held,
                methods=len(TABLE_1),
                last=sum(place == len(TABLE_1) for place in held),
                held=len(held),
                case=3,
                last_others=sum(place == len(TABLE_1) for place in others),
                others=len(others),
            )
        ]
    )


def _scaffolds_places(runs: pd.DataFrame) -> tuple[Sequence[int], Sequence[int]]:
    """SCAFFOLD's place among the methods, on draws in which a device holds most of a label and on others."""
    held, others = [], []
    for _, rows in runs.groupby(["dataset", "seed"]):
        by_variant = rows.set_index("variant")["last_ten"]
        if set(TABLE_1) <= set(by_variant.index):
            counts = label_counts(rows["record"].iloc[0].config)
            share = concentration(counts)["largest share of a label on a device"]
            place = int((by_variant > by_variant["scaffold"]).sum()) + 1
            (held if share > MOST_OF_A_LABEL else others).append(place)
    return held, others
