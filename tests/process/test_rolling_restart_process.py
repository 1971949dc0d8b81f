"""Servers and masters are restarted one by one under load; by the operators' own commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.cluster import local_cluster, wait_until
from tests.harness.three_masters import Load, Masters, done, refused

pytestmark = pytest.mark.process


class Town:
    """Three masters, three tablet servers, and a table with a replica on each of these."""

    def __init__(self, masters: Masters) -> None:
        self.masters = masters
        self.servers = [masters.cluster.add_server(f"--location=/dc1/rack{n}") for n in range(3)]
        self.told = ("--masters", ",".join(masters.addresses))
        masters.create("old", replicas=3)

    def states(self) -> list[tuple[bool, bool]]:
        """Return of each server whether it is in maintenance, and whether it quiesces, as the masters know it."""
        servers = [s for s in done("server", "list", *self.told) if s["kind"] != "master"]
        return [(s["maintenance"] is not None, s["quiescing"]) for s in servers]


@pytest.fixture
def town() -> Iterator[Town]:
    with local_cluster() as cluster:
        yield Town(Masters(cluster, 3))


@pytest.mark.deep
def test_each_server_and_master_is_restarted_while_rows_are_written_and_read(town: Town) -> None:
    """OP-03, OP-04. Goal: no request fails, and nothing is replaced. Method: a load that looks up, writes, reads at the
    leader, and reads stale data; each server is prepared, stopped and started; then each master. The new process does
    not quiesce any more."""
    load = Load(town.masters)
    try:
        for server in town.servers:
            assert done("server", "prepare-restart", server.uuid, *town.told)["ready"]
            status = done("server", "quiesce", "status", server.uuid, *town.told)
            assert (status["quiescing"], status["leaders"], status["reads"]) == (True, 0, 0)
            load.more()
            server.stop()
            load.more()
            server.start()
            assert done("server", "exit-maintenance", server.uuid, *town.told)["was_in_maintenance"]
            assert not done("server", "quiesce", "status", server.uuid, *town.told)["quiescing"]
            load.more()
        for master in town.masters.members:
            master.stop()
            load.more()
            master.start()
            town.masters.level()
    finally:
        load.end()
    wait_until(lambda: town.states() == [(False, False)] * 3, "nothing is left of it")


@pytest.mark.deep
def test_restart_that_would_interrupt_a_tablet_is_refused_and_leaves_nothing(town: Town) -> None:
    """OP-04, OP-05. Goal: an operator does not interrupt a tablet by a restart too early. Method: a server is prepared
    while another one is; once that is over, it is prepared; a tablet with one replica; a server that is told to stop
    quiescing; times that cannot be."""
    first, second, _ = (s.uuid for s in town.servers)
    listed = {s["uuid"]: s["location"] for s in done("server", "list", *town.told)}
    assert [listed[s.uuid] for s in town.servers] == ["/dc1/rack0", "/dc1/rack1", "/dc1/rack2"]
    assert done("server", "prepare-restart", first, *town.told)["ready"]
    wait_until(lambda: sorted(town.states())[-1] == (True, True), "the masters know it")
    line = refused("server", "prepare-restart", second, "--timeout-s", 1, *town.told)
    assert "1 of 3 voters would be healthy without the server" in line and "Nothing was changed" in line
    assert sorted(town.states()) == [(False, False), (False, False), (True, True)]
    assert "minutes=0" in refused("server", "prepare-restart", second, "--minutes", 0, *town.told)
    assert not done("server", "quiesce", "stop", first, *town.told)["quiescing"]
    assert done("server", "exit-maintenance", first, *town.told)["was_in_maintenance"]
    assert done("server", "prepare-restart", second, *town.told)["ready"]
    done("server", "quiesce", "stop", second, *town.told)
    done("server", "exit-maintenance", second, *town.told)
    town.masters.create("alone")
    with town.masters.client() as client:
        (alone,) = client.tablet_infos("alone")
    line = refused("server", "prepare-restart", alone.config.members[0].uuid, "--timeout-s", 1, *town.told)
    assert "0 of 1 voters would be healthy" in line or "no leader" in line
    assert alone.tablet_id in line
