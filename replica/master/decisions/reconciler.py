"""The leading master's tick: marks formed tablets, removes finished desired changes, asks the policy, publishes
decisions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace

from nyala.replica.policy import (
    ChangeState,
    ClusterView,
    DesiredChange,
    ServerView,
    change_state,
    copies_in_place,
    decide,
)
from nyala.replica.types import (
    Address,
    Code,
    Decision,
    Outcome,
    Proposal,
    RaftConfig,
    Refused,
    Result,
    Subject,
    printable,
)
from nyala.replica.types.log_records import about

from ..catalog.records import DESIRED_CHANGE, TABLET, Tablet
from ..catalog.tables import Change
from ..requests import change_requests
from ..state import MasterState, RefusedTicks
from ..tablets.dropped import settle_dropped
from ..tablets.kept_view import is_later
from .sent_decisions import SentDecisions, Versions

_log = logging.getLogger("nyala.master")
Publish = Callable[[dict[str, Decision | None]], None]
MARKS_PER_CHANGE_MAX = 500
DROPPED_EVERY_US = 2_000_000
NOT_NOW = frozenset({Code.NOT_LEADER, Code.NOT_READY, Code.STEPPING_DOWN, Code.UNAVAILABLE, Code.OVERLOADED})
"""Refusals of a tick that are ordinary: this master does not lead, or the other masters do not answer."""

REFUSAL_CHARS_MAX = 300
REFRESHES_PER_S = 10_000
PAUSE_S_MAX = 2.0


def pause_s(policy_ms: int, refreshes: int) -> float:
    """The seconds until the next tick. `refreshes`: the views that the last tick refreshed. Pure.

    At the beginning of a leadership, the reports of all servers change each tablet several times. Rarer ticks refresh
    its view less often, and leave more time for the reports.
    """
    return max(policy_ms / 1000, min(refreshes / REFRESHES_PER_S, PAUSE_S_MAX))


def marked(tablet: Tablet, proven: RaftConfig | None) -> Tablet:
    """The record of a tablet that had a leader: formed, with its newest known config. Pure."""
    kept = tablet.config if tablet.formed else tablet.known_config
    return replace(tablet, formed=True, config=proven if is_later(tablet, proven) else kept)


def at_known_places(config: RaftConfig, places: Callable[[str], Sequence[Address]]) -> RaftConfig:
    """The config with each member at `places(uuid)`, the addresses at which the masters know it. A member that they do
    not know keeps the addresses of the config. So a server that reports a config cannot change another server's
    address: that server could not be admitted again as long as a process answers at the false address. Pure."""
    known = ((m, tuple(places(m.uuid))) for m in config.members)
    return replace(config, members=tuple(replace(m, addresses=at or m.addresses) for m, at in known))


@dataclass
class DecisionSink:
    """One receiver of decisions, a topic or an executor, with a record of the decisions sent to it."""

    sent: SentDecisions
    publish: Publish
    connection: Callable[[], int]
    last_connection: int = 0


class Reconciler:
    """Derives in every tick, from the catalog and the heartbeats, what the cluster needs. Keeps no operation state.

    Concurrency: the loop's thread.
    """

    def __init__(self, state: MasterState) -> None:
        self._state = state
        self._refreshes = 0
        """The number of views that had been refreshed before the last pause."""
        self._versions = Versions()
        self._sinks: list[DecisionSink] = []
        self._term = -1
        self._dropped_seen_us = -DROPPED_EVERY_US
        self._unfit: set[str] = set()
        """The tablets whose records the catalog cannot hold, and of which the log says so."""
        self.on_decided: Callable[[dict[str, Decision | None], int], None] = lambda sent, wall_us: None
        """Called with decisions before they are published, and with the tick's wall-clock time: the same for all
        sinks."""
        self.on_outcome: Callable[[Outcome], None] = lambda outcome: None
        self.on_view: Callable[[Sequence[ServerView], Set[str]], Awaitable[None]] | None = None
        """Awaited in each tick, with all servers, and the tablets whose views were refreshed since the last call."""

    def add_sink(self, publish: Publish, connection: Callable[[], int] = lambda: 1) -> None:
        """Add a sink. `connection`: the number of its present connection; 0: none, and then nothing is queued."""
        self._sinks.append(DecisionSink(SentDecisions(self._state.options, self._versions), publish, connection))

    def next_in_s(self) -> float:
        """The seconds until the next tick, by the views that were refreshed since the last call."""
        refreshed, self._refreshes = self._state.kept.refreshes - self._refreshes, self._state.kept.refreshes
        return pause_s(self._state.options.policy_ms, refreshed)

    async def try_tick(self) -> None:
        """Evaluate once, unless this master does not lead, or full reports should be processed first. Any other refusal
        is counted, and logged once for each reason."""
        state = self._state
        if state.soft.awaits_full_reports(state.mono_us):
            return
        try:
            await self.tick()
            state.refused_ticks = None
        except Refused as error:
            if error.code in NOT_NOW:
                _log.debug("no policy now: %s", error)
                return
            state.ticks_refused += 1
            before, why = state.refused_ticks, printable(str(error)[:REFUSAL_CHARS_MAX])
            since_us, count = (before.since_us, before.count) if before is not None else (state.mono_us, 0)
            state.refused_ticks = RefusedTicks(why, since_us, count + 1)
            if before is None or before.why != why:
                _log.warning("a tick was refused, so no tablet gets a decision; the next tick tries again: %s", why)

    async def tick(self) -> None:
        """Evaluate once; Refused while this master does not lead. If full reports begin to arrive meanwhile, it ends
        without a decision, because they should be processed first."""
        state = self._state
        term = await state.lead()
        if term != self._term:
            self._term = term
            for sink in self._sinks:
                sink.sent.forget()
        if not await state.refresh_views_unless(lambda: state.soft.awaits_full_reports(state.mono_us)):
            return
        await self._mark_formed()
        await self._forget_dropped()
        await state.refresh_views()
        if await self._settle_changes():
            await state.refresh_views()
        kept, caps, load = state.kept, state.options.caps, state.kept.viewed_load()
        view = ClusterView(servers=state.servers(), tablets=kept.views(kept.busy), now_us=state.clock.wall_us())
        decisions = decide(view, term, caps, load)
        unwell = replace(view, tablets=kept.views(kept.unwell))
        wanted = copies_in_place(unwell, caps, state.soft.copy_order_ages(state.mono_us), load)
        state.soft.order_copies_in_place({(r.uuid, r.tablet_id): r.config_opid for r in wanted}, state.mono_us)
        addresses = {u: str(s.addresses[0]) for u, s in state.soft.servers.items() if s.addresses}
        self._versions.begin_tick()
        for sink in self._sinks:
            self._publish(sink, decisions, addresses, view.now_us)
        refreshed, kept.refreshed = kept.refreshed, set()
        if self.on_view is not None:
            await self.on_view(view.servers, refreshed)

    def _publish(self, sink: DecisionSink, decisions: list[Decision], addresses: dict[str, str], wall_us: int) -> None:
        connection = sink.connection()
        if connection == 0:
            return
        if connection != sink.last_connection:
            sink.last_connection = connection
            sink.sent.forget()
        sent = sink.sent.update(decisions, addresses, self._state.mono_us, wall_us)
        for tablet_id, decision in sent.items():
            if decision is not None:
                self._state.decisions_published += 1
                about(_log, tablet_id, self._state.uuid).info("decides: %s", decision.reason)
        if sent:
            self.on_decided(sent, wall_us)
            sink.publish(sent)

    async def _mark_formed(self) -> None:
        """Store in the catalog which tablets had a leader, and which configs were proven. A tablet that had a leader is
        never created again, and its config may be changed. Later configs are believed only if they follow from the one
        in the catalog.

        All tablets of a tick share one change of the catalog. A heartbeat without a new config causes none.
        """
        state, proven = self._state, self._state.inquiries.proven
        found: dict[str, RaftConfig | None] = {}
        for tablet_id in sorted(state.kept.unrecorded):
            tablet = state.catalog.get(TABLET, tablet_id)
            if tablet is None:
                continue
            config = proven(tablet_id)
            config = at_known_places(config, state.places_of) if config is not None else None
            if tablet.formed and not is_later(tablet, config):
                state.inquiries.request(tablet_id)
            elif len(found) < MARKS_PER_CHANGE_MAX and self._can_mark(tablet_id, marked(tablet, config)):
                found[tablet_id] = config
        if not found:
            return

        def compute() -> Change:
            tablets = {t: state.catalog.get(TABLET, t) for t in found}
            return {TABLET + t: marked(r, found[t]) for t, r in tablets.items() if r is not None}, [], "", None

        await state.group.change(compute)

    def _can_mark(self, tablet_id: str, record: Tablet) -> bool:
        """Whether the catalog can hold the record. If it cannot, the records of the other tablets are stored without
        it."""
        why = self._state.group.unfit(TABLET + tablet_id, record)
        if why and tablet_id not in self._unfit:
            self._unfit.add(tablet_id)
            about(_log, tablet_id).warning("its proven config is not kept. Check the servers that report it: %s", why)
        elif not why:
            self._unfit.discard(tablet_id)
        return not why

    async def _forget_dropped(self) -> None:
        """Store which replicas of dropped tablets are gone, and forget tablets that have had no replica for long
        enough."""
        state = self._state
        if state.mono_us - self._dropped_seen_us < DROPPED_EVERY_US:
            return
        self._dropped_seen_us = state.mono_us
        retention_us = state.options.dropped_retention_ms * 1000
        puts, deletes = settle_dropped(state.catalog, state.soft, state.clock.wall_us(), retention_us)
        if puts or deletes:
            await state.group.change(lambda: (puts, deletes, "", None))
        if deletes:
            _log.info("P %s forgot %d dropped tablets without replicas", state.uuid, len(deletes))

    async def _settle_changes(self) -> bool:
        """Remove the desired changes that hold or failed; returns whether there were any."""
        settled: dict[str, tuple[DesiredChange, ChangeState]] = {}
        for tablet_id, desired in self._state.catalog.items(DESIRED_CHANGE):
            tablet = self._state.kept.tablets.get(tablet_id)
            known = self._state.catalog.get(TABLET, tablet_id)
            if known is None or known.dropped:
                settled[tablet_id] = (desired, ChangeState.FAILED)
            elif tablet is not None and tablet.leader_uuid:
                outcome = change_state(tablet, desired, self._state.clock.wall_us())
                if outcome in (ChangeState.DONE, ChangeState.FAILED):
                    settled[tablet_id] = (desired, outcome)
        if not settled:
            return False
        await self._state.group.change(lambda: ({}, [DESIRED_CHANGE + t for t in settled], "", None))
        for tablet_id, (desired, outcome) in settled.items():
            about(_log, tablet_id).info("desired change %s is %s", desired.wish_id, outcome)
            if desired.proposal:
                done = outcome is ChangeState.DONE
                code = Code.OK if done else Code.DEADLINE_PASSED
                message = "the wanted config holds" if done else "given up: deadline passed, or something else happened"
                ids = tablet_id, desired.wish_id, desired.plan_id
                self.on_outcome(self._outcome(*ids, Result(outcome.value), code, message))
        return True

    async def consider(self, proposal: Proposal) -> Outcome:
        """Accept a proposal as desired state, or refuse it with the reason. Refused(NOT_LEADER) on other masters.

        If a proposal is repeated, for example after a crash between commit and answer, it is accepted again.
        """
        state = self._state
        await state.lead()
        known = state.catalog.get(DESIRED_CHANGE, proposal.tablet_id)
        ids = proposal.tablet_id, proposal.proposal_id, proposal.plan_id
        if known is None or known.wish_id != proposal.proposal_id:
            try:
                await state.group.change(lambda: change_requests.propose(state, proposal), state.refresh_views)
            except Refused as error:
                if error.code in (Code.NOT_LEADER, Code.UNAVAILABLE, Code.STEPPING_DOWN):
                    raise
                return self._outcome(*ids, Result.REFUSED, error.code, str(error))
        return self._outcome(*ids, Result.ACCEPTED, Code.OK, "wanted from now on")

    def _outcome(
        self, tablet_id: str, proposal_id: str, plan_id: str, result: Result, code: Code, message: str
    ) -> Outcome:
        return Outcome(
            subject=Subject.PROPOSAL,
            subject_id=proposal_id,
            plan_id=plan_id,
            tablet_id=tablet_id,
            result=result,
            code=code,
            message=message,
            at_us=self._state.clock.wall_us(),
            catalog_term=self._term,
            executor=self._state.uuid,
        )
