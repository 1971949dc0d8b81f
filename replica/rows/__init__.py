"""Table schemas, batches, keys and routing: everything on which clients and tablets must agree, bit for bit."""

from .batch import BatchDecoder, MessageDecoder, decode_batch, encode_batch
from .buffers import decimal_words, fixed_width_values, lengths_at, offsets_of, value_bytes
from .checksum import CHECKSUM_DEFINITION, NO_ROWS, RowSum, sum_of_rows
from .condition_bounds import ConditionsSize, conditions_size
from .condition_values import ConditionValues
from .conversion import (
    Misfit,
    array_of,
    cast_exactly,
    check_decimals,
    iso_text,
    python_rows,
    python_value,
    python_values,
)
from .hashing import key_hash, mix_in_place, mix_one
from .key_terms import Term, sortable
from .message import MalformedMessage
from .meta import RowError, SourceKey, WriteMeta, crc32c
from .partition import PartitionSpec, bucket_of, route, slice_of
from .predicate import Conditions, Predicate, exact_predicate, never_stop, predicate_mask
from .scan_spec import ScanSpec
from .schema import OFFSET_COLUMN, OP_COLUMN, TableSchema
from .table_descriptions import SourceFormat, TableDescription, WriterSchemaInfo
from .types import (
    INTEGER_LIKE,
    KEY_TYPES,
    VARIABLE_LENGTH,
    Column,
    ColumnType,
    RowOp,
    time_of_text,
    type_of_arrow,
    value_from_json,
    value_to_json,
)
from .value_list import read_values
