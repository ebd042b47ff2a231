"""Every random number of a run, keyed by what it is for; there is no global seed anywhere."""

import numpy as np

_PURPOSES = ("partition", "weights", "selection", "batches")


def generator(seed: int, purpose: str, round: int = 0, device: int = 0) -> np.random.Generator:
    """The generator of (seed, purpose, round, device).

    What a device draws depends neither on who else was chosen nor on order or threads, and two methods with
    the same seed share partition and initial weights.
    """
    key = (seed, _PURPOSES.index(purpose), round, device)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
