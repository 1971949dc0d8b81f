"""The rounds of the jobs that plan: what they print, and how they end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nyala.jobs import rebalance
from nyala.pipeline import RebalanceOptions, plan_rounds
from nyala.pipeline.rebalance import Plan, Rebalancer, planned_of
from nyala.replica.policy import Caps, ClusterView, inputs_of, plan_rebalance
from nyala.schemas import decode
from tests.unit.pipeline.test_rebalance_words import held, server
from tests.unit.policy.test_policy_even_bytes import kept_sizes, sized
from tests.unit.policy.test_policy_rebalance_moves import view_of

Run = Callable[..., tuple[int, list[str]]]


class Carried(Rebalancer):
    """A rebalancer without Kafka: what it proposes is done at once."""

    view: ClusterView
    proposed: list[Plan]

    def plan(self) -> Plan:
        moves = plan_rebalance(self.view, self._options.caps)
        return Plan("p", self.view, tuple(moves), {}, inputs_of((), 0), left_out=moves.left_out)

    def propose(self, plan: Plan) -> None:
        self.proposed.append(plan)
        type(self).view = kept_sizes(plan.view, list(plan.moves))

    def wait(self, plan: Plan, timeout_s: float, tell: Callable[[str], None] = lambda _: None) -> dict[str, str]:
        return {move.tablet_id: "DONE" for move in plan.moves}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the rebalance job with options for a cluster; returns its status and the lines that it printed."""

    def ran(view: ClusterView, *options: Any) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["rebalance", "--kafka", "k:1", *map(str, options)])
        monkeypatch.setattr(Carried, "view", view, raising=False)
        monkeypatch.setattr(Carried, "proposed", [], raising=False)
        monkeypatch.setattr(plan_rounds, "Rebalancer", Carried)
        monkeypatch.setattr(plan_rounds, "spark_session", lambda _: None)
        status = rebalance.main()
        return status, capsys.readouterr().out.splitlines()

    yield ran


@pytest.mark.parametrize(
    ("options", "status", "rounds", "left_out"),
    [
        pytest.param(("--dry-run", "--moves-max", 1), 0, 0, 2, id="a dry run"),
        pytest.param(("--moves-max", 1), 0, 1, 2, id="proposed"),
        pytest.param(("--moves-max", 1, "--wait"), 2, 1, 2, id="one round of three"),
        pytest.param(("--moves-max", 1, "--wait", "--rounds-max", 2), 2, 2, 1, id="two rounds of three"),
        pytest.param(("--moves-max", 1, "--wait", "--rounds-max", 9), 0, 3, 0, id="until it is even"),
        pytest.param(("--moves-max", 3, "--moves-per-server-max", 3, "--wait"), 0, 1, 0, id="all at once"),
    ],
)
def test_job_whose_plan_was_cut_by_caps_says_so_and_does_not_end_well(
    run: Run, options: tuple[Any, ...], status: int, rounds: int, left_out: int
) -> None:
    """OP-09. Goal: a plan that was cut by its caps is told by text, JSON and, with --wait, by the exit status; rounds
    go on until nothing was left out. Method: six replicas on one of two servers, with caps of one move and of three."""
    view = view_of("a b", ", ".join(f"T{n} a:*" for n in range(6)))
    ended, lines = run(view, *options)
    cut = [line for line in lines if line.startswith(f"the caps leave out {left_out} ")]
    assert (ended, len(Carried.proposed), bool(cut)) == (status, rounds, left_out > 0)
    assert lines.count("nothing to move") == ("9" in map(str, options))
    ended, lines = run(view, *options, "--json")
    assert (ended, json.loads(lines[-1])["left_out_by_caps"]) == (status, left_out)


def test_job_whose_caps_allow_nothing_ends_with_the_reason(run: Run) -> None:
    """OP-09. Goal: rounds end if the caps allow none of the steps, and never with "nothing to move". Method: two
    servers between which only an exchange evens the bytes, with caps of one and of two."""
    view = sized(view_of("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*"), T1=30, T2=10)
    assert plan_rebalance(view, Caps(moves_max=1)) == []
    status, lines = run(view, "--moves-max", 1, "--wait", "--rounds-max", 9)
    assert (status, "nothing to move" in lines) == (2, False)
    assert any("the caps leave out 2 moves or more" in line for line in lines)
    assert RebalanceOptions(bootstrap="k:1").caps.moves_max >= 2
    assert run(view, "--wait")[0] == 0


def test_json_states_what_is_published(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a plan's JSON states each move as it is proposed, with its deadline and its bytes. Method: reports of two
    tablets on one of two servers; the records that the producer was given, beside the JSON."""
    readings = [server(u, 1, servers=2, tablets=2) for u in "ab"] + [held("t", 1, "a"), held("t", 2, "a")]
    sent: list[Mapping[str, Any]] = []

    class Producer:
        def __init__(self, **_: Any) -> None: ...

        def send(self, _: str, *, key: bytes, value: bytes) -> Any:
            sent.append(decode("proposal", value))
            assert key.decode() == sent[-1]["tablet_id"]
            return SimpleNamespace(get=lambda timeout: None)

        def flush(self, timeout: float) -> None: ...

        def close(self, timeout: float) -> None: ...

    for name, stand_in in (("KafkaProducer", Producer), ("check_reachable", lambda _: None)):
        monkeypatch.setattr(f"nyala.pipeline.rebalance.{name}", stand_in)
    for name in ("plan", "propose"):
        monkeypatch.setattr(Carried, name, getattr(Rebalancer, name))
    monkeypatch.setattr(Carried, "planned", lambda self, now_us: planned_of(self._options, now_us, readings))
    began_us = time.time_ns() // 1000
    status, lines = run(ClusterView(servers=(), tablets=()), "--json", "--deadline-s", 50)
    (move,) = json.loads(lines[-1])["moves"]
    (record,) = sent
    assert status == 0 and move.pop("bytes") == 1
    assert move == {**record, "reserved": ""}
    assert 0 <= record["deadline_us"] - began_us - 50_000_000 < 30_000_000
