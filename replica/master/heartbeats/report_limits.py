"""Bounds the rate at which a tablet server may report, and the memory of its reports at a master. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import Code, Refused, ReportedReplica, limits


@dataclass
class StatusRate:
    """The number of statuses that one server may report now: a bucket that fills with time."""

    left: float = limits.REPORT_STATUSES_BURST_MAX
    at_us: int = 0

    def take(self, statuses: int, now_us: int) -> None:
        """Count one heartbeat with this number of statuses. Refused OVERLOADED if the server reports faster than any
        honest one."""
        earned = max(0, now_us - self.at_us) * limits.REPORT_STATUSES_PER_S_MAX / 1e6
        left, self.at_us = min(self.left + earned, limits.REPORT_STATUSES_BURST_MAX), now_us
        cost = statuses + limits.REPORT_STATUSES_OF_HEARTBEAT
        self.left = left - cost if cost <= left else left
        if cost > left:
            wait_ms = int((cost - left) * 1000 / limits.REPORT_STATUSES_PER_S_MAX) + 1
            what = "this server sends more than a master takes of one server. Nothing of the heartbeat counts. Wait"
            raise Refused(Code.OVERLOADED, what, statuses=statuses, wait_ms=wait_ms)


def report_bytes(report: ReportedReplica) -> int:
    """The approximate memory of a report, with its config."""
    texts = len(report.tablet_id) + len(report.phase) + len(report.role) + len(report.leader_uuid)
    texts += sum(len(p.uuid) + len(p.health) for p in report.peers)
    return 1000 + 4 * texts + 320 * len(report.peers) + 9 * len(report.config_wire)


class ReportMemory:
    """Counts the memory for the reports that a master keeps, by server, and for those of strangers, which are servers
    that are not members of the tablet. Invariant: neither exceeds its bound. Concurrency: the loop's thread."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._strange: dict[str, dict[str, int]] = {}
        """The memory for reports of strangers, by server and tablet."""
        self._strange_bytes = 0

    def of(self, uuid: str) -> int:
        """The memory for the statuses of one server."""
        return self._of.get(uuid, 0)

    @property
    def of_strangers(self) -> int:
        """The memory for statuses of strangers, of all servers."""
        return self._strange_bytes

    def take(self, uuid: str, report: ReportedReplica, before: ReportedReplica | None, *, strange: bool) -> bool:
        """Count the server's report in place of `before`; False, without a change, if there is no room for it."""
        size, had = report_bytes(report), report_bytes(before) if before is not None else 0
        of_server = self.of(uuid) - had + size
        strangers = self._strange_bytes - self._strange.get(uuid, {}).get(report.tablet_id, 0)
        if of_server > limits.REPORT_MEMORY_BYTES_MAX:
            return False
        if strange and strangers + size > limits.REPORT_STRANGERS_MEMORY_BYTES_MAX:
            return False
        self._of[uuid] = of_server
        self._strange_bytes = strangers
        if strange:
            self._strange.setdefault(uuid, {})[report.tablet_id] = size
            self._strange_bytes += size
        elif uuid in self._strange:
            self._strange[uuid].pop(report.tablet_id, None)
        return True

    def give_back(self, uuid: str, report: ReportedReplica) -> None:
        """Release the memory of a report that the master drops."""
        self._of[uuid] -= report_bytes(report)
        if not self._of[uuid]:
            del self._of[uuid]
        strange = self._strange.get(uuid, {})
        self._strange_bytes -= strange.pop(report.tablet_id, 0)
        if not strange:
            self._strange.pop(uuid, None)
