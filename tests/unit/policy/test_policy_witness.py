"""Healing by witness: which member stands in, is demoted, or comes back; the views change as a leader would change
them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nyala.replica.policy import Caps, ChangeKind, ClusterView, DesiredChange, Health, TabletView, decide
from nyala.replica.types import Decision, EditKind, Member, OpId, RaftConfig
from tests.harness.policy_views import edited, server

NAMES = "abcde"


class Group:
    """One tablet, what its leader does by itself, and what the policy says of it."""

    def __init__(self, voters: str = "abc", *, by_witness: bool = True, rf: int = 3, servers: str = NAMES) -> None:
        self.members = {v: Member(v) for v in voters}
        self.health = dict.fromkeys(servers, Health.HEALTHY)
        self.by_witness = by_witness
        self.rf = rf
        self.index = 1
        self.data: set[str] = set(voters)
        """The members that have rows."""
        self.said: list[str] = []
        self.desired: DesiredChange | None = None
        self.draining: set[str] = set()

    @property
    def leader(self) -> str:
        fit = [u for u, m in sorted(self.members.items()) if m.votes and m.holds_data and not self.health[u].failed]
        return fit[0] if fit else ""

    def view(self) -> ClusterView:
        tablet = TabletView(
            tablet_id="t",
            table_id="T",
            replication_factor=self.rf,
            config=RaftConfig(OpId(1, self.index), tuple(self.members.values())),
            leader_uuid=self.leader,
            health=self.health,
            desired=self.desired,
            by_witness=self.by_witness,
        )
        servers = tuple(server(s, alive=not self.health[s].failed, draining=s in self.draining) for s in self.health)
        return ClusterView(servers=servers, tablets=(tablet,))

    @property
    def tolerates(self) -> int:
        """How many more voters may be lost before nothing commits."""
        voters = [m for m in self.members.values() if m.votes]
        return sum(not self.health[m.uuid].failed for m in voters) - (len(voters) // 2 + 1)

    def marks(self, uuid: str) -> str:
        """`v` votes, `d` holds data, `p` is to be promoted, `r` is to leave; empty for a stranger."""
        m = self.members.get(uuid)
        return (
            ""
            if m is None
            else "".join(c for c, on in (("v", m.votes), ("d", m.holds_data), ("p", m.promote), ("r", m.replace)) if on)
        )

    def step(self) -> Decision | None:
        """One decision, carried out."""
        found = decide(self.view(), 1, Caps())
        if not found:
            return None
        (decision,) = found
        self.members = edited(self.members, decision, self.leader)
        self.data &= self.members.keys()
        self.index += 1
        assert any(m.votes and m.holds_data for m in self.members.values())
        self.said.append(decision.reason)
        self.lead()
        return decision

    def lead(self) -> None:
        """Return what a leader promotes by itself: a caught-up non-voter, a witness at once, a witness whose data is
        there."""
        for uuid, m in sorted(self.members.items()):
            if m.promote and self.health[uuid] is Health.HEALTHY:
                whole = m.holds_data or uuid in self.data
                if m.votes and not whole:
                    continue
                if m.holds_data:
                    self.data.add(uuid)
                self.members[uuid] = replace(m, votes=True, promote=not whole, holds_data=whole)
                self.index += 1

    def settle(self) -> None:
        """Take steps until nothing is needed."""
        for _ in range(30):
            if self.step() is None:
                return
        raise AssertionError(self.said)

    def lose(self, uuid: str) -> None:
        self.health[uuid] = Health.FAILED

    def copied(self, uuid: str) -> None:
        """The witness's data is there; its leader says so in the config."""
        self.data.add(uuid)
        self.lead()


def stood_in() -> Group:
    """`c` is lost, `d` stands in for it."""
    group = Group()
    group.lose("c")
    group.settle()
    return group


