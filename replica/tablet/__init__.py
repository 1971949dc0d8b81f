"""One data tablet: memory store, sorted blocks, versions, the ledger; deterministic `apply`."""

from .block_file import data_trouble, verify_file, verify_pieces
from .entries import unfit_entry
from .ledger import ClientResult, Ledger, SourceState
from .positions import source_positions
from .results import ApplyResult, FlushResult
from .scan import COUNT_SCHEMA, Scan
from .superblock import BlockInfo, Superblock, block_names, superblock_path, sweep_orphans
from .tablet import Tablet
from .witness import Witness

__all__ = [
    "COUNT_SCHEMA",
    "ApplyResult",
    "BlockInfo",
    "ClientResult",
    "FlushResult",
    "Ledger",
    "Scan",
    "SourceState",
    "Superblock",
    "Tablet",
    "Witness",
    "block_names",
    "data_trouble",
    "source_positions",
    "superblock_path",
    "sweep_orphans",
    "unfit_entry",
    "verify_file",
    "verify_pieces",
]
