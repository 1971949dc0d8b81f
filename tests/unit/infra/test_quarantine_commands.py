"""`nyala quarantine purge` as an operator sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala.infra.cli import quarantine
from nyala.infra.cli.app import app
from nyala.replica.rpc import pb

SERVER = pb.ServerInfo(uuid="b" * 32, alive=True)
LINE = ["quarantine", "purge", "t1", "--server", "b", "--yes", "--masters", "m:1"]


class Cluster:
    """A cluster with one server that has one quarantine, and leaves so many files and folders to another purge."""

    def __init__(self, remaining: int) -> None:
        self._remaining = remaining

    def list_servers(self) -> Any:
        return pb.ListServersReply(servers=[SERVER])

    def list_quarantine(self, server: Any) -> list[Any]:
        return [pb.QuarantineItem(path="quarantine/t1-000001", tablet_id="t1", wal_bytes=5)]

    def purge_quarantine(self, server: Any, tablet_id: str) -> Any:
        assert (server, tablet_id) == (SERVER, "t1")
        return pb.PurgeQuarantineReply(removed=["data/t1-0.arrow"], bytes_freed=3000, remaining=self._remaining)


@pytest.mark.parametrize("remaining", [0, 4711])
def test_purge_tells_what_remains_and_to_repeat_it(remaining: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-71. Goal: a person or a program that purges more than one purge removes is told that more remains. Method: a
    server that leaves nothing, or files, to another purge; the text and the JSON."""

    @contextmanager
    def client(masters: str) -> Iterator[Cluster]:
        yield Cluster(remaining)

    monkeypatch.setattr(quarantine, "client", client)
    told = CliRunner().invoke(app, LINE)
    assert told.exit_code == 0 and told.output.startswith("removed 1 files and folders"), told.output
    assert told.output.rstrip().endswith("; 4711 remain: repeat the command") is bool(remaining)
    answer = json.loads(CliRunner().invoke(app, [*LINE, "--json"]).output)
    assert answer["remaining"] == remaining and answer["removed"] == ["data/t1-0.arrow"]
