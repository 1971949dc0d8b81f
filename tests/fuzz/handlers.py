"""Handlers of services after the product's checks, called without a network, with bytes as they come from one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf import message_factory

from nyala.replica.rpc import RequestChecks, pb, pb_grpc
from nyala.replica.types import Code
from tests.fuzz.target import Broken

WAIT_S = 0.02
"""How long a handler may wait for an outcome that a fuzzer does not bring about."""
STUCK_S = 60.0
ERROR_CHARS_MAX = 8192


class Aborted(Exception):
    """gRPC's own refusal, of a call whose reply has no field for one."""


class _Context:
    """The interface of a call that the product uses."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._done: list[Callable[[Any], None]] = []

    async def read(self) -> bytes:
        """Return the request, as soon as it is whole."""
        return self._request

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5"

    def auth_context(self) -> dict[str, list[bytes]]:
        """[gRPC] Return nothing: the caller has no certificate."""
        return {}

    def time_remaining(self) -> None:
        """Return nothing: the caller gives no deadline."""

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self._done.append(done)

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Aborted(f"{code.name}: {text}")

    def end(self) -> None:
        """Note that the answer was sent."""
        for done in self._done:
            done(self)


class Handlers:
    """The calls of some services. Close it at the end."""

    def __init__(self, services: dict[str, Any]) -> None:
        self._found: dict[str, Any] = {}
        self._wait_s = WAIT_S
        self._checks = RequestChecks(wait_s=lambda method: self._wait_s)
        for name, servicer in services.items():
            getattr(pb_grpc, f"add_{name}Servicer_to_server")(servicer, self)

    def close(self) -> None:
        self._checks.close()

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """[gRPC] Accept the same handlers in another form, and ignore them."""

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """[gRPC] Accept the handlers; a generated `add_…_to_server` calls this."""
        self._found |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    @property
    def calls_under_way(self) -> int:
        return self._checks.under_way.calls

    async def done(self, service: str, method: str, request: Any) -> Any:
        """Return the reply to an honest request, which has time; Broken if it is refused."""
        self._wait_s = STUCK_S
        try:
            reply = await self.call(service, method, request.SerializeToString())
        finally:
            self._wait_s = WAIT_S
        if reply is None or reply.error.code:
            raise Broken(f"an honest {method} is refused: {reply and reply.error}")
        return reply

    async def call(self, service: str, method: str, data: bytes) -> Any:
        """Return the reply, the last one of a stream, or None for gRPC's own refusal."""
        path = f"/nyala.v1.{service}/{method}"

        async def handler_of(details: Any) -> Any:
            return self._found[path]

        handler = await self._checks.intercept_service(handler_of, SimpleNamespace(method=path))
        context = _Context(data)
        try:
            async with asyncio.timeout(STUCK_S):
                if handler.stream_stream:
                    answers = [answer async for answer in handler.stream_stream(None, context)]
                else:
                    answers = [await handler.stream_unary(None, context)]
        except Aborted:
            return None
        finally:
            context.end()
        reply_type = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method].output_type
        replies = [message_factory.GetMessageClass(reply_type).FromString(answer) for answer in answers]
        for reply in replies:
            check_reply(reply)
        return replies[-1] if replies else None


def check_reply(reply: Any) -> None:
    """Raise Broken unless a refusal in the reply can be read by an operator and by a program."""
    if "error" not in reply.DESCRIPTOR.fields_by_name or not reply.error.code:
        return
    error = reply.error
    if error.code not in set(Code):
        raise Broken(f"a refusal with a code that nobody knows: {error.code}")
    if not error.message or len(error.message) > ERROR_CHARS_MAX or not error.message.isprintable():
        raise Broken(f"a refusal with a text of {len(error.message)} characters: {error.message[:200]!r}")


def request_class(call: str) -> Any:
    """Return the class of the requests of `Service.Method`."""
    service, _, method = call.partition(".")
    return message_factory.GetMessageClass(pb.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type)
