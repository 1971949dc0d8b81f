"""Requests a list page after page, until there is no next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from nyala.replica.rpc import NamedRequest
from nyala.replica.types import Code, Refused, limits


class PagedRequest(Protocol):
    """A request for a list: the most bytes of one reply, and the item after which the reply begins."""

    limit_bytes: int
    after: str

    def CopyFrom(self, other_msg: Any, /) -> None:
        """Copy all fields of `other_msg`."""


class NamedListRequest(PagedRequest, NamedRequest, Protocol):
    """A request for a list, meant for one server."""


_Asked = TypeVar("_Asked", bound=PagedRequest)


def pages_of(ask: Callable[[_Asked], Any], request: _Asked) -> Iterator[Any]:
    """Yield the replies to `request`, page after page. A server of an older build sends everything at once.

    Refused(CORRUPTION) if a page begins where the one before it began, which would go on for ever.
    """
    asked = type(request)()
    asked.CopyFrom(request)
    asked.limit_bytes = limits.PAGE_BYTES
    while True:
        reply = ask(asked)
        yield reply
        if not reply.next:
            return
        if reply.next == asked.after:
            raise Refused(
                Code.CORRUPTION,
                "this server sent the same page of a list again, which is a defect; upgrade it",
                after=reply.next[:80],
            )
        asked.after = reply.next
