"""Consensus metadata read from outside: the output of tools, and every byte of a damaged file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import (
    ConsensusMeta,
    cmeta_json,
    members_from_json,
    members_json,
    path_of,
    read_cmeta,
)
from nyala.replica.consensus_metadata.view import SCHEMA
from nyala.replica.fs import lock_root, lock_stopped
from nyala.replica.types import Address, Code, Corruption, LaterFormat, Member, OpId, RaftConfig, Refused
from nyala.schemas import config_from_avro, frame, unframe
from tests.harness.sim_disk import SimDisk

UUID, OTHER = "a" * 32, "b" * 32
CONFIG = RaftConfig(
    OpId(2, 7), (Member(UUID, (Address("h", 1),)), Member(OTHER, (Address("g", 2),), votes=False, promote=True))
)


def written() -> SimDisk:
    disk = SimDisk()
    ConsensusMeta.create(disk, "t1", UUID, CONFIG, 2).save_hard_state(5, OTHER)
    return disk


def test_view_says_everything_that_the_file_promises() -> None:
    """Goal: what a tool prints is what the replica keeps. Method: write by the one, read by the other."""
    view = read_cmeta(written().read(path_of("t1")), "somewhere")
    assert (view.tablet_id, view.uuid, view.term, view.voted_for) == ("t1", UUID, 5, OTHER)
    assert (view.config, view.vote_floor_term) == (CONFIG, 0)
    printed = cmeta_json(view)
    assert printed["committed_config"]["opid"] == "2.7" and printed["voted_for"] == OTHER
    assert [m["votes"] for m in printed["committed_config"]["members"]] == [True, False]


def test_metadata_with_any_byte_flipped_or_cut_is_corruption_that_names_the_file() -> None:
    """Goal: a promise is never misread. Method: every byte flipped with three masks, every length; both readers."""
    disk = written()
    path, whole = path_of("t1"), disk.read(path_of("t1"))
    damaged = [
        whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :] for at in range(len(whole)) for mask in (1, 64, 255)
    ]
    damaged += [whole[:length] for length in range(len(whole))]
    for data in damaged:
        with pytest.raises(Corruption, match=r"path=consensus-meta/t1.*byte"):
            read_cmeta(data, path)
        disk.poke(path, data)
        with pytest.raises(Corruption, match=r"path=consensus-meta/t1.*byte"):
            ConsensusMeta.load(disk, "t1")
        assert disk.read(path) == data, "the evidence stays"


def test_metadata_of_another_tablet_is_refused_by_the_replica_and_shown_by_the_tool() -> None:
    """Goal: a file in the wrong place makes no promise. Method: put one tablet's file where another's belongs."""
    disk = written()
    disk.poke(path_of("t2"), disk.read(path_of("t1")))
    with pytest.raises(Corruption, match="another tablet"):
        ConsensusMeta.load(disk, "t2")
    assert read_cmeta(disk.read(path_of("t2")), "x").tablet_id == "t1"


def test_stopped_directory_is_locked_and_a_live_or_absent_one_is_refused(tmp_path: Path) -> None:
    """Goal: no tool works on files that a server writes. Method: lock as a server would, then as a tool; a name that
    does not exist is not made."""
    with lock_root(tmp_path / "s"):
        with pytest.raises(Refused, match="stop it first") as refused:
            lock_stopped(tmp_path / "s")
        assert refused.value.code is Code.ILLEGAL_STATE and refused.value.values["pid"]
    with lock_stopped(tmp_path / "s"), pytest.raises(Refused):
        lock_root(tmp_path / "s")
    with pytest.raises(Refused, match="no such directory"):
        lock_stopped(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_metadata_of_a_later_build_is_told_from_damage_and_is_not_taken_for_lost() -> None:
    """Goal: metadata with a field that this build does not know are neither read without it nor taken for lost. Method:
    reserved bytes in the file, in its config and in a member, each through the readers and the copy's own look at what
    is here; beside them a config whose members contradict each other, which is damage; the version that is written; and
    what is running, which leaves such a file alone, and writes one that is gone again."""
    disk = written()
    path = path_of("t1")
    running = ConsensusMeta.load(disk, "t1")
    value = unframe(SCHEMA, disk.read(path))
    assert value["version"] == 1
    config = value["committed_config"]
    later = [
        value | {"reserved": b"x"},
        value | {"committed_config": config | {"reserved": b"x"}},
        value | {"committed_config": config | {"members": [config["members"][0] | {"reserved": b"x"}]}},
    ]
    for each in later:
        with pytest.raises(LaterFormat):
            read_cmeta(frame(SCHEMA, each), path)
        with pytest.raises(LaterFormat):
            config_from_avro(each["committed_config"] if each is not later[0] else later[1]["committed_config"])
        disk.poke(path, frame(SCHEMA, each))
        with pytest.raises(LaterFormat):
            ConsensusMeta.load_if_present(disk, "t1", or_lost=True)
        assert not running.repair() and disk.read(path) == frame(SCHEMA, each)
    disk.remove(path)
    assert running.repair() and disk.read(path) == running.encode()
    twice = config | {"members": [config["members"][0]] * 2}
    with pytest.raises(Corruption, match="contradicts itself"):
        config_from_avro(twice)


def test_members_as_json_read_back_and_what_a_later_build_adds_is_left_out() -> None:
    """Goal: a catalog and a recovery's plan of any build give the members that were written. Method: one of each kind
    there and back; one with a mark of a later build, and one as the first build wrote it; what is no member is told."""
    members = (
        Member("a", (Address("h", 1), Address("::1", 2))),
        Member("b", votes=False, promote=True, replace=True),
        Member("c", holds_data=False),
    )
    found = members_json(RaftConfig(OpId(1, 2), members))
    assert members_from_json(json.loads(json.dumps(found))) == members
    assert members_from_json([{**found[1], "weight": 3}]) == members[1:2]
    assert members_from_json([{"uuid": "a", "addresses": ["h:1"]}]) == (Member("a", (Address("h", 1),)),)
    for wrong in ({"uuid": "a"}, {"addresses": []}, {"uuid": "a", "addresses": ["nowhere"]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            members_from_json([wrong])