def test_lost_voter_is_demoted_once_a_witness_votes_in_its_place() -> None:
    """CC-51, CC-54. Goal: add, demote, and one more loss is tolerated before any data is copied. Method: lose one of
    three: two decisions, in this order; then nothing until the data is there; then the lost one is removed: three
    whole."""
    group = Group()
    group.lose("c")
    assert group.tolerates == 0
    first = group.step()
    assert first is not None
    assert [(e.kind, e.member.uuid, e.member.votes, e.member.holds_data) for e in first.edits] == [
        (EditKind.ADD, "d", False, False)
    ]
    assert (group.marks("d"), group.marks("c"), group.tolerates) == ("vp", "vd", 0)
    second = group.step()
    assert second is not None and group.marks("c") == "dr" and group.tolerates == 1
    assert group.step() is None
    group.copied("d")
    group.settle()
    assert {u: group.marks(u) for u in group.members} == {"a": "vd", "b": "vd", "d": "vd"}


def test_original_that_returns_before_the_data_takes_its_place_back() -> None:
    """CC-52. Goal: the return of the original cancels the copy. Method: `c` is back while `d` waits for its data: one
    decision makes `c` promotable and tells `d` to stop and leave; the three first ones vote again, nobody else is
    left."""
    group = stood_in()
    group.health["c"] = Health.HEALTHY
    back = group.step()
    assert back is not None
    assert {e.member.uuid: (e.member.promote, e.member.replace) for e in back.edits} == {
        "c": (True, False),
        "d": (False, True),
    }
    group.settle()
    assert {u: group.marks(u) for u in group.members} == {"a": "vd", "b": "vd", "c": "vd"}


def test_original_that_is_lost_again_on_its_way_back_is_demoted_again() -> None:
    """CC-52. Goal: nothing is lost by a return that fails. Method: `c` is back, and lost again before it votes: the
    witness stands in again and wants its data."""
    group = stood_in()
    group.health["c"] = Health.HEALTHY
    for edit in decide(group.view(), 1)[0].edits:
        group.members[edit.member.uuid] = edit.member
    group.lose("c")
    group.settle()
    assert (group.marks("c"), group.marks("d"), group.tolerates) == ("dr", "vp", 1)


def test_original_that_returns_after_the_data_is_not_needed_any_more() -> None:
    """CC-52, CC-54. Method: `d` is whole, then `c` is back: it is removed, `d` stays."""
    group = stood_in()
    group.copied("d")
    group.health["c"] = Health.HEALTHY
    group.settle()
    assert set(group.members) == {"a", "b", "d"} and group.marks("d") == "vd"


@pytest.mark.parametrize("joined", [False, True])
def test_original_that_returns_before_it_is_demoted_stays(joined: bool) -> None:
    """CC-52. Goal: a witness that is no longer needed is removed, and no replica with rows is. Method: `c` is back when
    `d` has just joined without a vote, and when it votes: `d` goes."""
    group = Group()
    group.lose("c")
    group.step()
    if not joined:
        group.members["d"] = replace(group.members["d"], votes=False)
    group.health["c"] = Health.HEALTHY
    group.settle()
    assert {u: group.marks(u) for u in group.members} == {"a": "vd", "b": "vd", "c": "vd"}


def test_witness_that_is_lost_itself_is_replaced_by_another_one() -> None:
    """CC-51. Method: `d` is lost while `c` is away: it is removed, `e` stands in, `c` is kept all the while."""
    group = stood_in()
    group.lose("d")
    while group.step() is not None:
        assert group.marks("c") == "dr"
    assert (group.marks("d"), group.marks("e"), group.tolerates) == ("", "vp", 1)
    group.copied("e")
    group.settle()
    assert set(group.members) == {"a", "b", "e"}


def test_healing_without_witnesses_is_as_it_was() -> None:
    """CC-57. Goal: without the option no witness is added. Method: the same loss without the option: a learner joins,
    and the lost one is removed; a member that retires, or that an operator marked, is replaced by no witness with it
    either."""
    group = Group(by_witness=False)
    group.lose("c")
    group.step()
    assert group.marks("d") == "vd"
    group.settle()
    assert set(group.members) == {"a", "b", "d"}
    for away in ("draining", "replace"):
        group = Group()
        if away == "draining":
            group.draining.add("c")
        else:
            group.members["c"] = replace(group.members["c"], replace=True)
        first = group.step()
        assert first is not None and first.edits[0].member.holds_data, away
        group.settle()
        assert "c" not in group.members and all(group.marks(u) == "vd" for u in group.members)


