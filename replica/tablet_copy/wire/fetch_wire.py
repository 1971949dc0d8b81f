"""The protocol of a copy's connection: framed messages, some of them followed by raw bytes of a file.

Both ends are threads with blocking sockets. The source's kernel moves bytes from the file to the socket, the target's
from the socket into one block of memory. No message is built around the bytes, and Python does not loop over them.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
from typing import Any

from google.protobuf.message import DecodeError

from nyala.replica.fs import exhausted
from nyala.replica.rpc import HEAD_BYTES, body_length, frame, set_keep_alive
from nyala.replica.types import Code, Refused, limits

MESSAGE_BYTES_MAX = limits.REQUESTS["FetchRequest"].bytes_max
"""The longest message: requests only name a file, and the text of an error is bounded."""
_MORE = getattr(socket, "MSG_MORE", 0)
"""A flag for a send that more bytes follow at once, so that a few bytes do not become a packet of their own."""


def set_timeouts(sock: socket.socket, patience_s: int) -> None:
    """Set the time-outs: a read or write without progress for that time raises BlockingIOError, or TimeoutError with
    TLS; a dead peer, an OSError."""
    if isinstance(sock, ssl.SSLSocket):  # OpenSSL would try again for ever after a time-out of the kernel
        sock.settimeout(patience_s)
    else:
        sock.settimeout(None)
        limit = struct.pack("@ll", patience_s, 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, limit)
    set_keep_alive(sock, 1000 * patience_s)


def send_message(sock: socket.socket, message: Any, *, bytes_follow: bool = False) -> None:
    """Send one message. `bytes_follow`: the bytes that it announces are sent next."""
    sock.sendall(frame(message.SerializeToString()), _MORE if bytes_follow else 0)


def receive_message(sock: socket.socket, kind: Any, until_s: float = math.inf) -> Any:
    """The next message of that kind; None if the other end closed the connection before it.

    Refused CORRUPTION if it is no such message, OSError as `receive`.
    """
    head = sock.recv(HEAD_BYTES, socket.MSG_WAITALL)
    if not head:
        return None
    length = body_length(head + receive(sock, HEAD_BYTES - len(head), until_s))
    if length > MESSAGE_BYTES_MAX:
        raise Refused(Code.CORRUPTION, "a message of a copy is too long", bytes=length, limit=MESSAGE_BYTES_MAX)
    try:
        return kind.FromString(receive(sock, length, until_s))
    except DecodeError as error:
        what = "a message of a copy cannot be read"
        raise exhausted(error) or Refused(Code.CORRUPTION, what, bytes=length, reason=str(error)) from error


def receive(sock: socket.socket, length_bytes: int, until_s: float = math.inf) -> bytes:
    """Receive exactly so many bytes. BlockingIOError if none came for too long, ConnectionError if the other end
    closed, TimeoutError if they come one by one and not all of them are here at `until_s` of the monotonic clock."""
    data = sock.recv(length_bytes, socket.MSG_WAITALL) if length_bytes else b""
    while len(data) < length_bytes:  # the kernel returned fewer bytes, or the connection ended
        if time.monotonic() > until_s:
            raise TimeoutError(f"{len(data)} of {length_bytes} bytes came in time")
        more = sock.recv(length_bytes - len(data), socket.MSG_WAITALL)
        if not more:
            raise ConnectionError("the other end closed the connection")
        data += more
    return data
