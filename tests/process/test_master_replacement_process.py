"""A master that is lost for good: another one takes its place, while the others and the servers go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from nyala.replica.base import Code, Refused
from nyala.replica.client import Client, ClientOptions
from tests.harness.cluster import local_cluster, wait_until
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
    copied = done("master", "copy-from", root, masters.leader().address)
    assert copied["master"] == uuid and copied["bytes"] > 0
    new = masters.add("m4", lost.address).start()
    assert new.uuid == uuid
    masters.level()
    listed = done("master", "list", "--masters", ",".join(masters.addresses))
    assert sorted(m["role"] for m in listed) == ["FOLLOWER", "FOLLOWER", "LEADER"]
    assert [p.process.pid for p in (*others, server) if p.process] == pids and all(m.alive for m in others)
    others[0].kill()
    masters.create("four")
    assert masters.tables() == {"one", "two", "three", "four"}


def test_entry_that_the_lost_leader_and_one_survivor_have_is_copied_from_that_survivor_alone(masters: Masters) -> None:
    """Goal: MF-08, MF-09: of two survivors only the elected one is copied from: nothing acknowledged is lost. Method: a
    follower is down while the leader makes a table with the other one; the leader is lost, and the first one comes
    back. It lacks the table and is refused as a source, also with the operator's leave; a copy from the other one has
    it, and the new master keeps it when that one is killed."""
    masters.cluster.add_server()
    masters.create("before")
    lost = masters.leader()
    behind, ahead = masters.followers()
    behind.kill()
    masters.create("acknowledged")
    lost.kill()
    behind.start()
    wait_until(lambda: masters.leader() is ahead, "the one that has the table leads")
    root, _ = masters.format("m4", lost.uuid)
    for leave in ((), ("--allow-leaderless",)):
        assert "NOT_LEADER" in refused("master", "copy-from", root, behind.address, "--yes", *leave)
    assert "copy the catalog" in masters.add("m4", lost.address).fails()
    done("master", "copy-from", root, ahead.address)
    masters.cluster.masters[-1].start()
    masters.level()
    ahead.kill()
    assert masters.tables() == {"before", "acknowledged"}


def test_replacement_needs_the_uuid_of_the_lost_one_and_that_one_gone(masters: Masters) -> None:
    """Goal: MF-10, MF-17, MF-18: a new master has the uuid that the group knows, and nobody else has it. Method: one
    with a uuid of its own is neither copied to nor starts; one with the right uuid is not copied to while the one that
    it replaces answers, while its own directory is in use, from a tablet server, or as a tablet server."""
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
    done("master", "copy-from", root, leader.address)
    masters.add("m4", lost.address).start()
    masters.level()


def test_replaced_master_that_comes_back_is_harmless(masters: Masters) -> None:
    """Goal: MF-10: the former owner of a uuid takes no part any more, whoever was restarted since. Method: replace a
    follower whose directory survives; start the old one elsewhere, with its former options: the others refuse its
    links, after a restart of all of them too, and it never leads nor votes; it says itself what is to be done."""
    lost = masters.followers()[0]
    masters.cluster.add_server()
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    done("master", "copy-from", root, masters.leader().address)
    new = masters.add("m4", lost.address).start()
    masters.create("one")
    masters.level()
    others = [m for m in masters.members if m is not lost]
    for name in ("old", "old-again"):
        if name == "old-again":
            for master in (*others, new):
                master.stop()
                master.start(wait=False)
            for master in (*others, new):
                master.wait_ready()
            masters.leader()
        old, elsewhere = masters.add(name, masters.cluster.ports.free_address()), lost.address
        old.root, old.extra, listens = lost.root, (*lost.extra, f"--advertise={elsewhere}"), old.address
        old.start().address = listens
        wait_until(lambda old=old: "took its place" in old.log_tail(), "it is told")  # type: ignore[misc]
        assert masters.status(old).replica.role in ("FOLLOWER", "PRE_CANDIDATE")
        assert any("refused a link" in m.log_tail() for m in (*others, new))
        old.kill()
        masters.cluster.masters.remove(old)
    others[0].kill()
    masters.create("two")
    assert masters.tables() == {"one", "two"}


@pytest.mark.parametrize("point", ["copy.1", "copy.2", "copy.3", "copy.4", "copy.5"])
def test_copy_of_the_catalog_that_dies_is_repeated_and_no_master_starts_before(masters: Masters, point: str) -> None:
    """Goal: MF-20: a copy that did not end makes no master. Method: kill the command at each step; the master there
    does not start unless the last step was durable; the same command again succeeds, and then it does."""
    masters.cluster.add_server()
    masters.create("one")
    lost = masters.followers()[0]
    lost.kill()
    root, _ = masters.format("m4", lost.uuid)
    died = nyala("master", "copy-from", root, masters.leader().address, crash_point=point)
    assert died.returncode not in (0, 1), died.stderr
    new = masters.add("m4", lost.address)
    if point != "copy.5":
        assert "nothing was started" in new.fails()
    done("master", "copy-from", root, masters.leader().address, "--yes")
    new.start()
    masters.level()
    masters.leader().kill()
    assert masters.tables() == {"one"}


def test_master_whose_options_name_other_masters_does_not_start(masters: Masters) -> None:
    """Goal: MF-05, MF-22: every master is told the same odd number of addresses. Method: start one of three with one
    address changed, with none, with itself left out, and two of two anew; each says both lists in one line, and the
    right options work afterwards."""
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
    assert "list an odd number" in fresh.fails()
    one.start()
    masters.level()


def test_masters_outlive_one_that_is_away_and_say_so_and_not_two(masters: Masters) -> None:
    """Goal: MF-01, MF-02, MF-03: one of three may be away, whoever it is, and comes back level; a second one is too
    many, and the check warns at the first. Method: kill a follower, make a table, ask for a check; start it; the same
    with the leader; then kill both: nothing is committed any more, until one is back."""
    masters.cluster.add_server()
    masters.create("first")
    told = ("--masters", ",".join(masters.addresses))
    for name in ("no_follower", "no_leader"):
        away = masters.followers()[0] if "follower" in name else masters.leader()
        away.kill()
        masters.create(name)
        checked = nyala("cluster", "check", *told)
        assert checked.returncode == 1 and away.uuid in checked.stdout, checked.stdout
        away.start()
        masters.level()
    assert masters.tables() == {"first", "no_follower", "no_leader"}
    two = masters.followers()
    for master in two:
        master.kill()
    with Client(masters.addresses, ClientOptions(connect_timeout_s=30, timeout_s=5)) as client:
        with pytest.raises(Refused) as stalled:
            client.create_table("stalled", SCHEMA, SPEC, replication_factor=1, request_id="s")
        assert stalled.value.code in (Code.NOT_READY, Code.UNAVAILABLE, Code.NOT_LEADER, Code.TIMED_OUT)
    two[0].start()
    masters.create("again")
    two[1].start()
    masters.level()
