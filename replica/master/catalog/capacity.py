"""Bounds the catalog when records are added, so that it always fits into one message. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nyala.replica.rows import TableSchema
from nyala.replica.types import Code, Refused, limits

from .catalog import Catalog
from .records import Record

FORGOTTEN = "a dropped table is forgotten a day after the last of its replicas is gone"


def check_defaults(schema: TableSchema) -> None:
    """Raise Refused(TOO_LARGE) if a row's defaults of variable length are too long together. The error names the
    longest one."""
    lengths = {column.name: column.default_length for column in schema.columns}
    if sum(lengths.values()) > limits.DEFAULTS_BYTES_MAX:
        raise Refused(
            Code.TOO_LARGE,
            "the defaults of the columns are too long together, and each row without these columns gets them: "
            "use shorter ones, or make the column nullable and let readers fill in the value",
            longest=max(lengths, key=lambda name: lengths[name]),
            bytes=sum(lengths.values()),
            max=limits.DEFAULTS_BYTES_MAX,
        )


def check_room(catalog: Catalog, puts: Mapping[str, Record]) -> None:
    """Raise Refused(NO_SPACE) if the catalog with `puts` would have too many tables or tablets, or too many bytes.

    Changes that an existing cluster needs, for example a mark on a tablet, are not checked. This bound is lower than
    that of a message, and the difference is room for them.
    """
    for prefix, most in (("table/", limits.TABLES_MAX), ("tablet/", limits.TABLETS_MAX)):
        added = sum(1 for key in puts if key.startswith(prefix) and key not in catalog)
        if added and catalog.count(prefix) + added > most:
            what = f"the cluster has as many {prefix[:-1]}s as its masters hold: drop tables; {FORGOTTEN}"
            raise Refused(Code.NO_SPACE, what, there=catalog.count(prefix), more=added, max=most)
    grown = catalog.growth(puts)
    if grown > 0 and catalog.size_bytes + grown > limits.CATALOG_BYTES_MAX:
        what = f"the masters' catalog is full: drop tables, or create them with fewer columns and tablets; {FORGOTTEN}"
        raise Refused(Code.NO_SPACE, what, bytes=catalog.size_bytes, more=grown, max=limits.CATALOG_BYTES_MAX)


def check_sources(catalog: Catalog, prefix: str, puts: Mapping[str, Record]) -> None:
    """Raise Refused(NO_SPACE) if one table would have too many source positions. Their names begin with `prefix`."""
    added = sum(1 for key in puts if key not in catalog)
    if added and catalog.count(prefix) + added > limits.SOURCES_PER_TABLE_MAX:
        what = (
            "the table has as many source positions as it may: feed it from fewer partitions, or create another table"
        )
        raise Refused(Code.NO_SPACE, what, there=catalog.count(prefix), more=added, max=limits.SOURCES_PER_TABLE_MAX)
    check_room(catalog, puts)
