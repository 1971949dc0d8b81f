"""Nyala: a replicated table store that Kafka feeds and Spark drives.

    import nyala

    with nyala.connect("localhost:7051") as cluster:
        flights = cluster.table("flights")
        late = flights.scan(columns=["carrier", "delay"], where=nyala.col("delay") > 60).to_arrow()
        flights.upsert([{"carrier": "UA", "flight": 1545, "delay": 2}])

Names are loaded on first use: `import nyala` alone imports no pyarrow and no gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nyala.replica.types import lazy_imports

if __name__ != "nyala":
    # One file, one name: two copies of these classes would not be each other's instances.
    raise ImportError(f"import this package as `nyala`, not as `{__name__}`")

if TYPE_CHECKING:
    from nyala.replica.client import ClientOptions, NotApplied, OutcomeUnknown, RowErrors, RowFailure
    from nyala.replica.types import Code, Refused, ReplicaError, RowCode, __version__

    from .cluster import Cluster, connect
    from .expressions import Col, Condition, col, parse_condition
    from .sql import Query
    from .table import Scan, Table
    from .topics import TopicNotMade
    from .writing import WriteResult

__all__ = [
    "ClientOptions", "Cluster", "Code", "Col", "Condition", "NotApplied", "OutcomeUnknown", "Query", "Refused",
    "ReplicaError", "RowCode", "RowErrors", "RowFailure", "Scan", "Table", "TopicNotMade", "WriteResult", "__version__",
    "col", "connect", "parse_condition",
]  # fmt: skip


_of_home, __dir__, _ = lazy_imports(__name__)


def __getattr__(name: str) -> Any:
    # `import nyala` is enough for `nyala.pipeline.RowPublisher`.
    return import_module("nyala.pipeline") if name == "pipeline" else _of_home(name)
