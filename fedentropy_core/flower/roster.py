"""Which node is which device.

Flower numbers nodes at random, and a SuperNode that comes back may have another number. So every new node is asked
once for its device number, its `partition-id`; nodes that have none get the lowest free number.
"""

from logging import INFO, WARNING

from flwr.app import RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedentropy_core.flower.exchange import Letter, exchange
from fedentropy_core.flower.protocol import NO_NUMBER, WHO, read_number

ASK_SECONDS = 60.0


class Roster:
    def __init__(self, grid: Grid, devices: int, timeout: float):
        self.grid, self.devices, self.timeout = grid, devices, min(timeout, ASK_SECONDS)
        self._node_of: dict[int, int] = {}
        self._known: set[int] = set()

    def connected(self) -> dict[int, int]:
        """The node of each device that is connected now."""
        nodes = set(self.grid.get_node_ids())
        new = sorted(nodes - self._known)
        if new:
            self._ask(new, nodes)
        return {device: node for device, node in sorted(self._node_of.items()) if node in nodes}

    def _ask(self, new: list[int], nodes: set[int]) -> None:
        letters = {node: Letter(node, RecordDict()) for node in new}
        asked = exchange(self.grid, WHO, letters, read_number, self.timeout)
        for node, reason in asked.failed.items():
            log(WARNING, "node %s did not say which device it is (%s); it will be asked again", node, reason)
        for node, number in asked.answers.items():
            device = self._free_number(nodes) if number == NO_NUMBER else number
            self._known.add(node)
            if device is None or device >= self.devices:
                log(WARNING, "node %s is not used: there are %d devices, it would be %s", node, self.devices, device)
                continue
            # The newer node wins: SuperLink believes for up to a minute that a dead one is still there.
            if device in self._node_of:
                log(INFO, "device %d is back as node %s", device, node)
            self._node_of[device] = node

    def _free_number(self, nodes: set[int]) -> int | None:
        return next((device for device in range(self.devices) if self._node_of.get(device) not in nodes), None)
