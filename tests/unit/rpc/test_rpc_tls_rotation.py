"""New keys, certificates and CAs for processes that go on running."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.client.channels import Channels
from nyala.replica.rpc import Credentials, async_channel_to, listen_on, load_credentials, new_server, pb, pb_grpc
from nyala.replica.rpc import credentials as module
from nyala.replica.server.runtime.channels import Channels as ServerChannels
from nyala.replica.types import Address
from tests.harness.certificates import CLUSTER, authority, directory_for, earlier_client, speaking_as
from tests.harness.patience import patience_s

A, B, D = "a" * 32, "b" * 32, "d" * 32
NAMES = ("ca.pem", "certificate.pem", "key.pem")


class _Master(pb_grpc.MasterServiceServicer):  # type: ignore[misc]
    async def Heartbeat(self, request: Any, context: Any) -> Any:
        return pb.HeartbeatReply()


def _taken(source: Path, directory: Path) -> Credentials:
    """Credentials in a directory that the test may change."""
    shutil.copytree(source, directory)
    return load_credentials(directory)


def _exchange(own: Credentials, source: Path, *cas: str) -> None:
    """The key and the certificate of `source`, and a bundle of these CAs, in the directory of a running process."""
    assert own.directory is not None
    for name in NAMES[1:]:
        shutil.copy(source / name, own.directory / name)
    (own.directory / NAMES[0]).write_bytes(b"".join((authority(ca, CLUSTER) / NAMES[0]).read_bytes() for ca in cas))
    own.refresh()


def _run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


def test_ca_of_a_running_cluster_is_exchanged_without_a_failed_call(tmp_path: Path) -> None:
    """Goal: a server, a peer and a client that go on running take another CA, and then no certificate of the former
    one counts. Method: each gets both CAs, then a certificate of the new one, then the new CA alone; after each step
    of each process, the client and the peer call it, and so does a caller that knows only the former or the new CA."""
    master = _taken(directory_for("master", D), tmp_path / "master")
    server = _taken(directory_for("server", A), tmp_path / "server")
    anna = _taken(directory_for("client", "anna"), tmp_path / "anna")
    held = ((master, "master", D), (server, "server", A), (anna, "client", "anna"))
    former, new = (load_credentials(directory_for("server", A, ca)) for ca in ("ca", "next"))

    async def scenario() -> None:
        with speaking_as(master):
            running = new_server()
            pb_grpc.add_MasterServiceServicer_to_server(_Master(), running)  # type: ignore[no-untyped-call]
            address = Address("127.0.0.1", listen_on(running, "127.0.0.1:0"))
            await running.start()
        clients, peers = Channels(anna), ServerChannels()
        beat = pb.HeartbeatRequest(server_uuid=A)

        async def call() -> None:
            with speaking_as(server):
                stub: Any = pb_grpc.MasterServiceStub(peers.get(str(address), "master"))  # type: ignore[no-untyped-call]
                assert not (await stub.Heartbeat(beat, timeout=20)).error.code
                # The channel of the peer stays open; this one makes a handshake of its own.
                assert await heard(server)
            # Which answer it is does not matter: the call of a client is refused as a server's, after the handshake.
            await asyncio.to_thread(clients.master(address).Heartbeat, beat, timeout=20)

        async def heard(own: Credentials) -> bool:
            with speaking_as(own):
                async with async_channel_to(address, to="master") as channel:
                    stub: Any = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
                    try:
                        return not (await stub.Heartbeat(beat, timeout=20)).error.code
                    except grpc.aio.AioRpcError:
                        return False

        await call()
        assert await heard(former) and not await heard(new)
        for issuer, cas in (("ca", ("ca", "next")), ("next", ("ca", "next")), ("next", ("next",))):
            for own, role, name in held:
                _exchange(own, directory_for(role, name, issuer), *cas)
                await call()
        assert await heard(new) and not await heard(former)
        clients.close()
        await peers.close()
        await running.stop(0)

    _run(scenario)


def test_cached_channels_are_made_anew_with_new_credentials(tmp_path: Path) -> None:
    """Goal: a client and a server that have channels open reconnect with their new certificates. Method: the same
    channel is given out until the credentials are others; a write over a link asks for its ticket by the new one."""
    own = _taken(directory_for("server", A), tmp_path / "a")
    address = Address("127.0.0.1", 1)

    async def scenario() -> None:
        clients, peers = Channels(own), ServerChannels()
        with speaking_as(own):
            before = peers.get("127.0.0.1:1"), clients.tablet_server(address)
            writes = clients.small_writes(address)
            own.refresh()
            assert (peers.get("127.0.0.1:1"), clients.tablet_server(address)) == before and writes.stub is before[1]
            _exchange(own, directory_for("server", A, days=20), "ca")
            assert peers.get("127.0.0.1:1") is not before[0] and clients.tablet_server(address) is not before[1]
            assert clients.small_writes(address) is writes and writes.stub is clients.tablet_server(address)
        clients.close()
        await peers.close()

    _run(scenario)


def test_files_that_cannot_be_used_leave_those_before_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a half-written or wrong directory does no harm, and the log says so. Method: a missing file, a torn one, a
    key of another certificate, an expired certificate, and one of another holder, each read twice: one line each; the
    right files after that are taken."""
    own = _taken(directory_for("server", A), tmp_path / "a")
    before = own.calling, own.accepting, own.grpc_certificate, own.grpc_channel
    past = directory_for("server", A, days=1, begin=datetime.now(UTC) - timedelta(days=3))
    other = directory_for("server", B)
    torn = (directory_for("server", A) / "ca.pem").read_bytes()[:-200]
    key = "key.pem"
    changes: tuple[dict[str, bytes | None], ...] = (
        {key: None},
        {"ca.pem": torn},
        {key: (other / key).read_bytes()},
        {name: (past / name).read_bytes() for name in NAMES},
        {name: (other / name).read_bytes() for name in NAMES},
    )
    for n, files in enumerate(changes):
        shutil.copytree(directory_for("server", A), tmp_path / "a", dirs_exist_ok=True)
        own.refresh()
        caplog.clear()
        for name, data in files.items():
            if data is None:
                (tmp_path / "a" / name).unlink()
            else:
                (tmp_path / "a" / name).write_bytes(data)
        own.refresh()
        own.refresh()
        lines = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(lines) == 1 and "those before stay in use" in lines[0].getMessage(), n
        assert "PRIVATE KEY" not in caplog.text + repr(own)
        assert (own.calling, own.accepting, own.grpc_certificate, own.grpc_channel) == before, n
    _exchange(own, directory_for("server", A, days=20), "ca")
    assert own.calling is not before[0] and own.grpc_channel is not before[3]


def test_running_client_takes_other_rights_of_the_same_user(tmp_path: Path) -> None:
    """Goal: a certificate of an earlier build is renewed without a restart, and an operator's becomes a client's in the
    same way. Method: one directory that gets each in turn; another user's is refused."""
    own = _taken(earlier_client("anna"), tmp_path / "anna")
    for role in ("operator", "client"):
        before = own.grpc_channel
        _exchange(own, directory_for(role, "anna"), "ca")
        assert own.grpc_channel is not before and own.own.role == role
    _exchange(own, directory_for("client", "bob"), "ca")
    assert own.own.name == "anna"


def test_files_are_read_again_only_after_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that calls often does not read its files for each call. Method: new files, at 9 and at 10 s."""
    now_s = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    own = _taken(directory_for("server", A), tmp_path / "a")
    own.refresh()
    before = own.calling
    shutil.copytree(directory_for("server", A, days=20), tmp_path / "a", dirs_exist_ok=True)
    now_s = 109.0
    own.refresh(10.0)
    assert own.calling is before
    now_s = 110.0
    own.refresh(10.0)
    assert own.calling is not before
