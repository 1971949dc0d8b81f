"""The masters: the catalog on a replicated system tablet, soft state from heartbeats, and the decisions from both."""

from typing import TYPE_CHECKING

from nyala.replica.types import lazy_imports

if TYPE_CHECKING:
    from .catalog.catalog import CATALOG_ID, Catalog, encode_change
    from .catalog.rebuilding import (
        LOST,
        Allowed,
        FoundCluster,
        FoundSource,
        FoundTablet,
        Rebuilt,
        RebuiltSource,
        RebuiltTable,
        rebuild_catalog,
    )
    from .decisions.sent_decisions import SentDecisions, Versions
    from .group.rebuilt_catalog import catalog_entry, first_term, write_catalog
    from .group.startup_checks import has_catalog, has_taken_part
    from .options import MasterOptions

__getattr__, __dir__, __all__ = lazy_imports(__name__)
