"""Good requests with one field that no well-meaning caller would send, and the result that each must have.

The allowed values of a field are written down here a second time, apart from the rules of the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import grpc
import grpc.aio

from nyala.replica.rpc import CHANNEL_OPTIONS, RequestChecks, new_server, pb, pb_grpc
from nyala.replica.types import Code
from tests.harness.request_table import Row

LONG = "x" * 300
VERY_LONG = "x" * 70_000
UNSAFE = {"NUL": "a\0b", "a new line": "a\nb", "an escape": "\x1b[2Jx", "long": LONG}
FOREIGN = {"up": "../x", "root": "/etc/x", "dots": "..", "letters elsewhere": "\u0442\u0430\u0431", "a space": "a b"}
IDS = {
    "dest_uuid", "from_uuid", "to_uuid", "server_uuid", "target_uuid", "leader_uuid", "leader_hint", "requestor_uuid",
    "requestor_run", "uuid", "tablet_id", "tablet_ids", "table_id", "checkpoint_table_id", "session_id", "cluster_id",
    "topic_id", "seeking", "application", "load_id", "topic", "host", "doubted", "master_uuid", "heard_until",
}  # fmt: skip
COLUMNS = {"column", "columns", "key", "hash_columns", "range_column"}
WORDS = {"reason", "location", "version", "owner"}
JSON = {"reader_schema", "avro_json", "default_json", "range_splits_json"}
HYBRID = {"snapshot_time", "propagated_time", "safe_time"}
ANY_NUMBER = {"payload_crc", "process", "takeover", "seen", "number", "code"}
FREE = {
    "error", "message", "detail", "doing", "link", "fault", "last_error", "last_place", "last_reason",
    "why", "kafka_bootstrap",
}  # fmt: skip
"""Texts that are only shown, of any characters."""
REPORTS = {"ReplicaStatus", "PeerHealth"}


class Must(Enum):
    """The result that it must have."""

    INVALID = "refused as INVALID_ARGUMENT"
    ANSWER = "answered, whatever it is: no error of gRPC's, and the process lives"


class Case(NamedTuple):
    """One request."""

    what: str
    request: Any
    must: Must

    @property
    def codes(self) -> set[Code]:
        """Return the codes with which it may be refused."""
        return {Code.INVALID_ARGUMENT, Code.TOO_LARGE} if self.what.endswith("very long") else {Code.INVALID_ARGUMENT}


def cases(good: Any) -> Iterator[Case]:
    """Yield the good request with each of its fields, at any depth, set to each hostile value that its type can
    carry."""
    for path, field in _fields(good.DESCRIPTOR):
        for what, value, must in _values(field, path[-2] if len(path) > 1 else ""):
            request = type(good)()
            request.CopyFrom(good)
            _put(request, path, field, value)
            yield Case(f"{'.'.join(path)} {what}", request, must)


def _fields(descriptor: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in descriptor.fields:
        path = (*above, field.name)
        if field.message_type is None:
            yield path, field
        else:
            yield from _fields(field.message_type, path)


def _values(field: Any, within: str) -> Iterator[tuple[str, Any, Must]]:
    name, message = field.name, field.containing_type.name
    if name in JSON:
        for what, text in {"deep": "[" * 200 + "]" * 200, "NaN": "NaN", "cut": '{"a":', "words": "x y"}.items():
            yield (
                what,
                text if field.cpp_type == field.CPPTYPE_STRING and field.type == 9 else text.encode(),
                Must.INVALID,
            )
    elif field.type == field.TYPE_STRING:
        yield from _texts(name, message)
    elif field.type == field.TYPE_DOUBLE:
        for number in (float("nan"), float("inf"), -1.0):
            yield str(number), number, Must.INVALID
    elif field.type in (field.TYPE_INT64, field.TYPE_INT32):
        free = message in REPORTS or name in ANY_NUMBER
        yield "-1", -1, Must.ANSWER if free else Must.INVALID
        most = 2**63 - 1 if field.type == field.TYPE_INT64 else 2**31 - 1
        wide = field.type == field.TYPE_INT64 and not free and name not in HYBRID
        yield "the highest", most, Must.INVALID if wide else Must.ANSWER
        yield "the lowest", -most - 1, Must.ANSWER if free else Must.INVALID
    elif name == "port":
        yield "65536", 65536, Must.INVALID


def _texts(name: str, message: str) -> Iterator[tuple[str, Any, Must]]:
    column = name in COLUMNS or (message == "Column" and name == "name")
    yield "empty", "", Must.ANSWER
    for what, text in UNSAFE.items():
        invalid = (what == "long" and name not in WORDS | FREE) or not (column or name in FREE | WORDS)
        if name in WORDS and what in ("NUL", "an escape"):
            invalid = True
        yield what, text, Must.INVALID if invalid else Must.ANSWER
    for what, text in FOREIGN.items():
        if name == "host" and what == "dots":
            continue
        yield what, text, Must.INVALID if name in IDS or (message, name) == ("CopyFile", "name") else Must.ANSWER
    yield "very long", VERY_LONG, Must.INVALID


def _put(message: Any, path: tuple[str, ...], field: Any, value: Any) -> None:
    for name in path[:-1]:
        inner = getattr(message, name)
        if message.DESCRIPTOR.fields_by_name[name].is_repeated:
            message = inner[0] if len(inner) else inner.add()
        else:
            inner.SetInParent()
            message = inner
    if field.is_repeated:
        getattr(message, path[-1]).append(value)
    else:
        setattr(message, path[-1], value)


class Served:
    """Services of this process after a gRPC server as the product makes it, and a channel to it."""

    def __init__(self, services: dict[str, Any], checks: RequestChecks | None = None, **options: int) -> None:
        self._checks = checks or RequestChecks()
        self._server = new_server(self._checks, **options)
        for name, servicer in services.items():
            getattr(pb_grpc, f"add_{name}Servicer_to_server")(servicer, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def __aenter__(self) -> Served:
        await self._server.start()
        self.channel = grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self._server.stop(None)
        self._checks.close()

    async def call(self, service: str, method: str, request: Any, timeout_s: float | None = 60.0) -> Any:
        """Return the reply, or the last chunk; grpc.aio.AioRpcError if there is no reply."""
        stub = getattr(pb_grpc, f"{service}Stub")(self.channel)
        answer = getattr(stub, method)(request, timeout=timeout_s)
        if hasattr(answer, "__aiter__"):
            return [chunk async for chunk in answer][-1]
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            if error.details() != "cut by the test":
                raise
            return None


async def play(row: Row, world: Any, served: Served, service: str) -> None:
    """Send every hostile case of the row's good request: what must be refused is, and has changed nothing; then what
    may be answered, whatever the answer. In the end `service` reports its identity."""
    before = await world.state()
    found = list(cases(row.good(world)))
    for case in found:
        if case.must is Must.INVALID:
            reply = await served.call(*row.names, case.request)
            assert reply.error.code in case.codes, (case.what, reply)
            assert len(reply.error.message) < 400 and reply.error.message.isprintable(), case.what
    after = await world.state()
    for part in before:
        assert after[part] == before[part], f"{row} has changed {part}"
    for case in found:
        if case.must is Must.ANSWER:
            await served.call(*row.names, case.request)
    assert (await served.call(service, "GetIdentity", pb.Empty())).uuid == world.uuid
