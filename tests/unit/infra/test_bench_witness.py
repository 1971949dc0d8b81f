"""The states that the benchmark of lost voters counts as reached."""

from __future__ import annotations

import pytest

from nyala.infra.bench.copying import rows_for
from nyala.infra.bench.suite import BenchOptions, run
from nyala.infra.bench.witness import reached
from nyala.replica.rpc import pb


def config(*members: str) -> pb.RaftConfig:
    """Members by name and marks: `c:v` votes, `d:vd` votes and holds data."""
    named = [m.partition(":") for m in members]
    return pb.RaftConfig(members=[pb.Member(uuid=u, votes="v" in x, holds_data="d" in x) for u, _, x in named])


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (("a:vd", "b:vd", "c:vd"), ()),
        (("a:vd", "b:vd", "c:vd", "d:d"), ()),
        (("a:vd", "b:vd", "c:vd", "d:v"), ("votes",)),
        (("a:vd", "b:vd", "c:d", "d:v"), ("votes", "tolerant")),
        (("a:vd", "b:vd", "c:d", "d:vd"), ("votes", "tolerant", "whole")),
        (("a:vd", "b:vd", "c:vd", "d:vd"), ("votes",)),
        (("a:vd", "b:vd", "d:vd"), ("votes", "tolerant", "whole")),
    ],
)
def test_loss_is_tolerated_again_when_the_lost_one_has_no_vote(members: tuple[str, ...], said: tuple[str, ...]) -> None:
    """CC-56, CC-50. Goal: what is measured is tolerance, not a vote. Method: configs on the way of a witness and of a
    learner: four voters of which one is lost tolerate no more than before."""
    assert reached(config(*members), "d", "c") == said


def test_loss_is_measured_on_a_stack_of_its_own() -> None:
    """CC-56. Goal: the bench kills only servers that it started. Method: a running cluster is named: refused. The table
    has the size asked for, to a row."""
    with pytest.raises(Exception, match="needs --local"):
        run("witness", BenchOptions(masters="127.0.0.1:1"), lambda text: None)
    assert 0 <= rows_for(256, tablets=1) * 212 - 256_000_000 < 2 * 212
