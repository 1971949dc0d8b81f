"""Names of tables, tablets and servers for a shell's completion, from the cluster that the command line names.

A shell asks while a person types. So the answer comes soon or not at all, and nothing is ever printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from .context import masters_of

if TYPE_CHECKING:
    from nyala import Cluster

PATIENCE_S = 2.0
"""The time-out for all calls of one completion, and for each page of a list of names."""
NAMES_MAX = 1000
"""The most names of one answer: a shell asks before it shows more than a hundred."""


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tables."""
    return _names(context, incomplete, lambda cluster, left_s: cluster.tables())


def tablets(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of tablets."""
    return _names(
        context,
        incomplete,
        lambda cluster, left_s: (
            tablet.tablet_id
            for name in cluster.tables()
            for tablet in cluster.client.get_table(name, timeout_s=left_s()).tablets
        ),
    )


def servers(context: typer.Context, incomplete: str) -> list[str]:
    """Uuids of tablet servers."""
    return _names(context, incomplete, lambda cluster, left_s: (s.uuid for s in cluster.client.list_servers().servers))


Ask = Callable[["Cluster", Callable[[], float]], Iterable[str]]
"""(cluster, function that returns the seconds left) -> names of the cluster."""


def offered(names: Iterable[str], incomplete: str, left_s: Callable[[], float]) -> list[str]:
    """The first NAMES_MAX names with this beginning; none if `left_s` raises because the time is over."""
    found: list[str] = []
    for name in names:
        left_s()
        if name.startswith(incomplete):
            found.append(name)
            if len(found) == NAMES_MAX:
                break
    return found


def time_left(now: Callable[[], float], within_s: float) -> Callable[[], float]:
    """A function that returns the seconds left of `within_s` from now on; TimeoutError if none are left."""
    end = now() + within_s

    def left_s() -> float:
        if (left := end - now()) <= 0:
            raise TimeoutError
        return left

    return left_s


def _names(context: typer.Context, incomplete: str, ask: Ask) -> list[str]:
    try:
        left_s = time_left(time.monotonic, PATIENCE_S)
        import nyala

        masters = masters_of(str(context.params.get("masters") or ""))
        options = nyala.ClientOptions(timeout_s=PATIENCE_S, connect_timeout_s=PATIENCE_S, attempt_timeout_s=PATIENCE_S)
        with nyala.connect(masters, options=options) as cluster:
            return offered(ask(cluster, left_s), incomplete, left_s)
    except Exception:  # noqa: BLE001 - a traceback in the middle of somebody's line helps nobody
        return []


TableName = Annotated[str, typer.Argument(help="the table's name", autocompletion=tables)]
TabletId = Annotated[str, typer.Argument(help="tablet id, or its beginning", autocompletion=tablets)]
ServerUuid = Annotated[str, typer.Argument(help="server uuid, its beginning, or address", autocompletion=servers)]
