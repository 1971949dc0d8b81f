"""Computes the memory that a call may take, from its row of `limits.REQUESTS`, its bytes, and its arguments. Pure."""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from nyala.replica.types import limits

from .page_writer import page_bytes
from .request_bounds import may_repeat

_PAGE_FIELD = "limit_bytes"
"""The field in which the caller of a list gives the most bytes that it wants."""
_ROW_BYTES_MIN = 9
"""The least bytes of a written row: its operation and its offset. If a request claims more rows than fit, its handler
refuses it."""


def arrival_cost(method: str, size_bytes: int, message_type: Descriptor) -> int:
    """Bytes of memory that a request which has come may cost before it is parsed. The fields of a short one are never
    counted, so each two bytes are charged as one field."""
    bound = limits.REQUESTS[method]
    cost = bound.fixed_bytes + size_bytes * bound.memory_factor
    if size_bytes > limits.REQUEST_SMALL_BYTES:
        return cost + bound.memory_base
    return cost + (size_bytes // 2 * bound.field_bytes if may_repeat(message_type) else 0)


def fields_cost(method: str, fields: int) -> int:
    """The bytes of memory that the counted fields of a long request add."""
    return fields * limits.REQUESTS[method].field_bytes


def request_cost(method: str, request: Message, size_bytes: int) -> int:
    """The bytes of memory to add when the request is parsed: for its items, and for its longest possible reply."""
    bound = limits.REQUESTS[method]
    cost = _items(bound, request, size_bytes) * bound.item_bytes
    return cost if bound.reply_late else cost + reply_cost(reply_bytes(method, request, size_bytes))


def reply_bytes(method: str, request: Message, size_bytes: int) -> int:
    """The longest reply to expect. Only a page can be longer, if one item is; it is charged when it is made."""
    bound = limits.REQUESTS[method]
    if bound.reply_item_bytes:
        items = _items(bound, request, size_bytes)
        return min(bound.reply_bytes, limits.REPLY_SHORT_BYTES + items * bound.reply_item_bytes)
    if _is_paged(request.DESCRIPTOR):
        return min(bound.reply_bytes, max(page_bytes(getattr(request, _PAGE_FIELD)), limits.REPLY_PAGE_BYTES_MIN))
    return bound.reply_bytes


def answered_cost(method: str, reply_bytes: int) -> int:
    """Bytes of memory that a call takes from its reply on."""
    return limits.CALL_BEGUN_BYTES + limits.REQUESTS[method].fixed_bytes + reply_cost(reply_bytes)


def reply_cost(size_bytes: int) -> int:
    """Bytes of memory that a reply of this length takes until its caller has it."""
    return limits.REPLY_COPIES * size_bytes


@cache
def _is_paged(message_type: Descriptor) -> bool:
    return _PAGE_FIELD in message_type.fields_by_name


def _items(bound: limits.RequestBound, request: Message, size_bytes: int) -> int:
    if not bound.items:
        return 0
    said = getattr(request, bound.items)
    return min(said, size_bytes // _ROW_BYTES_MIN) if isinstance(said, int) else len(said)
