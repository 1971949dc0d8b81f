"""Three servers in twenty groups each: leader, term and rows are every tablet's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.replica.rpc import pb
from tests.harness.cluster import CALL_TIMEOUT_S, STEADY, LocalCluster, local_cluster, wait_until
from tests.harness.one_tablet import create, lead, wait_equal, write

pytestmark = [pytest.mark.process, pytest.mark.deep]

TABLETS = tuple(f"tablet-{number:02d}" for number in range(20))
Picture = dict[str, tuple[int, str]]
"""Tablet -> its term and leader."""


def picture(cluster: LocalCluster) -> Picture | None:
    """Return what all live servers report if they agree; None as long as they do not."""
    found: Picture = {}
    for server in (s for s in cluster.servers if s.alive):
        replicas = server.tablets.ListTablets(
            pb.ListTabletsRequest(dest_uuid=server.uuid), timeout=CALL_TIMEOUT_S
        ).replicas
        assert {replica.tablet_id for replica in replicas} == set(TABLETS)
        for replica in replicas:
            told = (replica.term, replica.leader_uuid)
            role = "LEADER" if replica.leader_uuid == server.uuid else "FOLLOWER"
            if found.setdefault(replica.tablet_id, told) != told or replica.role != role or not replica.leader_uuid:
                return None
    return found


def pictured(cluster: LocalCluster, shows: Callable[[Picture], bool], what: str) -> Picture:
    """Return the first picture for which `shows` is true."""
    return wait_until(lambda: (found := picture(cluster)) and shows(found) and found, what)


def but(found: Picture, tablets: set[str]) -> Picture:
    """Return the picture without these tablets."""
    return {tablet_id: told for tablet_id, told in found.items() if tablet_id not in tablets}


def test_three_servers_in_twenty_groups_lead_some_and_follow_in_others_each_for_itself() -> None:
    """CN-03. Goal: a participant is one tablet's, not the server's. Method: twenty tablets on three servers, each of
    which leads a third; each tablet's own rows are written. One leadership is transferred, then a server is killed:
    only the leaders and terms of that tablet, and of those that the server led, change. All are written while it is
    away; when it is back, it has every tablet's rows and no others."""
    with local_cluster(3, module=STEADY) as cluster, ThreadPoolExecutor(8) as pool:
        servers = cluster.servers
        rows = {tablet_id: number + 1 for number, tablet_id in enumerate(TABLETS)}

        def make(number: int) -> None:
            chosen = [servers[(number + turn) % 3] for turn in range(3)]
            create(cluster, chosen, tablet_id=TABLETS[number])
            lead(cluster, chosen[0], TABLETS[number])
            write(cluster, 100 * number, number + 1, tablet_id=TABLETS[number])

        list(pool.map(make, range(len(TABLETS))))
        before = pictured(cluster, lambda found: True, "all servers tell the same")
        assert sorted(Counter(leader for _, leader in before.values()).values()) == [6, 7, 7]

        handed = TABLETS[0]
        lead(cluster, servers[1], handed)
        after = pictured(cluster, lambda found: found[handed][1] == servers[1].uuid, "one is handed over")
        assert but(after, {handed}) == but(before, {handed}) and after[handed][0] > before[handed][0]

        orphans = {tablet_id for tablet_id, (_, leader) in after.items() if leader == servers[0].uuid}
        assert len(orphans) == 6
        servers[0].kill()
        away = pictured(
            cluster, lambda found: all(leader != servers[0].uuid for _, leader in found.values()), "all are led"
        )
        assert but(away, orphans) == but(after, orphans)
        assert all(away[tablet_id][0] > after[tablet_id][0] for tablet_id in orphans)
        times = list(pool.map(lambda n: write(cluster, 100 * n + 50, 1, tablet_id=TABLETS[n]), range(len(TABLETS))))

        servers[0].start()
        back = pictured(cluster, lambda found: True, "all servers tell the same again")
        assert but(back, orphans) == but(after, orphans)
        for tablet_id, at in zip(TABLETS, times, strict=True):
            assert wait_equal(servers, at, tablet_id=tablet_id)[1] == rows[tablet_id] + 1, tablet_id
