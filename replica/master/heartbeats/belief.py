"""Decides which reports the masters believe. Pure: the table in DESIGN.md, "What is believed of a report", as
functions.

A heartbeat alone proves nothing about a tablet. The catalog has a committed config of each tablet. A later config is
believed only if a member of the config that is believed so far reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nyala.replica.raft import unheld_reason
from nyala.replica.types import OpId, RaftConfig, ReportedReplica


def reported_config(report: ReportedReplica, held: Iterable[RaftConfig] = ()) -> RaftConfig | None:
    """The committed config that a replica reports; None if it reports none, or one that no replica can hold.

    A replica has entered the term of every committed entry of its log. `held`: configs of other reports that passed
    this check. Most are the same object, and not checked again.
    """
    config = report.config
    if config is None or config.opid.term > report.term:
        return None
    return config if any(config is c for c in held) or not unheld_reason(config) else None


def newer(a: OpId, b: OpId) -> bool:
    """Whether `a` is the later committed position, in Raft's order: a config that was forced upon a survivor has a
    higher term than the lost members' configs, and perhaps a lower index."""
    return a > b


def same(a: RaftConfig, b: RaftConfig) -> bool:
    """Whether two servers report the same config: the same position and the same voters."""
    return a.opid == b.opid and {(m.uuid, m.votes) for m in a.members} == {(m.uuid, m.votes) for m in b.members}


def believed(known: RaftConfig, told: Mapping[str, RaftConfig]) -> RaftConfig:
    """The newest config that follows from `known`. `told`: by uuid, the committed config that each server reports now.

    Only a member of a config may report a later one, and a member that the later one adds may report the next. Only a
    server's latest report counts. So if another process reports a false config under a member's uuid, the member's own
    next report ends that.
    """
    config = known
    while True:
        later = [
            c for uuid, c in sorted(told.items()) if newer(c.opid, config.opid) and config.member(uuid) is not None
        ]
        if not later:
            return config
        config = max(later, key=lambda c: c.opid)


def may_lead(config: RaftConfig | None, uuid: str) -> bool:
    """Whether the masters may believe a report, of the server itself or of a member, that the server leads the
    tablet."""
    member = config.member(uuid) if config is not None else None
    return member is not None and member.votes


def doubt(config: RaftConfig | None, uuid: str, told: RaftConfig | None, *, leads: bool) -> str:
    """The part of a server's report of a tablet that is not believed; empty if there is none. `config`: the believed
    one."""
    if config is None:
        return ""
    if told is not None and newer(told.opid, config.opid):
        return f"it reports config {told.opid}, but is no member of config {config.opid}"
    if told is not None and told.opid == config.opid and not same(told, config):
        return f"it reports other members of config {told.opid} than the others do"
    if leads and not may_lead(config, uuid):
        return f"it reports that it leads, but is no voter of config {config.opid}"
    return ""
