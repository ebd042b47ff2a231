"""A configuration in Flower's simulation, on Ray: every device is a virtual node of this machine."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedentropy_core.flower.client import local_training
from fedentropy_core.flower.device import client_app
from fedentropy_core.flower.server import serve
from fedentropy_core.flower.settings import Settings
from fedentropy_core.work import Round


def simulate(settings: Settings, cpus: int | None = None) -> list[Round]:
    """Runs it and returns the rounds; `cpus` limits how many devices train side by side."""
    rows: list[Round] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, settings, lambda row, report: rows.append(row))

    # A Ray of its own: without an address Ray joins any cluster that runs on this machine.
    ray = {"address": "local"} | ({"num_cpus": cpus} if cpus else {})
    run_simulation(
        server_app=server,
        client_app=client_app(local_training(lambda context: settings)),
        num_supernodes=settings.config.devices,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": ray},
    )
    return rows
