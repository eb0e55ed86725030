"""A case as it happens: machines, faults at their moments, and one process of the server after the other."""

from __future__ import annotations

import re
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from fedsash.flower.nodes.wire import ACTIONS
from fedsash.settings.errors import RunError

from .averaged import AveragedStrategy
from .disk import changed_files
from .faults import Fault, When
from .machine import IN_BACKGROUND, Machine, forget_process
from .network import SPARE_TIME, BottleGrid, Network
from .node import Node, node_id
from .real_time import InRealTime
from .rounds import Rounds
from .setup import SCHEDULERS, Setup
from .told import ANSWERED, CallbackError, Told
from .world import Hang, Killed, World

SERVERS = 40
"""A run that has not ended after so many starts of the server never ends."""
TROUBLE = 160.0
"""So many seconds more may pass because of a fault, beside its amount, a deadline and a third of a roll call: its node
dies at work, and is missed after a while."""
LOOKED = 10.0
"""A server that waits for nodes knows those that have been asked for so many seconds."""


class Play:
    """What happens in a folder to a setup with its faults. Chance depends on the seed alone."""

    def __init__(self, setup: Setup, faults: list[Fault], folder: Path) -> None:
        self.setup = setup
        self.faults = faults
        self.world = World()
        self.told = Told(self.world, setup.deadline)
        self.server = Machine(self.world, "the server", folder / "server", self._chance("server"))
        out = folder / "server" / "runs" / "run"
        self.served: Rounds | AveragedStrategy
        if setup.how == "rounds":
            self.served = Rounds(setup, out, self.told)
        elif setup.how == "averaged":
            self.served = AveragedStrategy(setup, out, self.told)
        else:
            self.served = InRealTime(setup, out, self.told)
        self.network = Network(self.world, self.told, setup, folder, self.served.new_app, self._chance)
        self._over = False
        self.told.calm_for = self.network.calm_for
        self.told.was_live = self.network.was_live
        self.told.nodes_stay = self.network.nodes_stay
        self.told.longest_round = self._longest_round
        self.server.upset = self.network.server_is_upset
        self.nodes = [self.network.join(number, f"node {number}", node_id(number)) for number in range(setup.nodes)]

    def go(self) -> Told:
        """Let it happen, and check what must hold at the end."""
        self.world.tell(f"{self.setup}")
        self._plan()
        try:
            result = self._serve_until_done()
            if result is None:
                return self.told
            for line in self.served.violations(result):
                self.told.violation(line)
            for node in self.nodes:
                for line in self.served.left_over_at(node.machine.disk.root):
                    self.told.violation(line)
            if not self.told.violations and not self.network.deserted:
                self._start_once_more(result)
        except Hang as hang:
            self.told.violation(f"it hangs: {hang}")
        except Exception as error:
            self.told.violation(f"it ends with {type(error).__name__}: {error}")
        return self.told

    def _serve_until_done(self) -> Any:
        """Start the server again and again until it has made all rounds.

        None if something is violated before, or all nodes have gone for good and it says so.
        """
        chance = self._chance("restarts")
        for _ in range(SERVERS):
            result = self._serve_once()
            if result is not None and self.served.is_done(result):
                return result
            if self.told.violations or self._over:
                return None
            self.world.wait(chance.uniform(1.0, 60.0))
        raise RuntimeError(f"the server has not ended after {SERVERS} starts")

    def _start_once_more(self, result: Any) -> None:
        """Cut the server's power at its end and start it again: all is there, and nothing is left to do.

        But an evaluation that no client has answered is made again.
        """
        self.server.deaths.clear()
        self.server.deaths_at_disk.clear()
        self.server.powered = False
        self.told.power_cut()
        before = self.server.disk.content()
        again = self._serve_until_done()
        if again is None:
            return
        changes = list(self.served.changes(again, result))
        kinds = self._grid.kinds
        if not kinds:
            changes += changed_files(before, self.server.disk.content(), self.served.of_sessions)
        for line in changes:
            self.told.violation(f"{line} is another one once the server has lost its power at its end")
        if not kinds <= {ACTIONS["evaluate"], ACTIONS["tune"]}:
            self.told.violation(f"a server that has made all rounds sends {sorted(kinds)}")

    def _serve_once(self) -> Any:
        """One process of the server: what it gives, or None if it died or had to give up."""
        self.server.start()
        self.network.server_starts()
        self.world.tell("the server starts")
        self.world.limit = self.world.now + self.network.patience + self._longest_round()
        result = None
        grid = BottleGrid(self.network, self.server)
        self._grid = grid
        try:
            with self.server.at_work():
                result = self.served.serve(grid)
            early = self.served.ended_early(result)
            if early:
                self._check_end(early)
            self.world.wait(IN_BACKGROUND)  # a process that ends by itself waits for what it does in the background
            if not self.server.alive:
                result = None
        except Killed:
            if self.server.alive:
                self.told.violation("the server waits for what another process was to do")
        except CallbackError:
            if self.served.rescues and self.server.disk.room is None:
                self.told.rescued()
        except (RunError, OSError) as error:
            self._check_end(str(error))
        self.server.alive = False
        self.world.limit = inf
        forget_process()
        if self.setup.how == "rounds":
            for name in grid.unheard(self.setup.deadline):
                self.told.violation(f"the answer to the request {name} came in time and was not heard")
        if not self.server.powered:
            self.told.power_cut()
        return result

    def _longest_round(self) -> float:
        """After so many seconds the round that begins now has ended, or its process has.

        A synchronous round waits for nodes and then for answers, each time as long as is said; others wait for nodes as
        long as these are away, and asynchronous ones are made of any number of requests, of which some are lost.
        """
        setup = self.setup
        if self.network.deserted:
            return self.network.patience
        longest = setup.requests * (setup.deadline + ANSWERED) + SPARE_TIME
        longest += sum(fault.amount for fault in self.faults if fault.kind.when is When.SERVER)
        troubles = [fault for fault in self.faults if setup.how in SCHEDULERS or fault.kind.lasting]
        if setup.how != "rounds":
            each = setup.deadline + setup.asked_again + TROUBLE
            longest += sum(fault.amount + each for fault in troubles)
        elif troubles:
            longest += setup.requests * setup.roll_call
        return longest

    def _check_end(self, line: str) -> None:
        """A server that ends by itself must have a reason that lies outside of it.

        That no node has come for some clients is none if one of theirs is there. One whose question was lost counts as
        disturbed until it is asked again.
        """
        self.world.tell(f"the server ends: {line}")
        without_nodes = "no node" in line or "were there" in line
        self._over = self.network.deserted and without_nodes
        lied = self.network.lied and "samples instead of" in line
        diverged = self.told.diverged and "no upload could be used" in line
        if not lied and not diverged and not without_nodes and "No space left" not in line:
            self.told.violation(f"the server ends: {line}")
        if without_nodes and self._nodes_suffice(line):
            self.told.violation(f"the server ends, though nodes have long been there: {line}")

    def _nodes_suffice(self, line: str) -> bool:
        """Whether nodes have long been live and undisturbed that a server misses which has said this."""
        long = self.setup.roll_call - self.setup.asked_again - LOOKED
        if "were there" in line:
            nodes = [client % self.setup.nodes for client in range(self.setup.clients)]
            return sum(self.network.calm_for(node) > long for node in nodes) >= self.setup.minimum
        return any(self.network.calm_for(node) > long for node in self._missed(line))

    def _missed(self, line: str) -> set[int]:
        """The nodes that would have to come so that a server goes on which has said this, by their numbers."""
        named = re.search(r"for the clients ([\d, ]+)", line)
        if named is None:
            return set(range(self.setup.nodes))
        return {int(client) % self.setup.nodes for client in re.findall(r"\d+", named[1])}

    def _plan(self) -> None:
        """Let each fault happen at its time."""
        for fault in self.faults:
            number = int(fault.at)
            match fault.kind.when:
                case When.REQUEST:
                    self.network.faults[number].append(fault)
                case When.NODE:
                    self.world.after(fault.at, partial(self._befall, fault, self.nodes[fault.node]))
                case When.NETWORK:
                    self.world.after(fault.at, partial(self._befall, fault, self.network))
                case When.SERVER:
                    self.world.after(fault.at, partial(self._befall, fault, self.server))
                case When.OPERATION:
                    self.server.deaths[number] = partial(fault.befall, self.server)
                case When.DISK_OPERATION:
                    self.server.deaths_at_disk[number] = partial(fault.befall, self.server)
                case When.ROUND:
                    self.told.after_round[number] = partial(fault.befall, self.told)

    def _befall(self, fault: Fault, it: Node | Network | Machine) -> None:
        self.world.tell(f"{fault}")
        if isinstance(it, Node):
            self.told.befallen(it.number, fault.kind, fault.lasts(self.network.follows))
        fault.befall(it)

    def _chance(self, what: str) -> Random:
        return Random(f"{what} {self.setup.seed}")
