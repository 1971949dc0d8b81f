"""One data tablet: memory store, sorted blocks, versions, the ledger; deterministic `apply`."""

from .block_file import data_trouble, verify_file, verify_pieces
from .entries import unfit_entry
from .kept_bound import Given
from .ledger import SourceState
from .results import ApplyResult
from .source_positions import source_positions
from .superblock import BlockInfo, Superblock, block_names, superblock_path, sweep_orphans
from .tablet import Tablet
from .witness import Witness
