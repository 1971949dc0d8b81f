"""The gRPC server of masters and tablet servers: a request is measured and checked before its handler sees it.

It checks every call of every service: with TLS, the caller's certificate and its role before anything of the request
is read; the request's bytes and number of fields before it is parsed; its names, ids and numbers, and whether it speaks
for the holder of the certificate, before the handler runs. A refusal is in the reply's `error`, like all other errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from nyala.replica.types import Applied, Code, Refused, give_back_free_memory, limits, started_pool

from .call_costs import answered_cost, arrival_cost, fields_cost, request_cost
from .calls_in_flight import Call, CallsInFlight
from .connection_options import SERVER_OPTIONS, receiving
from .credentials import Named, credentials_of_process, first_named, uris_in
from .errors import error_to_pb
from .hosts import host_of_peer
from .request_bounds import check_size, count_fields, many_fields
from .request_fields import check_fields
from .request_slots import RequestSlots
from .rights import check_role, check_speaker

Handler = Any
"""A grpc.RpcMethodHandler."""
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
"""gRPC's context of a call."""


def host_of_caller(context: Context | None) -> str:
    """The host from which a call comes, as all bounds per host count it; empty for a call within this process."""
    return "" if context is None else host_of_peer(str(context.peer()))


def caller_of(context: Context | None) -> Named | None:
    """The holder of the certificate with which a call came; None without TLS, or for a call within this process.

    Whether it is of this cluster was checked when the call began.
    """
    return None if context is None else first_named(uris_in(context.auth_context()))


def new_server(checks: RequestChecks | None = None, *, request_bytes_max: int = limits.GRPC_MESSAGE_BYTES_MAX) -> Any:
    """A grpc.aio.Server whose handlers get checked requests only. A caller that passes `checks` closes them after the
    server. gRPC refuses longer requests than `request_bytes_max` by the length that they announce."""
    return grpc.aio.server(
        options=receiving(SERVER_OPTIONS, request_bytes_max), interceptors=[checks or RequestChecks()]
    )


def checked_request(method: str, data: bytes, message_class: Any) -> Any:
    """Parse and check the request in these bytes; Refused TOO_LARGE or INVALID_ARGUMENT."""
    if check_size(method, data):
        count_fields(method, data, message_class.DESCRIPTOR)
    return parsed_request(method, data, message_class)


def parsed_request(method: str, data: bytes, message_class: Any) -> Any:
    """Parse and check bytes whose length and number of fields were checked before."""
    try:
        request = message_class.FromString(data)
    except DecodeError as error:
        what = "the request is no message of its kind"
        raise Refused(Code.INVALID_ARGUMENT, what, method=method, bytes=len(data)) from error
    check_fields(request)
    return request


def request_s(method: str) -> float:
    """The time in which a request that has a slot must be whole."""
    return limits.FRAME_S_MAX + limits.REQUESTS[method].bytes_max / limits.REQUEST_BYTES_PER_S_MIN


