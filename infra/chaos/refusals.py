"""Decides which refusals of an operation its situation explains. Any other refusal is a defect of the cluster."""

from __future__ import annotations

from nyala.replica.types import Code

from .schedule import Kind

SETTLED_S = 30.0
"""The time without a fault after which masters and replicas know the state again: servers count as dead after 2 s,
replicas as lost after 6 s, and copies of a run take a few seconds."""
SLOW = frozenset({Code.TIMED_OUT, Code.UNAVAILABLE, Code.OVERLOADED})
"""Codes that a busy machine alone explains."""
UNSETTLED = frozenset(
    {
        *(Code.NOT_LEADER, Code.NOT_READY, Code.STEPPING_DOWN, Code.ALREADY_INPROGRESS, Code.CAS_FAILED),
        *(Code.INVALID_NAME, Code.TABLET_NOT_FOUND, Code.TABLET_DELETED, Code.TABLET_FAILED, Code.CHANGE_PENDING),
    }
)
"""Codes that a recent fault of a process, or a recent change of a config, explains."""
MEMBERS = frozenset({Code.ALREADY_EXISTS, Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.ILLEGAL_STATE})
"""The same for changes and transfers: which servers are members, alive or free may just have changed."""
NOT_THERE = frozenset({Code.TABLET_NOT_FOUND, Code.TABLET_DELETED})


def explains(kind: Kind, code: Code, quiet_s: float, wanted: bool) -> bool:
    """Whether a refusal of an operation is explained, `quiet_s` after the last fault of a process or of the tablet
    (`Standing`).

    `wanted`: a change of the tablet was accepted before, and may still be under way.
    """
    if code in SLOW or (kind is Kind.FLUSH and code in NOT_THERE) or (wanted and code is Code.CHANGE_PENDING):
        return True  # every server is asked to flush, members or not
    return quiet_s < SETTLED_S and (code in UNSETTLED or (kind is not Kind.FLUSH and code in MEMBERS))
