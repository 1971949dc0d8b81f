"""The demo's display of answers and of its options, without a stack."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from nyala.infra.demo import flights
from nyala.infra.demo.board import Demo, command_folder, micro_batch_events, unevenness
from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.UNAVAILABLE, Code.CORRUPTION])
def test_only_a_source_that_is_not_there_yet_is_no_progress(code: Code, tmp_path: Path) -> None:
    """Goal: the demo waits only for a source that does not exist yet; any other error is reported. Method: a catalog
    that refuses with each code."""

    def refuse(_: str) -> None:
        raise Refused(code, "planted")

    demo = Demo(tmp_path, Console(file=io.StringIO()))
    demo.cluster = SimpleNamespace(client=SimpleNamespace(list_sources=refuse))  # type: ignore[assignment]
    if code is Code.NOT_FOUND:
        assert demo._done() == 0
        return
    with pytest.raises(Refused, match="planted"):
        demo._done()


@pytest.mark.parametrize(
    ("called", "found"),
    [
        (".venv/bin/nyala", "{}/.venv/bin"),
        ("/opt/bin/nyala", "/opt/bin"),
        ("/x/app.py", str(Path(sys.executable).parent)),
    ],
)
def test_printed_commands_are_found_where_this_one_was(
    called: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: printed commands work in another terminal and folder. Method: each way to be called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [called, "demo", "--keep"])
    assert str(command_folder()) == found.format(tmp_path)


@pytest.mark.parametrize(
    ("events", "most"), [(1, 1), (7, 1), (20_000, 2_500), (flights.EVENTS_TOTAL, 120_000), (100_000_000, 120_000)]
)
def test_any_number_of_events_takes_several_micro_batches(events: int, most: int) -> None:
    """Goal: the driver is killed with events to come. Method: few, all, and more than there are."""
    assert micro_batch_events(events) == most


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ({"a": 2, "b": 2, "c": 3, "new": 2}, ""),
        ({"a": 2, "b": 2, "c": 2, "new": 3}, ""),
        ({"a": 3, "b": 3, "c": 3, "new": 0}, "the new server holds 0 of 9 replicas, its share is 2"),
        ({"a": 3, "b": 3, "c": 2, "new": 1}, "the new server holds 1 of 9 replicas, its share is 2"),
        ({"a": 3, "b": 3, "c": 3}, "the new server holds 0 of 9 replicas, its share is 3"),
        ({"a": 2, "b": 2, "c": 2, "new": 2}, "8 of 9 replicas are where they should be"),
        ({"a": 3, "b": 3, "c": 2, "new": 2}, "10 of 9 replicas are where they should be"),
        ({"a": 1, "b": 3, "c": 3, "new": 2}, "replicas by server are a 1, b 3, c 3, new 2"),
    ],
)
def test_rebalanced_is_said_of_an_even_placement_only(held: dict[str, int], says: str) -> None:
    """Goal: the demo says "rebalanced" only if the placement is even. Method: placements, even and not."""
    assert unevenness(held, "new") == says


@pytest.mark.parametrize(("server", "sound"), [("well", True), ("failing", True), ("silent", False)])
def test_what_is_wrong_in_the_last_cluster_check_is_in_the_verdict(server: str, sound: bool, tmp_path: Path) -> None:
    """Goal: errors of the last cluster check are in the demo's verdict. Method: a last look at a server that answers,
    at one into which a copy failed, which is a warning, and at one that is silent; without time to become better."""

    def list_tablets(_: object) -> list[pb.ReplicaStatus]:
        if server == "silent":
            raise Refused(Code.UNAVAILABLE, "[planted]")
        return []

    failing = [pb.FailingCopy(tablet_id="1", failures=1, error="[planted]")] if server == "failing" else []
    listing = pb.ListServersReply(servers=[pb.ServerInfo(uuid="a", alive=True, copies_failing=failing)])
    client = SimpleNamespace(list_servers=lambda: listing, list_tablets=list_tablets, list_tables=list)
    out = io.StringIO()
    demo = Demo(tmp_path, Console(file=out, width=200), patience_s=0.0)
    demo.cluster = SimpleNamespace(client=client)  # type: ignore[assignment]
    assert demo._show_cluster() is sound
    assert ("every replica of a tablet holds the same rows" in out.getvalue()) == (server == "well")
    assert ("[planted]" in out.getvalue()) == (server != "well")
