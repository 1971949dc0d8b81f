"""The follower's door to the CopyService of another server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import grpc

from nyala.replica.base import Address, Applied, Code, Refused, limits
from nyala.replica.copy import CopyFile, CopyManifest, FileKind
from nyala.replica.rpc import (
    COPY_CHANNEL_OPTIONS,
    chunk_from_wire,
    fetch_call,
    opid_from_pb,
    pb,
    pb_grpc,
    raise_if_error,
)


class RemoteCopySource:
    """A `CopySource` over another server's CopyService; blocking calls, for threads of a copy job."""

    BEGIN_TIMEOUT_S = 120.0
    """The source reads its WAL segments once to begin."""
    PIECE_TIMEOUT_S = 900.0
    """For COPY_FETCH_BYTES: long, because either side may hold a copy to a low rate. A dead source is found sooner, by
    keepalive."""

    def __init__(self, uuid: str, addresses: list[Address]) -> None:
        self._uuid = uuid
        self._channel = grpc.insecure_channel(str(addresses[0]), options=COPY_CHANNEL_OPTIONS)
        self._stub = pb_grpc.CopyServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._fetch = fetch_call(self._channel)
        self._lock = threading.Lock()
        self._calls: set[Any] = set()
        self._aborted = False

    def wait_connected(self, timeout_s: float) -> None:
        """Until the connection stands; Refused UNAVAILABLE if it does not in time. For who calls once, not again."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout_s)
        except grpc.FutureTimeoutError as error:
            raise _lost(error) from error

    def begin(self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool) -> CopyManifest:
        """Open a session there."""
        request = pb.BeginCopyRequest(
            dest_uuid=self._uuid,
            requestor_uuid=requestor_uuid,
            tablet_id=tablet_id,
            allow_leaderless=allow_leaderless,
        )
        call = self._abortable(lambda: self._stub.BeginCopy.future(request, timeout=self.BEGIN_TIMEOUT_S))
        try:
            reply = _answered(call.result)
        finally:
            self._over(call)
        raise_if_error(reply.error)
        return CopyManifest(
            session_id=reply.session_id,
            superblock=reply.superblock,
            cmeta=reply.cmeta,
            files=tuple(_file(f) for f in reply.files),
            last_opid=opid_from_pb(reply.last_opid),
            first_retained_index=reply.first_retained_index,
            is_leader=reply.is_leader,
            ttl_us=reply.ttl_us,
        )

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        """The chunks of one file in order, each checked against its own CRC; asked for in bounded pieces."""
        end = byte_offset + length_bytes
        for start in range(byte_offset, end, limits.COPY_FETCH_BYTES):
            yield from self._piece(session_id, file, start, min(limits.COPY_FETCH_BYTES, end - start))

    def _piece(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        request = pb.FetchRequest(
            dest_uuid=self._uuid,
            session_id=session_id,
            kind=int(file.kind),
            name=file.name,
            byte_offset=byte_offset,
            length_bytes=length_bytes,
        )
        expected = byte_offset
        call = self._abortable(lambda: self._fetch(request, timeout=self.PIECE_TIMEOUT_S))
        try:
            for message in call:
                found, data, crc = chunk_from_wire(message)
                if found != expected or google_crc32c.value(data) != crc:
                    raise Refused(Code.CORRUPTION, "a chunk was damaged on its way", name=file.name, offset=expected)
                expected += len(data)
                yield data
        except grpc.RpcError as error:
            raise _lost(error) from error
        finally:
            self._over(call)
            call.cancel()

    def end(self, session_id: str, success: bool) -> None:
        """Close the session there."""
        timeout_s = 2.0 if self._aborted else 10.0
        request = pb.EndCopyRequest(dest_uuid=self._uuid, session_id=session_id, success=success)
        raise_if_error(_answered(lambda: self._stub.EndCopy(request, timeout=timeout_s)).error)

    def abort(self) -> None:
        """End calls that wait for the source, now and later; `end` still reaches it. Any thread."""
        with self._lock:
            self._aborted = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _abortable(self, start: Callable[[], Any]) -> Any:
        with self._lock:
            if self._aborted:
                raise Refused(Code.UNAVAILABLE, "the copy was cancelled")
            call = start()
            self._calls.add(call)
            return call

    def _over(self, call: Any) -> None:
        with self._lock:
            self._calls.discard(call)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _file(message: Any) -> CopyFile:
    try:
        kind = FileKind(message.kind)
    except ValueError:
        raise Refused(Code.INVALID_ARGUMENT, "the source offers a file of unknown kind", kind=message.kind) from None
    name = message.name
    if not name or "/" in name or name.startswith("."):
        raise Refused(Code.INVALID_ARGUMENT, "the source offers a file outside of its folder", name=name)
    return CopyFile(kind, name, message.length_bytes, message.crc)


def _answered(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (grpc.RpcError, grpc.FutureCancelledError) as error:
        raise _lost(error) from error


def _lost(error: Any) -> Refused:
    code = error.code().name if hasattr(error, "code") and error.code() else "?"
    return Refused(Code.UNAVAILABLE, "the copy source does not answer", applied=Applied.NOT_APPLIED, status=code)
