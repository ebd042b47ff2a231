"""What we say of our results, by topic: functions of runs or of tables, shown under the table or figure they speak of.

A finding holds for whatever study is shown, or prints as overturned; a topic whose runs are missing gives none.
"""

import pandas as pd

from fedentropy_core.paper.findings import accuracy, communication, synergy
from fedentropy_core.report.findings import Findings

HEADLINES = (
    accuracy.leads_fedavg,
    accuracy.sign,
    communication.fewer_rounds,
    communication.uploads_less,
    synergy.gains,
    synergy.parts,
    accuracy.scaffold_at_chance,
    accuracy.scaffold_in_case_2,
)


def headlines(runs: pd.DataFrame) -> Findings:
    """The findings that README and docs take."""
    return Findings(finding for topic in HEADLINES for finding in topic(runs, "cifar10"))
