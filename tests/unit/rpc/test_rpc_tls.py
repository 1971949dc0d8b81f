"""TLS on gRPC's channels: who gets in, for whom a caller may speak, and what a client is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.rpc import (
    Credentials,
    async_channel_to,
    listen_on,
    load_credentials,
    new_server,
    pb,
    pb_grpc,
    tls_problem,
)
from nyala.replica.rpc.credentials import ANY_MEMBER
from nyala.replica.rpc.rights import RIGHTS
from nyala.replica.rpc.threaded_tls import ThreadedTls, handshaken
from nyala.replica.types import Address, Code, Refused
from tests.harness.certificates import credentials_for, directory_for, speaking_as
from tests.harness.patience import patience_s

A, B, D = "a" * 32, "b" * 32, "d" * 32


class Everything(
    pb_grpc.PeerServiceServicer,  # type: ignore[misc]
    pb_grpc.MasterServiceServicer,  # type: ignore[misc]
    pb_grpc.CopyServiceServicer,  # type: ignore[misc]
):
    """Notes what came through."""

    def __init__(self) -> None:
        self.came: list[str] = []

    async def OpenLink(self, request: Any, context: Any) -> Any:
        self.came.append("OpenLink")
        return pb.OpenLinkReply(port=1, ticket=b"t")

    async def IsProcess(self, request: Any, context: Any) -> Any:
        self.came.append("IsProcess")
        return pb.ProcessReply()

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        self.came.append("Heartbeat")
        return pb.HeartbeatReply()

    async def TakeOver(self, request: Any, context: Any) -> Any:
        self.came.append("TakeOver")
        return pb.TakeOverReply()

    async def BeginCopy(self, request: Any, context: Any) -> Any:
        self.came.append("BeginCopy")
        return pb.BeginCopyReply()

    async def StartTabletCopy(self, request: Any, context: Any) -> Any:
        self.came.append("StartTabletCopy")
        return pb.StartTabletCopyReply()


@asynccontextmanager
async def served(credentials: Credentials | None) -> AsyncIterator[tuple[Address, Everything]]:
    with speaking_as(credentials):
        server, services = new_server(), Everything()
        for add in (
            pb_grpc.add_PeerServiceServicer_to_server,
            pb_grpc.add_MasterServiceServicer_to_server,
            pb_grpc.add_CopyServiceServicer_to_server,
        ):
            add(services, server)  # type: ignore[no-untyped-call]
        port = listen_on(server, "127.0.0.1:0")
        await server.start()
    try:
        yield Address("127.0.0.1", port), services
    finally:
        await server.stop(0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


async def call(
    address: Address, credentials: Credentials | None, method: str, request: Any, to: str = ANY_MEMBER
) -> Any:
    """The reply, or gRPC's error."""
    service, name = method.split(".")
    with speaking_as(credentials):
        async with async_channel_to(address, to=to) as channel:
            try:
                return await getattr(getattr(pb_grpc, f"{service}Stub")(channel), name)(request, timeout=20)
            except grpc.aio.AioRpcError as error:
                return error


REQUESTS = {
    "MasterService.Heartbeat": (pb.HeartbeatRequest, "server"),
    "MasterService.TakeOver": (pb.TakeOverRequest, "master"),
    "PeerService.OpenLink": (pb.OpenLinkRequest, "master"),
    "PeerService.IsProcess": (pb.ProcessRequest, "master"),
    "CopyService.BeginCopy": (pb.BeginCopyRequest, "master"),
    "CopyService.StartTabletCopy": (pb.StartTabletCopyRequest, "master"),
}
"""The calls that name their speaker, with the role that may make them at a master."""