def test_member_on_a_retiring_server_is_nobody_that_comes_back() -> None:
    """CC-52. Goal: a member on a retiring server does not count as one that is coming back. Method: a replica that
    never votes is on a retiring server when `c` is lost: the healing goes as ever, and it leaves when all are whole;
    `c` is back on a retiring server, and then the witness is lost: another one takes its place."""
    group = Group()
    group.members["e"] = Member("e", votes=False)
    group.draining.add("e")
    group.lose("c")
    group.settle()
    assert (group.marks("d"), group.marks("c"), group.marks("e")) == ("vp", "dr", "d")
    group.copied("d")
    group.settle()
    assert {u: group.marks(u) for u in group.members} == {"a": "vd", "b": "vd", "d": "vd"}
    group = stood_in()
    group.health["c"] = Health.HEALTHY
    group.draining.add("c")
    group.settle()
    assert (group.marks("c"), group.marks("d")) == ("dr", "vp")
    group.lose("d")
    group.settle()
    assert (group.marks("c"), group.marks("d"), group.marks("e")) == ("dr", "", "vp")


def test_one_loss_has_one_witness() -> None:
    """CC-57. Goal: a replacement of a live voter joins as a learner, also beside a witness. Method: `d` stands in for
    `c`, then `b`'s server retires, or more voters are wanted: `e` joins with data."""
    for more in ("retires", "rf"):
        group = stood_in()
        if more == "retires":
            group.draining.add("b")
        else:
            group.rf = 4
        joins = group.step()
        assert joins is not None
        assert [(e.kind, e.member.uuid, e.member.holds_data) for e in joins.edits] == [(EditKind.ADD, "e", True)], more


def test_unknown_health_moves_nothing() -> None:
    """CC-52. Method: it is not known how the demoted one fares: it neither comes back nor goes."""
    group = stood_in()
    group.health["c"] = Health.UNKNOWN
    assert group.step() is None and group.marks("c") == "dr"


def test_wanted_witness_stays_until_it_is_whole() -> None:
    """CC-47, CC-52. Method: an operator wants a witness on `d` while nobody is lost: it is not the surplus one as long
    as the desired change stands, and neither is a replica with rows; without the desired change it leaves."""
    group = Group(by_witness=False)
    group.desired = DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid="d", witness=True)
    group.settle()
    assert {u: group.marks(u) for u in group.members} == {"a": "vd", "b": "vd", "c": "vd", "d": "vp"}
    group.desired = None
    group.settle()
    assert "d" not in group.members


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(60))
def test_losses_and_returns_in_any_order_end_whole(seed: int) -> None:
    """CC-51, CC-52, CC-54. Goal: the table converges from wherever it is left. Method: random losses (never more than
    one at a time of those that vote), returns, copies that end and decisions; then all are back: as many whole voters
    as wanted and nobody else; never two voters changed at once, never nobody to lead."""
    rng = random.Random(seed)
    group = Group("abcde" if seed % 2 else "abc", rf=5 if seed % 2 else 3, servers="abcdefgh")
    for _ in range(60):
        roll = rng.random()
        away = [u for u in group.health if group.health[u].failed]
        if roll < 0.15 and not away:
            group.lose(rng.choice(sorted(u for u in group.members if u != group.leader)))
        elif roll < 0.3 and away:
            group.health[rng.choice(away)] = Health.HEALTHY
            group.lead()
        elif roll < 0.4:
            for uuid in sorted(u for u, m in group.members.items() if m.votes and m.promote):
                group.copied(uuid)
        else:
            group.step()
        assert group.tolerates >= 0
    for uuid in group.health:
        group.health[uuid] = Health.HEALTHY
    for _ in range(5):
        group.lead()
        group.settle()
        for uuid in sorted(u for u, m in group.members.items() if m.votes and m.promote):
            group.copied(uuid)
    assert len(group.members) == group.rf and {group.marks(u) for u in group.members} == {"vd"}
