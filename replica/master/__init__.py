"""The masters: the catalog on a replicated system tablet, soft state from heartbeats, and the decisions they need."""

from .catalog import CATALOG_ID, Catalog, encode_change
from .options import MasterOptions
from .sent_decisions import SentDecisions, Versions
from .standing import has_catalog, promised_elsewhere

__all__ = [
    "CATALOG_ID",
    "Catalog",
    "MasterOptions",
    "SentDecisions",
    "Versions",
    "encode_change",
    "has_catalog",
    "promised_elsewhere",
]
