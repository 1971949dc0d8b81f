"""Decides which committed config of a tablet the members' answers to the master prove. Pure.

Any process can put any uuid into a heartbeat. But an answer comes from an address at which the master found that uuid.
No replica is deleted without such answers from a majority of the config that leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from nyala.replica.types import ZERO_OPID, DataState, OpId, RaftConfig, ReportedReplica, generation_of

from ..heartbeats.belief import newer, reported_config, same

STEPS_MAX = 1_000
"""The most steps of one search for a path. The configs of honest members are all on one path, so only false configs
need more."""
Answers = Mapping[str, ReportedReplica]
"""By server: its answer about its replica of one tablet. A server that did not answer, or has no replica, is
missing."""
GaveWay = Callable[[str, RaftConfig], bool]
"""Whether the server, by its own answer, has accepted that the config replaced its own."""


@dataclass(frozen=True)
class Proof:
    """The result of the members' answers about one tablet at one time."""

    config: RaftConfig
    """The newest proven config; the catalog's, if no later one is proven."""
    confirmed: bool
    """Whether a majority of its voters answered that they have it, or a later one."""
    whole: frozenset[str]
    """Its voters that have exactly this config, with an open replica."""
    committed: OpId
    """The commit position of its leader's log with it as the last config; ZERO_OPID if the leader did not report it."""
    at_us: int

    def leaves_out(self, uuid: str, at: OpId) -> bool:
        """Whether a replica on the server `uuid`, which knows the config at `at`, may be deleted."""
        return self.confirmed and self.config.member(uuid) is None and not newer(at, self.config.opid)

    def can_spare(self, uuid: str, config: OpId) -> bool:
        """Whether enough other voters are healthy at exactly that config for the replica on `uuid` to be copied
        anew."""
        others = self.whole - {uuid}
        return self.confirmed and self.config.opid == config and len(others) >= self.config.majority


def prove(known: RaftConfig, answers: Answers, at_us: int, *, recorded: bool = True, wanted: int = 0) -> Proof:
    """The newest config that `answers` prove, beginning at `known`, the catalog's config.

    `wanted`: the number of voters that an operator wants of the tablet; 0 if unknown.

    Not `recorded`: an older build did not record configs, and `known` is the tablet's first one. If too few of its
    voters are left to confirm anything, the newest config that a majority of its own voters holds is adopted, on two
    conditions. First, a majority of these voters appears in the configs of members since `known`, tombstones included.
    Second, no server leads with another config, or has an open replica with a config from which the adopted one does
    not follow.
    """
    told = {uuid: config for uuid, status in answers.items() if (config := reported_config(status)) is not None}
    distinct: list[RaftConfig] = []
    for config in sorted(told.values(), key=lambda c: c.opid):
        if not any(same(config, other) for other in distinct):
            distinct.append(config)
    gave_way = partial(_gave_way, answers, told, wanted)
    current = _newest(known, distinct, told, gave_way)
    if not recorded and _held(current, told, current.voters) < current.majority:
        current = _newest(_adopted(known, distinct, told, answers, gave_way) or current, distinct, told, gave_way)
    return Proof(
        config=current,
        confirmed=_held(current, told, current.voters) >= current.majority,
        whole=frozenset(u for u in current.voters if u in told and same(told[u], current) and _is_whole(answers[u])),
        committed=_committed(current, told, answers),
        at_us=at_us,
    )


def _newest(
    known: RaftConfig, configs: Sequence[RaftConfig], told: Mapping[str, RaftConfig], gave_way: GaveWay
) -> RaftConfig:
    """The last of `configs`, in order, to which a path leads from `known`.

    A majority of its voters has exactly that config. Voters with a later one do not count for it, because a lying
    server could report any config at a position that the others have passed.
    """
    newest = known
    for config in configs:
        if newer(config.opid, known.opid) and _is_reached(known, config, configs, told, gave_way):
            newest = config
    return newest


def _is_reached(
    known: RaftConfig, end: RaftConfig, configs: Sequence[RaftConfig], told: Mapping[str, RaftConfig], gave_way: GaveWay
) -> bool:
    """Whether `end` follows from `known` step by step, over reported configs. The search begins at `end`.

    A voter counts for a config if it has that one or a later one of the same path. (A voter that left keeps the config
    that was in force then.) A voter whose later config is not on the path does not count. One more config on the path
    only adds holders for the steps before it. So if a search from a config failed with more holders, it also fails with
    fewer.
    """
    between = [c for c in reversed(configs) if newer(c.opid, known.opid) and newer(end.opid, c.opid)]
    in_vain: dict[RaftConfig, list[frozenset[str]]] = {}
    paths = [(end, _holders(end, told))]
    for _ in range(STEPS_MAX):
        if not paths:
            return False
        first, holders = paths.pop()
        if any(holders <= tried for tried in in_vain.get(first, ())):
            continue
        in_vain.setdefault(first, []).append(holders)
        if _follows(known, first, holders, gave_way):
            return True
        earlier = [c for c in between if newer(first.opid, c.opid) and _follows(c, first, holders, gave_way)]
        paths += [(c, holders | _holders(c, told)) for c in reversed(earlier)]  # the nearest one first
    return False


