"""Draws the servers healed in the first half of the liveness phase: a core with a quorum, which must suffice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from nyala.replica.types import RaftConfig

ODDS = 0.25
"""The probability that a history has this half."""
LOSSES = ("dead", "cut off", "deaf", "mute", "paused", "disk")
"""The faults that a server that is left out keeps."""


def draw(
    rng: Random,
    configs: Sequence[RaftConfig],
    able: Collection[str],
    enough: Callable[[set[str]], bool] = lambda core: True,
) -> set[str]:
    """Return servers that hold a quorum, of those `able` to vote, of each config that may be in force; some learners
    too.

    Empty if no voter of the newest config can be spared. `enough`: a further condition for such a core.
    """
    names = sorted({m.uuid for config in configs for m in config.members})
    rng.shuffle(names)

    def will_do(core: set[str]) -> bool:
        voting = [(len(c.voters), sum(v in core and v in able for v in c.voters)) for c in configs]
        return all(there > count // 2 for count, there in voting) and enough(core)

    core = set(names)
    if not will_do(core):
        return set()
    for name in names:
        if rng.random() < 0.9 and will_do(core - {name}):
            core.remove(name)
    newest = max(configs, key=lambda config: config.opid)
    return core if set(newest.voters) - core else set()


def in_force(committed: Sequence[RaftConfig], logged: Sequence[RaftConfig]) -> list[RaftConfig]:
    """Return the newest config known to be committed, and all later ones in any log."""
    newest = max(committed, key=lambda config: config.opid.index)
    return [newest, *(config for config in logged if config.opid.index > newest.opid.index)]
