"""python -m fedentropy_core.flower: a few rounds in Flower's simulation, compared with those of this package's own."""

import argparse
import sys

from fedentropy_core.config import RunConfig
from fedentropy_core.data.load import load_dataset
from fedentropy_core.engines import make_engine
from fedentropy_core.engines.build import available
from fedentropy_core.federation import Federation
from fedentropy_core.flower.settings import Settings
from fedentropy_core.flower.simulate import simulate
from fedentropy_core.methods import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fedentropy_core.flower", description=__doc__)
    parser.add_argument("--method", default="fedavg", choices=METHODS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    config = RunConfig(
        dataset="synthetic", entropy=True, devices=20, fraction=0.25, method=options.method, rounds=options.rounds
    )
    # The same on both sides: devices of the simulation have no GPU.
    engine = "native" if available() else "reference"
    dataset = load_dataset(config.dataset)
    federation = Federation(config, dataset, make_engine(engine, dataset))
    expected = [federation.play_round().weights for _ in range(config.rounds)]
    rows = simulate(Settings(config, engine))
    same = [row.weights for row in rows] == expected
    for row in rows:
        print(f"round {row.round}: accuracy {row.accuracy:.2%}, kept {row.kept} of {row.chosen}, weights {row.weights}")
    sys.exit(None if same else "the global models differ from those of the federation")


if __name__ == "__main__":
    main()
