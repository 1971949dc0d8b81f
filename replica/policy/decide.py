"""Computes the decisions that the cluster needs now from a view of it. Level-triggered: no state is kept from call to
call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from nyala.replica.types import Action, ConfigEdit, Decision, EditKind, Member

from .desired_changes import ChangeState, change_state, copy_is_under_way
from .membership import Advice, Need, advise, can_commit, healthy_voters
from .placement import replacements_for, replica_load
from .views import Caps, ChangeKind, ClusterView, DesiredChange, Health, ServerView, TabletView, with_leaving_marked
from .witnesses import demoted, demoted_again, restored, wants_witness


class _Slots:
    """Counts the copies under way, and limits new ones. Each member that waits for promotion counts, even an
    unreachable one."""

    def __init__(self, view: ClusterView, caps: Caps) -> None:
        self._caps = caps
        self._total = 0
        self._of: Counter[str] = Counter()
        draining = {s.uuid for s in view.servers if s.draining}
        for tablet in view.tablets:
            for target in tablet.copying:
                if tablet.health_of(target) is Health.FAILED_UNRECOVERABLE:
                    self._of[target] += 1  # no data arrives there, so it must not keep other tablets from being healed
                    continue
                leave = (m.uuid for m in tablet.config.members if m.votes and (m.replace or m.uuid in draining))
                self._count(target, *leave)

    def _count(self, *uuids: str) -> None:
        self._total += 1
        self._of.update(uuids)

    @property
    def full(self) -> bool:
        """Whether no copy may begin anywhere."""
        return self._total >= self._caps.moves_max

    def take(self, target: str, source: str = "") -> bool:
        """Reserve a copy to `target` that relieves `source`; False if a cap is reached."""
        of_server_max = self._caps.moves_per_server_max
        if self.full or any(self._of[u] >= of_server_max for u in (target, source) if u):
            return False
        self._count(target, source)
        return True


class _Evaluation:
    """One evaluation: the view, the rest of the caps, and the loads after the decisions so far."""

    def __init__(self, view: ClusterView, catalog_term: int, caps: Caps, load: Mapping[str, int] | None) -> None:
        self.view = view
        self.term = catalog_term
        self.slots = _Slots(view, caps)
        self.replicas = replica_load(view) if load is None else Counter(load)
        self.servers = {s.uuid: s for s in view.servers}
        self.draining = frozenset(s.uuid for s in view.servers if s.draining)
        self.quiescing = frozenset(s.uuid for s in view.servers if s.quiescing)

    def decide(self, tablet: TabletView) -> Decision | None:
        """Return at most one change of `tablet`. The first of these that applies is chosen: an eviction, demotion,
        restore or transfer of leadership; the withdrawal of a cancelled or expired change; the addition of a missing
        replica; the desired change."""
        if not tablet.leader_uuid or tablet.pending:
            return None
        tablet = self._keeping_failing_learners(tablet)
        desired = tablet.desired
        state = change_state(tablet, desired, self.view.now_us) if desired else ChangeState.DONE
        wanted = desired if state is ChangeState.OPEN else None
        known = desired if state in (ChangeState.OPEN, ChangeState.CANCEL) else None
        keep = frozenset({known.to_uuid} - self.draining if known else ())
        goes = {wanted.from_uuid} if wanted and wanted.kind in (ChangeKind.DEMOTE, ChangeKind.REMOVE) else set()
        leaving = self.draining | goes
        advice = advise(
            with_leaving_marked(tablet, leaving),
            keep=keep,
            leaving=leaving,
            load=self.replicas,
            quiescing=self.quiescing,
        )
        if advice.need is Need.EVICT:
            return self._evict(tablet, advice, wanted)
        if advice.need in (Need.DEMOTE, Need.RESTORE, Need.DEMOTE_AGAIN):
            return self._of_lost(tablet, advice)
        if advice.need is Need.TRANSFER:
            return self._transfer(tablet, advice.uuid, advice.reason)
        if not can_commit(tablet):
            return None  # no leader could commit a change now, so desired changes wait
        if known and not wanted:
            return self._cancel(tablet, known)
        if advice.need is Need.ADD:
            return self._heal(tablet, advice, wanted)
        return self._grant(tablet, wanted) if wanted else None

    def _keeping_failing_learners(self, tablet: TabletView) -> TabletView:
        """Return `tablet` with a learner whose copies fail treated as one that may still catch up, if no better server
        is free.

        Its leader repeats the copy in any case. Evicting the learner and adding it again would only cause config
        changes.
        """
        failing = [
            u
            for u in tablet.copying
            if tablet.health_of(u) is Health.FAILED_UNRECOVERABLE
            and (s := self.servers.get(u))
            and s.alive
            and s.avoided
        ]
        if not failing or any(not s.avoided for s in replacements_for(self.view, tablet, self.replicas)):
            return tablet
        return replace(tablet, health={**tablet.health, **dict.fromkeys(failing, Health.UNKNOWN)})

    def _evict(self, tablet: TabletView, advice: Advice, wanted: DesiredChange | None) -> Decision:
        member = _member(tablet, advice.uuid)
        if wanted and wanted.kind is ChangeKind.DEMOTE and member.uuid == wanted.from_uuid:
            demoted = ConfigEdit(EditKind.CHANGE, replace(member, votes=False, promote=False, replace=False))
            return self._change(tablet, (demoted,), _reason(wanted))
        return self._change(tablet, (ConfigEdit(EditKind.REMOVE, member),), f"evict: {advice.reason}")

    def _of_lost(self, tablet: TabletView, advice: Advice) -> Decision:
        """Return the decision for a lost voter: demote, keep or restore it by the marks of its config, ignoring
        retirements."""
        member = _member(tablet, advice.uuid)
        if advice.need is Need.DEMOTE:
            return self._change(tablet, (demoted(member),), f"demote: {advice.reason}")
        if advice.need is Need.DEMOTE_AGAIN:
            return self._change(tablet, demoted_again(tablet, member), f"demote: {advice.reason}")
        return self._change(tablet, restored(tablet, member), f"restore: {advice.reason}")

    def _heal(self, tablet: TabletView, advice: Advice, wanted: DesiredChange | None) -> Decision | None:
        if self.slots.full:
            return None
        own = self._wanted_target(tablet, wanted)
        fit = [own] if own is not None else replacements_for(self.view, tablet, self.replicas)
        leaving = sorted(u for u in tablet.config.voters if u in self.draining and not tablet.health_of(u).failed)
        target = next((s for s in fit if self.slots.take(s.uuid, leaving[0] if leaving else "")), None)
        if target is None:
            return None
        self.replicas[target.uuid] += 1
        return self._change(tablet, (_join(target, witness=wants_witness(tablet)),), f"add: {advice.reason}")

    def _wanted_target(self, tablet: TabletView, wanted: DesiredChange | None) -> ServerView | None:
        """Return the target of the desired move, if it is still possible."""
        if wanted is None or wanted.kind is not ChangeKind.MOVE or tablet.config.member(wanted.to_uuid):
            return None
        server = self.servers.get(wanted.to_uuid)
        return server if server is not None and self._may_join(server) and not server.avoided else None

    def _may_join(self, server: ServerView) -> bool:
        return server.takes_replicas and server.has_room(self.replicas[server.uuid])

    def _grant(self, tablet: TabletView, desired: DesiredChange) -> Decision | None:
        if desired.kind is ChangeKind.TRANSFER:
            if tablet.health_of(desired.to_uuid) is not Health.HEALTHY or desired.to_uuid in self.quiescing:
                return None
            return self._transfer(tablet, desired.to_uuid, _reason(desired))
        if desired.kind is ChangeKind.REMOVE:
            return self._remove(tablet, desired)
        if desired.kind is ChangeKind.DEMOTE:
            return None  # the table above does it, once the others suffice
        if desired.kind is ChangeKind.PROMOTE:
            return self._promote(tablet, desired)
        server = self.servers.get(desired.to_uuid)
        if server is None or not self._may_join(server) or tablet.config.member(desired.to_uuid):
            return None
        source = tablet.config.member(desired.from_uuid) if desired.kind is ChangeKind.MOVE else None
        if copy_is_under_way(tablet) or not self.slots.take(server.uuid, desired.from_uuid):
            return None
        self.replicas[server.uuid] += 1
        edits = [_join(server, votes=desired.votes, witness=desired.witness)]
        if source is not None and not source.replace:
            edits.append(ConfigEdit(EditKind.CHANGE, replace(source, replace=True)))
        return self._change(tablet, tuple(edits), _reason(desired))

    def _remove(self, tablet: TabletView, desired: DesiredChange) -> Decision | None:
        member = _member(tablet, desired.from_uuid)
        if member.votes:
            return None  # the table above does it, once the others suffice
        return self._change(tablet, (ConfigEdit(EditKind.REMOVE, member),), _reason(desired))

    def _promote(self, tablet: TabletView, desired: DesiredChange) -> Decision | None:
        member = _member(tablet, desired.to_uuid)
        if member.votes or member.promote or tablet.health_of(member.uuid) is not Health.HEALTHY:
            return None
        return self._change(tablet, (ConfigEdit(EditKind.CHANGE, replace(member, promote=True)),), _reason(desired))

    def _cancel(self, tablet: TabletView, desired: DesiredChange) -> Decision:
        """Take back the effects of an expired or cancelled desired change. That is impossible once its target votes."""
        edits = []
        target, source = tablet.config.member(desired.to_uuid), tablet.config.member(desired.from_uuid)
        if target is not None:
            kept = ConfigEdit(EditKind.CHANGE, replace(target, promote=False))
            edits.append(kept if desired.kind is ChangeKind.PROMOTE else ConfigEdit(EditKind.REMOVE, target))
        if source is not None and source.replace:
            edits.append(ConfigEdit(EditKind.CHANGE, replace(source, replace=False)))
        return self._change(tablet, tuple(edits), "cancelled, or its deadline has passed")

    def _change(self, tablet: TabletView, edits: tuple[ConfigEdit, ...], reason: str) -> Decision:
        return Decision(
            tablet_id=tablet.tablet_id,
            table_id=tablet.table_id,
            action=Action.CHANGE_CONFIG,
            edits=edits,
            config_opid=tablet.config.opid,
            leader_uuid=tablet.leader_uuid,
            catalog_term=self.term,
            reason=reason,
            plan_id=tablet.desired.plan_id if tablet.desired else "",
        )

    def _transfer(self, tablet: TabletView, target: str, reason: str) -> Decision:
        return Decision(
            tablet_id=tablet.tablet_id,
            table_id=tablet.table_id,
            action=Action.TRANSFER_LEADERSHIP,
            target_uuid=target,
            config_opid=tablet.config.opid,
            leader_uuid=tablet.leader_uuid,
            catalog_term=self.term,
            reason=reason,
            plan_id=tablet.desired.plan_id if tablet.desired else "",
        )


def _member(tablet: TabletView, uuid: str) -> Member:
    """Return the member that the advice or an open desired change names; it is in the config."""
    return next(m for m in tablet.config.members if m.uuid == uuid)


def _reason(desired: DesiredChange) -> str:
    return desired.reason or desired.kind.lower()


def _join(server: ServerView, *, votes: bool = True, witness: bool = False) -> ConfigEdit:
    """Return the edit by which a new member joins without a vote; the leader promotes it when it has caught up [thesis
    §4.2.1].

    A witness has caught up as soon as it has a log.
    """
    joining = replace(server.member, votes=False, promote=votes, holds_data=not witness, replace=False)
    return ConfigEdit(EditKind.ADD, joining)


def decide(
    view: ClusterView, catalog_term: int, caps: Caps | None = None, load: Mapping[str, int] | None = None
) -> list[Decision]:
    """Return the decisions that `view` needs, at most one for each tablet, within `caps`; the tablets in most danger
    first.

    It is deterministic in its arguments. A server or tablet that is missing from the view causes no decision. `load`:
    the number of replicas of each server. It is needed if the view lacks tablets at rest (`is_at_rest`); without it,
    the view's replicas are counted.
    """
    evaluation = _Evaluation(view, catalog_term, caps or Caps(), load)

    def danger(tablet: TabletView) -> tuple[int, str]:
        return (healthy_voters(tablet) - tablet.replication_factor, tablet.tablet_id)

    return [d for t in sorted(view.tablets, key=danger) if (d := evaluation.decide(t)) is not None]
