"""One data tablet: memory store, sorted blocks, versions, the ledger; deterministic `apply`.

`Tablet` is imported when it is first used, because it needs a library that takes as long to import as all of a master.
"""

from typing import TYPE_CHECKING

from nyala.replica.types import lazy_imports

from .block_file import data_trouble, verify_file, verify_pieces
from .entries import unfit_entry
from .kept_bound import Given
from .ledger import SourceState
from .results import ApplyResult
from .source_positions import source_positions
from .superblock import BlockInfo, Superblock, block_names, superblock_path, sweep_orphans
from .witness import Witness

if TYPE_CHECKING:
    from .tablet import Tablet

__getattr__, __dir__, _ = lazy_imports(__name__)
