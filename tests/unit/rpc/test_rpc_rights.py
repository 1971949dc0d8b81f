"""Rights of certificates: which role may make which call, as a caller outside sees it over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2

from nyala.replica.rpc import (
    Credentials,
    Named,
    async_channel_to,
    error_from_pb,
    listen_on,
    load_credentials,
    new_server,
    pb,
)
from nyala.replica.rpc.credentials import UNMARKED_ROLE, first_named
from nyala.replica.rpc.rights import RIGHTS, roles_for
from nyala.replica.types import Address, Code
from tests.harness.certificates import CLUSTER, credentials_for, earlier_client, speaking_as
from tests.harness.patience import patience_s

S, M, OTHER = "a" * 32, "d" * 32, "b" * 32
ROLES = ("server", "master", "operator", "client", UNMARKED_ROLE)
NAMES = {"server": OTHER, "master": OTHER}
"""The uuids in the certificates of members; `ops` for all others."""
METHODS = {
    f"{service.name}.{method.name}": method
    for service in (*pb.DESCRIPTOR.services_by_name.values(), *health_pb2.DESCRIPTOR.services_by_name.values())
    for method in service.methods
}


def holder(role: str) -> Credentials:
    if role == UNMARKED_ROLE:
        return load_credentials(earlier_client("ops"))
    return credentials_for(role, NAMES.get(role, "ops"))


class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves every call of every service by an empty reply, and notes it."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def service(self, handler_call_details: Any) -> Any:
        """[gRPC] The handler of one call."""
        service, _, name = handler_call_details.method.rpartition("/")
        method = METHODS[f"{service.rpartition('.')[2]}.{name}"]
        reply = message_factory.GetMessageClass(method.output_type)

        async def answer(request: Any, context: Any) -> Any:
            self.came.append(name)
            return reply()

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            self.came.append(name)
            yield reply()

        kinds = {"request_deserializer": None, "response_serializer": lambda reply: reply.SerializeToString()}
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, **kinds)
        return grpc.unary_unary_rpc_method_handler(answer, **kinds)


@asynccontextmanager
async def process(role: str) -> AsyncIterator[tuple[Address, Anything]]:
    """A server or master that serves every call of every service."""
    with speaking_as(credentials_for(role, {"server": S, "master": M}[role])):
        server, services = new_server(), Anything()
        server.add_generic_rpc_handlers((services,))
        port = listen_on(server, "127.0.0.1:0")
        await server.start()
    try:
        yield Address("127.0.0.1", port), services
    finally:
        await server.stop(0)


def path_of(method: str) -> str:
    found = METHODS[method]
    return f"/{found.containing_service.full_name}/{found.name}"


async def called(channel: grpc.aio.Channel, method: str, data: bytes) -> tuple[int, str]:
    """The code and the text of the reply's error; (0, "") if there is none."""
    found = METHODS[method]
    reply = message_factory.GetMessageClass(found.output_type)
    kinds = {"request_serializer": bytes, "response_deserializer": reply.FromString}
    try:
        if found.server_streaming:
            [got] = [one async for one in channel.unary_stream(path_of(method), **kinds)(data, timeout=patience_s(20))]
        else:
            got = await channel.unary_unary(path_of(method), **kinds)(data, timeout=patience_s(20))
    except grpc.aio.AioRpcError as error:
        return -1, str(error.details())
    error = error_from_pb(got.error) if "error" in got.DESCRIPTOR.fields_by_name else None
    return (0, "") if error is None else (int(error.code), str(error))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


@pytest.mark.parametrize("called_role", ["server", "master"])
def test_each_call_is_carried_out_for_the_roles_of_its_row_and_refused_for_all_others(called_role: str) -> None:
    """Goal: the table is what a caller outside meets, for each call of each service and each role; a refusal names the
    call, the role that it saw, those that are allowed and the remedy, and no handler runs. Method: a server and a
    master that serve everything; a channel with TLS for each role, and every call over it, in the caller's own name."""

    async def scenario() -> None:
        async with process(called_role) as (address, services):
            for role in ROLES:
                with speaking_as(holder(role)):
                    channel = async_channel_to(address)
                async with channel:
                    for method, found in METHODS.items():
                        request = message_factory.GetMessageClass(found.input_type)()
                        if RIGHTS[method].speaks_in:
                            setattr(request, RIGHTS[method].speaks_in, OTHER)
                        services.came.clear()
                        code, text = await called(channel, method, request.SerializeToString())
                        if role in roles_for(method, called_role):
                            assert (code, services.came) == (0, [found.name]), (method, role, text)
                            continue
                        assert (code, services.came) == (Code.NOT_AUTHORIZED, []), (method, role, text)
                        assert method in text and role in text and "nothing was applied" in text
                        assert "`nyala security issue`" in text
                        for allowed in roles_for(method, called_role) - {UNMARKED_ROLE}:
                            assert allowed in text.rpartition("allowed=")[2], (method, text)

    run(scenario)


