"""Who is to leave a tablet without a mark in its config: members on servers that are being retired.

The mark is only seen, never written: when the server is wanted again, nothing has to be taken back.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from .views import TabletView


def seen_leaving(tablet: TabletView, leaving: Set[str]) -> TabletView:
    """`tablet` as it is, but with every member whose uuid is in `leaving` seen as marked for replacement."""
    if leaving.isdisjoint(m.uuid for m in tablet.config.members):
        return tablet
    members = tuple(replace(m, replace=m.replace or m.uuid in leaving) for m in tablet.config.members)
    return replace(tablet, config=replace(tablet.config, members=members))
