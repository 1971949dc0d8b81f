"""The decisions sent to one sink: their versions, and when to send them again. Empty after a failover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nyala.replica.types import Decision

from ..options import MasterOptions


@dataclass
class _Sent:
    need: tuple[object, ...]
    next_us: int
    wait_us: int


class Versions:
    """Versions of decisions per tablet, growing within one catalog term; shared by all decision sinks."""

    def __init__(self) -> None:
        self._term = -1
        self._of: dict[str, int] = {}
        self._of_tick: dict[str, int] | None = None

    def begin_tick(self) -> None:
        """Until the next call, a tablet's decision has one version, whichever sinks publish it: so an executor's
        outcome names the version that is in Kafka. Each sink asks at most once for a tablet meanwhile."""
        self._of_tick = {}

    def next(self, tablet_id: str, catalog_term: int) -> int:
        """The next version of a tablet in that term."""
        if catalog_term != self._term:
            self._term, self._of = catalog_term, {}
        if self._of_tick is None or tablet_id not in self._of_tick:
            self._of[tablet_id] = self._of.get(tablet_id, 0) + 1
        if self._of_tick is not None:
            self._of_tick[tablet_id] = self._of[tablet_id]
        return self._of[tablet_id]


class SentDecisions:
    """Chooses which of the needed decisions to publish now.

    Invariants: a decision is published at once, and again with back-off while it is needed, each time with a higher
    version and a new deadline. When it is no longer needed, it is withdrawn once. Nothing here is needed after a crash.
    """

    def __init__(self, options: MasterOptions, versions: Versions) -> None:
        self._options = options
        self._versions = versions
        self._sent: dict[str, _Sent] = {}
        self._to_withdraw: set[str] = set()

    @property
    def outstanding(self) -> int:
        """The number of decisions that were published and are still needed."""
        return len(self._sent)

    def forget(self) -> None:
        """Forget the sent decisions, because they may not have arrived: every needed one is published again, and the
        others are withdrawn."""
        self._to_withdraw |= set(self._sent)
        self._sent.clear()

    def update(
        self, decisions: Sequence[Decision], addresses: Mapping[str, str], mono_us: int, wall_us: int
    ) -> dict[str, Decision | None]:
        """The decisions to publish, by tablet id; None withdraws the tablet's decision. `addresses`: by uuid."""
        out: dict[str, Decision | None] = {}
        needed = {d.tablet_id: d for d in decisions}
        for tablet_id in sorted((set(self._sent) | self._to_withdraw) - set(needed)):
            self._sent.pop(tablet_id, None)
            out[tablet_id] = None
        self._to_withdraw.clear()
        for tablet_id, decision in needed.items():
            sent = self._sent.get(tablet_id)
            if sent is None or sent.need != decision.need:
                wait_us = self._options.republish_first_ms * 1000
                self._sent[tablet_id] = _Sent(decision.need, mono_us + wait_us, wait_us)
            elif mono_us >= sent.next_us:
                sent.wait_us = min(sent.wait_us * 2, self._options.republish_max_ms * 1000)
                sent.next_us = mono_us + sent.wait_us
            else:
                continue
            out[tablet_id] = replace(
                decision,
                version=self._versions.next(tablet_id, decision.catalog_term),
                deadline_us=wall_us + self._options.decision_ttl_ms * 1000,
                leader_address=addresses.get(decision.leader_uuid, ""),
            )
        return out
