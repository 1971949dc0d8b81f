"""Encoded answers to look-ups of tables, kept while nothing of their tablets has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nyala.replica.policy import DesiredChange
from nyala.replica.types import limits

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED_CHANGE, Table, Tablet
from .kept_view import KeptView

PageKey = tuple[str, str, int]
"""A table's id, the position after which a page begins, and the requested bytes of the page."""


@dataclass(frozen=True, slots=True)
class Part:
    """One tablet of a page, as it is on the wire, and the state from which it was encoded."""

    tablet_id: str
    framed: bytes
    made_of: tuple[Table, Tablet, DesiredChange | None]
    number: int | None
    """The number of the refresh of its view (`KeptView.number`); None: the view may have changed already."""

    def ByteSize(self) -> int:
        """Its bytes on the wire."""
        return len(self.framed)


@dataclass(frozen=True)
class _Page:
    version: int
    numbers: dict[str, int]
    """The refreshes of its tablets; of fewer than all if some may have changed already."""
    parts: dict[str, Part]
    answer: bytes


class LookUps:
    """Pages of tables' tablets; those that were asked for last are kept, within a bound in bytes.

    A page is valid while the catalog has the same table, tablets and desired changes, and while the kept view knows of
    no change of the tablets. If a page is no longer valid, only the tablets that changed are encoded anew. Concurrency:
    the loop's thread.
    """

    def __init__(self, catalog: Callable[[], Catalog], kept: KeptView) -> None:
        self._catalog, self._kept = catalog, kept
        self.encoded = 0
        """The number of tablets that were encoded so far."""
        self.forget()

    def forget(self) -> None:
        """Forget all pages, because a new leadership begins."""
        self._pages: dict[PageKey, _Page] = {}
        """In order of their last use."""
        self._bytes = 0

    def get(self, key: PageKey, mono_us: int) -> bytes | None:
        """The encoded answer; None if no valid one is kept."""
        page = self._pages.get(key)
        if page is None or page.version != self._catalog().version(key[0]) or len(page.numbers) < len(page.parts):
            return None
        if not self._kept.is_current(page.numbers, mono_us):
            return None
        self._pages[key] = self._pages.pop(key)
        return page.answer

    def parts(
        self,
        key: PageKey,
        table: Table,
        tablets: Iterable[tuple[str, Tablet]],
        mono_us: Callable[[], int],
        encode: Callable[[str, Tablet], bytes],
    ) -> Iterator[Part]:
        """The parts of these tablets. A part is encoded only if no valid one is kept."""
        page = self._pages.get(key)
        for tablet_id, tablet in tablets:
            made_of = table, tablet, self._catalog().get(DESIRED_CHANGE, tablet_id)
            number = self._kept.number(tablet_id, mono_us())
            part = page.parts.get(tablet_id) if page is not None else None
            same = part is not None and all(a is b for a, b in zip(part.made_of, made_of, strict=True))
            if part is None or number is None or part.number != number or not same:
                self.encoded += 1
                part = Part(tablet_id, encode(tablet_id, tablet), made_of, number)
            yield part

    def keep(self, key: PageKey, version: int, parts: list[Part], answer: bytes) -> None:
        """Keep a page. `version`: the catalog's version of the table, from before the first part."""
        self._drop(key)
        numbers = {p.tablet_id: p.number for p in parts if p.number is not None}
        self._pages[key] = _Page(version, numbers, {p.tablet_id: p for p in parts}, answer)
        self._bytes += 2 * len(answer)
        while self._bytes > limits.LOOK_UPS_BYTES_MAX:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: PageKey) -> None:
        page = self._pages.pop(key, None)
        self._bytes -= 2 * len(page.answer) if page is not None else 0
