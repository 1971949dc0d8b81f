"""A config forced upon a survivor, over whole groups: it leads, newcomers converge, lost members stay harmless."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.raft import HardState, Role
from nyala.replica.types import (
    ConfigEdit,
    EditKind,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    generation_of,
    next_generation,
)
from tests.harness.raft_net import Durable, Net, config_of, encode_config
from tests.harness.raft_verify import Verifiers


class SurvivorsHistory(Verifiers):
    """Watches the forced group alone: who was given up commits what it likes."""

    def on_apply(self, uuid: str, entry: Entry) -> None:
        if uuid not in ("b", "c"):
            super().on_apply(uuid, entry)

    def on_config(self, config: RaftConfig) -> None:
        pass


def force(durable: Durable, uuid: str) -> OpId:
    """Return what the tool leaves on the survivor's disk: the config at the end of its log, in the metadata, a new
    term."""
    last = durable.entries[-1].opid
    opid = OpId(next_generation(max(last.term, durable.hard.term)), last.index + 1)
    config = RaftConfig(opid, (Member(uuid),), unsafe=True)
    durable.entries.append(Entry(opid, EntryKind.CONFIG, 1, 0, encode_config(config), b"", 0))
    durable.hard, durable.config = HardState(opid.term, None), config
    return opid


def survivor_alone() -> tuple[Net, OpId]:
    """Three voters wrote `x`; then b and c are gone, and the config {a} is forced upon a."""
    net = Net(config_of("abc"))
    net.verify = SurvivorsHistory()
    net.elect("a")
    net.write("a", b"x")
    net.tick(2)
    for uuid in "abc":
        net.crash(uuid)
    opid = force(net.crashed["a"], "a")
    net.restart("a")
    net.tick(2 * net.options.election_ticks_max)
    return net, opid


def test_forced_config_stands_in_the_log_and_a_lagging_newcomer_converges_on_it() -> None:
    """CC-45. Goal: the forced config is an ordinary entry: the first leader commits it, and a member added later, whose
    log is empty, receives it with the entries before it. Method: look at both logs after an addition."""
    net, opid = survivor_alone()
    core = net.nodes["a"].core
    assert core.role is Role.LEADER and core.commit_index == core.last.index > opid.index
    assert core.committed_config.opid == opid and core.log.term_at(opid.index) == opid.term
    net.nodes["d"] = type(net.nodes["a"])(net, "d", Durable(HardState(opid.term, None), core.committed_config))
    core.propose_config([ConfigEdit(EditKind.ADD, Member("d", votes=False, promote=True))], opid)
    net.tick(20)
    newcomer = net.nodes["d"]
    assert newcomer.core.log.term_at(opid.index) == opid.term
    assert newcomer.core.committed_config.voters == ("a", "d")
    assert [e.payload for e in newcomer.durable.entries if e.payload] == [b"x"]


def test_lost_majority_that_returns_neither_learns_the_term_nor_disturbs() -> None:
    """CC-46. Goal: two of three that were given up come back, elect one of them in their old config, which names the
    survivor, and cannot depose or overwrite it. Method: let both groups run side by side, all ways open."""
    net, opid = survivor_alone()
    core = net.nodes["a"].core
    term = core.term
    net.restart("b")
    net.restart("c")
    net.tick(6 * net.options.election_ticks_max)
    old = [net.nodes[u].core for u in "bc"]
    assert any(c.role is Role.LEADER for c in old), "they are a majority of what they know"
    assert all(generation_of(c.term) == 0 for c in old)
    assert (core.role, core.term, core.log.term_at(opid.index)) == (Role.LEADER, term, opid.term)
    net.write("a", b"y")
    net.settle()
    assert b"y" in net.verify.acked


def test_members_of_an_older_generation_take_no_entries_of_the_new_one() -> None:
    """CC-46. Goal: a lost member that is added again before it was emptied accepts no entries, because its committed
    entries may not be in the new log. Method: the survivor adds b, which still has its old log, and replicates."""
    net, opid = survivor_alone()
    before = replace(net.crashed["b"])
    net.restart("b")
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.ADD, Member("b", votes=False))], opid)
    net.write("a", b"y")
    net.tick(10)
    assert net.nodes["b"].core.last == before.entries[-1].opid
    assert generation_of(net.nodes["b"].core.term) == 0 and core.role is Role.LEADER
