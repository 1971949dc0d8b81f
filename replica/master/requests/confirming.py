"""An operator's word on a tablet's config that its members cannot prove: a forced one drops those who could. Pure."""

from __future__ import annotations

from nyala.replica.rpc import config_from_pb, pb
from nyala.replica.types import Code, Refused, limits

from ..catalog.catalog import Catalog
from ..catalog.tables import TABLET, Change, config_to_record, known_config
from ..heartbeats.belief import newer


def confirm_config(catalog: Catalog, request: pb.ConfirmConfigRequest) -> Change:
    """The change that makes a config the one from which belief begins; its result is whether anything changed.

    The same again is no change. Refused: TABLET_NOT_FOUND; INVALID_ARGUMENT for what is no config; CAS_FAILED if the
    catalog knows one at the same or a later position.
    """
    record = catalog.get(TABLET + request.tablet_id)
    if record is None or "dropped_us" in record:
        raise Refused(Code.TABLET_NOT_FOUND, "no such tablet", tablet=request.tablet_id)
    config, known = config_from_pb(request.config), known_config(record)
    if not config.voters or len(config.members) > limits.CONFIG_MEMBERS_MAX:
        what = "a tablet's config has voters, and a bounded number of members"
        raise Refused(Code.INVALID_ARGUMENT, what, members=len(config.members), max=limits.CONFIG_MEMBERS_MAX)
    after = {**record, "formed": True, "config": config_to_record(config)}
    if after == record:
        return {}, [], "", False
    if not newer(config.opid, known.opid) and "config" in record:
        what = "the masters know a config of this tablet at the same or a later position; nothing was changed"
        raise Refused(Code.CAS_FAILED, what, tablet=request.tablet_id, given=config.opid, known=known.opid)
    return {TABLET + request.tablet_id: after}, [], "", True