def _holders(config: RaftConfig, told: Mapping[str, RaftConfig]) -> frozenset[str]:
    return frozenset(uuid for uuid, held in told.items() if same(held, config))


def _held(config: RaftConfig, told: Mapping[str, RaftConfig], among: Iterable[str]) -> int:
    """The number of these servers that have the config, or a later one."""
    return sum(
        (held := told.get(uuid)) is not None and (same(held, config) or newer(held.opid, config.opid)) for uuid in among
    )


def _follows(known: RaftConfig, config: RaftConfig, holders: Set[str], gave_way: GaveWay) -> bool:
    """Whether `config` was committed after `known`, by the reports of a majority of its voters (`holders`).

    Two configs in a row differ by at most one voter, so their majorities have a member in common (CC-03), and the
    majority of the later one suffices. It does not suffice for a config that is further away, or was forced. Then a
    majority of the voters of `known` must report that they gave way to it, or an operator makes it `known`.

    If there were two voters, the majorities may have only one server in common. That server may lie, and report new
    members that do not exist. So the other voter must confirm that it gave way.
    """
    if len(holders & set(config.voters)) < config.majority:
        return False
    voters, confirming = set(known.voters), holders & set(known.voters)
    forced = config.unsafe or generation_of(config.opid.term) != generation_of(known.opid.term)
    if forced or len(voters ^ set(config.voters)) > 1:
        return len(confirming) >= known.majority
    return len(confirming) > 1 or all(gave_way(u, config) for u in voters - confirming)


def _gave_way(answers: Answers, told: Mapping[str, RaftConfig], wanted: int, uuid: str, to: RaftConfig) -> bool:
    """Whether one of two voters gave way: it reports that it is a tombstone. If an operator wants one voter and one is
    left, it suffices that the other one knows that voter, does not lead, and follows no other server.

    A missing answer proves nothing. Nor does an intact replica without a leader, because the other voter can bring it
    into this state by not voting.
    """
    status, knows = answers.get(uuid), told.get(uuid)
    if status is None or status.role == "LEADER":
        return False
    if status.data_state == DataState.DELETED:
        return True
    if wanted != 1 or len(to.voters) != 1 or knows is None:
        return False
    (sole,) = to.voters
    return knows.member(sole) is not None and status.leader_uuid in ("", sole)


def _adopted(
    known: RaftConfig,
    configs: Sequence[RaftConfig],
    told: Mapping[str, RaftConfig],
    answers: Answers,
    gave_way: GaveWay,
) -> RaftConfig | None:
    """The newest config that a majority of its voters has, if such a majority is in `_vouched` and no live server
    contradicts it."""
    held = [c for c in configs if _held(c, told, c.voters) >= c.majority]
    newest = max(held, key=lambda c: c.opid, default=None)
    if newest is None or len(_vouched(known, told) & set(newest.voters)) < newest.majority:
        return None
    for uuid, config in told.items():
        if same(config, newest):
            continue
        strange = not any(config.member(v) for v in newest.voters)
        no_step = newer(newest.opid, config.opid) and not _is_reached(config, newest, configs, told, gave_way)
        if answers[uuid].role == "LEADER" or (_is_whole(answers[uuid]) and (strange or no_step)):
            return None
    return newest


def _vouched(known: RaftConfig, told: Mapping[str, RaftConfig]) -> Set[str]:
    """The voters of `known`, the members of the configs that these have, the members of theirs, and so on."""
    found, left = set(known.voters), list(known.voters)
    while left:
        config = told.get(left.pop())
        more = {m.uuid for m in config.members} - found if config is not None else set()
        found |= more
        left += more
    return found


def _is_whole(status: ReportedReplica) -> bool:
    return status.data_state == DataState.READY and status.phase == "RUNNING" and not status.damaged


def _committed(config: RaftConfig, told: Mapping[str, RaftConfig], answers: Answers) -> OpId:
    """The commit position of the leader's log, with `config` as its last committed config."""
    ends = [
        answers[u].commit_opid
        for u in config.voters
        if u in told and same(told[u], config) and answers[u].role == "LEADER" and answers[u].commit_opid.term
    ]
    return max(ends, default=ZERO_OPID)
