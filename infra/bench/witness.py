"""Measures a lost voter: seconds until one more loss is tolerated, with a witness in its place and with a learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica import tools
from nyala.replica.client import TableHandle
from nyala.replica.rpc import pb
from nyala.replica.types import Refused

from .options import BenchmarkError
from .report import Figures
from .target import Target

COPY_RATE = 32 << 20
"""Bytes per second of all copies at a server, in and out: the default while clients write."""
MASTER_ARGUMENTS = ("--server-dead-ms=1000", "--rereplicate-after-ms=1000", "--policy-ms=100")
SERVER_ARGUMENTS = (f"--copy-rate-bytes-per-s={COPY_RATE}",)
KINDS = {"witness": "WITNESS", "learner": "VOTER"}
WAIT_S = 600.0
LOOK_S = 0.01


def reached(config: pb.RaftConfig, new: str, lost: str) -> tuple[str, ...]:
    """The progress of a healing. `votes`: the new member has a vote. `tolerant`: the lost one has none any more, so as
    many losses are tolerated as before. `whole`: the new one has its rows, too."""
    members = {m.uuid: m for m in config.members}
    if new not in members or not members[new].votes:
        return ()
    if lost in members and members[lost].votes:
        return ("votes",)
    return ("votes", "tolerant", "whole") if members[new].holds_data else ("votes", "tolerant")


@dataclass
class Losses:
    """Kills followers of one tablet, one after the other; the server that was lost before is the next spare one."""

    target: Target
    handle: TableHandle

    def round(self, _: int) -> Figures:
        """A loss that a witness heals, then one that a learner heals; the seconds from each kill to each step of
        `reached`."""
        figures: Figures = {}
        for kind, role in KINDS.items():
            figures |= {f"{kind}_{what}_s": seconds for what, seconds in self._lose(role).items()}
        return figures

    def _lose(self, role: str) -> dict[str, float]:
        stack, client, tablet_id = self.target.own, self.target.client, self.handle.tablets[0].tablet_id
        self._until(self._well, "the cluster is whole")
        leader, config = self._leader()
        members = {m.uuid for m in config.members}
        spare = next(s.uuid for s in self.target.servers() if s.uuid not in members)
        lost = sorted(members - {leader.uuid})[0]
        name = self.target.name_of(lost)
        began = time.monotonic()
        stack.kill_for_good(name)
        client.add_replica(tablet_id, spare, role)
        found: dict[str, float] = {}

        def seen() -> bool:
            for what in reached(self._config_at(leader), spare, lost):
                found.setdefault(what, time.monotonic() - began)
            return len(found) == 3

        self._until(seen, "the lost replica is replaced")
        stack.start_child(name)
        return found

    def _leader(self) -> tuple[pb.ServerInfo, pb.RaftConfig]:
        for server in self.target.servers():
            for status in self.target.client.list_tablets(server, [self.handle.tablets[0].tablet_id]):
                if status.role == "LEADER":
                    return server, status.committed_config
        raise BenchmarkError("nobody leads the tablet")

    def _config_at(self, leader: pb.ServerInfo) -> pb.RaftConfig:
        (status,) = self.target.client.list_tablets(leader, [self.handle.tablets[0].tablet_id])
        if status.role != "LEADER":
            raise BenchmarkError("the tablet's leader lost its office meanwhile")
        return status.committed_config

    def _well(self) -> bool:
        """Whether there are four servers, three settled members, and no finding of `cluster check`."""
        try:
            settled = len(self.target.servers()) == 4 and len(self._leader()[1].members) == 3
            return settled and not tools.judge(tools.gather(self.target.client))
        except (Refused, BenchmarkError):
            return False  # one of them starts

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"gave up after {WAIT_S:.0f} s waiting until {what}")
            time.sleep(LOOK_S)
