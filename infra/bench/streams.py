"""Bare streams of a scan's rows between two processes, to compare scans with. There is no table behind them.

A sender makes the rows once, prints its port, and sends them again and again to a process that connects: as a plain
Arrow IPC stream over a socket, or by Arrow Flight. A receiver prints `ready`, waits for `go`, reads for some seconds,
and prints one JSON line.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nyala.replica.types import limits

from .client import rows_of
from .options import BenchmarkError
from .report import Figures
from .work import CLIENTS, STRING_BYTES, run_processes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

IPC, FLIGHT = "ipc", "flight"
_ROLES = ("send", "receive")


def kinds() -> list[str]:
    """The kinds of streams that can be measured here. pyarrow is built without Flight on some systems."""
    return [IPC, FLIGHT] if importlib.util.find_spec("pyarrow._flight") is not None else [IPC]


def scan_batches(rows: int) -> list[pa.RecordBatch]:
    """So many rows of the scanned table, in batches as large as those of a scan."""
    made = rows_of(np.arange(rows), 0, STRING_BYTES).combine_chunks()
    each = max(1, limits.SCAN_BATCH_BYTES * rows // made.nbytes)
    found: list[pa.RecordBatch] = made.to_batches(max_chunksize=min(each, limits.SCAN_PIECE_ROWS_MAX))
    return found


def streams_round(rows: int, seconds: float) -> Figures:
    """The rate of each kind of stream with as many receivers as a scan has clients, each with a sender of its own."""
    return {f"bare_{kind}_rows_per_s": _rate(kind, rows, seconds) for kind in kinds()}


def _rate(kind: str, rows: int, seconds: float) -> float:
    command = [sys.executable, "-m", "nyala.infra.bench.streams", "--kind", kind]
    senders: list[subprocess.Popen[str]] = []
    try:
        for _ in range(CLIENTS):
            sender = [*command, "--role=send", f"--rows={rows // CLIENTS}"]
            senders.append(subprocess.Popen(sender, stdout=subprocess.PIPE, text=True))
        ports = [each.stdout.readline().strip() if each.stdout else "" for each in senders]
        if not all(ports):
            raise BenchmarkError(f"a sender of the bare {kind} stream ended before it listened")
        printed = run_processes([[*command, "--role=receive", f"--port={p}", f"--seconds={seconds}"] for p in ports])
    finally:
        for each in senders:
            each.kill()
            each.wait()
            if each.stdout:
                each.stdout.close()
    results = [json.loads(text) for text in printed]
    return float(sum(result["rows"] / result["seconds"] for result in results))


# ------------------------------------------------------------------------------------------------ in the processes


class _Whole(io.RawIOBase):
    """A socket as a file whose reads and writes are whole, without a buffer that copies them."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        """Return True: both directions are used."""
        return True

    writable = readable

    def read(self, size: int = -1) -> bytes:
        """Receive exactly so many bytes, or all until the end."""
        return self._sock.recv(size, socket.MSG_WAITALL)

    def write(self, data: ReadableBuffer) -> int:
        """Send all of it."""
        self._sock.sendall(data)
        return memoryview(data).nbytes


def _send_ipc(batches: list[pa.RecordBatch]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        sock, _ = listening.accept()
        with sock, pa.ipc.new_stream(pa.PythonFile(_Whole(sock), "w"), batches[0].schema) as stream:
            for same in repeat(batches):
                for batch in same:
                    stream.write_batch(batch)


def _send_flight(batches: list[pa.RecordBatch]) -> None:
    from pyarrow import flight

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: object, ticket: object) -> object:
            endless = (batch for same in repeat(batches) for batch in same)
            return flight.GeneratorStream(batches[0].schema, endless)

    server = Server("grpc://127.0.0.1:0")
    print(server.port, flush=True)
    server.serve()


def _received_ipc(port: int) -> Iterator[pa.RecordBatch]:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        yield from pa.ipc.open_stream(pa.PythonFile(_Whole(sock), "r"))


def _received_flight(port: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import flight

    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        for chunk in client.do_get(flight.Ticket(b"")):
            yield chunk.data


def _receive(batches: Iterator[pa.RecordBatch], seconds: float) -> dict[str, float]:
    """Read for so long. The first batch opens the stream and does not count."""
    next(batches)
    rows, began = 0, time.monotonic()
    for batch in batches:
        rows += batch.num_rows
        if (took := time.monotonic() - began) >= seconds:
            return {"rows": rows, "seconds": took}
    raise BenchmarkError("the sender ended the stream")


def main() -> int:
    """Be one end of a stream."""
    parser = argparse.ArgumentParser(description="one end of a bare stream of rows")
    parser.add_argument("--kind", choices=(IPC, FLIGHT), required=True)
    parser.add_argument("--role", choices=_ROLES, required=True)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    if options.role == "send":
        with suppress(OSError):  # the receiver has read enough
            (_send_ipc if options.kind == IPC else _send_flight)(scan_batches(options.rows))
        return 0
    batches = (_received_ipc if options.kind == IPC else _received_flight)(options.port)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(_receive(batches, options.seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
