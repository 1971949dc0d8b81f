"""An operator's confirmation of a config that its members cannot prove, because it was forced and drops them. Pure."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.types import Code, RaftConfig, Refused, limits

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET
from ..catalog.tables import Change, tablet_of
from ..heartbeats.belief import newer


def confirm_config(catalog: Catalog, tablet_id: str, config: RaftConfig) -> Change:
    """The change that makes a config the one at which belief begins; its result is whether anything changed.

    Repeating it changes nothing. Refused: TABLET_NOT_FOUND; INVALID_ARGUMENT if the config is impossible; CAS_FAILED if
    the catalog has one at the same or a later position.
    """
    tablet = tablet_of(catalog, tablet_id)
    known = tablet.known_config
    if not config.voters or len(config.members) > limits.CONFIG_MEMBERS_MAX:
        what = "a tablet's config has voters, and a bounded number of members"
        raise Refused(Code.INVALID_ARGUMENT, what, members=len(config.members), max=limits.CONFIG_MEMBERS_MAX)
    after = replace(tablet, formed=True, config=config)
    if after == tablet:
        return {}, [], "", False
    if not newer(config.opid, known.opid) and tablet.config is not None:
        what = "the masters know a config of this tablet at the same or a later position; nothing was changed"
        raise Refused(Code.CAS_FAILED, what, tablet=tablet_id, given=config.opid, known=known.opid)
    return {TABLET + tablet_id: after}, [], "", True
