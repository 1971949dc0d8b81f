"""What the commands about the masters' topics share: where the topics are, times, and what is missing there."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from nyala import pipeline
from nyala.replica.types import shown

from .context import client, local_kafka
from .letters import login_of

if TYPE_CHECKING:
    from nyala.pipeline import DecisionLog

Prefix = Annotated[str, typer.Option("--topic-prefix", help="of the masters' topics")]
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def log_of(
    kafka: str,
    properties: str,
    prefix: str,
    masters: str,
    wanted: Callable[[str], bool] | None,
    snapshots: bool = False,
    names: Sequence[str] = (),
) -> DecisionLog:
    """The log of the named broker, else of the local stack's, else of the one that the masters use."""
    bootstrap = kafka or ("" if masters else local_kafka())
    if not bootstrap:
        if not masters:
            raise typer.BadParameter("no broker named and none runs here: say --kafka host:port or --masters host:port")
        with client(masters) as connected:
            bootstrap = connected.kafka_of_masters()
        if not bootstrap:
            raise typer.BadParameter(f"the masters at {masters} name no Kafka: say --kafka host:port")
    chosen = wanted or (lambda tablet_id: True)
    login = login_of(properties)
    return pipeline.DecisionLog(bootstrap, prefix, wanted=chosen, security=login, snapshots=snapshots, names=names)


def moment_us(text: str, now_us: int, option: str) -> int:
    """The time that an option names, in microseconds since 1970; 0 without one. Pure."""
    if not text:
        return 0
    if span := _SPAN.fullmatch(text):
        return max(1, now_us - int(span[1]) * _SECONDS[span[2]] * 1_000_000)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        what = f"{option} {shown(text)} is no span, such as 90s, 15m, 2h or 7d, and no ISO 8601 time"
        raise typer.BadParameter(what) from error
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{option} {shown(text)} names no time zone: say {moment.isoformat()}+00:00 for UTC")
    return max(1, (moment - _EPOCH) // dt.timedelta(microseconds=1))


def time_text(at_us: int) -> str:
    """A wall-clock time in UTC, to the millisecond; one that no calendar has, as a record may hold, as its number."""
    with suppress(OverflowError):
        return (_EPOCH + dt.timedelta(microseconds=at_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{at_us} us"


def tell_absent(log: DecisionLog) -> None:
    """Say on standard error what the topics do not hold."""
    for topic in log.absent:
        why = "the masters have not made it, have another --topic-prefix, or this login may not see it"
        typer.echo(f"there is no topic {topic}: {why}", err=True)
    for topic, count in sorted(log.removed.items()):
        typer.echo(f"the first {count:,} records of {topic} are not shown: Kafka keeps them no more", err=True)


def tell_left_out(log: DecisionLog) -> None:
    """Say on standard error which records cannot be read."""
    for (topic, reason), count in sorted(log.skipped.items()):
        typer.echo(f"records of {topic} that cannot be read and are not shown: {count:,} ({reason})", err=True)
