"""Which node is which device.

Flower numbers nodes at random, and a SuperNode that comes back may have another number. So every new node is asked
once for its device number, its `partition-id`; nodes that have none get the lowest free number. A node that does not
answer costs the time it is waited for, so it is asked again only after a while.
"""

import time
from logging import INFO, WARNING

from flwr.app import RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedentropy_core.flower.exchange import Letter, exchange
from fedentropy_core.flower.protocol import NO_NUMBER, WHO, read_number

ASK_SECONDS = 60.0
PAUSE = 10  # times the time it was waited for: until a silent node is asked again


class Roster:
    def __init__(self, grid: Grid, devices: int, timeout: float):
        self.grid, self.devices, self.timeout = grid, devices, min(timeout, ASK_SECONDS)
        self._node_of: dict[int, int] = {}
        self._known: set[int] = set()
        self._silent: dict[int, float] = {}  # when to ask again

    def connected(self) -> dict[int, int]:
        """The node of each device that is connected now."""
        nodes = set(self.grid.get_node_ids())
        now = time.monotonic()
        new = sorted(node for node in nodes - self._known if self._silent.get(node, now) <= now)
        if new:
            self._ask(new, nodes)
        return {device: node for device, node in sorted(self._node_of.items()) if node in nodes}

    def _ask(self, new: list[int], nodes: set[int]) -> None:
        letters = {node: Letter(node, RecordDict()) for node in new}
        asked = exchange(self.grid, WHO, letters, read_number, self.timeout)
        for node, reason in asked.failed.items():
            log(WARNING, "node %s did not say which device it is (%s); it will be asked again", node, reason)
            self._silent[node] = time.monotonic() + PAUSE * self.timeout
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
