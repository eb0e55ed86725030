"""A case as it happens: machines, faults at their moments, and one process of the server after the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fedsash.settings.errors import RunError

from .averaged import AveragedStrategy
from .faults import (
    NODE_FAULTS,
    SERVER_DISK_FAULTS,
    SERVER_FAULTS,
    SERVER_MOMENTS,
    SERVER_ROUNDS,
    Fault,
    may_fail,
)
from .machine import Machine, forget_process
from .nodes import BottleGrid, Network, Node
from .real_time import InRealTime
from .rounds import DEADLINE, CallbackError, Rounds
from .setup import Setup
from .told import Told
from .world import Hang, Killed, World

SERVERS = 40
"""A run that has not ended after so many starts of the server never ends."""
HOUR = 3600.0
NOTICED = 5.0
"""The seconds after which the network notices that a node has gone."""


class Play:
    """What happens in a folder to a setup with its faults. Chance depends on the seed alone."""

    def __init__(self, setup: Setup, faults: list[Fault], folder: Path) -> None:
        self.setup = setup
        self._folder = folder
        self.faults = faults
        self.world = World(limit=setup.rounds * HOUR)
        self.told = Told(self.world)
        self._power_is_cut = False
        self.server = Machine(self.world, "the server", folder / "server", self._chance("server"))
        out = folder / "server" / "runs" / "run"
        self.served: Rounds | AveragedStrategy
        if setup.how == "rounds":
            self.served = Rounds(setup, out, self.told)
        elif setup.how == "averaged":
            self.served = AveragedStrategy(setup, out, self.told)
        else:
            self.served = InRealTime(setup, out, self.told)
        self.nodes = []
        for number in range(setup.nodes):
            name = f"node {number}"
            machine = Machine(self.world, name, folder / name, self._chance(name))
            self.nodes.append(Node(number, machine, self.served.new_app))
        others = (*NODE_FAULTS, *SERVER_FAULTS, *SERVER_DISK_FAULTS, *SERVER_MOMENTS, *SERVER_ROUNDS)
        of_messages = [fault for fault in faults if fault.what not in others]
        self.network = Network(self.world, list(self.nodes), of_messages, self._chance("network"))

    def go(self) -> Told:
        """Let it happen, and check what must hold at the end."""
        self.world.tell(f"{self.setup}")
        for node in self.nodes:
            node.start()
        self._plan()
        try:
            result = self._serve_until_done()
            disks = [node.machine.disk.root for node in self.nodes]
            for line in self.served.violations(result, disks):
                self.told.violation(line)
        except Hang as hang:
            self.told.violation(f"it hangs: {hang}")
        except Exception as error:
            self.told.violation(f"it ends with {type(error).__name__}: {error}")
        return self.told

    def _serve_until_done(self) -> Any:
        """Start the server again and again until it has made all rounds."""
        chance = self._chance("restarts")
        for _ in range(SERVERS):
            result = self._serve_once()
            if result is not None and self.served.is_done(result):
                return result
            self.world.wait(chance.uniform(1.0, 60.0))
        raise RuntimeError(f"the server has not ended after {SERVERS} starts")

    def _serve_once(self) -> Any:
        """One process of the server: what it gives, or None if it died or had to give up."""
        self.server.start()
        self.world.tell("the server starts")
        result = None
        grid = BottleGrid(self.network, self.server)
        try:
            with self.server.at_work():
                result = self.served.serve(grid)
        except Killed:
            pass
        except CallbackError as error:
            if self.server.disk.room is None:
                self.told.rescued(error.round)
        except (RunError, OSError) as error:
            self.world.tell(f"the server ends: {error}")
            self._check_end(str(error))
        self.server.alive = False
        forget_process()
        if self.setup.how == "rounds":
            for name in grid.unheard(DEADLINE):
                self.told.violation(f"the answer to the request {name} came in time and was not heard")
        if self._power_is_cut:
            self._power_is_cut = False
            self.told.power_cut()
            self.server.disk.cut_power(self.server.chance)
        return result

    def _check_end(self, line: str) -> None:
        """A server that ends by itself must have a reason that lies outside of it."""
        lied = self.network.lied and "samples instead of" in line
        if not lied and "no node" not in line and "No space left" not in line:
            self.told.violation(f"the server ends: {line}")

    def _plan(self) -> None:
        """Let the faults of nodes, and those of the server, happen at their moments."""
        self.told.may_fail = may_fail(self.faults)
        self.told.nodes_change = any(fault.what in NODE_FAULTS for fault in self.faults)
        for fault in self.faults:
            if fault.what in NODE_FAULTS:
                self.world.after(fault.at, partial(self._befall_node, fault))
            elif fault.what in SERVER_MOMENTS:
                self.world.after(fault.at, partial(self._befall_server, fault))
            elif fault.what in SERVER_ROUNDS:
                self.told.failing_callbacks.add(int(fault.at))
            elif fault.what in SERVER_FAULTS:
                self.server.deaths[int(fault.at)] = partial(self._end_server, fault)
            elif fault.what in SERVER_DISK_FAULTS:
                self.server.deaths_at_disk[int(fault.at)] = partial(self._end_server, fault)
        for node in self.nodes:
            self._keep_disk(node)

    def _keep_disk(self, node: Node) -> None:
        """Keep what is on a node's disk now and then, so that it may get an earlier disk."""
        node.disks.append(node.machine.disk.content())
        self.world.after(20.0, partial(self._keep_disk, node))

    def _end_server(self, fault: Fault) -> None:
        self._power_is_cut = "loses its power" in fault.what
        self.server.die(fault.what.removeprefix("the server "))

    def _befall_server(self, fault: Fault) -> None:
        self.world.tell(f"{fault}")
        if fault.what == "the server is paused":
            self.server.jump += fault.amount
            return
        self._fill(self.server, fault.amount)

    def _fill(self, machine: Machine, seconds: float) -> None:
        """Let a disk have little room for so many seconds."""
        machine.disk.room = int(10 * seconds)
        self.world.after(seconds, partial(self._make_room, machine))

    def _make_room(self, machine: Machine) -> None:
        self.world.tell(f"the disk of {machine.name} has room again")
        machine.disk.room = None

    def _befall_node(self, fault: Fault) -> None:
        node = self.nodes[fault.node]
        self.world.tell(f"{fault}")
        acts = {
            "the node is paused": self._pause,
            "the node lies about its samples": self._let_lie,
            "the node has a twin": self._add_twin,
            "the node's disk is full": self._fill_node,
        }
        act = acts.get(fault.what, self._take_away)
        act(node, fault)

    def _pause(self, node: Node, fault: Fault) -> None:
        node.paused_until = self.world.now + fault.amount

    def _let_lie(self, node: Node, fault: Fault) -> None:
        node.lies = True
        self.world.after(fault.amount, node.be_honest)

    def _fill_node(self, node: Node, fault: Fault) -> None:
        self._fill(node.machine, fault.amount)

    def _take_away(self, node: Node, fault: Fault) -> None:
        """Let a node be gone for so many seconds; it may come back with another disk or another id."""
        machine = node.machine
        machine.alive = False
        if fault.what == "the node loses its power":
            machine.disk.cut_power(machine.chance)
        elif fault.what == "the node gets an earlier disk":
            machine.disk.put(machine.chance.choice(node.disks))
        elif fault.what == "the node comes back under another id":
            node.id += 1000
        self.world.after(NOTICED, node.be_missed)
        self.world.after(fault.amount, node.start_again)

    def _add_twin(self, node: Node, fault: Fault) -> None:
        """Let another node join that says that it holds the same clients; it has none of their state."""
        name = f"twin {len(self.network.nodes)} of node {node.number}"
        machine = Machine(self.world, name, self._folder / name, self._chance(name))
        twin = Node(node.number, machine, self.served.new_app)
        twin.id += 500 * len(self.network.nodes)
        twin.start()
        self.network.nodes.append(twin)

    def _chance(self, what: str) -> Random:
        return Random(f"{what} {self.setup.seed}")
