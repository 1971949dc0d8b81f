"""The options of a master. Times have the unit at the end of their name."""

from __future__ import annotations

from dataclasses import dataclass, field

from nyala.replica.policy import Caps
from nyala.replica.types import PLAINTEXT, Address, KafkaSecurity, check

ABANDONED_COPY_GRACE_MS_MAX = 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class MasterOptions:
    """Options of one master; validated at construction.

    Stable: root, listen, tls, insecure, advertise, peers, join, kafka, topic_prefix, execute_decisions, metrics_port.
    Experimental: everything else.
    """

    root: str
    listen: str = "127.0.0.1:0"
    advertise: str = ""
    tls: str = ""
    """The directory of this process's TLS credentials; empty: no TLS."""
    insecure: bool = False
    """Whether it may listen beyond loopback without TLS."""
    peer_port: int = 0
    """The port to which other masters' links connect, on the host of `listen`; 0: the kernel chooses a free one."""
    peers: tuple[Address, ...] = ()
    """Addresses of all masters, this one included; empty: a single master."""
    join: tuple[Address, ...] = ()
    """Addresses of running masters; a master on an empty directory waits until they add it."""
    ready_file: str = ""
    parent_fd: int = -1
    metrics_port: int = -1
    """The port of `/metrics` on loopback; 0: the kernel chooses a free one; -1: none."""
    kafka: str = ""
    kafka_security: KafkaSecurity = PLAINTEXT
    topic_prefix: str = ""
    execute_decisions: str = "none"
    """`master`: this process carries decisions out; `none`: the decisions query does."""
    server_dead_ms: int = 3_000
    """A tablet server that is silent for this time is shown as dead and gets no new replicas."""
    rereplicate_after_ms: int = 30_000
    """A replica that is silent for this time is FAILED and gets a replacement."""
    heal_by_witness: bool = False
    """Whether a witness takes a lost voter's place first, so that one more loss is tolerated before rows are copied."""
    tick_ms: int = 50
    policy_ms: int = 500
    decision_ttl_ms: int = 60_000
    republish_first_ms: int = 10_000
    republish_max_ms: int = 60_000
    reports_per_second_max: int = 1_000
    """Each report takes about 0.4 ms of a core: half to make and publish it, half to read it back and check it."""
    flush_entries: int = 500
    """The catalog is flushed when this many entries have been applied since the last flush."""
    dropped_retention_ms: int = 24 * 3600 * 1000
    """A dropped tablet is forgotten this long after the last of its replicas was gone."""
    abandoned_copy_grace_ms: int = 600_000
    """A complete replica on a server that was never a member is deleted after this time; until then it may be added."""
    caps: Caps = field(default_factory=Caps)

    def __post_init__(self) -> None:
        both = bool(self.join and self.peers)
        check(not both, "--peers is for masters that form a group, --join for one that a group adds: give one of them")
        check(self.execute_decisions in ("master", "none"), "execute_decisions", value=self.execute_decisions)
        check(0 < self.tick_ms <= self.policy_ms, "the policy runs on ticks", tick=self.tick_ms, policy=self.policy_ms)
        check(
            0 < self.server_dead_ms <= self.rereplicate_after_ms,
            "a server is dead before it is replaced",
            dead=self.server_dead_ms,
            replace=self.rereplicate_after_ms,
        )
        check(
            0 < self.republish_first_ms <= self.republish_max_ms,
            "back-off grows",
            first=self.republish_first_ms,
            max=self.republish_max_ms,
        )
        check(self.dropped_retention_ms >= 0, "a retention is no negative time", ms=self.dropped_retention_ms)
        grace_ms = self.abandoned_copy_grace_ms
        check(0 <= grace_ms <= ABANDONED_COPY_GRACE_MS_MAX, "a grace of a day at most, in milliseconds", ms=grace_ms)
        check(self.reports_per_second_max > 0, "reports need a rate", value=self.reports_per_second_max)
