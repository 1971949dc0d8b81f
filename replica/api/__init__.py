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

if __name__ != "nyala":
    # One file, one name: two copies of these classes would not be each other's instances.
    raise ImportError(f"import this package as `nyala`, not as `{__name__}`")

if TYPE_CHECKING:
    from nyala.replica.client import ClientOptions, NotApplied, OutcomeUnknown, RowErrors, RowFailure
    from nyala.replica.types import Code, Refused, ReplicaError, RowCode

    from .cluster import Cluster, connect
    from .expressions import Col, Condition, col, parse_condition
    from .table import Scan, Table
    from .topics import TopicNotMade
    from .writing import WriteResult

_HOMES = {
    "Cluster": ".cluster",
    "connect": ".cluster",
    "Col": ".expressions",
    "Condition": ".expressions",
    "col": ".expressions",
    "parse_condition": ".expressions",
    "Scan": ".table",
    "Table": ".table",
    "RowFailure": ".replica.client",
    "TopicNotMade": ".topics",
    "WriteResult": ".writing",
    "ClientOptions": ".replica.client",
    "NotApplied": ".replica.client",
    "OutcomeUnknown": ".replica.client",
    "RowErrors": ".replica.client",
    "Code": ".replica.types",
    "Refused": ".replica.types",
    "ReplicaError": ".replica.types",
    "RowCode": ".replica.types",
    "__version__": ".replica.types",
}
"""Public name -> module that defines it."""

__all__ = [
    "ClientOptions",
    "Cluster",
    "Code",
    "Col",
    "Condition",
    "NotApplied",
    "OutcomeUnknown",
    "Refused",
    "ReplicaError",
    "RowCode",
    "RowErrors",
    "RowFailure",
    "Scan",
    "Table",
    "TopicNotMade",
    "WriteResult",
    "__version__",
    "col",
    "connect",
    "parse_condition",
]


def __getattr__(name: str) -> Any:
    if name == "pipeline":  # `import nyala` is enough for `nyala.pipeline.RowPublisher`
        return import_module("nyala.pipeline")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'nyala' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(home, "nyala"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
