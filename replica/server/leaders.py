"""Leader hints: from a uuid to something a client can call."""

from __future__ import annotations

from nyala.replica.base import Code, RaftConfig, Refused


def with_leader_hint(error: Refused, config: RaftConfig) -> Refused:
    """NOT_LEADER with `uuid@host:port` as its detail where the config knows the leader's address; others unchanged."""
    if error.code is not Code.NOT_LEADER or not error.detail or "@" in error.detail:
        return error
    member = config.member(error.detail)
    if member is None or not member.addresses:
        return error
    return Refused(
        error.code, error.what, applied=error.applied, detail=f"{member.uuid}@{member.addresses[0]}", **error.values
    )
