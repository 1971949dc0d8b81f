"""An operator's confirmation of a config that its members cannot prove, because it was forced and drops them. Pure."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.raft import is_position, too_far, unheld_reason
from nyala.replica.types import Address, Code, RaftConfig, Refused, is_uuid, shown

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET
from ..catalog.tables import Change, tablet_of
from ..heartbeats.belief import newer


def impossible(config: RaftConfig, known: RaftConfig, catalog_term: int) -> str:
    """The reason why no replica of the tablet can hold that committed config; empty if one can. `known`: the config in
    the catalog. `catalog_term`: the term of the leading master."""
    if why := unheld_reason(config):
        return why
    if not config.opid.index or not is_position(config.opid):
        return f"no entry that changes a config can be at position {config.opid}"
    if too_far(known.opid.term, config.opid.term):
        return f"term {config.opid.term} is too far above term {known.opid.term} of the config that the masters know"
    if config.decision[0] > catalog_term:
        return f"no master has decided in term {config.decision[0]}: the present term is {catalog_term}"
    named: dict[Address, str] = {}
    for member in config.members:
        if not is_uuid(member.uuid):
            return f"{shown(member.uuid)} is no server's uuid"
        for address in member.addresses:
            if named.setdefault(address, member.uuid) != member.uuid:
                return f"{address} is the address of two members, {named[address]} and {member.uuid}"
    return ""


def confirm_config(catalog: Catalog, tablet_id: str, config: RaftConfig, catalog_term: int) -> Change:
    """The change that stores a config as the tablet's known one, from which later configs must follow; its result is
    whether anything changed.

    Repeating it changes nothing. Refused: TABLET_NOT_FOUND; INVALID_ARGUMENT if the config is impossible; CAS_FAILED if
    the catalog has one at the same or a later position.
    """
    tablet = tablet_of(catalog, tablet_id)
    known = tablet.known_config
    if why := impossible(config, known, catalog_term):
        what = (
            "no replica can hold such a config; nothing was changed: confirm one that a running server holds, `nyala "
            "unsafe confirm-config --server`"
        )
        raise Refused(Code.INVALID_ARGUMENT, what, tablet=tablet_id, why=why)
    after = replace(tablet, formed=True, config=config)
    if after == tablet:
        return {}, [], "", False
    if not newer(config.opid, known.opid) and tablet.config is not None:
        what = "the masters know a config of this tablet at the same or a later position; nothing was changed"
        raise Refused(Code.CAS_FAILED, what, tablet=tablet_id, given=config.opid, known=known.opid)
    return {TABLET + tablet_id: after}, [], "", True