def test_call_that_speaks_for_another_server_than_its_certificate_is_refused_at_the_door() -> None:
    """Goal: a forged heartbeat, link, copy or takeover reaches no handler. An operator may begin a copy in the name of
    any member. Method: each call that names its speaker, with the certificate of that uuid, of another one, of a client
    of that name, of a member of the other kind, and of an operator."""

    async def scenario() -> None:
        async with served(credentials_for("master", D)) as (address, services):
            assert set(REQUESTS) == {method for method, right in RIGHTS.items() if right.speaks_in}
            for method, (kind, role) in REQUESTS.items():
                request = kind(**{RIGHTS[method].speaks_in: A})
                reply = await call(address, credentials_for(role, B), method, request)
                assert reply.error.code == Code.INVALID_NAME, (method, reply)
                assert "speaks for another server or master" in reply.error.message
                other = {"server": "master", "master": "server"}[role]
                for holder in (credentials_for("client", A), credentials_for(other, A)):
                    reply = await call(address, holder, method, request)
                    assert reply.error.code == Code.NOT_AUTHORIZED, (method, reply)
                assert services.came == []
                reply = await call(address, credentials_for(role, A), method, request)
                assert not reply.error.code and services.came == [method.split(".")[1]], (method, reply)
                services.came.clear()
                reply = await call(address, credentials_for("operator", "ops"), method, request)
                allowed = method.startswith("CopyService.")
                assert bool(reply.error.code) is not allowed and bool(services.came) is allowed, (method, reply)
                services.came.clear()

    run(scenario)


def raw(directory: Path) -> Credentials:
    """Credentials that this process would not load: their certificates are not valid now."""
    good = credentials_for("client", "anna")
    ca, key, chain = ((directory / name).read_bytes() for name in ("ca.pem", "key.pem", "certificate.pem"))
    return Credentials(good.own, good.accepting, good.calling, None, grpc.ssl_channel_credentials(ca, key, chain))


def test_callers_without_a_valid_certificate_of_the_cluster_do_not_get_in() -> None:
    """Goal: expired, not yet valid and foreign certificates, and none at all, are refused, and so is one of another
    cluster that the same CA signed. Method: a call with each; the handler is reached by the right one only."""
    now = datetime.now(UTC)
    past = directory_for("client", "anna", days=1, begin=now - timedelta(days=3))
    future = directory_for("client", "anna", begin=now + timedelta(days=1))
    request = pb.ProcessRequest(from_uuid=A)
    method = "PeerService.IsProcess"

    async def scenario() -> None:
        async with served(credentials_for("server", B)) as (address, services):
            for bad in (raw(past), raw(future), None):
                error = await call(address, bad, method, request)
                assert isinstance(error, grpc.aio.AioRpcError), error
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            foreign = await call(address, load_credentials(directory_for("server", A, "other")), method, request)
            assert isinstance(foreign, grpc.aio.AioRpcError)
            assert services.came == []
            assert not (await call(address, credentials_for("server", A), method, request)).error.code
            assert services.came == ["IsProcess"]

    run(scenario)


def test_certificate_of_another_cluster_of_the_same_ca_is_refused() -> None:
    """Goal: one CA may sign for several clusters, and their processes do not take one another's. Method: a holder's URI
    of another cluster, of no cluster, and two URIs of which one is right."""
    credentials = credentials_for("server", B)
    good = f"nyala://test-cluster/server/{A}"
    assert credentials.holder_in(["https://x", good]).name == A
    proof = {"ssl_tls_version": [b"TLSv1.3"], "peer_uri": [good.encode()]}
    assert credentials.holder_calling(proof).name == A
    for wrong in (
        {"peer_uri": [b"nyala://other/server/x"]},
        {"peer_uri": [b"nyala://test-cluster/king/x"]},
        {"peer_uri": []},
    ):
        with pytest.raises(Refused, match="of another cluster") as refused:
            credentials.holder_calling({**proof, **wrong})
        assert refused.value.code is Code.WRONG_CLUSTER
    for version in ([b"TLSv1.2"], []):
        with pytest.raises(Refused, match=r"TLS 1\.3"):
            credentials.holder_calling({**proof, "ssl_tls_version": version})


def test_calls_come_over_tls_1_3_and_grpc_says_so() -> None:
    """Goal: our own processes agree on TLS 1.3, and gRPC has the evidence by which calls over 1.2 are refused. Method:
    the evidence that a handler sees."""

    async def scenario() -> None:
        seen: list[Any] = []

        class Curious(Everything):
            async def IsProcess(self, request: Any, context: Any) -> Any:
                seen.append(context.auth_context()["ssl_tls_version"])
                return pb.ProcessReply()

        with speaking_as(credentials_for("server", B)):
            server = new_server()
            pb_grpc.add_PeerServiceServicer_to_server(Curious(), server)  # type: ignore[no-untyped-call]
            port = listen_on(server, "127.0.0.1:0")
            await server.start()
        await call(
            Address("127.0.0.1", port),
            credentials_for("server", A),
            "PeerService.IsProcess",
            pb.ProcessRequest(from_uuid=A),
        )
        await server.stop(0)
        assert seen == [[b"TLSv1.3"]]

    run(scenario)


