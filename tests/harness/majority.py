"""Who is healed in the first half of the liveness phase: a drawn core with a quorum, with which the group must do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from nyala.replica.types import RaftConfig

ODDS = 0.25
"""Of a history to have this half."""
LOSSES = ("dead", "cut off", "deaf", "mute", "paused", "disk")
"""What keeps on ailing a server that is left out."""


def draw(
    rng: Random,
    configs: Sequence[RaftConfig],
    able: Collection[str],
    enough: Callable[[set[str]], bool] = lambda core: True,
) -> set[str]:
    """Servers that hold a quorum, of those `able` to vote, of each config that may be in force; some learners too.

    Empty if no voter of the newest config can be spared. `enough`: what else such a core must have.
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
    """The newest config known to be committed, and all that stand after it in anybody's log."""
    newest = max(committed, key=lambda config: config.opid.index)
    return [newest, *(config for config in logged if config.opid.index > newest.opid.index)]
