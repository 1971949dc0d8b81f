"""A table as an Arrow dataset: what reads Arrow datasets, such as DuckDB and polars, reads tables of Nyala too.

DuckDB and polars know a dataset by its class, so this one inherits pyarrow's. Of that class, only the name and the
schema are used: every method is defined anew here, and a read past them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from nyala.replica.client import Client, ScanSpec, TableHandle

from .argument_errors import invalid_argument
from .arrow_filters import columns_of, pushed
from .expressions import column_of

if TYPE_CHECKING:
    import pyarrow.compute as pc

_NO_FILE = "a dataset of Nyala is read by its own methods: call to_table() or scanner() first"
"""The file that readers in C++ look for. They get an error with this text in place of rows."""


class NyalaDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """Rows of one table. Each read is anew, as of `at` or, without it, of the latest time.

    `columns` and the filter are evaluated at the tablets where they can be. Concurrency: any thread.
    """

    def __init__(
        self, client: Client, handle: TableHandle, spec: ScanSpec, failed: Callable[[BaseException], None] | None = None
    ) -> None:
        """`failed` gets the error that ended a read, because readers in C++ pass on its text only."""
        form = ds.IpcFileFormat()
        nowhere = form.make_fragment(_NO_FILE, filesystem=LocalFileSystem())
        super().__init__([nowhere], handle.schema.arrow, form, LocalFileSystem())
        self._client = client
        self._handle = handle
        self._spec = spec
        self._failed = failed or (lambda error: None)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: object,
    ) -> ds.Scanner:
        """Return a ds.Scanner of the rows for which `filter`, a pc.Expression, is true. It can be read once.

        Options of pyarrow that only say how files are read are ignored.
        """
        schema = self._handle.schema
        if isinstance(columns, dict):
            what = "columns= of a dataset of Nyala names columns and computes none"
            raise invalid_argument(what, "name them, and compute afterwards", got=", ".join(map(str, columns)))
        names = list(schema.names if columns is None else columns)
        for name in names:
            column_of(schema, name)
        wanted = pa.schema([schema.arrow.field(name) for name in names])
        return ds.Scanner.from_batches(self._batches(names, wanted, filter, batch_size), schema=wanted)

    def _batches(
        self, names: list[str], wanted: pa.Schema, filter: pc.Expression | None, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            conditions = pushed(filter, self._handle.schema) if filter is not None else None
            rest = filter if conditions is not None and not conditions.whole else None
            read = list(names)
            if rest is not None:
                read += [name for name in columns_of(rest, self._handle.schema) if name not in names]
            spec = replace(
                self._spec,
                columns=tuple(dict.fromkeys(read)) or self._handle.schema.key[:1],
                predicates=(*self._spec.predicates, *(conditions.predicates if conditions else ())),
            )
            for batch in (each for part in self._client.scan(self._handle, spec) for each in part.batches):
                found = pa.Table.from_batches([batch])
                if rest is not None:
                    found = found.filter(rest)
                for each in found.to_batches(batch_size):
                    chosen = each.select(names)
                    yield chosen.cast(wanted) if names else chosen  # a cast forgets how many rows have no column
        except BaseException as error:
            self._failed(error)
            raise

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: object,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; parameters as of `scanner`."""
        yield from self.scanner(columns, filter, batch_size).to_batches()

    def to_table(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object
    ) -> pa.Table:
        """Return the rows; parameters as of `scanner`."""
        return self.scanner(columns, filter).to_table()

    def head(
        self, num_rows: int, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object
    ) -> pa.Table:
        """Return the first rows that come; parameters as of `scanner`."""
        return self.scanner(columns, filter).head(num_rows)

    def take(
        self,
        indices: Sequence[int] | pa.Array,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **_: object,
    ) -> pa.Table:
        """Return the rows at these positions of one read; another read has another order."""
        return self.to_table(columns, filter).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_: object) -> int:
        """Return the number of rows for which `filter` is true. The tablets count if they can evaluate it."""
        if filter is None:
            return self._client.count(self._handle, self._spec)
        conditions = pushed(filter, self._handle.schema)
        if conditions.whole:
            both = (*self._spec.predicates, *conditions.predicates)
            return self._client.count(self._handle, replace(self._spec, predicates=both))
        return sum(batch.num_rows for batch in self.to_batches(columns=self._handle.schema.key[:1], filter=filter))

    @property
    def schema(self) -> pa.Schema:
        """Return the pa.Schema of the columns."""
        return self._handle.schema.arrow

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("a dataset of Nyala has no such call: read it with to_table(), and go on with that")

    filter = from_paths = get_fragments = join = join_asof = replace_schema = sort_by = _get_fragments = _refuse

    partition_expression = partitioning = files = filesystem = format = property(_refuse)

    def __reduce__(self) -> NoReturn:
        self._refuse()

    def __repr__(self) -> str:
        return f"<nyala dataset of {self._handle.name}>"