class RequestChecks(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Checks the requests of all services of a server, and refuses calls of unknown services.

    Invariants: the memory that calls under way may take is bounded, per host and in all (`calls_in_flight.py`); a call
    is under way until its reply has left. No reply is longer than its row in `limits.REQUESTS` allows.
    Concurrency: the loop's thread; a thread of its own, started in the constructor, parses requests of many fields.
    """

    def __init__(
        self,
        wait_s: Callable[[str], float] = lambda method: limits.REQUESTS[method].wait_s,
        under_way: CallsInFlight | None = None,
        reply_s: float = limits.REPLY_S_MAX,
        request_s: Callable[[str], float] = request_s,
        slots: Callable[..., RequestSlots] = RequestSlots,
        give_back: Callable[[], None] = give_back_free_memory,
    ) -> None:
        """`wait_s(method)`: how long a handler may wait if the caller gives no deadline; 0: it does not wait.

        `reply_s`: a reply that its caller has not received within this time, plus the time that its bytes need, is
        dropped. `request_s(method)`: the time in which a request that has a slot must be whole. `give_back()`: gives
        free memory back to the kernel; called in a thread.
        """
        self._give_back_memory = give_back
        self._credentials = credentials_of_process()
        self._wait_s = wait_s
        self.under_way = under_way or CallsInFlight()
        self.short_requests = slots(turn_s=limits.SHORT_REQUEST_TURN_S)
        self.long_requests = slots(turn_s=limits.LONG_REQUEST_TURN_S)
        self.late = 0
        """The calls that were ended before their request was whole: it was late, or another host needed the slot."""
        self._reply_s = reply_s
        self._request_s = request_s
        self._checked: dict[str, Handler] = {}
        self._pool = started_pool(1, "read-request")
        self._giving_back: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End the thread. Call it after the server has stopped, because the server gives it work."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """[gRPC] A handler that checks the request and then calls the service's handler."""
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
        service_name, _, name = path.lstrip("/").rpartition("/")
        service = descriptor_pool.Default().FindServiceByName(service_name)
        call_type = service.methods_by_name[name]
        method = f"{service.name}.{name}"
        request_class = message_factory.GetMessageClass(call_type.input_type)
        reply_class = message_factory.GetMessageClass(call_type.output_type)

        async def answer(_: object, context: Context) -> bytes:
            try:
                call, request = await self._begun(method, request_class, context)
                reply = await self._in_time(method, handler.unary_unary(request, context), context)
                sent = _sendable(method, handler.response_serializer(reply))
                call.become(answered_cost(method, len(sent)), Applied.UNKNOWN)
            except Refused as error:
                sent = handler.response_serializer(await _refusal(reply_class, error, context))
            self._give_up_untaken(len(sent), context)
            return sent

        async def stream(_: object, context: Context) -> AsyncIterator[bytes]:
            try:
                _, request = await self._begun(method, request_class, context)
                async for reply in handler.unary_stream(request, context):
                    yield _sendable(method, handler.response_serializer(reply))
            except Refused as error:
                sent = handler.response_serializer(await _refusal(reply_class, error, context))
                self._give_up_untaken(len(sent), context)
                yield sent

        # To callers there is no difference between one request and a stream of one. But gRPC runs the handler of a
        # stream before the request has come.
        if handler.unary_stream:
            return grpc.stream_stream_rpc_method_handler(stream, None, None)
        return grpc.stream_unary_rpc_method_handler(answer, None, None)

    async def _begun(self, method: str, request_class: Any, context: Context) -> tuple[Call, Any]:
        """The call and its checked request. It counts until its reply has left, its caller has given up, or its
        connection has ended."""
        host = host_of_caller(context)
        call = self.under_way.begin(host, limits.CALL_BEGUN_BYTES)
        context.add_done_callback(lambda _: call.end())
        caller: Named | None = None
        if self._credentials is not None:
            caller = self._credentials.holder_calling(context.auth_context())
            check_role(method, caller, self._credentials.own.role)
        data = await self._receive(method, host, context)
        call.add(arrival_cost(method, len(data), request_class.DESCRIPTOR))
        request = await self._request(method, data, request_class, call)
        if caller is not None:
            check_speaker(method, request, caller)
        return call, request

    async def _receive(self, method: str, host: str, context: Context) -> bytes:
        """The bytes of the request. Refused OVERLOADED if the call gets no slot in time; the call ends with a gRPC
        status if its request is not whole in time, or if it has none."""
        long = limits.REQUESTS[method].bytes_max > limits.REQUEST_SMALL_BYTES
        slots = self.long_requests if long else self.short_requests
        slot = await slots.take(host)
        late = _Late(context, self._request_s(method))
        slot.end = late.end
        data: Any = None
        try:
            data = await context.read()
        finally:
            late.stop()
            self.late += late.over
            slots.give(slot)
            if data in (None, grpc.aio.EOF):
                self._give_back_soon()
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request: nothing was applied")
        return bytes(data)

    def _give_back_soon(self) -> None:
        """Give back the memory of requests that ended before they were whole, soon after the first of several."""
        if self._giving_back is None:
            self._giving_back = asyncio.get_running_loop().call_later(limits.GIVE_BACK_S, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        self._pool.submit(self._give_back_memory)

    def _give_up_untaken(self, size_bytes: int, context: Context) -> None:
        """End the call if its caller does not receive the reply in time, because the reply takes memory here."""
        answering = asyncio.current_task()
        if answering is not None:
            late_s = self._reply_s + size_bytes / limits.FRAME_BYTES_PER_S_MIN
            timer = asyncio.get_running_loop().call_later(late_s, answering.cancel)
            context.add_done_callback(lambda _: timer.cancel())

    async def _in_time(self, method: str, work: Awaitable[Any], context: Context) -> Any:
        """The reply; Refused TIMED_OUT if the caller gave no deadline and the work takes longer than `wait_s`. With a
        deadline, gRPC cancels the call."""
        wait_s = self._wait_s(method)
        if not wait_s or context.time_remaining() is not None:
            return await work
        try:
            async with asyncio.timeout(wait_s) as limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = "the call took too long: give it a deadline, and the server works on it until then"
            raise Refused(Code.TIMED_OUT, what, applied=Applied.UNKNOWN, method=method, seconds=wait_s) from error

    async def _request(self, method: str, data: bytes, request_class: Any, call: Call) -> Any:
        """The checked request. Its memory is charged to `call` step by step."""
        run: Callable[..., Awaitable[Any]] = _here
        if check_size(method, data):
            if many_fields(method):
                run = partial(asyncio.get_running_loop().run_in_executor, self._pool)
            call.add(fields_cost(method, await run(count_fields, method, data, request_class.DESCRIPTOR)))
        request = await run(parsed_request, method, data, request_class)
        call.add(request_cost(method, request, len(data)))
        return request


class _Late:
    """Ends a call with a gRPC status unless `stop` is called within `seconds`, or before `end` is.

    The handler waits for gRPC meanwhile. It must not be cancelled there, because gRPC would write what comes later into
    memory that is free by then. When the status is sent, gRPC ends the wait.
    """

    def __init__(self, context: Context, seconds: float) -> None:
        self._context = context
        self._stopped = False
        self.over = False
        """Whether the time was over before `stop` was called."""
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        self._timer = loop.call_later(seconds, self.end)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()

    def end(self) -> None:
        """End the call now."""
        self._timer.cancel()
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        if self._stopped:
            return
        self.over = True
        seconds = asyncio.get_running_loop().time() - self._began_s
        what = (
            f"the request was not whole after {seconds:.2g} s: nothing was applied; send fewer at a time over this "
            "network"
        )
        with suppress(grpc.aio.AbortError):
            # Of the statuses of gRPC, this one says to clients of every version that nothing was applied.
            await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, what)


async def _here(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def _sendable(method: str, reply: bytes) -> bytes:
    """The reply; Refused TOO_LARGE if it is longer than the call's row allows."""
    most = limits.REQUESTS[method].reply_bytes
    if len(reply) > most:
        what = "the answer is longer than this server sends: ask for less; what was asked for may have been done"
        raise Refused(Code.TOO_LARGE, what, applied=Applied.UNKNOWN, method=method, bytes=len(reply), limit=most)
    return reply


async def _refusal(reply_class: Any, error: Refused, context: Context) -> Any:
    """A reply with the error; if its class has no field for one, the call ends with a gRPC status."""
    fields = reply_class.DESCRIPTOR.fields_by_name
    if "error" not in fields:
        busy = error.code is Code.OVERLOADED
        await context.abort(grpc.StatusCode.UNAVAILABLE if busy else grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return reply_class(error=error_to_pb(error), **({"last": True} if "last" in fields else {}))
