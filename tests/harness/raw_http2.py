"""gRPC calls made byte by byte: from an address of the test's choice, by a caller that need not send a whole request,
nor read the answer."""

from __future__ import annotations

import socket
import struct
from typing import Any

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_WINDOW = 4  # the setting of how many bytes of a stream may come unasked
_WINDOW_DEFAULT = 65_535
_FRAME_BYTES_MAX = 16_384


class RawCaller:
    """One HTTP/2 connection. Calls are numbered 1, 3, 5 ..."""

    def __init__(self, address: str, *, source: str = "127.0.0.1", window: int = _WINDOW_DEFAULT) -> None:
        """`window`: bytes of each answer that the server may send before it is allowed to go on; 0: none."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30, (source, 0))
        self._socket.sendall(_preface(window))
        self._stream = -1
        self._ended: set[int] = set()
        self._initial = _WINDOW_DEFAULT
        self._windows = {0: _WINDOW_DEFAULT}
        """How many bytes more the server permits, on the connection (0) and of each call."""

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, service: str, method: str, request: Any, encoding: str = "") -> int:
        """Make a call; returns its number. `encoding`: how `request`, which is bytes then, is compressed."""
        headers = self._headers(service, method, encoding)
        body = request if encoding else request.SerializeToString()
        message = bytes([bool(encoding)]) + len(body).to_bytes(4) + body
        self._socket.sendall(headers + _frame(DATA, 1, self._stream, message))
        for window in (0, self._stream):
            self._windows[window] -= len(message)
        return self._stream

    def begin(self, service: str, method: str, size_bytes: int | None = None) -> int:
        """Begin a call with a request of this length, of which nothing is sent yet; None: not even its length. Returns
        its number."""
        self._socket.sendall(self._headers(service, method))
        if size_bytes is not None:
            self._send(self._stream, b"\0" + size_bytes.to_bytes(4))
        return self._stream

    def send(self, stream: int, size_bytes: int) -> None:
        """Send so many bytes more of that call's request, as soon as the server permits them."""
        while size_bytes and stream not in self._ended:
            permitted = min(self._windows[0], self._windows[stream], _FRAME_BYTES_MAX, size_bytes)
            if permitted > 0:
                self._send(stream, bytes(permitted))
                size_bytes -= permitted
            else:
                self._next()

    def permitted(self, stream: int) -> int:
        """How many bytes more of that call's request the server had permitted when it answered this question."""
        self._socket.sendall(_frame(PING, 0, 0, bytes(8)))
        while self._next()[:2] != (PING, 1):
            pass
        return self._windows[stream]

    def let_go_on(self, stream: int) -> None:
        """Read the answer of that call."""
        more = (1 << 20).to_bytes(4)
        self._socket.sendall(_frame(WINDOW_UPDATE, 0, 0, more) + _frame(WINDOW_UPDATE, 0, stream, more))

    def answer(self, stream: int, reply: Any) -> Any:
        """Return the server's answer to that call, up to one frame long, as a message of the kind of `reply`."""
        while True:
            kind, _, of_stream, body = self._next()
            if kind == DATA and of_stream == stream and body:
                reply.ParseFromString(body[5:])
                return reply

    def is_over(self, stream: int) -> bool:
        """Whether the server has ended that call, as far as its frames were read."""
        return stream in self._ended

    def wait_ended(self, stream: int) -> None:
        """Return when the server has ended that call."""
        while stream not in self._ended:
            self._next()

    def _headers(self, service: str, method: str, encoding: str = "") -> bytes:
        self._stream += 2
        self._windows[self._stream] = self._initial
        return _headers(self._stream, service, method, encoding)

    def _send(self, stream: int, data: bytes) -> None:
        self._socket.sendall(_frame(DATA, 0, stream, data))
        for window in (0, stream):
            self._windows[window] -= len(data)

    def _next(self) -> tuple[int, int, int, bytes]:
        """The kind, the flags, the call and the body of the next frame; what it says is noted."""
        head = self._take(9)
        kind, flags, stream, body = head[3], head[4], int.from_bytes(head[5:9]), self._take(int.from_bytes(head[:3]))
        if kind == DATA and body:
            self._socket.sendall(_frame(WINDOW_UPDATE, 0, 0, len(body).to_bytes(4)))
        elif kind == WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(body)
        elif kind == SETTINGS and not flags & 1:
            for number, value in struct.iter_unpack("!HI", body):
                if number == _WINDOW:
                    self._windows = {s: w + (value - self._initial if s else 0) for s, w in self._windows.items()}
                    self._initial = value
            self._socket.sendall(_frame(SETTINGS, 1, 0, b""))
        elif kind == PING and not flags & 1:
            self._socket.sendall(_frame(PING, 1, 0, body))
        if kind == RESET or (kind in (DATA, HEADERS) and flags & 1):
            self._ended.add(stream)
        return kind, flags, stream, body

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more = self._socket.recv(size - len(taken))
            assert more, "the server ended the connection"
            taken += more
        return taken


def opening(service: str, method: str) -> bytes:
    """The first bytes of a connection on which one call is begun, and nothing of its request sent."""
    return _preface(_WINDOW_DEFAULT) + _headers(1, service, method)


def _preface(window: int) -> bytes:
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, struct.pack("!HI", _WINDOW, window))


def _headers(stream: int, service: str, method: str, encoding: str = "") -> bytes:
    names = {
        ":method": "POST", ":scheme": "http", ":path": f"/nyala.v1.{service}/{method}", ":authority": "test",
        "te": "trailers", "content-type": "application/grpc", **({"grpc-encoding": encoding} if encoding else {}),
    }  # fmt: skip
    return _frame(HEADERS, 4, stream, b"".join(b"\0" + _text(n) + _text(v) for n, v in names.items()))


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
