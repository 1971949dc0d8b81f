"""The options of a master. Times have the unit at the end of their name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from nyala.replica.policy import Caps
from nyala.replica.types import PLAINTEXT, Address, KafkaSecurity, check, kafka_security, place_to_listen
from nyala.replica.types.options import Option
from nyala.replica.types.process_options import ProcessOptions

ABANDONED_COPY_GRACE_MS_MAX = 24 * 3600 * 1000


def _login(file: str) -> KafkaSecurity:
    return KafkaSecurity(tuple(sorted(kafka_security.properties_of(file).items()))) if file else PLAINTEXT


@dataclass(frozen=True, kw_only=True)
class MasterOptions:
    """Options of one master; validated at construction.

    Stable: root, listen, advertise, peers, join, kafka, topic_prefix, execute_decisions, and what `process` says.
    Experimental: everything else.
    """

    root: Annotated[str, Option("directory of this master alone")]
    listen: Annotated[str, Option("host:port; port 0 takes a free one")] = "127.0.0.1:0"
    advertise: Annotated[str, Option("host:port that others are told")] = ""
    process: ProcessOptions = field(default_factory=ProcessOptions)
    peer_port: Annotated[int, Option("for other masters' links, on the same host; 0: a free one")] = 0
    """The port to which other masters' links connect, on the host of `listen`; 0: the kernel chooses a free one."""
    peers: Annotated[tuple[Address, ...], Option("addresses of all masters")] = ()
    """Addresses of all masters, this one included; empty: a single master."""
    join: Annotated[tuple[Address, ...], Option("addresses of running masters, which add this new one")] = ()
    """Addresses of running masters; a master on an empty directory waits until they add it."""
    ready_file: Annotated[str, Option("written when the master listens", in_file=False)] = ""
    parent_fd: Annotated[int, Option("end when this pipe closes", in_file=False)] = -1
    kafka: Annotated[str, Option("bootstrap servers; empty: no Kafka")] = ""
    kafka_security: Annotated[
        KafkaSecurity,
        Option(
            "file of Java client properties that say how to log in to Kafka",
            name="kafka_properties",
            plain="",
            made=_login,
        ),
    ] = PLAINTEXT
    topic_prefix: Annotated[str, Option("prefix of the masters' topics")] = ""
    execute_decisions: Annotated[
        str,
        Option(
            "master: the leading master carries decisions out; none: the decisions query does",
            choices=("master", "none"),
        ),
    ] = "none"
    """`master`: this process carries decisions out; `none`: the decisions query does."""
    server_dead_ms: Annotated[
        int, Option("a tablet server silent for so long is shown as dead and gets no new replicas")
    ] = 3_000
    """A tablet server that is silent for this time is shown as dead and gets no new replicas."""
    rereplicate_after_ms: Annotated[int, Option("a replica silent for so long gets a replacement")] = 30_000
    """A replica that is silent for this time is FAILED and gets a replacement."""
    heal_by_witness: Annotated[
        bool, Option("a replica that logs and votes takes a lost one's place at once, and gets its data while it votes")
    ] = False
    """Whether a witness takes a lost voter's place first, so that one more loss is tolerated before rows are copied."""
    tick_ms: int = 50
    policy_ms: Annotated[int, Option("how often the masters decide what is to change")] = 500
    decision_ttl_ms: int = 60_000
    republish_first_ms: int = 10_000
    republish_max_ms: int = 60_000
    reports_per_second_max: int = 1_000
    """The most reports in a second. Each takes about 0.4 ms of a core: half to make and publish it, half to read it
    back and check it."""
    flush_entries: int = 500
    """The catalog is flushed when this many entries have been applied since the last flush."""
    dropped_retention_ms: Annotated[
        int, Option("a dropped tablet is forgotten so long after the last of its replicas was gone")
    ] = 24 * 3600 * 1000
    """A dropped tablet is forgotten this long after the last of its replicas was gone."""
    abandoned_copy_grace_ms: Annotated[
        int, Option("a copy on a server that was in no config is deleted after so long; a day at most")
    ] = 600_000
    """A complete replica on a server that was never a member is deleted after this time; until then it may be added."""
    caps: Caps = field(default_factory=Caps)

    def __post_init__(self) -> None:
        check(bool(self.root), "a master needs a directory: give its root")
        place_to_listen(self.listen)
        if self.advertise:
            Address.given(self.advertise)
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
