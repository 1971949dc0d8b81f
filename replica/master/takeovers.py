"""Which directory a master's uuid stands for, once a second one has taken the place of the first.

[kudu master permanent failure, "Design proposal", step 3] leaves it to people that a replaced master never comes back.
Here it may: another one stands for its promises by then, so nobody lets it take part.
"""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.base import Code, Refused
from nyala.replica.disk import Instance

from .catalog import Catalog, Record

MASTER = "master/"


class Takeovers:
    """Of two directories with one uuid the one that was formatted later counts, from the first time it is heard of.

    Invariants: a directory that was refused once is refused for good: by this process at once, and by every master,
    after any restart, when the leader has committed what `unsaid` gives. Concurrency: the loop's thread.
    """

    def __init__(self, own: Instance) -> None:
        self._own = own
        self._heard = {own.uuid: own.created_us}
        self.catalog: Catalog | None = None
        """What the group knows; None until it is open."""

    def check(self, uuid: str, formatted_us: int) -> None:
        """Refused ILLEGAL_STATE for a directory that another one has replaced. 0: the caller does not say."""
        if not formatted_us:
            return
        latest_us = max(self._heard.get(uuid, 0), self._committed(uuid))
        if formatted_us < latest_us:
            what = (
                "another directory was formatted with this master's uuid later, and took its place: this one must not "
                "come back, end its identity with `nyala fs wipe`"
            )
            raise Refused(Code.ILLEGAL_STATE, what, uuid=uuid, formatted_us=formatted_us, later_us=latest_us)
        self._heard[uuid] = formatted_us

    def check_own(self) -> None:
        """Refused if this directory itself was replaced, as far as its catalog knows."""
        self.check(self._own.uuid, self._own.created_us)

    def unsaid(self, members: Iterable[str]) -> dict[str, Record]:
        """Catalog records of what was heard of `members` and is not committed yet."""
        heard = {uuid: self._heard.get(uuid, 0) for uuid in members}
        return {MASTER + uuid: {"formatted_us": us} for uuid, us in heard.items() if us > self._committed(uuid)}

    def _committed(self, uuid: str) -> int:
        record = self.catalog.get(MASTER + uuid) if self.catalog is not None else None
        return int(record["formatted_us"]) if record else 0
