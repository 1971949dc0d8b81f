"""The masters: the catalog on a replicated system tablet, soft state from heartbeats, and the decisions they need."""

from .catalog import CATALOG_ID, Catalog, encode_change
from .decision_book import DecisionBook, Versions
from .options import MasterOptions
from .standing import has_catalog, promised_elsewhere

__all__ = [
    "CATALOG_ID",
    "Catalog",
    "DecisionBook",
    "MasterOptions",
    "Versions",
    "encode_change",
    "has_catalog",
    "promised_elsewhere",
]