def test_caller_reaches_only_the_role_or_uuid_that_it_expects() -> None:
    """Goal: a server's certificate makes no master, nor another server, and a client's makes neither. Method: calls to
    a server by its uuid and role, by others, and to a listener with a client's certificate."""

    async def scenario() -> None:
        caller, request = credentials_for("server", A), pb.ProcessRequest(from_uuid=A)
        async with served(credentials_for("server", B)) as (address, _):
            for to in (B, "server", ANY_MEMBER):
                assert not (await call(address, caller, "PeerService.IsProcess", request, to)).error.code
            for to in (A, "master"):
                error = await call(address, caller, "PeerService.IsProcess", request, to)
                assert isinstance(error, grpc.aio.AioRpcError), to
        async with served(credentials_for("client", "anna")) as (address, _):
            error = await call(address, caller, "PeerService.IsProcess", request)
            assert isinstance(error, grpc.aio.AioRpcError)

    run(scenario)


def test_client_is_told_what_is_wrong_with_its_tls() -> None:
    """Goal: a client without TLS at a cluster with it, the reverse, and one of another CA each get the reason and the
    remedy. Method: the problem at a server with and without TLS, for each client; none where nothing is wrong."""

    async def scenario() -> None:
        anna, other = credentials_for("client", "anna"), load_credentials(directory_for("client", "anna", "other"))

        async def told(address: Address, credentials: Credentials | None) -> str:
            with speaking_as(None):
                return await asyncio.to_thread(tls_problem, address, credentials, patience_s(20))

        async with served(credentials_for("master", D)) as (secure, _), served(None) as (plain, _):
            assert "takes connections with TLS only" in await told(secure, None)
            assert "has no TLS, and this client does" in await told(plain, anna)
            assert "does not accept the certificate of the server there" in await told(secure, other)
            assert await told(plain, None) == ""
        past = directory_for("client", "anna", days=1, begin=datetime.now(UTC) - timedelta(days=3))
        expired = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        expired.load_verify_locations(past / "ca.pem")
        expired.set_alpn_protocols(["h2"])
        expired.load_cert_chain(past / "certificate.pem", past / "key.pem")
        late = Credentials(anna.own, anna.accepting, expired, None, anna.grpc_channel)
        async with served(credentials_for("master", D)) as (secure, _):
            assert "does not accept this client's certificate: it" in await told(secure, late)
            assert await told(secure, anna) == ""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            assert await asyncio.to_thread(tls_problem, Address("127.0.0.1", port), anna, 0.1) == ""

    run(scenario)


@pytest.fixture
def pair() -> Iterator[tuple[ThreadedTls, ThreadedTls]]:
    """The two ends of a connection for threads after its handshake: server B, and anna."""
    here, there = socket.socketpair()
    for sock in (here, there):
        sock.settimeout(patience_s(20))
    accepting, anna = credentials_for("server", B), credentials_for("client", "anna")
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(handshaken, here, accepting.accepting, None)
        client = handshaken(there, anna.calling, anna.expected(B))
    with server.result() as accepted, client:
        yield accepted, client


def test_connection_for_threads_says_that_nothing_has_come_as_a_socket_does(
    pair: tuple[ThreadedTls, ThreadedTls],
) -> None:
    """Goal: threads that share a connection treat one with TLS as any other. Method: reading before anything has come,
    and after a part of a record; sending more than the network takes."""
    accepted, client = pair
    for end in pair:
        end.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(10)
    assert accepted.send(b"x" * 100) == 100
    assert client.recv(1000) == b"x" * 100
    with pytest.raises(BlockingIOError):
        for _ in range(10_000):
            accepted.send(b"y" * 16_384)


def test_connection_that_one_thread_ends_sends_nothing_in_the_clear(pair: tuple[ThreadedTls, ThreadedTls]) -> None:
    """Goal: the thread that still sends, while another one ends the connection, never sends without TLS. Method: after
    `shutdown`, the object still encrypts, and sending fails."""
    accepted, client = pair
    accepted.shutdown(socket.SHUT_RDWR)
    assert accepted.version() == "TLSv1.3"
    with pytest.raises(OSError):
        accepted.sendall(b"rows in the clear")
    assert client.recv(100) == b""
