"""The offline tools on real servers' directories: those in use are refused, those of stopped servers read, repaired,
wiped."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.cli.app import main
from nyala.replica.rpc import pb
from nyala.replica.types import DataState
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, flush, rows_of, wait_equal, write

pytestmark = pytest.mark.process

PROMISES_ARE_LOST = 70
"""The exit code of a server whose disk failed."""


class Hand:
    """Runs commands in this process: their output and exit status are those that a shell would get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        """Return (exit status, all output) of one command."""
        self._monkeypatch.setattr(sys, "argv", ["nyala", *map(str, words)])
        self._capsys.readouterr()
        try:
            status = main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = self._capsys.readouterr()
        return status, said.out + said.err

    def document(self, *words: str | Path) -> Any:
        status, said = self(*words, "--json")
        assert status == 0, said
        return json.loads(said)


@pytest.fixture
def nyala(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Hand]:
    """Return a hand that answers no question."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    yield Hand(monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def equal(cluster: LocalCluster, server: ServerProcess, at: int) -> bool:
    return rows_of(server, at) == rows_of(cluster.leader(TABLET), at) is not None


def test_directory_of_a_server_is_checked_mended_and_wiped_offline(nyala: Hand) -> None:
    """TC-36, TC-63, TC-72. Goal: an operator finds out what a disk holds, replaces a replica by hand, and ends the
    identity of a server that lost promises. Method: one of three servers. Alive, it is refused. Stopped, its replica is
    deleted and copied again from the leader; started, it is equal. A block is damaged: `fs check` names it, that
    replica alone is FAILED, and made a tombstone it is copied by its leader. The folder of metadata is removed under
    the running server: it ends, does not start again, and after `fs wipe` it is another server."""
    with local_cluster(3) as cluster:
        leader = create(cluster)
        write(cluster, 0, 2000)
        one = next(s for s in cluster.servers if s is not leader)
        at = write(cluster, 2000, 10)
        wait_until(lambda: equal(cluster, one, at), "the replica has all rows")
        flush(one)

        for words in (("fs", "check"), ("fs", "wipe", "--yes"), ("local-replica", "list")):
            status, said = nyala(*words[:2], one.root, *words[2:])
            assert status == 1 and "stop it first" in said and str(one.process and one.process.pid) in said, said
        assert one.alive and nyala("fs", "uuid", one.root) == (0, f"{one.uuid}\n")

        one.kill()
        assert nyala.document("fs", "check", one.root)["healthy"]
        (before,) = nyala.document("local-replica", "list", one.root)
        assert before["data_state"] == "READY" and before["blocks"]
        status, said = nyala("local-replica", "delete", one.root, TABLET)
        assert status == 1 and "nothing was changed" in said, "an unanswered question does nothing"
        gone = nyala.document("local-replica", "delete", one.root, TABLET, "--yes")
        assert (gone["data_state"], gone["last_logged"]) == ("DELETED", before["last_logged"])
        (after,) = nyala.document("local-replica", "list", one.root)
        assert after["consensus_metadata"] == before["consensus_metadata"]

        def copy() -> Any:
            """Copy from the leader, again if it was deposed meanwhile."""
            source = cluster.leader(TABLET).address
            status, said = nyala("local-replica", "copy-from", one.root, TABLET, source, "--json")
            return json.loads(said) if status == 0 else None

        copied = wait_until(copy, "it is copied")
        assert copied["server"] == one.uuid and copied["bytes"] > 0
        assert nyala.document("local-replica", "dump", one.root, TABLET)["data_state"] == "READY"
        one.start()
        wait_until(lambda: equal(cluster, one, at), "the copied replica is equal")

        flush(one)
        one.kill()
        block = sorted((one.root / "data").glob("*.arrow"))[-1]
        bytes_ = bytearray(block.read_bytes())
        bytes_[len(bytes_) // 2] ^= 1
        block.write_bytes(bytes_)
        status, said = nyala("fs", "check", one.root)
        assert status == 1 and block.name in said and "CRC-32C" in said
        one.start()
        failed = wait_until(
            lambda: (found := cluster.status(one, TABLET)) and found.phase == "FAILED" and found, "it is FAILED"
        )
        assert block.name in failed.error
        request = pb.DeleteTabletRequest(dest_uuid=one.uuid, tablet_id=TABLET, reason="its block is damaged")
        assert not one.tablets.DeleteTablet(request, timeout=30).error.code
        at = write(cluster, 3000, 10)
        wait_until(lambda: equal(cluster, one, at), "the leader has copied it again")
        assert cluster.status(one, TABLET).data_state == DataState.READY

        metadata = one.root / "consensus-meta"
        metadata.rename(one.root.parent / "lost")
        assert one.wait_exit() == PROMISES_ARE_LOST
        assert "taken away" in one.log_tail() or "folder is gone" in one.log_tail()
        old = one.uuid
        for _ in range(2):
            one.start(wait=False)
            assert one.wait_exit() == 1
            assert "nyala fs wipe" in one.log_tail() and "consensus-meta" in one.log_tail()
            metadata.mkdir(exist_ok=True)  # as an empty disk would be
        status, said = nyala("fs", "check", one.root)
        assert status == 1 and "term and vote are forgotten" in said
        assert nyala.document("fs", "wipe", one.root, "--yes")["uuid"] == old
        one.start()
        assert one.uuid not in (old, "")
        at = write(cluster, 4000, 10)
        assert cluster.status(one, TABLET) is None, "old peers at its address do not bring the tablet back"
        wait_equal([s for s in cluster.servers if s is not one], at)
