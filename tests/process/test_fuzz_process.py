"""Hostile inputs to real processes: a few for every target, and a planted fault that must be found and shortened."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.fuzz.planted_server import CALL
from tests.fuzz.real_campaign import Campaign, load_sent, replay, save_sent
from tests.fuzz.real_cluster import GROWN, real_cluster
from tests.fuzz.real_targets import NOT_SENT, TOPICS, real_targets
from tests.fuzz.registry import all_targets
from tests.fuzz.target import Broken
from tests.load.judge import Measure

pytestmark = pytest.mark.process

SEED = 21
BRIEF, LONG = 12, 400
"""The inputs for each target."""
ALL = [name for name in real_targets() if name not in TOPICS]
SOME = [*ALL[::3], *(name for name in ALL if name.startswith("link/"))]
"""The targets of the brief run: all links, and a third of the calls, of each service some."""
TRIES = 5
CANCELLED = (
    "Traceback (most recent call last):\n"
    '  File "src/python/grpcio/grpc/_cython/_cygrpc/aio/server.pyx.pxi", line 710, in grpc\n'
    'grpc._cython.cygrpc.ExecuteBatchError: Failed "execute_batch": (<grpc>)\n'
)
"""What gRPC logs of a call that ends while its reply is sent."""
FORKED = partial(real_cluster, own_processes=False)
PLANTED = "tests.fuzz.planted_server"


def run(names: list[str], inputs: int) -> Campaign:
    """Return the campaign, which ends at the first failure, and makes its inputs fewer in a few attempts only."""
    campaign = Campaign(names, SEED, inputs=inputs, failures_max=1, tries=TRIES, clusters=FORKED)
    campaign.run()
    return campaign


def told(campaign: Campaign) -> str:
    """Return all that was found, with the commands that make the inputs again."""
    return "\n".join(f"{f.error}\npython -m tests.fuzz --real {f.after} --inputs 1" for f in campaign.found)


def test_hostile_inputs_to_real_processes_harm_nothing() -> None:
    """IN-50, IN-60, IN-82. Goal: no bytes that reach a port end a process, take memory without bound, or change rows
    that they do not name. Method: a few seeded inputs for a third of the calls and every link of a master and four
    servers; then each process still runs, has logged no exception, has the guard's rows, and answers honest
    requests."""
    campaign = run(list(dict.fromkeys(SOME)), BRIEF)
    assert not campaign.found, told(campaign)
    assert campaign.checks >= 1
    assert {total.inputs for total in campaign.totals.values()} == {BRIEF}


@pytest.mark.deep
def test_many_hostile_inputs_to_real_processes_harm_nothing() -> None:
    """IN-50, IN-60, IN-82. Goal and method as above, with many more inputs, for every target."""
    campaign = run(ALL, LONG)
    assert not campaign.found, told(campaign)


@pytest.mark.deep
def test_planted_fault_of_a_real_process_is_found_and_one_input_is_left(tmp_path: Path) -> None:
    """Goal: the fuzzer of real processes can fail, and one input that breaks a process is found among hundreds. Method:
    servers that a very small number in one call ends; the inputs of that call, sixteen at a time, among those of
    another one. The one that is left ends a new server, also from the file in which it is saved, and no server without
    the fault."""
    planted = partial(real_cluster, own_processes=False, module=PLANTED)
    campaign = Campaign(["server/TabletService.IsProcess", CALL], SEED, inputs=250, clusters=planted)
    campaign.run()
    (found,) = campaign.found
    assert "ended with 7" in found.error and found.repeated
    assert [sent.target for sent in found.inputs] == [CALL]
    assert campaign.totals["server/TabletService.IsProcess"].inputs == 250
    path = tmp_path / "found.hex"
    save_sent(path, found)
    again = load_sent(path)
    assert again == found.inputs and f"--repeat {path}" in path.read_text()
    assert "ended with 7" in replay(again, planted)
    assert replay(again, FORKED) == ""


def test_each_target_of_processes_has_its_inputs_from_the_target_in_this_process() -> None:
    """Goal: no interface that takes bytes from a network is left out. Method: the names of both kinds of targets."""
    networked = {name for name in all_targets() if name.startswith(("server/", "master/", "link/", "topic/"))}
    assert networked == {*real_targets(), *NOT_SENT}


@pytest.mark.deep
def test_each_check_of_the_processes_finds_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no check of the fuzzer passes whatever happens. Method: one cluster; one after the other a row of the guard
    is changed, a log has a traceback, a process has more memory than its bound, a process is killed. Each is found, and
    without it the checks pass."""
    with FORKED() as cluster:
        cluster.check()
        guard = cluster.cluster.table(cluster.guard.name)
        guard.upsert({"k": 7, "v": "changed"})
        with pytest.raises(Broken, match="the guard's rows are not as written"):
            cluster.check()
        guard.upsert({"k": 7, "v": "guard-7"})
        with cluster.master.log_path.open("a") as log:
            log.write(CANCELLED)
        cluster.check()
        with cluster.master.log_path.open("a") as log:
            log.write(f"{CANCELLED}Traceback (most recent call last):\n  planted\n")
        with pytest.raises(Broken, match="m1 logged a defect"):
            cluster.check()
        cluster.check()
        with cluster.master.log_path.open("a") as log:
            log.write("x" * 5000 + "\n")
        with pytest.raises(Broken, match="m1 logged a line of 5000 characters"):
            cluster.check()
        monkeypatch.setitem(GROWN, Measure.PRIVATE_MB, -1000.0)
        with pytest.raises(Broken, match="above the warm level"):
            cluster.check()
        monkeypatch.undo()
        cluster.check()
        cluster.processes.servers[2].kill()
        with pytest.raises(Broken, match="ts3 ended with -9"):
            cluster.check()
