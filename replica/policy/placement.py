"""Chooses servers for the replicas of new tablets and for replacements: least loaded, spread over locations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nyala.replica.types import Code, Refused

from .views import ClusterView, ServerView, TabletView


def replica_load(view: ClusterView) -> Counter[str]:
    """Return the replicas per server uuid, including those that are being copied there."""
    return Counter(m.uuid for t in view.tablets for m in t.config.members)


def room_left(servers: Sequence[ServerView], load: Mapping[str, int]) -> int | None:
    """Return how many more replicas the servers that may get any have room for together; None if one of them has no
    limit."""
    fit = [s for s in servers if s.takes_replicas]
    if any(not s.tablets_max for s in fit):
        return None
    return sum(max(0, s.tablets_max - load.get(s.uuid, 0)) for s in fit)


def pick_server(
    candidates: Sequence[ServerView], taken: Sequence[ServerView], loads: Sequence[Mapping[str, int]]
) -> ServerView | None:
    """Return the best candidate that is not in `taken`: one where copies do not fail, then with room on the disk, then
    in the location used least, the widest one first, then with the smallest of each load in turn.

    The last load is the number of all replicas: a server at its limit is no candidate.
    """
    return next(iter(_best(candidates, taken, loads)), None)


def _best(
    candidates: Sequence[ServerView],
    taken: Sequence[ServerView],
    loads: Sequence[Mapping[str, int]],
    bytes_wanted: int = 0,
) -> list[ServerView]:
    """Return all candidates that differ from the best one in their loads alone; the least loaded first."""
    used = Counter(place for s in taken for place in s.places)
    names = {s.uuid for s in taken}
    fit = [s for s in candidates if s.takes_replicas and s.uuid not in names]
    fit = [s for s in fit if s.has_room(loads[-1].get(s.uuid, 0))]

    def merit(server: ServerView) -> tuple[bool, bool, tuple[int, ...]]:
        return (server.avoided, server.nearly_full(bytes_wanted), tuple(used[place] for place in server.places))

    best = min(map(merit, fit), default=None)
    return sorted(
        (s for s in fit if merit(s) == best), key=lambda s: (*(load.get(s.uuid, 0) for load in loads), s.uuid)
    )


def place_tablets(
    servers: Sequence[ServerView], load: Mapping[str, int], tablets: int, replicas: int
) -> list[list[str]]:
    """Return the servers of each new tablet: `tablets` lists of `replicas` uuids, the first of which should lead.

    Raises Refused(INVALID_ARGUMENT) if fewer than `replicas` servers are alive, or if they have no room for them all.
    """
    alive = [s for s in servers if s.takes_replicas]
    if len(alive) < replicas:
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"{replicas} replicas need as many live tablet servers",
            alive=len(alive),
            replicas=replicas,
        )
    of_table: Counter[str] = Counter()
    total = Counter(dict(load))
    leaders: Counter[str] = Counter()
    placed = []
    for _ in range(tablets):
        chosen: list[ServerView] = []
        for _ in range(replicas):
            server = pick_server(alive, chosen, (of_table, total))
            if server is None:
                raise Refused(
                    Code.INVALID_ARGUMENT,
                    "the tablet servers have no room for so many tablets: each holds a limited number of replicas "
                    "(--tablets-max of nyala.replica.server); create fewer, drop tables, or add servers",
                    tablets=tablets,
                    replicas_each=replicas,
                    room=room_left(alive, load),
                )
            chosen.append(server)
            of_table[server.uuid] += 1
            total[server.uuid] += 1
        names = sorted((s.uuid for s in chosen), key=lambda u: (leaders[u], u))
        leaders[names[0]] += 1
        placed.append(names)
    return placed


def replacements_for(view: ClusterView, tablet: TabletView, load: Mapping[str, int]) -> list[ServerView]:
    """Return the servers for a replacement replica of `tablet`, the best first; empty if every live server has a
    replica.

    They differ in their loads alone: if the first is busy with copies, the next one gets the replica. Servers in a
    worse location are left out, because a replica that was copied there would stay there.
    """
    by_uuid = {s.uuid: s for s in view.servers}
    members = [by_uuid.get(m.uuid) for m in tablet.config.members]
    taken = [s for s in members if s is not None]
    staying = [s for s in taken if not tablet.health_of(s.uuid).failed and not s.draining]
    names = {m.uuid for m in tablet.config.members} | tablet.estranged
    others = [s for s in view.servers if s.uuid not in names]
    return _best(others, staying, (load,), tablet.bytes_on_disk)
