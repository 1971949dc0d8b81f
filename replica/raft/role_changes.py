"""The table of legal role changes, which tests check as a whole [kudu consensus, "Roles"].

| from | to, and why |
|---|---|
| NON_PARTICIPANT | LEARNER (added to an existing config), FOLLOWER (a member of a new group) |
| LEARNER | FOLLOWER (promoted), NON_PARTICIPANT (removed) |
| FOLLOWER | PRE_CANDIDATE (its timeout), CANDIDATE (asked by a leader that hands over), LEARNER, NON_PARTICIPANT |
| PRE_CANDIDATE | CANDIDATE (a majority would vote), and every passive role |
| CANDIDATE | LEADER (a majority voted), PRE_CANDIDATE (its timeout), and every passive role |
| LEADER | every passive role: FOLLOWER by stepping down, the others by a committed config that has no voter of it |

A non-voter never campaigns. A peer that dies or is cut off keeps its role: only a config can take it away (X-09).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .ready import Role

PASSIVE_ROLES = (Role.FOLLOWER, Role.LEARNER, Role.NON_PARTICIPANT)

ROLE_CHANGES: Mapping[Role, tuple[Role, ...]] = MappingProxyType(
    {
        Role.NON_PARTICIPANT: (Role.LEARNER, Role.FOLLOWER),
        Role.LEARNER: (Role.FOLLOWER, Role.NON_PARTICIPANT),
        Role.FOLLOWER: (Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEARNER, Role.NON_PARTICIPANT),
        Role.PRE_CANDIDATE: (Role.CANDIDATE, *PASSIVE_ROLES),
        Role.CANDIDATE: (Role.LEADER, Role.PRE_CANDIDATE, *PASSIVE_ROLES),
        Role.LEADER: PASSIVE_ROLES,
    }
)
