"""Bounds a request by its bytes, before it is parsed. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor

from nyala.replica.types import Code, Refused, limits
from nyala.replica.types.names import refused

from .wire_fields import wire_fields


def check_size(method: str, data: bytes) -> bool:
    """Refused unless `limits.REQUESTS` has a row for this method that allows this many bytes.

    Returns whether `count_fields` must also count the fields before the message is parsed.
    """
    bound = limits.REQUESTS.get(method)
    if bound is None:
        raise Refused(Code.ILLEGAL_STATE, "this server states no bound for such requests", method=method)
    if len(data) > bound.bytes_max:
        raise Refused(
            Code.TOO_LARGE,
            "the request is too large: ask in several",
            method=method,
            bytes=len(data),
            limit=bound.bytes_max,
        )
    return len(data) > limits.REQUEST_SMALL_BYTES


def many_fields(method: str) -> bool:
    """Whether counting the fields of such a request may block the event loop for too long."""
    return limits.REQUESTS[method].fields_max > limits.REQUEST_FIELDS_INLINE_MAX


def count_fields(method: str, data: bytes, message_type: Any) -> int:
    """Count the fields of a serialised message, with those of its nested messages in which fields may repeat.

    Refused(TOO_LARGE) as soon as there are more than `limits.REQUESTS` allows, INVALID_ARGUMENT for bytes that are not
    a message. A field of two bytes becomes an object of a hundred, so the bound on fields bounds memory, and the time
    of this function. `limits.REPEATED` bounds the items of each repeated field too.
    """
    most = limits.REQUESTS[method].fields_max
    found, parts = 0, [(0, len(data), message_type)]
    while parts:
        begin, end, descriptor = parts.pop()
        inner, most_of = _repeating(descriptor), _items(descriptor)
        items: dict[int, int] = {}
        try:
            for number, begin_inner, end_inner in wire_fields(data, begin, end):
                found += 1
                if found > most:
                    raise Refused(
                        Code.TOO_LARGE, "the request has too many parts: ask in several", method=method, limit=most
                    )
                if not begin_inner:
                    continue
                if number in most_of:
                    items[number] = items.get(number, 0) + 1
                    if items[number] > most_of[number]:
                        name = descriptor.fields_by_number[number].name
                        raise refused(f"{name}: at most {most_of[number]} of them", items[number], method=method)
                below = inner.get(number)
                if below is not None:
                    parts.append((begin_inner, end_inner, below))
        except ValueError as error:
            what = "the request is no message of its kind"
            raise Refused(Code.INVALID_ARGUMENT, what, method=method, reason=str(error)) from error
    return found


def may_repeat(message_type: Descriptor) -> bool:
    """Whether a message of this type may have any number of texts or nested messages."""
    return bool(_grows(message_type))


@cache
def _repeating(descriptor: Any) -> dict[int, Any]:
    """Field number -> type, of the nested messages that may have any number of texts or messages."""
    return {
        f.number: f.message_type for f in descriptor.fields if f.message_type is not None and _grows(f.message_type)
    }


@cache
def _items(descriptor: Any) -> dict[int, int]:
    """Field number -> most items, of repeated texts and messages. (Repeated numbers may be packed into one field.)"""
    return {
        f.number: limits.REPEATED[f"{descriptor.name}.{f.name}"]
        for f in descriptor.fields
        if f.is_repeated and f.cpp_type in (f.CPPTYPE_MESSAGE, f.CPPTYPE_STRING)
    }


@cache
def _grows(descriptor: Any) -> bool:
    return any(
        (f.is_repeated and f.cpp_type in (f.CPPTYPE_MESSAGE, f.CPPTYPE_STRING))
        or (f.message_type is not None and _grows(f.message_type))
        for f in descriptor.fields
    )
