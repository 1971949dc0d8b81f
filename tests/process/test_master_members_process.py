"""Masters as members: added, removed and replaced one by one in the running group, by the operators' own commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nyala.replica.client import Client, ClientOptions, ScanSpec
from nyala.replica.fs import KNOWN_MASTERS
from nyala.replica.master.process import REMOVED_EXIT_CODE
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Code
from tests.harness.cluster import ServerProcess, local_cluster, wait_until
from tests.harness.patience import patience_s
from tests.harness.three_masters import FLAGS, MASTER, Load, Masters, done, refused

pytestmark = pytest.mark.process


class Members:
    """A group of masters that changes; `told` is what a command is told of it."""

    def __init__(self, masters: Masters) -> None:
        self.masters = masters
        self.cluster = masters.cluster

    @property
    def told(self) -> tuple[str, str]:
        return ("--masters", ",".join(self.masters.addresses))

    def config(self) -> pb.RaftConfig:
        """Return the committed config as the leader reports it."""
        return self.masters.status(self.masters.leader()).replica.committed_config

    def ended(self, master: ServerProcess) -> None:
        """Wait until a removed master has ended by itself; it says so again at its next start."""
        assert master.wait_exit() == REMOVED_EXIT_CODE
        assert "was removed from the masters' group" in master.fails()

    def new(self, name: str, *, join: str = "") -> ServerProcess:
        """Start an empty master that waits to join."""
        address = self.cluster.ports.free_address()
        extra = (*FLAGS, f"--join={join or ','.join(self.masters.addresses)}")
        process = ServerProcess(name, MASTER, self.cluster.folder / name, extra, address=address)
        self.cluster.masters.append(process)
        return process.start()


@pytest.fixture
def members() -> Iterator[Members]:
    with local_cluster() as cluster:
        yield Members(Masters(cluster, 1))


def test_single_master_becomes_three_while_it_serves(members: Members) -> None:
    """MF-04. Goal: two masters are added to a running one, each with a uuid of its own, and any one may be lost after.
    Method: both are added; the first one is killed; a table from before is there, and another one is made."""
    members.cluster.add_server()
    members.masters.create("old")
    first = members.masters.members[0]
    for name in ("n1", "n2"):
        new = members.new(name)
        added = done("master", "add", new.address, *members.told)
        assert added["added"] == new.uuid and not added["already"]
        again = done("master", "add", new.address, *members.told)
        assert again["already"] and again["config"] == added["config"]
        members.masters.addresses.append(new.address)
    assert len({m["uuid"] for m in added["masters"]}) == 3 and all(m["votes"] for m in added["masters"])
    members.masters.level()
    first.kill()
    wait_until(lambda: members.masters.tables() == {"old"}, "the catalog is there")
    members.masters.create("new")
    assert members.masters.tables() == {"old", "new"}


@pytest.fixture
def three() -> Iterator[Members]:
    with local_cluster() as cluster:
        yield Members(Masters(cluster, 3))


def test_followers_answer_look_ups_for_as_long_as_they_hear_a_leader(three: Members) -> None:
    """Goal: look-ups need no leading master if the client says how old they may be, and are never older. Method: each
    follower is asked, with a staleness and without; then the leader and one follower are stopped, and the last one
    refuses once its catalog is older than that."""
    three.cluster.add_server()
    three.masters.create("old")
    leader, (last, other) = three.masters.leader(), three.masters.followers()

    def asked(master: ServerProcess, staleness_us: int) -> pb.TableReply:
        stub = pb_grpc.MasterServiceStub(master.channel)
        request = pb.TableRequest(name="old", with_tablets=True, staleness_us=staleness_us)
        reply: pb.TableReply = stub.GetTable(request, timeout=30)
        return reply

    for master in (last, other):
        wait_until(lambda master=master: len(asked(master, 3_000_000).tablets) == 1, "it has the table")  # type: ignore[misc]
        assert asked(master, 0).error.code == Code.NOT_LEADER
    leader.kill()
    other.kill()
    wait_until(lambda: asked(last, 3_000_000).error.code == Code.LAGGING, "its catalog is too old")


@pytest.mark.deep
def test_each_of_three_masters_is_replaced_while_rows_are_written_and_read(three: Members) -> None:
    """MF-04, MF-07, MF-15, MF-32. Goal: every master is replaced, the leading ones included, and no request fails; the
    removed ones end and stay out; a server finds the masters although none of its options is left. Method: a load that
    looks up, writes and reads; three replacements; then the server and a new master start again with their former
    options, and a table is made and read."""
    server = three.cluster.add_server()
    three.masters.create("old")
    load = Load(three.masters)
    try:
        for number in range(3):
            old = three.masters.leader() if number == 0 else three.masters.members[0]
            new = three.new(f"n{number}")
            replaced = done("master", "replace", old.uuid, new.address, *three.told)
            assert (replaced["added"], replaced["removed"]) == (new.uuid, old.uuid)
            assert len(replaced["masters"]) == 3 and all(m["votes"] for m in replaced["masters"])
            three.masters.members.remove(old)
            three.masters.addresses.remove(old.address)
            three.masters.addresses.append(new.address)
            three.ended(old)
            load.more()
    finally:
        load.end()
    again = done("master", "replace", old.uuid, new.address, *three.told)
    assert again["already"] and again["config"] == replaced["config"]
    addresses = sorted(three.masters.addresses)
    wait_until(lambda: sorted((server.root / KNOWN_MASTERS).read_text().split()) == addresses, "the server knows them")
    server.stop()
    server.start()
    new.stop()
    new.start()
    three.masters.create("new")
    assert three.masters.tables() == {"old", "new"}
    # Only a server that hears from the masters makes the table's tablet.
    with Client(three.masters.addresses, ClientOptions(scan_timeout_s=patience_s(30))) as client:
        assert client.count(client.get_table("new"), ScanSpec()) == 0


@pytest.mark.deep
def test_addition_that_is_cut_off_is_repeated(three: Members) -> None:
    """MF-04. Goal: whatever dies in the middle of a change, the group goes on, and the same command completes it.
    Method: the command, the leader and the new master are killed once the new one is a member; the last two start
    again; a table is made meanwhile; the same command."""
    three.cluster.add_server()
    leader, new = three.masters.leader(), three.new("new")
    command = [sys.executable, "-m", "nyala.infra.cli.app", "master", "add", new.address, *three.told]
    with subprocess.Popen(command, env=dict(os.environ)) as adding:
        wait_until(lambda: len(three.config().members) == 4, "it is a member")
        adding.kill()
    leader.kill()
    new.kill()
    three.masters.create("meanwhile")
    new.start()
    added = done("master", "add", new.address, *three.told)
    assert added["added"] == new.uuid and [m["votes"] for m in added["masters"]] == [True] * 4
    leader.start()
    three.masters.level()
    removed = done("master", "remove", new.address, *three.told)
    assert removed["removed"] == new.uuid and len(removed["masters"]) == 3
    assert done("master", "remove", new.uuid, *three.told)["already"]
    three.ended(new)


@pytest.mark.deep
def test_master_that_must_not_join_or_leave_is_refused_and_nothing_is_changed(three: Members) -> None:
    """MF-03, MF-04, MF-10. Goal: no command can take in a foreign master or end the group. Method: a dead address, a
    tablet server's, a master's own, one of another cluster, one that waits for another cluster; a removal of a
    stranger, and of one of the two that are left; a master that was away at its removal comes back, and ends."""
    server = three.cluster.add_server()
    before = three.config()
    nobody = three.cluster.ports.free_address()
    foreign = three.masters.add("foreign", three.cluster.ports.free_address(), []).start()
    astray = three.new("astray", join=foreign.address)
    away = three.masters.followers()[0]
    own = three.masters.leader().address
    for address, said in (
        (nobody, "no master answers"), (server.address, "no master answers"), (foreign.address, "another cluster"),
        (astray.address, "another"),
    ):  # fmt: skip
        assert said in refused("master", "add", address, *three.told)
    assert done("master", "add", own, *three.told)["already"]
    assert "names no master" in refused("master", "remove", nobody, *three.told)
    astray.kill()
    foreign.kill()
    away.kill()
    other = next(m for m in three.masters.followers() if m is not away)
    assert "no majority" in refused("master", "remove", other.uuid, *three.told)
    assert three.config() == before
    assert done("master", "remove", away.address, *three.told)["removed"] == away.uuid
    away.start(wait=False)
    three.ended(away)
