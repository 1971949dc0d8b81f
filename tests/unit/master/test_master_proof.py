"""The config that the members of a tablet prove when they are called, and which replicas may be deleted by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.master.tablets.proof import Proof, prove
from nyala.replica.rpc import config_to_pb, pb, reported_replica_from_pb
from nyala.replica.types import ZERO_OPID, Address, DataState, Member, OpId, RaftConfig, ReportedReplica

GENERATION = 1 << 32


def config(index: int, names: str, term: int = 1, *, unsafe: bool = False) -> RaftConfig:
    """Voters by their letter, committed at `term`.`index`."""
    members = (Member(n * 32, (Address("h", 1),)) for n in names)
    return RaftConfig(OpId(term, index), tuple(members), unsafe=unsafe)


def answer(held: RaftConfig, **fields: Any) -> ReportedReplica:
    """An open follower that holds this config."""
    status = pb.ReplicaStatus(
        **{"data_state": DataState.READY, "phase": "RUNNING", "role": "FOLLOWER", "term": 1 << 40} | fields
    )
    status.committed_config.CopyFrom(config_to_pb(held))
    return reported_replica_from_pb(status)


def proven(known: RaftConfig, *, recorded: bool = True, wanted: int = 0, **held: RaftConfig | ReportedReplica) -> Proof:
    answers = {n * 32: s if isinstance(s, ReportedReplica) else answer(s) for n, s in held.items()}
    return prove(known, answers, 0, recorded=recorded, wanted=wanted)


K = config(5, "abc")
NEXT, LATER = config(8, "abcd"), config(9, "bcd")


@pytest.mark.parametrize(
    ("known", "held", "expected"),
    [
        (K, {"a": K, "b": K}, K),
        (K, {"a": NEXT, "b": NEXT, "d": NEXT}, NEXT),
        (K, {"a": NEXT, "d": NEXT, "b": K, "c": K}, K),
        (NEXT, {"b": LATER, "c": LATER, "a": NEXT}, LATER),
        (NEXT, {"d": LATER, "a": NEXT, "b": NEXT}, NEXT),
        (K, {"b": LATER, "c": LATER, "d": LATER}, LATER),
        (K, {"c": config(20, "cde"), "d": config(20, "cde"), "e": config(20, "cde")}, K),
        (
            K,
            {
                "a": NEXT,
                "b": config(15, "bcde"),
                "c": config(20, "cde"),
                "d": config(20, "cde"),
                "e": config(20, "cde"),
            },
            config(20, "cde"),
        ),
        (K, {"a": config(6, "a"), "c": config(7, "abcde")}, K),
        (K, {"a": config(6, "ab"), "b": NEXT, "c": K}, K),
        (K, {"a": config(6, "a"), "b": NEXT, "c": NEXT, "d": NEXT}, NEXT),
        (K, {"f": config(99, "f")}, K),
        (K, {"f": config(99, "af"), "a": K, "b": K}, K),
        (K, {"f": config(99, "abf"), "e": config(99, "abf"), "a": K}, K),
        (K, {"a": config(3, "a", term=GENERATION, unsafe=True)}, K),
        (K, {"a": config(9, "a", unsafe=True), "b": K, "c": K}, K),
        (K, {n: config(9, "ab", term=GENERATION, unsafe=True) for n in "ab"}, config(9, "ab", GENERATION, unsafe=True)),
        (config(5, "ab"), {n: config(9, "ab", unsafe=True) for n in "a"}, config(5, "ab")),
        (config(5, "ab"), {"a": config(9, "a", unsafe=True), "b": config(5, "ab")}, config(5, "ab")),
        (NEXT, {n: config(9, "abd", unsafe=True) for n in "ab"}, NEXT),
        (NEXT, {n: config(9, "abd", unsafe=True) for n in "abd"}, config(9, "abd", unsafe=True)),
        (config(5, "abcde"), dict.fromkeys("ab", config(9, "abx")), config(5, "abcde")),
        (config(5, "abcde"), dict.fromkeys("abc", config(9, "abc")), config(9, "abc")),
        (config(5, "a"), {"d": config(9, "ad")}, config(5, "a")),
        (config(5, "a"), {"a": config(9, "ad"), "d": config(9, "ad")}, config(9, "ad")),
        (config(5, "a"), {"d": config(9, "d"), "a": config(5, "a")}, config(5, "a")),
    ],
)
def test_config_is_proven_by_those_who_must_have_agreed(
    known: RaftConfig, held: dict[str, Any], expected: RaftConfig
) -> None:
    """IN-41, IN-42. Goal: a later config counts if a majority of its voters holds it and it follows from the known
    one; a config that is further away, or forced, only if the voters of the known one moved on to it too. Method: one
    change and several, with and without the configs between; a member that makes up a config that the others have
    passed; strangers; forced ones."""
    assert proven(known, **held).config == expected


TWO, ONE, MORE = config(9, "ad"), config(11, "d"), config(11, "adx")
ALONE = config(12, "dx")


def gone(told: RaftConfig) -> ReportedReplica:
    """A tombstone that held this when it was left out."""
    return answer(told, data_state=DataState.DELETED, phase="STOPPED")


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        ({"d": ONE, "a": TWO}, 1, ONE),
        ({"d": ONE, "a": answer(TWO, leader_uuid="d" * 32)}, 1, ONE),
        ({"d": ONE, "a": answer(TWO, leader_uuid="f" * 32)}, 1, TWO),
        ({"d": ONE, "a": answer(TWO, role="LEADER")}, 1, TWO),
        ({"d": ONE, "a": config(7, "abc")}, 1, TWO),
        ({"d": ONE}, 1, TWO),
        ({"d": ONE, "a": TWO}, 3, TWO),
        ({"d": ONE, "a": gone(TWO)}, 3, ONE),
        ({"d": MORE, "a": MORE}, 3, MORE),
        ({"d": MORE, "a": MORE, "x": MORE}, 1, MORE),
        ({"a": MORE, "x": MORE, "d": gone(TWO)}, 3, MORE),
        ({"d": MORE, "x": MORE, "a": TWO}, 3, TWO),
        ({"d": MORE, "x": MORE, "a": TWO}, 1, TWO),
        ({"d": MORE, "x": MORE, "a": answer(TWO, leader_uuid="d" * 32)}, 1, TWO),
        ({"d": MORE, "x": MORE, "a": answer(TWO, role="LEADER")}, 3, TWO),
        ({"d": MORE, "x": MORE}, 3, TWO),
        ({"d": ALONE, "x": ALONE, "y": MORE, "a": TWO}, 3, TWO),
        ({"d": ALONE, "x": ALONE, "y": MORE, "a": answer(TWO, role="LEADER")}, 3, TWO),
        ({"d": ALONE, "x": ALONE, "y": MORE}, 3, TWO),
        ({"d": ALONE, "x": ALONE, "a": MORE}, 3, ALONE),
        ({"d": ALONE, "x": ALONE, "a": gone(MORE)}, 3, ALONE),
    ],
)
def test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away(
    held: dict[str, Any], wanted: int, expected: RaftConfig
) -> None:
    """IN-41, IN-42. Goal: where two vote, the one and servers that it made up prove nothing against the other; a real
    change is proven all the same. Method: two become one and three, as an operator wanted or not; the other one leads,
    follows, has no leader, holds the later config, is a tombstone, or does not answer."""
    assert proven(TWO, wanted=wanted, **held).config == expected


FAR = config(20, "def")


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"a": gone(config(15, "abcd")), "d": FAR, "e": FAR}, FAR),
        ({"a": gone(config(15, "bcx")), "x": gone(config(18, "xde")), "d": FAR, "e": FAR}, FAR),
        ({"a": gone(config(15, "abcd")), "d": FAR, "e": FAR, "f": answer(config(18, "def"), role="LEADER")}, K),
        ({"d": FAR, "e": FAR}, K),
        ({"a": gone(config(15, "abcd")), "d": FAR}, K),
        ({"f": config(99, "f")}, K),
        ({"a": gone(config(15, "abcd")), "f": config(99, "f")}, K),
        ({"b": config(15, "bde"), "e": config(15, "bde"), "d": config(99, "d")}, K),
        ({"a": K, "b": K, "d": FAR, "e": FAR}, K),
        ({"a": K, "d": FAR, "e": FAR}, K),
        ({"a": answer(K, phase="FAILED"), "d": FAR, "e": FAR}, K),
        ({"a": config(15, "abcd"), "d": FAR, "e": FAR}, K),
        ({"f": config(99, "f"), "d": answer(config(20, "dex"), role="LEADER"), "e": config(20, "dex")}, K),
        ({"f": config(99, "f"), "d": answer(FAR, role="LEADER"), "e": FAR}, K),
        ({"f": config(99, "f"), "d": config(20, "dex"), "e": config(20, "dex")}, K),
        ({}, K),
    ],
)
def test_config_of_a_tablet_whose_configs_were_never_kept(held: dict[str, Any], expected: RaftConfig) -> None:
    """IN-40, IN-42. Goal: the config of a tablet of an older build, whose first members are tombstones, is found if
    their configs lead to its members of today. If those do not confirm it, or a live replica has a config that
    contradicts it, an operator has to confirm one. Method: tombstones of one move and of several; nobody of the first
    members; a stranger and a member that lie while there is no leader. The same answers for a tablet whose config was
    kept prove nothing."""
    assert proven(K, recorded=False, **held).config == expected
    assert proven(K, **held).config in (K, NEXT)


def test_replica_goes_only_if_a_majority_of_the_config_without_it_confirms() -> None:
    """IN-41. Goal: what justifies a deletion. Method: a confirmed config, one that too few confirm, its own member, a
    replica that knows of a later config; answers of tombstones count, for they held what they tell."""
    found = proven(LATER, b=LATER, d=answer(LATER, data_state=DataState.DELETED, phase="STOPPED"))
    assert found.confirmed
    assert found.leaves_out("a" * 32, K.opid) and found.leaves_out("a" * 32, LATER.opid)
    assert not found.leaves_out("b" * 32, K.opid) and not found.leaves_out("a" * 32, OpId(1, 10))
    for few in ({"b": LATER}, {"b": LATER, "c": NEXT, "d": NEXT}, {"b": LATER, "a": LATER}):
        found = proven(LATER, **few)
        assert not found.confirmed and not found.leaves_out("a" * 32, K.opid)


def test_damaged_replica_is_renewed_only_if_enough_others_say_that_they_are_whole() -> None:
    """IN-41. Goal: a renewal makes a tombstone too: others have to have the rows. Method: the others whole, one of them
    failed, damaged, copying or at another config; the damaged one's own word counts for nothing."""
    found = proven(K, a=K, b=K, c=K)
    assert found.can_spare("c" * 32, K.opid) and not found.can_spare("c" * 32, OpId(1, 4))
    for bad in (
        answer(K, phase="FAILED"),
        answer(K, damaged=True),
        answer(K, data_state=DataState.COPYING),
        answer(config(4, "abc")),
    ):
        found = proven(K, a=K, b=bad, c=K)
        assert not found.can_spare("c" * 32, K.opid)


