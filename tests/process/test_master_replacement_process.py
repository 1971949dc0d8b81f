"""A master that is lost for good is replaced, while the others and the servers go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from nyala.replica.client import Client, ClientOptions
from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RealDisk
from nyala.replica.master import CATALOG_ID
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Code, Refused
from tests.harness.cluster import ServerProcess, local_cluster, wait_until
from tests.harness.three_masters import SCHEMA, SPEC, Masters, done, nyala, refused

pytestmark = pytest.mark.process


@pytest.fixture
def masters() -> Iterator[Masters]:
    with local_cluster() as cluster:
        yield Masters(cluster)


def test_lost_master_is_replaced_by_a_copy_while_nobody_else_is_restarted(masters: Masters) -> None:
    """Goal: MF-13, MF-14, MF-15, MF-16: three masters again, all with the whole catalog, after two commands at the new
    one; the survivors and the servers keep their processes. Method: tables, kill a follower and remove its directory,
    more tables; format, copy from the leader, start at the same address with the same options; kill another one: the
    two that are left, one of them new, go on, and know every table."""
    server = masters.cluster.add_server()
    masters.create("one", "two")
    lost = masters.followers()[0]
    uuid, others = lost.uuid, [m for m in masters.members if m is not lost]
    pids = [p.process.pid for p in (*others, server) if p.process]
    lost.kill()
    shutil.rmtree(lost.root)
    masters.create("three")
    root, _ = masters.format("m4", uuid)
    logged = masters.status(masters.leader()).replica.last_logged.index
    copied = masters.copy(root)
    assert copied["master"] == uuid and copied["bytes"] > 0
    assert int(done("local-replica", "dump", root, "catalog")["last_logged"].partition(".")[2]) >= logged
    new = masters.add("m4", lost.address).start()
    assert new.uuid == uuid
    masters.level()
    told, all_three = ("--masters", ",".join(masters.addresses)), ["FOLLOWER", "FOLLOWER", "LEADER"]
    roles = lambda: sorted(m["role"] for m in done("master", "list", *told))  # noqa: E731
    wait_until(lambda: roles() == all_three, "three masters, one of which leads")
    assert [p.process.pid for p in (*others, server) if p.process] == pids and all(m.alive for m in others)
    others[0].kill()
    masters.create("four")
    assert masters.tables() == {"one", "two", "three", "four"}
    masters.level()
    for master in (new, others[1]):
        master.stop()
    assert masters.catalog(new.root) == masters.catalog(others[1].root)


@pytest.mark.deep
def test_entry_that_the_lost_leader_and_one_survivor_have_is_copied_from_no_other(masters: Masters) -> None:
    """Goal: MF-08, MF-09: of two survivors only the elected one is copied from: nothing acknowledged is lost. Method: a
    follower is down while the leader makes a table with the other one; the leader is lost. The follower comes back
    while the other one is down: it lacks the table and is refused as a source, also with the operator's leave. With the
    other one it elects; the copy has the table, and the new master keeps it when the other one is killed."""
    masters.cluster.add_server()
    masters.create("before")
    lost = masters.leader()
    behind, ahead = masters.followers()
    behind.kill()
    masters.create("acknowledged")
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    assert "NOT_LEADER" in refused("master", "copy-from", root, ahead.address)
    ahead.kill()
    behind.start()
    for leave in ((), ("--allow-leaderless",)):
        assert "NOT_LEADER" in refused("master", "copy-from", root, behind.address, "--yes", *leave)
    new = masters.add("m4", lost.address)
    assert "copy it from the leading master" in new.fails()
    ahead.start()
    masters.copy(root)
    new.start()
    masters.level()
    ahead.kill()
    assert masters.tables() == {"before", "acknowledged"}


@pytest.mark.deep
def test_replacement_needs_the_uuid_of_the_lost_one_and_that_one_gone(masters: Masters) -> None:
    """Goal: MF-10, MF-17, MF-18: a new master has the uuid that the group knows, and no other process has it. Method:
    one with a uuid of its own is neither copied to nor starts; one with the right uuid is not copied to while the one
    that it replaces answers, while its own directory is in use, from a tablet server, or as a tablet server."""
    server = masters.cluster.add_server()
    lost = masters.followers()[0]
    leader = masters.leader()
    stranger, uuid = masters.format("stranger")
    said = refused("master", "copy-from", stranger, leader.address)
    assert "INVALID_NAME" in said and uuid in said and lost.uuid in said and "--uuid" in said
    root, _ = masters.format("m4", lost.uuid)
    said = refused("master", "copy-from", root, leader.address)
    assert "ILLEGAL_STATE" in said and lost.address in said and "end it for good" in said
    lost.kill()
    alone = masters.add("stranger", lost.address)
    assert "already are a group without this one" in alone.fails() and uuid in alone.log_tail()
    assert "INVALID_ARGUMENT" in refused("master", "copy-from", root, server.address)
    assert "INVALID_ARGUMENT" in refused("fs", "format", masters.cluster.folder / "ts9", "--uuid", lost.uuid)
    assert "works on this directory" in refused("master", "copy-from", leader.root, lost.address)
    assert "UNAVAILABLE" in refused("master", "copy-from", root, lost.address)
    masters.copy(root)
    masters.add("m4", lost.address).start()
    masters.level()


def test_forged_takeover_of_a_master_that_lives_ends_none(masters: Masters) -> None:
    """MF-10, MF-13. Goal: two requests that name the living followers end neither. Method: an attacker asks the leader
    for the takeover of each master; each request is refused with what to do, all three processes go on, and a table is
    created; after one of them was killed, its successor is copied to at once, which waits until the leader counts that
    one as gone."""
    masters.cluster.add_server()
    leader = masters.leader()
    stub = pb_grpc.MasterServiceStub(leader.channel)
    for master in masters.members:
        error = stub.TakeOver(pb.TakeOverRequest(uuid=master.uuid), timeout=10).error
        assert error.code == Code.ILLEGAL_STATE and "end it for good" in error.message, error
    masters.create("one")
    masters.level()
    assert all(m.alive for m in masters.members)
    lost = masters.followers()[0]
    root, _ = masters.format("m4", lost.uuid)
    lost.kill()
    done("master", "copy-from", root, masters.leader().address)
    masters.add("m4", lost.address).start()
    masters.level()


def test_replaced_master_that_comes_back_is_harmless(masters: Masters) -> None:
    """Goal: MF-10: the former owner of a uuid takes no part any more, whichever masters were restarted since. Method:
    replace a follower whose directory survives; start the old one elsewhere with its former options: the others refuse
    its links. Then kill all masters, and start the old one beside one that knows of the takeover: none is elected,
    until the third one is there; then the old one is still refused, and nothing is lost."""
    lost = masters.followers()[0]
    masters.cluster.add_server()
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    masters.copy(root)
    new = masters.add("m4", lost.address).start()
    masters.create("one")
    masters.level()
    others = [m for m in masters.members if m is not lost]

    def comes_back(name: str) -> ServerProcess:
        old = masters.add(name, masters.cluster.ports.free_address())
        old.root, old.extra, listens = lost.root, (*lost.extra, f"--advertise={lost.address}"), old.address
        old.start().address = listens
        return old

    old = comes_back("old")
    wait_until(lambda: "has taken over" in old.log_tail(), "it is told")
    for master in (*others, new, old):
        master.kill()
    others[0].start()
    old = comes_back("old-again")
    wait_until(lambda: "has taken over" in old.log_tail(), "it is told, by one that was restarted")
    assert "LEADER" not in {masters.status(m).replica.role for m in (others[0], old)}
    others[1].start()
    masters.create("two")
    assert masters.tables() == {"one", "two"}
    assert masters.status(old).replica.role in ("FOLLOWER", "PRE_CANDIDATE")


def test_new_master_abstains_from_votes_in_every_term_that_the_survivors_know(masters: Masters) -> None:
    """Goal: MF-19: the lost master's votes are not known, so its successor votes in no term in which the lost one may
    have voted. Method: copy, and read the floor below which it abstains; the same for an attempt that dies with the
    metadata in place, after which the survivors elect anew: the next attempt abstains in those terms too."""
    lost = masters.followers()[0]
    others = [m for m in masters.members if m is not lost]
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    floors = []
    for point in ("copy.3", ""):
        if point:
            died = nyala("master", "copy-from", root, masters.leader().address, crash_point=point)
            assert died.returncode not in (0, 1), died.stderr
        else:
            masters.copy(root)
        term = max(masters.status(m).replica.term for m in others)
        floors.append(ConsensusMeta.load(RealDisk(root), CATALOG_ID).vote_floor_term)
        assert floors[-1] == term
        leader = masters.leader()
        leader.kill()
        leader.start()
        wait_until(lambda term=term: masters.status(masters.leader()).replica.term > term, "elected")  # type: ignore[misc]
    assert floors[0] < floors[1]


@pytest.mark.deep
def test_catalog_that_a_master_lost_is_not_begun_anew(masters: Masters) -> None:
    """Goal: MF-18, MF-20: a member whose catalog is gone, by a command or by a disk, has promises that are not in its
    directory. Method: erase the catalog of a follower, and remove its files in another; neither starts, a copy without
    the leader is refused, and one from the leader is whole and abstains."""
    used = None
    for clean in (True, False):
        used = lost = next(m for m in masters.followers() if m is not used)
        wait_until(lambda lost=lost: done("fs", "uuid", lost.root)["cluster_id"], "it belongs")  # type: ignore[misc]
        lost.stop()
        if clean:
            done("local-replica", "delete", lost.root, "catalog", "--clean-unsafe", "--yes")
        else:
            for folder in ("tablet-meta", "consensus-meta", "wals"):
                shutil.rmtree(lost.root / folder)
                (lost.root / folder).mkdir()
        assert "lost its catalog" in lost.fails()
        other = next(m for m in masters.followers() if m.alive)
        assert "NOT_LEADER" in refused("master", "copy-from", lost.root, other.address, "--allow-leaderless")
        masters.copy(lost.root)
        assert ConsensusMeta.load(RealDisk(lost.root), CATALOG_ID).vote_floor_term > 0
        lost.start()
        masters.level()


@pytest.mark.a_third
@pytest.mark.parametrize("point", ["copy.1", "copy.2", "copy.3", "copy.4", "copy.5"])
def test_copy_of_the_catalog_that_dies_is_repeated_and_no_master_starts_before(masters: Masters, point: str) -> None:
    """Goal: MF-20: a copy that did not end makes no master. Method: kill the command at each step; the master there
    does not start unless the last step was durable; after the same command has succeeded, it starts."""
    masters.cluster.add_server()
    masters.create("one")
    lost = masters.followers()[0]
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    died = nyala("master", "copy-from", root, masters.leader().address, crash_point=point)
    assert died.returncode not in (0, 1), died.stderr
    new = masters.add("m4", lost.address)
    if point != "copy.5":
        assert "copy-from" in new.fails()
    masters.copy(root)
    new.start()
    masters.level()
    masters.leader().kill()
    assert masters.tables() == {"one"}


def test_master_whose_options_name_other_masters_does_not_start(masters: Masters) -> None:
    """Goal: MF-05, MF-22: the options of every master name the same odd number of addresses. Method: start one of three
    with one address changed, with none, with itself left out, and two of two anew; each prints both lists in one line,
    and the right options work afterwards."""
    one = masters.followers()[0]
    one.stop()
    a, b, c = masters.addresses
    other = masters.cluster.ports.free_address()
    mine = one.address
    rest = [x for x in (a, b, c) if x != mine]
    for peers in ([mine, rest[0], other], [mine], [*rest, other]):
        wrong = masters.add(one.name, mine, peers)
        said = wrong.fails()
        assert ("agreed" in said and a in said and c in said) or "leaves out this master" in said, said
    fresh = masters.add("even", other, [other, a])
    assert "list one, three or five" in fresh.fails()
    one.start()
    masters.level()


@pytest.mark.deep
def test_masters_outlive_one_that_is_away_and_say_so_and_not_two(masters: Masters) -> None:
    """Goal: MF-01, MF-02, MF-03: any one of three may be away, and comes back level; a second one is too many, and the
    check warns at the first. Method: kill a follower, make a table, run a check; start it; the same with the leader;
    then kill both: nothing is committed any more, until one is back."""
    masters.cluster.add_server()
    masters.create("first")
    told = ("--masters", ",".join(masters.addresses))
    for name in ("no_follower", "no_leader"):
        away = masters.followers()[0] if "follower" in name else masters.leader()
        away.kill()
        masters.create(name)
        checked = nyala("cluster", "check", "--json", *told)
        found = json.loads(checked.stdout)["findings"]
        of_masters = [(f["severity"], f["subject"]) for f in found if f["subject"].startswith("master ")]
        assert checked.returncode == 1 and of_masters == [("ERROR", f"master {away.uuid}")], found
        away.start()
        masters.level()
    assert masters.tables() == {"first", "no_follower", "no_leader"}
    two = masters.followers()
    for master in two:
        master.kill()
    with Client(masters.addresses, ClientOptions(connect_timeout_s=30)) as client:
        with pytest.raises(Refused) as stalled:
            client.create_table("stalled", SCHEMA, SPEC, replication_factor=1, request_id="s", timeout_s=3)
        assert stalled.value.code in (Code.NOT_READY, Code.UNAVAILABLE, Code.NOT_LEADER, Code.TIMED_OUT)
    two[0].start()
    masters.create("again")
    two[1].start()
    masters.level()


@pytest.mark.deep
def test_master_with_damaged_files_says_the_commands_that_heal_it(masters: Masters) -> None:
    """IN-21. Goal: the text of a master that cannot start on its files is enough to repair them. Method: each kind of
    file of a stopped follower is damaged, in another way each time; the master does not start, and prints four
    commands, which are typed as printed; it starts, abstains from votes that it may have cast, and knows every
    table."""
    masters.cluster.add_server()
    masters.create("one")
    told = ("--masters", ",".join(masters.addresses))
    hurts = (
        (f"tablet-meta/{CATALOG_ID}", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        (f"consensus-meta/{CATALOG_ID}", lambda path: path.write_bytes(b"")),
        (f"wals/{CATALOG_ID}/wal-000000001", lambda path: path.write_bytes(b"")),
        ("instance", lambda path: path.unlink()),
    )
    for file, hurt in hurts:
        lost = masters.followers()[0]
        lost.stop()
        hurt(lost.root / file)
        said = lost.fails()
        for command in ("fs wipe DIR", "fs format DIR --kind master --uuid UUID", "master copy-from DIR ADDRESS"):
            assert f"`nyala {command}`" in said, said
        listed = done("master", "list", *told)
        (away,) = [m for m in listed if m["role"] is None]
        assert away["address"] == lost.address
        done("fs", "wipe", lost.root, "--yes")
        done("fs", "format", lost.root, "--kind", "master", "--uuid", away["uuid"])
        masters.copy(lost.root)
        assert ConsensusMeta.load(RealDisk(lost.root), CATALOG_ID).vote_floor_term > 0
        assert lost.start().uuid == away["uuid"]
        masters.level()
    masters.leader().kill()
    assert masters.tables() == {"one"}
