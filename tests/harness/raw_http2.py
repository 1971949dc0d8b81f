"""gRPC calls made byte by byte: from an address of the test's choice, by a caller that need not read the answer."""

from __future__ import annotations

import socket
import struct
from typing import Any

DATA, HEADERS, RESET, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
_WINDOW = 4  # the setting of how many bytes of a stream may come unasked


class RawCaller:
    """One HTTP/2 connection. Calls are numbered 1, 3, 5 ..."""

    def __init__(self, address: str, *, source: str = "127.0.0.1", window: int = 65_535) -> None:
        """`window`: bytes of each answer that the server may send before it is allowed to go on; 0: none."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30, (source, 0))
        settings = _frame(SETTINGS, 0, 0, struct.pack("!HI", _WINDOW, window))
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
        self._stream = -1
        self._ended: set[int] = set()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, service: str, method: str, request: Any, encoding: str = "") -> int:
        """Make a call; returns its number. `encoding`: how `request`, which is bytes then, is compressed."""
        self._stream += 2
        names = {
            ":method": "POST", ":scheme": "http", ":path": f"/nyala.v1.{service}/{method}", ":authority": "test",
            "te": "trailers", "content-type": "application/grpc", **({"grpc-encoding": encoding} if encoding else {}),
        }  # fmt: skip
        headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in names.items())
        body = request if encoding else request.SerializeToString()
        self._socket.sendall(
            _frame(HEADERS, 4, self._stream, headers)
            + _frame(DATA, 1, self._stream, bytes([bool(encoding)]) + len(body).to_bytes(4) + body)
        )
        return self._stream

    def let_go_on(self, stream: int) -> None:
        """Read the answer of that call."""
        more = (1 << 20).to_bytes(4)
        self._socket.sendall(_frame(WINDOW_UPDATE, 0, 0, more) + _frame(WINDOW_UPDATE, 0, stream, more))

    def answer(self, stream: int, reply: Any) -> Any:
        """Return the server's answer to that call, up to one frame long, as a message of the kind of `reply`."""
        while True:
            head = self._take(9)
            body = self._take(int.from_bytes(head[:3]))
            if head[3] == DATA and body:
                self._socket.sendall(_frame(WINDOW_UPDATE, 0, 0, len(body).to_bytes(4)))
            if head[3] == DATA and int.from_bytes(head[5:9]) == stream and body:
                reply.ParseFromString(body[5:])
                return reply

    def wait_ended(self, stream: int) -> None:
        """Return when the server has ended that call."""
        while stream not in self._ended:
            head = self._take(9)
            self._take(int.from_bytes(head[:3]))
            if head[3] == RESET or (head[3] in (DATA, HEADERS) and head[4] & 1):
                self._ended.add(int.from_bytes(head[5:9]))

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more = self._socket.recv(size - len(taken))
            assert more, "the server ended the connection"
            taken += more
        return taken


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