def test_leaders_end_goes_along_only_with_its_own_config() -> None:
    """IN-41, CC-29. Goal: the masters take the commit position only from the leader that they asked, and only with its
    own config. Method: a leader with the proven config, with another one, a follower, a stranger."""
    end = {"commit_term": 3, "commit_index": 12}
    assert proven(K, a=answer(K, role="LEADER", **end), b=K).committed == OpId(3, 12)
    late = answer(K, role="LEADER", **end)
    assert proven(NEXT, a=late, b=NEXT, c=NEXT, d=NEXT).committed == ZERO_OPID
    for held in ({"a": answer(K, **end)}, {"f": answer(K, role="LEADER", **end)}, {"a": answer(K, role="LEADER")}):
        assert proven(K, **held, b=K).committed == ZERO_OPID


def test_config_is_the_same_whatever_the_catalog_keeps_of_it() -> None:
    """IN-41. Goal: a config that the catalog keeps is confirmed by members that know more of it. Method: members that
    know of a decision and of addresses; and members that tell of other voters at the same position."""
    told = replace(K, decision=(3, 7), members=tuple(replace(m, addresses=()) for m in K.members))
    found = proven(K, a=answer(told, role="LEADER", commit_term=1, commit_index=6), b=told, c=told)
    assert found.confirmed and found.committed == OpId(1, 6) and len(found.whole) == 3
    found = proven(K, a=K, b=config(5, "abd"), c=config(5, "abd"))
    assert not found.confirmed


