"""What was decided before the first run of the paper study was trained; docs/protocol.md says it in words."""

from fedentropy_core.runs.record import TABLE_ROUNDS, VERDICT_ROUNDS

__all__ = ["TABLE_ROUNDS", "VERDICT_ROUNDS"]  # what a run's accuracy is, and what verdicts are decided by

SEEDS = (0, 1, 2)
CONFIDENCE = 0.95
POWER = 0.80  # a comparison with less, for the paper's effect, is underpowered
SMALLEST_GAIN = 1.0  # points of accuracy that count where the paper gives no number
SMALLEST_SAVING = 0.10  # share of rounds or bytes that counts where the paper gives no number
STUDIES_SIMULATED = 2_000  # with known truth, to test that the intervals hold
COVERAGE_TOLERANCE = 0.02
