"""FedAvg with FedEntropy's soft labels and judgment by this package; the job names the engine."""

from peer import Turns, read_job

from fedentropy_core.bench.rounds import synthetic_dataset
from fedentropy_core.config import RunConfig
from fedentropy_core.engines import make_engine
from fedentropy_core.federation import Federation

if __name__ == "__main__":
    job, turns = read_job(), Turns()
    devices, batch_size = job["devices"], job["batch_size"]
    dataset = synthetic_dataset(devices * job["images"], job["test_images"])
    config = RunConfig(
        **{name: job[name] for name in ("devices", "epochs", "batch_size", "lr", "momentum")},
        **{"case": "iid", "fraction": 1.0, "method": "fedavg", "entropy": True, "rounds": job["rounds"]},
    )
    run = Federation(config, dataset, make_engine(job["engine"], dataset, job["threads"]))
    turns.ended()
    for _ in range(job["rounds"]):
        run.play_round()
        turns.ended()
