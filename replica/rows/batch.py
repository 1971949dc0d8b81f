"""Batches as bytes: encoded once by the sender, checked once by the leader, then carried unchanged.

Invariant: what `MessageDecoder.decode` returns cannot crash pyarrow, numpy or polars, whatever the bytes were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.types import Code, Refused, limits

from .message import MalformedMessage, message_head_bytes, read_header
from .schema import OFFSET_COLUMN, OP_COLUMN

_SMALL_MESSAGE_BYTES_MAX = 4 << 10
_LAYOUTS_MAX = 64


def encode_batch(batch: Any) -> bytes:
    """One Arrow IPC record batch message of `batch`: metadata V5, no compression, no schema.

    The batch must have exactly the types of the wire schema with which it is sent, so no views, dictionaries and the
    like.
    """
    encoded: bytes = batch.serialize().to_pybytes()
    return encoded


def decode_batch(payload: bytes | Any, wire_schema: Any) -> Any:
    """Decode with a new BatchDecoder; see `BatchDecoder.decode`."""
    return BatchDecoder(wire_schema).decode(payload)


class _Layout(NamedTuple):
    """The places of the columns in a message, checked against its header and its length. Byte positions in the
    message."""

    rows: int
    columns: tuple[tuple[Any, int, tuple[tuple[int, int] | None, ...]], ...]
    """Arrow type, null count, and (start, length) of each buffer; None for the bitmap of a column without nulls."""
    plain: bool = False
    """Whether pyarrow itself writes exactly this header for such rows, and no column has nulls. Then pyarrow may read
    it."""


class MessageDecoder:
    """Decodes record batches of one schema.

    One-row writes of one table have the same header except for the lengths of their texts, and reading it costs more
    than the rest. So the layouts of small messages are remembered, up to a bound. If pyarrow would have written the
    same header, pyarrow reads later messages with it. Concurrency: any thread.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """`schema`: must have plain types only."""
        self._schema = schema
        self._kinds = [field.type for field in schema]
        self._known: dict[tuple[bytes, int], _Layout] = {}

    def decode(self, payload: bytes | Any) -> Any:
        """A pa.RecordBatch, zero-copy over `payload` (bytes or pa.Buffer).

        Refused(INVALID_BATCH or TOO_LARGE) on anything but one uncompressed message of exactly the schema's columns
        that passes full validation.
        """
        buffer = payload if isinstance(payload, pa.Buffer) else pa.py_buffer(payload)
        if buffer.size > limits.BATCH_SIZE_BYTES_MAX:
            raise Refused(
                Code.TOO_LARGE, "the batch is too large", bytes=buffer.size, limit_bytes=limits.BATCH_SIZE_BYTES_MAX
            )
        if buffer.address % 8:
            buffer = pa.py_buffer(buffer.to_pybytes())
        try:
            message = memoryview(buffer)
            head = bytes(message[: message_head_bytes(message)]) if len(message) <= _SMALL_MESSAGE_BYTES_MAX else b""
            known = self._known.get((head, len(message)))
            layout = known or self._checked_layout(message)
            batch = _parse(buffer, self._schema) if layout.plain else self._build(buffer, layout)
            batch.validate(full=True)
            if head and known is None:
                self._remember(head, len(message), layout, batch)
        except MalformedMessage as e:
            raise _invalid(str(e), payload) from e
        except MemoryError:  # Arrow's, too, which is no fault of the batch
            raise
        except (pa.ArrowException, ValueError, TypeError, OverflowError, IndexError, KeyError) as e:
            raise _invalid(f"pyarrow refuses it: {str(e)[:200]}", payload) from e
        return batch

    def _remember(self, head: bytes, size: int, layout: _Layout, batch: Any) -> None:
        """Remember the layout of `batch`, which is valid. A layout depends only on the header's bytes and the message's
        length."""
        again = encode_batch(batch)
        nulls = any(null_count for _, null_count, _ in layout.columns)
        plain = not nulls and len(again) == size and again.startswith(head)
        if len(self._known) >= _LAYOUTS_MAX:
            self._known = {}
        self._known[head, size] = layout._replace(plain=plain)

    def _checked_layout(self, message: memoryview) -> _Layout:
        """The layout that the header states. Every buffer is long enough for its announced rows."""
        header = read_header(message)
        rows, kinds = header.rows, self._kinds
        if not 1 <= rows <= limits.BATCH_ROWS_MAX:
            raise MalformedMessage(f"{rows} rows; a batch has 1 to {limits.BATCH_ROWS_MAX}")
        if len(header.nodes) != len(kinds):
            raise MalformedMessage(f"{len(header.nodes)} columns, {len(kinds)} were announced")
        needed = [buffer_sizes(kind, rows) for kind in kinds]
        if len(header.buffers) != sum(1 + len(n) for n in needed):
            raise MalformedMessage(f"{len(header.buffers)} buffers do not make these {len(kinds)} columns")
        ranges = iter(header.buffers.tolist())
        columns = []
        for kind, (length, null_count), sizes in zip(kinds, header.nodes.tolist(), needed, strict=True):
            if length != rows or not 0 <= null_count <= rows:
                raise MalformedMessage(f"a column of {length} values and {null_count} nulls among {rows} rows")
            bitmap_at, bitmap_bytes = next(ranges)
            if null_count and bitmap_bytes < (rows + 7) // 8:
                raise MalformedMessage(f"a null bitmap of {bitmap_bytes} bytes for {rows} rows")
            parts: list[tuple[int, int] | None] = [
                (header.body_start + bitmap_at, bitmap_bytes) if null_count else None
            ]
            for size in sizes:
                at, got = next(ranges)
                if got < size:
                    raise MalformedMessage(f"a buffer of {got} bytes where {size} are needed")
                parts.append((header.body_start + at, got))
            columns.append((kind, null_count, tuple(parts)))
        return _Layout(rows, tuple(columns))

    def _build(self, buffer: Any, layout: _Layout) -> Any:
        """The arrays over the message's buffers."""
        arrays = []
        for kind, null_count, parts in layout.columns:
            buffers = [part and buffer.slice(*part) for part in parts]
            # -1: pyarrow counts the bitmap, because the announced count may be wrong.
            array = pa.Array.from_buffers(kind, layout.rows, buffers, -1 if null_count else 0)
            if null_count and array.null_count != null_count:
                raise MalformedMessage(f"{null_count} nulls announced, {array.null_count} in the bitmap")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class BatchDecoder(MessageDecoder):
    """Decodes the batches of one wire schema."""

    def __init__(self, wire_schema: pa.Schema) -> None:
        super().__init__(wire_schema)
        self._op, self._offset = (wire_schema.get_field_index(name) for name in (OP_COLUMN, OFFSET_COLUMN))

    def decode(self, payload: bytes | Any) -> Any:
        """Like `MessageDecoder.decode`; also INVALID_BATCH unless `__op` and `__offset` have no nulls and offsets
        ascend strictly from 0 or above."""
        batch = super().decode(payload)
        self._check_system_columns(batch, payload)
        return batch

    def _check_system_columns(self, batch: Any, payload: Any) -> None:
        op, offset = batch.column(self._op), batch.column(self._offset)
        if op.null_count or offset.null_count:
            raise _invalid("a null in __op or __offset", payload)
        offsets = offset.to_numpy()
        if offsets[0] < 0 or (len(offsets) > 1 and not bool(np.all(offsets[1:] > offsets[:-1]))):
            raise _invalid("offsets do not ascend strictly from 0 or above", payload)


def _parse(buffer: Any, schema: Any) -> Any:
    return pa.ipc.read_record_batch(buffer, schema)


def _invalid(why: str, payload: Any) -> Refused:
    return Refused(Code.INVALID_BATCH, "the bytes are not a valid batch", reason=why, bytes=len(payload))


def buffer_sizes(kind: Any, rows: int) -> tuple[int, ...]:
    """The least sizes of the buffers after the null bitmap."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (4 * (rows + 1), 0)
    if pa.types.is_boolean(kind):
        return ((rows + 7) // 8,)
    return (rows * kind.bit_width // 8,)
