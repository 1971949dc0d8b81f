"""A group that also receives messages that no honest member sent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from nyala.replica.raft import Message
from nyala.replica.raft_driver import Phase
from tests.harness.liars import impossible_ones, mutated
from tests.harness.sim_cluster import SimCluster, SimNode
from tests.harness.sim_start import level, put, put_and_wait, started
from tests.harness.sim_verify import Verifiers

WRITES = 12
LIES = 6


class Bystander(SimNode):
    """Before each message it is sent what no honest replica sends, in the same name: all of it must be refused."""

    def receive(self, message: Message) -> None:
        if self.up and self.replica is not None and not self.paused and self.replica.phase is not Phase.FAILED:
            for forged in impossible_ones(message):
                assert self.replica.step(forged), forged
                self.cluster.marks[type(message).__name__] += 1
        super().receive(message)


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(6))
def test_impossible_messages_among_honest_ones_change_no_history(seed: int) -> None:
    """IN-50. Goal: forged messages do not change what a group does. Method: a simulated group of three writes, loses
    its leader twice and its power, and transfers leadership. Before every message come forgeries of each kind, with the
    same sender's name. All are refused, no verifier finds a fault, and the group does exactly what it does under the
    same seed without them."""

    def play(node_class: type[SimNode]) -> tuple[SimCluster, Any]:
        cluster = SimCluster(seed, node_class=node_class)
        cluster.liars = True
        for number in range(WRITES):
            leader = started(cluster) if not number else None
            cluster.run_until(lambda: cluster.leader() is not None, "a leader")
            leader = leader or cluster.leader()
            assert leader is not None
            put_and_wait(cluster, leader, b"%d" % number)
            if number % 4 == 2:
                cluster.nodes[leader.uuid].crash(power=number % 8 == 2)
                cluster.run_for(300_000)
                cluster.nodes[leader.uuid].start()
        cluster.run_until(lambda: cluster.leader() is not None and level(cluster), "all are level")
        return cluster, [(r.uuid, r.role, r.term, r.last_logged, r.applied_index) for r in cluster.replicas]

    forged, history = play(Bystander)
    honest, same = play(SimNode)
    assert history == same
    assert forged.verify.history == honest.verify.history
    assert {"AppendEntries", "AppendReply", "VoteRequest", "VoteReply"} <= forged.marks.keys()


class Victim(SimNode):
    """The first server of the group gets lies whenever anybody hears anything; nobody hears what it makes of them."""

    recorded: dict[type, list[Message]]
    """By kind; of the terms that the victim is in, or could be in next, so that it looks at them."""

    def receive(self, message: Message) -> None:
        super().receive(message)
        victim, rng = self.cluster.nodes["a"], self.cluster.world.rng
        assert isinstance(victim, Victim)
        if message.from_uuid != "a":
            self.recorded.setdefault(type(message), []).append(message)
        for _ in range(LIES if victim.replica is not None else 0):
            said = rng.choice(rng.choice(list(self.recorded.values()))[-10:])
            term = victim.replica.term + (rng.random() < 0.2)  # type: ignore[union-attr]
            lie = mutated(rng, replace(said, to_uuid="a", from_uuid=rng.choice("bcde"), term=term))
            victim.do(partial(victim.hear, lie))

    def hear(self, lie: Message) -> None:
        if self.up and self.replica is not None:
            self.cluster.marks["refused" if self.replica.step(lie) else "taken"] += 1

    def send(self, messages: list[tuple[str, Message]]) -> None:
        if self.uuid != "a":
            super().send(messages)


class Silent(Verifiers):
    """What is done to one server by lies is not held against it."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return (lambda *args, **fields: None) if callable(value) and not name.startswith("_") else value


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(20))
def test_member_that_is_lied_to_about_anything_lives_on(seed: int) -> None:
    """IN-50. Goal: no message of a member can break an invariant of another one, because invariants are about a
    replica's own state. Method: one of five gets, after every message in the group, copies of late messages with one
    field changed: votes that were not given, commits that did not happen, leaders that do not lead. It neither fails
    nor ends; the other four get no forgery, and elect and write."""
    cluster = SimCluster(seed, voters=5, node_class=Victim)
    cluster.verify = Silent()
    cluster.liars, Victim.recorded = True, {}
    ended: list[BaseException] = []
    cluster.nodes["a"].fatal = ended.append
    cluster.start(hinted="b")
    for number in range(WRITES):
        cluster.run_until(lambda: any(r.is_leader for r in cluster.replicas if r.uuid != "a"), "a leader of the four")
        leader = next(r for r in cluster.replicas if r.is_leader and r.uuid != "a")
        answers = put(cluster, leader, b"%d" % number)
        if number == WRITES // 2:
            cluster.nodes[leader.uuid].crash(power=False)
            cluster.run_for(500_000)
            cluster.nodes[leader.uuid].start()
        else:
            cluster.run_until(lambda answers=answers: bool(answers.all), "an answer")
    victim = cluster.nodes["a"].replica
    assert ended == [] and victim is not None and victim.phase is not Phase.FAILED, victim and victim.error
    assert min(cluster.marks["refused"], cluster.marks["taken"]) > 50, cluster.marks