STRANGERS = "12345678"


def test_strangers_that_vouch_for_each_other_prove_nothing() -> None:
    """IN-41. Goal: servers that are no members prove no config, however many steps they report. Method: the catalog is
    one change behind; eight strangers tell of one step each, the last three of a config of their own; then a path as
    long as there can be, of which none is believed in time."""
    honest = config(100, "abcd")
    steps = [config(4 + n, voters) for n, voters in enumerate(("abc1", "abc12", "abc123", "bc123", "c123"))]
    held: dict[str, Any] = dict(zip(STRANGERS[3:], steps, strict=True)) | dict.fromkeys("123", config(10**9, "123"))
    found = proven(config(3, "abc"), **dict.fromkeys("abcd", honest), **held)
    assert found.confirmed and found.config == honest
    told = [config(4 + n, "abc" + STRANGERS[n % 8] + STRANGERS[(n + 1 + n // 8 % 7) % 8]) for n in range(60)]
    many = {f"{n:032x}": answer(c) for n, c in enumerate(told)} | {u * 32: answer(config(10**9, "123")) for u in "123"}
    assert prove(config(3, "abc"), many, 0).config == config(3, "abc")


@pytest.mark.deep
@settings(max_examples=150)
@given(st.data())
def test_strangers_prove_nothing_whatever_they_tell(data: st.DataObject) -> None:
    """IN-41, IN-42. Goal: any number of servers that were never members prove no config. Method: random histories of
    tablets of one to five voters; each member holds a config that it was a member of; each stranger tells of one of its
    own, of members and strangers, most of them a step from one that somebody else told."""
    history = data.draw(histories(smallest=1))
    known = data.draw(st.sampled_from(history))
    answers: dict[str, ReportedReplica] = {}
    for name in "abcdefg":
        seen = [c for c in history if c.member(name * 32) is not None]
        if seen and data.draw(st.booleans()):
            answers[name * 32] = answer(data.draw(st.sampled_from(seen)))
    told = ["".join(u[0] for u in c.voters) for c in history]
    for name in data.draw(st.sets(st.sampled_from(STRANGERS), min_size=1)):
        voters = set(data.draw(st.sampled_from(told))) ^ {data.draw(st.sampled_from(f"abc{STRANGERS}"))}
        told.append("".join(sorted(voters or {name})))
        lie = config(data.draw(st.integers(0, 40)), told[-1], data.draw(st.sampled_from([1, 2, 3, GENERATION])))
        answers[name * 32] = answer(lie, role=data.draw(st.sampled_from(["LEADER", "FOLLOWER"])))
    assert prove(known, answers, 0).config in history


@st.composite
def histories(draw: st.DrawFn, smallest: int = 3) -> list[RaftConfig]:
    """Configs of one tablet, each a change of one voter from the last, never fewer than `smallest` voters."""
    names, found = "abc", [config(0, "abc")]
    for step in range(draw(st.integers(0, 7))):
        if len(names) > smallest and (len(names) == 5 or draw(st.booleans())):
            names = names.replace(draw(st.sampled_from(names)), "")
        else:
            names += draw(st.sampled_from([n for n in "abcdefg" if n not in names]))
        found.append(config(found[-1].opid.index + 1 + draw(st.integers(0, 2)), names, term=1 + step // 3))
    return found


@st.composite
def conspiracies(draw: st.DrawFn, honest: RaftConfig, liar: str) -> dict[str, RaftConfig]:
    """What a liar and strangers tell together: steps of one voter each that begin at a true config, each told by one
    of them, and the last one by as many as vote by it."""
    strangers, told = list(STRANGERS), {}
    names, index, term = "".join(u[0] for u in honest.voters), honest.opid.index, honest.opid.term
    for _ in range(draw(st.integers(1, 5))):
        more = [n for n in (*strangers[:3], liar) if n not in names]
        if len(names) > 1 and (not more or draw(st.booleans())):
            names = names.replace(draw(st.sampled_from([n for n in names if n != liar] or names)), "")
        else:
            names += draw(st.sampled_from(more))
        index += draw(st.integers(1, 2))
        told[strangers.pop()] = config(index, names, term)
    last = config(index, names, term)
    return told | dict.fromkeys((*STRANGERS[:3], liar), last)


@pytest.mark.deep
@settings(max_examples=250)
@given(st.data())
def test_nothing_but_what_was_committed_is_ever_proven(data: st.DataObject) -> None:
    """IN-41, IN-42. Goal: with one lying server and any number of false ones, no config is proven that was not
    committed, and a true change is proven as soon as its voters answer. Method: random histories of single changes
    between two voters and five, of which the catalog knows any; each server holds any config that it was a member of,
    leads or follows; the liar answers anything, or conspires with strangers."""
    history = data.draw(histories(smallest=2))
    known = data.draw(st.sampled_from(history))
    begin = data.draw(st.sampled_from([min(history, key=lambda c: len(c.voters)), *history]))
    liar = data.draw(st.sampled_from(["x", *(u[0] for u in begin.voters)]))
    answers: dict[str, ReportedReplica] = {}
    for name in "abcdefg":
        seen = [c for c in history if c.member(name * 32) is not None]
        if seen and data.draw(st.integers(0, 3)):
            leader = data.draw(st.sampled_from(["", "a" * 32, "b" * 32]))
            answers[name * 32] = answer(data.draw(st.sampled_from(seen)), leader_uuid=leader)
    if data.draw(st.booleans()):
        told = data.draw(conspiracies(begin, liar))
    else:
        names = data.draw(st.sets(st.sampled_from("abcdefgx"), min_size=1, max_size=5))
        term = data.draw(st.sampled_from([1, 2, 3, GENERATION]))
        told = {liar: config(data.draw(st.integers(0, 40)), "".join(sorted(names)), term)}
    for name, lie in told.items():
        answers[name * 32] = answer(lie, role=data.draw(st.sampled_from(["LEADER", "FOLLOWER"])))
    found = prove(known, answers, 0, wanted=data.draw(st.sampled_from([0, 3, 5])))
    assert found.config in history and found.config.opid >= known.opid

    after = history[min(history.index(known) + 1, len(history) - 1)]
    honest = prove(known, {u: answer(after) for u in after.voters}, 0)
    assert honest.confirmed and honest.config == after
