"""Leader look-up, safe retries, pipelined writes, consistent scans and admin calls. No Spark, no asyncio."""

from nyala.replica.rows import ScanSpec, SourceFormat, WriterSchemaInfo
from nyala.replica.rpc import load_credentials

from .batching import WireBatch, cut, wire_batches
from .client import Client, ReadLoad, credentials_in, parse_masters, shared_client
from .masters import leader_hint
from .options import ClientOptions
from .paging import pages_of
from .pruning import positions
from .retry import REACTIONS, NotApplied, OutcomeUnknown, Reaction, reaction_to
from .row_errors import OnError, RowErrors, RowFailure
from .scans import check_spec, result_schema, tablets_to_ask
from .tables import TableHandle, TabletHandle
from .writes import SessionWriter, SourceWriter
