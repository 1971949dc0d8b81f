"""The gRPC server of masters and tablet servers: a request is measured and checked before its handler sees it.

One place for every call of every service: its bytes and the number of its fields are judged before it is parsed, its
names, ids and numbers before the handler runs. What is refused is told in the reply's `error`, as everything else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from nyala.replica.base import Applied, Code, Refused, limits, started_pool

from . import nyala_pb2 as pb
from .calls_under_way import CallsUnderWay
from .channel import SERVER_OPTIONS
from .errors import error_to_pb
from .hosts import host_of_peer
from .request_bounds import check_size, count_fields, many_fields
from .request_fields import check_fields

Handler = Any
"""A grpc.RpcMethodHandler."""
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
"""What a handler knows of its call."""


def new_server(checks: RequestChecks | None = None) -> Any:
    """A grpc.aio.Server whose handlers see checked requests only. Whoever gives it `checks` closes them behind it."""
    return grpc.aio.server(options=SERVER_OPTIONS, interceptors=[checks or RequestChecks()])


def checked_request(method: str, data: bytes, message_class: Any) -> Any:
    """The request that these bytes are; Refused TOO_LARGE or INVALID_ARGUMENT unless it is one that may be answered."""
    if check_size(method, data):
        count_fields(method, data, message_class.DESCRIPTOR)
    try:
        request = message_class.FromString(data)
    except DecodeError as error:
        what = "the request is no message of its kind"
        raise Refused(Code.INVALID_ARGUMENT, what, method=method, bytes=len(data)) from error
    check_fields(request)
    return request


class RequestChecks(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Checks the requests of all services that a server has. A service that it does not know is refused.

    Invariants: calls under way are bounded, per host and in all (`calls_under_way.py`).
    Concurrency: the loop's thread; requests of many parts are read on one of its own, which runs from the beginning.
    """

    def __init__(
        self,
        wait_s: Callable[[str], float] = lambda method: limits.REQUESTS[method].wait_s,
        under_way: CallsUnderWay | None = None,
    ) -> None:
        """`wait_s(method)`: how long a handler may wait for a caller who gives no deadline; 0: it does not wait."""
        self._wait_s = wait_s
        self.under_way = under_way or CallsUnderWay()
        self._checked: dict[str, Handler] = {}
        self._pool = started_pool(1, "read-request")

    def close(self) -> None:
        """End the thread. After the server, which gives it work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """[gRPC] The handler of a call, behind the checks."""
        known = self._checked.get(handler_call_details.method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        checked = self._behind_checks(handler_call_details.method, handler)
        self._checked[handler_call_details.method] = checked
        return checked

    def _behind_checks(self, path: str, handler: Handler) -> Handler:
        service, _, name = path.rpartition("/")
        service = service.rpartition(".")[2]
        call = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
        method = f"{service}.{name}"
        request_class = message_factory.GetMessageClass(call.input_type)
        reply_class = message_factory.GetMessageClass(call.output_type)

        async def answer(data: bytes, context: Context) -> Any:
            try:
                with self.under_way.one(host_of_peer(context.peer()), len(data)):
                    request = await self._request(method, data, request_class)
                    return await self._in_time(method, handler.unary_unary(request, context), context)
            except Refused as error:
                return await _refusal(reply_class, error, context)

        async def stream(data: bytes, context: Context) -> AsyncIterator[Any]:
            try:
                with self.under_way.one(host_of_peer(context.peer()), len(data)):
                    request = await self._request(method, data, request_class)
                    async for reply in handler.unary_stream(request, context):
                        yield reply
            except Refused as error:
                yield await _refusal(reply_class, error, context)

        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)

    async def _in_time(self, method: str, work: Awaitable[Any], context: Context) -> Any:
        """The reply; Refused TIMED_OUT if it takes longer than is stated for a caller who gives no deadline. Another
        one's call is cancelled by gRPC."""
        wait_s = self._wait_s(method)
        if not wait_s or context.time_remaining() is not None:
            return await work
        try:
            async with asyncio.timeout(wait_s) as limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = "the call took too long; with a deadline of its own it is waited for until then"
            raise Refused(Code.TIMED_OUT, what, applied=Applied.UNKNOWN, method=method, seconds=wait_s) from error

    async def _request(self, method: str, data: bytes, request_class: Any) -> Any:
        if check_size(method, data) and many_fields(method):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, checked_request, method, data, request_class)
        return checked_request(method, data, request_class)


async def _refusal(reply_class: Any, error: Refused, context: Context) -> Any:
    """The reply that carries the error; a reply without room for one is gRPC's own."""
    fields = reply_class.DESCRIPTOR.fields_by_name
    if "error" not in fields:
        busy = error.code is Code.OVERLOADED
        await context.abort(grpc.StatusCode.UNAVAILABLE if busy else grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return reply_class(error=error_to_pb(error), **({"last": True} if "last" in fields else {}))
