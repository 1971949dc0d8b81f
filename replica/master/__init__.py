"""The masters: the catalog on a replicated system tablet, soft state from heartbeats, and the decisions from both."""

from .catalog.catalog import CATALOG_ID, Catalog, encode_change
from .decisions.sent_decisions import SentDecisions, Versions
from .group.startup_checks import has_catalog, promised_elsewhere
from .options import MasterOptions
