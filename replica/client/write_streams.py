"""Small writes of many threads to one server: one call if a thread is alone, one shared stream if there are more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from nyala.replica.base import Applied, Code, Refused
from nyala.replica.rpc import pb

_PAYLOAD_BYTES_MAX = 16 << 10
"""Larger writes are calls of their own: they gain nothing and would hold up the small ones."""
_BUNDLE_WRITES_MAX = 256


class _Waiting:
    """One thread and the reply that it waits for."""

    __slots__ = ("error", "ready", "reply")

    def __init__(self) -> None:
        self.ready = threading.Lock()
        self.ready.acquire()
        self.reply: Any = None
        self.error: Exception | None = None


class _Stream:
    """One life of a stream, from its first write until it breaks. Two threads of gRPC's and ours serve it."""

    def __init__(self, stub: Any) -> None:
        self._state = threading.Condition()
        self._queue: list[tuple[int, Any]] = []
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self.broken = False
        self._call = stub.WriteStream(self._bundles())
        threading.Thread(target=self._read, name="write-replies", daemon=True).start()

    def put(self, request: Any, waiting: _Waiting) -> int | None:
        """Queue one write; its number, or None if the stream is broken and nothing was queued."""
        with self._state:
            if self.broken:
                return None
            self._number += 1
            self._waiting[self._number] = waiting
            self._queue.append((self._number, request))
            self._state.notify()
            return self._number

    def forget(self, number: int) -> None:
        """Nobody waits for that reply any more."""
        with self._state:
            self._waiting.pop(number, None)

    def _bundles(self) -> Iterator[Any]:
        """What gRPC's thread sends: everything that was queued meanwhile, in one message."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._queue or self.broken)
                if self.broken:
                    return
                taken, self._queue = self._queue[:_BUNDLE_WRITES_MAX], self._queue[_BUNDLE_WRITES_MAX:]
            bundle = pb.WriteBundle()
            for number, request in taken:
                bundle.writes.add(number=number, request=request)
            yield bundle

    def _read(self) -> None:
        error: Exception = Refused(Code.UNAVAILABLE, "the server ended the stream", applied=Applied.UNKNOWN)
        try:
            for bundle in self._call:
                for item in bundle.replies:
                    with self._state:
                        waiting = self._waiting.pop(item.number, None)
                    if waiting is not None:
                        waiting.reply = item.reply
                        waiting.ready.release()
        except grpc.RpcError as e:
            error = e
        finally:
            with self._state:
                self.broken = True
                rest, self._waiting = self._waiting, {}
                self._state.notify()
            for waiting in rest.values():
                waiting.error = error
                waiting.ready.release()


class SmallWrites:
    """Writes to one server, each waited for by the thread that makes it.

    A call of a thread's own is the quickest way for one writer and the dearest for many: it costs the server more than
    the write itself. So the second thread that has a write under way here, and every further one, shares a stream.
    Concurrency: any thread.
    """

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self._lock = threading.Lock()
        self.under_way = 0
        """Threads that have a write under way here."""
        self.streamed = 0
        """Writes that went through a stream."""
        self._stream: _Stream | None = None

    def write(self, request: Any, timeout_s: float) -> Any:
        """The pb.WriteReply. grpc.RpcError or Refused; the outcome is then unknown unless they say otherwise."""
        with self._lock:
            self.under_way += 1
            alone = self.under_way == 1
        try:
            if alone or len(request.payload) > _PAYLOAD_BYTES_MAX:
                return self._stub.Write(request, timeout=timeout_s)
            return self._through_stream(request, timeout_s)
        finally:
            with self._lock:
                self.under_way -= 1

    def _through_stream(self, request: Any, timeout_s: float) -> Any:
        waiting = _Waiting()
        while True:
            with self._lock:
                stream = self._stream
                if stream is None or stream.broken:
                    stream = self._stream = _Stream(self._stub)
            number = stream.put(request, waiting)
            if number is not None:
                self.streamed += 1
                break
        if not waiting.ready.acquire(timeout=timeout_s):
            stream.forget(number)
            raise Refused(Code.TIMED_OUT, "no answer in time", applied=Applied.UNKNOWN)
        if waiting.error is not None:
            raise waiting.error
        return waiting.reply
