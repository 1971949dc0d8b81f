"""How much a tablet server may report, and how much of it a master keeps: rate and memory. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused, limits


@dataclass
class StatusRate:
    """How many statuses one server may report now: a bucket that fills with time."""

    left: float = limits.REPORT_STATUSES_BURST_MAX
    at_us: int = 0

    def take(self, statuses: int, now_us: int) -> None:
        """One heartbeat with so many; Refused OVERLOADED if the server reports faster than any honest one does."""
        earned = max(0, now_us - self.at_us) * limits.REPORT_STATUSES_PER_S_MAX / 1e6
        left, self.at_us = min(self.left + earned, limits.REPORT_STATUSES_BURST_MAX), now_us
        cost = statuses + limits.REPORT_STATUSES_OF_HEARTBEAT
        self.left = left - cost if cost <= left else left
        if cost > left:
            wait_ms = int((cost - left) * 1000 / limits.REPORT_STATUSES_PER_S_MAX) + 1
            what = "this server sends more than a master takes of one server; nothing of the heartbeat counts, wait"
            raise Refused(Code.OVERLOADED, what, statuses=statuses, wait_ms=wait_ms)


def compact(status: pb.ReplicaStatus) -> pb.ReplicaStatus:
    """What a master keeps of a replica's status: what it decides by. A copy, since a part of a message keeps the whole
    message in memory."""
    found = pb.ReplicaStatus()
    found.CopyFrom(status)
    for name in ("error", "table_name", "table_id"):
        found.ClearField(name)
    if found.role != "LEADER":
        found.ClearField("peers")
    for member in found.pending_config.members:  # whether there is one counts, not who is in it
        member.ClearField("addresses")
    return found


def compact_bytes(status: pb.ReplicaStatus) -> int:
    """About how much memory a compact status takes, with the config that is read from it."""
    config = status.committed_config.ByteSize() if status.HasField("committed_config") else 0
    return int(600 + 4 * status.ByteSize() + 8 * config)


class ReportMemory:
    """Memory for the statuses that a master keeps, by server, and of strangers: servers that are no members of the
    tablet. Invariant: neither exceeds its bound. Concurrency: the loop's thread."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._strange: dict[str, dict[str, int]] = {}
        """By server and tablet, of strangers."""
        self._strange_bytes = 0

    def of(self, uuid: str) -> int:
        """Memory for the statuses of one server."""
        return self._of.get(uuid, 0)

    @property
    def of_strangers(self) -> int:
        """Memory for statuses of strangers, of all servers."""
        return self._strange_bytes

    def take(self, uuid: str, status: pb.ReplicaStatus, before: pb.ReplicaStatus | None, *, strange: bool) -> bool:
        """Count the server's status in the place of the one `before`; False, and nothing changes, if it has no room."""
        size, had = compact_bytes(status), compact_bytes(before) if before is not None else 0
        of_server = self.of(uuid) - had + size
        strangers = self._strange_bytes - self._strange.get(uuid, {}).get(status.tablet_id, 0)
        if of_server > limits.REPORT_MEMORY_BYTES_MAX:
            return False
        if strange and strangers + size > limits.REPORT_STRANGERS_MEMORY_BYTES_MAX:
            return False
        self._of[uuid] = of_server
        self._strange_bytes = strangers
        if strange:
            self._strange.setdefault(uuid, {})[status.tablet_id] = size
            self._strange_bytes += size
        elif uuid in self._strange:
            self._strange[uuid].pop(status.tablet_id, None)
        return True

    def give_back(self, uuid: str, status: pb.ReplicaStatus) -> None:
        """A status that was counted is kept no longer."""
        self._of[uuid] -= compact_bytes(status)
        if not self._of[uuid]:
            del self._of[uuid]
        strange = self._strange.get(uuid, {})
        self._strange_bytes -= strange.pop(status.tablet_id, 0)
        if not strange:
            self._strange.pop(uuid, None)