def test_what_an_ordinary_client_needs_is_allowed_and_what_moves_replicas_is_not() -> None:
    """Goal: the table itself is right where it matters most. Method: the calls of reads, writes, tables and the ingest
    job; those that create, delete and move replicas; those of members; each as a list of its own."""
    data = ("Write", "OpenWrites", "Scan", "Get", "ServerTime", "Ledger", "ListTablets", "Checksum", "GetIdentity")
    tables = (
        "CreateTable", "DropTable", "GetTable", "ListTables", "ListServers", "AddWriterSchema", "OpenSources",
        "AdvanceSources", "ListSources", "AgreeReadTime", "Status",
    )  # fmt: skip
    for method in (*(f"TabletService.{name}" for name in data), *(f"MasterService.{name}" for name in tables)):
        assert {"client", "operator", UNMARKED_ROLE} <= roles_for(method, "server"), method
    tablets = ("CreateTablet", "DeleteTablet", "Quiesce", "Flush", "ListQuarantine", "PurgeQuarantine")
    masters = (
        "MoveReplica", "AddReplica", "RemoveReplica", "ChangeRole", "CancelChange", "SetReplication", "RetireServer",
        "MaintainServer", "ForgetServer", "ReplaceTablets", "ConfirmConfig", "FinalizeUpgrade", "ChangeMasters",
        "ResetSource",
    )  # fmt: skip
    copies = ("CopyService.ListCopies", "CopyService.CancelCopy")
    for method in (
        *(f"TabletService.{name}" for name in tablets), *(f"MasterService.{name}" for name in masters), *copies,
    ):  # fmt: skip
        assert roles_for(method, "server") == {"operator", UNMARKED_ROLE}, method
    for name in ("ChangeConfig", "TransferLeadership"):  # a master carries decisions out, or the job of an operator
        assert roles_for(f"TabletService.{name}", "server") == {"operator", "master", UNMARKED_ROLE}
    assert roles_for("MasterService.Heartbeat", "master") == {"server"}
    assert roles_for("MasterService.TakeOver", "master") == {"master"}
    for method in ("PeerService.OpenLink", "PeerService.IsProcess", "CopyService.OpenFetch"):
        for own in ("server", "master"):
            assert roles_for(method, own) == {own}, method
    for method in ("CopyService.StartTabletCopy", "CopyService.BeginCopy", "CopyService.EndCopy"):
        assert roles_for(method, "server") == {"server", "operator"}, method


def test_role_is_checked_before_the_request_is_received() -> None:
    """Goal: a caller without the right costs no slot, no parsing and no work. Method: a request that never comes, and
    one that is no message, of a client; an operator's gets the error of the later check."""

    async def scenario() -> None:
        method = "TabletService.DeleteTablet"
        async with process("server") as (address, services):
            with speaking_as(holder("client")):
                channel = async_channel_to(address)
            async with channel:
                silent = channel.stream_unary(path_of(method), None, pb.DeleteTabletReply.FromString)(
                    timeout=patience_s(20)
                )
                assert (await silent).error.code == Code.NOT_AUTHORIZED
                assert (await called(channel, method, b"\xff"))[0] == Code.NOT_AUTHORIZED
            with speaking_as(holder("operator")):
                channel = async_channel_to(address)
            async with channel:
                assert (await called(channel, method, b"\xff"))[0] == Code.INVALID_ARGUMENT
            assert services.came == []

    run(scenario)


def test_call_without_a_row_is_refused_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a call that somebody adds and gives no row is closed, and not open to all. Method: a call whose row is
    taken out, by each role."""
    monkeypatch.delitem(RIGHTS, "TabletService.Lateness")

    async def scenario() -> None:
        async with process("server") as (address, services):
            for role in ROLES:
                with speaking_as(holder(role)):
                    channel = async_channel_to(address)
                async with channel:
                    code, text = await called(channel, "TabletService.Lateness", b"")
                assert code == Code.NOT_AUTHORIZED and "allowed=none" in text, role
            assert services.came == []

    run(scenario)


def test_certificate_of_an_earlier_build_keeps_the_rights_that_it_had() -> None:
    """Goal: an upgrade locks nobody out, and gives no certificate more than it had: one without rights in it reads,
    writes and operates, and makes no call in the name of a server. Rights that this build does not know, or two at
    once, allow nothing. A new certificate is a client's to an earlier build, which takes the first URI. Method: the
    holders that URIs name, and the rows of the table."""
    client, rights = f"nyala://{CLUSTER}/client/anna", f"nyala://{CLUSTER}/rights/"

    def role_in(*uris: str) -> str:
        found = first_named(uris, CLUSTER)
        assert found is not None and (found.cluster, found.name) == (CLUSTER, "anna")
        return found.role

    assert role_in(client) == role_in(client, "nyala://other/rights/client") == UNMARKED_ROLE
    assert role_in(client, rights + "client") == role_in(rights + "client", client) == "client"
    assert role_in(client, rights + "operator") == "operator"
    for strange in (["auditor"], ["server"], [""], ["client", "operator"], [UNMARKED_ROLE]):
        assert not any(role_in(client, *(rights + one for one in strange)) in right.roles for right in RIGHTS.values())
    for method, right in RIGHTS.items():
        assert (UNMARKED_ROLE in right.roles) is ("operator" in right.roles and not right.speaks_in) or (
            method == "CopyService.EndCopy"
        ), method
    for role in ("client", "operator"):
        named = Named(CLUSTER, role, "anna")
        assert named.uris == (client, rights + role) and named.uri == client and not named.dns_names
        assert credentials_for(role, "anna").own == named
    assert load_credentials(earlier_client("anna")).own == Named(CLUSTER, UNMARKED_ROLE, "anna")
