"""`nyala decisions list|tail|explain`: what was proposed, decided and done, and how configs changed: by whom, why, how
long each step took."""

from __future__ import annotations

import heapq
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from nyala import pipeline
from nyala.infra.printing import cell, line
from nyala.replica.types import Code, Refused, shown

from . import completion
from .completion import TabletId
from .context import Json, Masters, client, console, named, print_table
from .decision_topics import Prefix, log_of, moment_us, tell_absent, tell_left_out, time_text
from .letters import Kafka, KafkaProperties
from .replay import replay

if TYPE_CHECKING:
    from nyala.pipeline import DecisionLog, Event, Told

app = typer.Typer(help="what was proposed, decided and done, as Kafka has it", no_args_is_help=True)
ROWS_SHOWN = 50
TAIL_SHOWN = 10
EVENTS_KEPT_MAX = 20_000
"""The newest events that a command keeps in memory, 20 MB as the masters write them: an older step is not shown."""
FOLLOWED_MAX = 2_000
"""As many events `tail` keeps, to know since when a step takes: it tells the story of them anew at each page."""
_UUID = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24}\b")
_COLOURS = {
    "PROPOSED": "cyan",
    "DECIDED": "bold",
    "DONE": "green",
    "REFUSED": "yellow",
    "FAILED": "red",
    "CONFIG": "blue",
    "DROPPED": "yellow",
    "GAP": "red",
}

app.command()(replay)

Since = Annotated[
    str,
    typer.Option(help="only records since then: a span such as 90s, 15m, 2h or 7d, or an ISO 8601 time with a zone"),
]
Table = Annotated[str, typer.Option(help="only this table's tablets", autocompletion=completion.tables)]


@app.command("list")
def list_steps(
    since: Since = "",
    table: Table = "",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=EVENTS_KEPT_MAX,
            show_default=False,
            help=f"newest steps to show; default {ROWS_SHOWN}, with --json {EVENTS_KEPT_MAX:,}",
        ),
    ] = None,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    topic_prefix: Prefix = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """List the newest steps of all changes, oldest first: proposals, decisions, outcomes of both, changed configs.

    A step's time is the clock's of the process that wrote it. `took` is the time since the proposal, the decision or
    the plan's step before it. With --json each line is one object.
    """
    since_us, chosen = moment_us(since, time.time_ns() // 1000, "--since"), _tablets_of(table, masters)
    with log_of(kafka, kafka_properties, topic_prefix, masters, chosen) as log:
        kept, total = _newest(log.until_now(since_us), EVENTS_KEPT_MAX)
    told = pipeline.story(kept)
    limit = limit or (EVENTS_KEPT_MAX if as_json else ROWS_SHOWN)
    _print(told[-limit:], as_json, "decisions", with_tablet=True)
    if len(told) > limit or total > len(kept):
        more = "--limit, --since and --table choose others"
        typer.echo(f"the newest {min(limit, len(told)):,} of {total:,} records; {more}", err=True)
    _notes(log, told, since=since, table=table)


@app.command()
def explain(
    tablet: TabletId,
    since: Since = "",
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    topic_prefix: Prefix = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Show what was proposed, decided and done about one tablet, in the order of time. It may be a dropped tablet.

    A changed config is shown with what caused it, as far as that is known. At most the newest 20,000 records are shown.
    With --json each line is one object.
    """
    named(tablet, "tablet")
    since_us = moment_us(since, time.time_ns() // 1000, "--since")
    with log_of(kafka, kafka_properties, topic_prefix, masters, lambda one: one.startswith(tablet), True) as log:
        kept, total = _newest(log.until_now(since_us), EVENTS_KEPT_MAX)
    found = sorted({event.tablet_id for event in kept} - {""})
    if len(found) > 1:
        some = ", ".join(cell(one).plain for one in found[:5])
        raise typer.BadParameter(f"{len(found)} tablets with records begin with {shown(tablet)}, such as {some}")
    told = pipeline.story(kept) if found else []
    if told:
        _print(told, as_json, f"tablet {found[0]}", with_tablet=False)
    if total > len(kept):
        typer.echo(f"the newest {len(kept):,} of {total:,} records; --since chooses others", err=True)
    _notes(log, told, since=since, tablet=tablet)
    if not told:
        what = f"Kafka has no proposal, decision, outcome or config of a tablet that begins with {shown(tablet)}"
        raise Refused(
            Code.NOT_FOUND, f"{what}: none was made, or Kafka keeps it no more; `nyala tablet list` has all ids"
        )


@app.command()
def tail(
    table: Table = "",
    limit: Annotated[int, typer.Option(min=0, max=FOLLOWED_MAX, help="newest steps to show first")] = TAIL_SHOWN,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    topic_prefix: Prefix = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Show the newest steps, then each further one as it comes, until Ctrl-C. With --json each line is one object."""
    chosen = _tablets_of(table, masters)
    with log_of(kafka, kafka_properties, topic_prefix, masters, chosen) as log:
        kept = deque(_newest(log.until_now(newest=FOLLOWED_MAX), FOLLOWED_MAX)[0], FOLLOWED_MAX)
        told = pipeline.story(kept)
        _notes(log, told, table=table)
        skipped = log.skipped.total()
        _print_lines(told[-limit:] if limit else (), as_json)
        for events in log.follow(lambda text: typer.echo(text, err=True)):
            new = set(events) - set(kept)
            kept.extend(event for event in events if event in new)
            _print_lines((one for one in pipeline.story(kept) if one.event in new), as_json)
            if log.skipped.total() > skipped:
                skipped = log.skipped.total()
                tell_left_out(log)


def _tablets_of(table: str, masters: str) -> Callable[[str], bool] | None:
    """The choice of a table's tablets; None without a table."""
    if not table:
        return None
    with client(masters) as connected:
        return frozenset(tablet.tablet_id for tablet in connected.get_table(table).tablets).__contains__


def _newest(events: Iterable[Event], most: int) -> tuple[list[Event], int]:
    """The newest events, `most` at most, and how many there were. Pure."""
    kept: list[tuple[int, int, Event]] = []
    total = 0
    for total, event in enumerate(events, 1):
        (heapq.heappush if total <= most else heapq.heappushpop)(kept, (event.at_us, total, event))
    return [event for _, _, event in sorted(kept, key=lambda each: each[:2])], total


def took_text(took_us: int | None) -> str:
    """The time that a step took, in a unit that shows two digits of it or more."""
    if took_us is None:
        return ""
    seconds = took_us / 1e6
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def document_of(one: Told) -> dict[str, object]:
    """A step as a JSON object."""
    event = one.event
    return {
        "at": time_text(event.at_us), "at_us": event.at_us, "tablet_id": event.tablet_id, "table_id": event.table_id,
        "step": event.step.value, "subject": event.subject.value if event.subject else "",
        "subject_id": event.subject_id, "plan_id": event.plan_id, "by": event.by, "change": event.change,
        "reason": event.reason, "code": event.code,
        "since": one.since, "took_us": one.took_us, "cause": one.cause,
    }  # fmt: skip


def _words(one: Told) -> tuple[str, str, str]:
    """By whom, what, and why, with the beginnings of uuids only."""
    event = one.event
    why = one.cause or event.reason
    why = f"{event.code}: {why}" if event.code and not why.startswith(event.code) else why
    subject = event.subject_id.removeprefix(f"{event.tablet_id}@")
    what = event.change or (f"{event.subject.value.lower()} {subject}".rstrip() if event.subject else "")
    return _short(event.by), _short(what), _short(why)


def _short(text: str) -> str:
    return _UUID.sub(r"\1", text)


def _took(one: Told) -> str:
    return f"{took_text(one.took_us)} since {one.since}" if one.since else ""


def _print(told: Sequence[Told], as_json: bool, title: str, *, with_tablet: bool) -> None:
    """Print a table, or one JSON object a line."""
    if as_json:
        _print_lines(told, as_json)
        return
    rows = []
    for one in told:
        by, what, why = _words(one)
        tablet = [_short(one.event.tablet_id)] if with_tablet else []
        step = cell(one.event.step.value, _COLOURS.get(one.event.step, ""))
        rows.append((time_text(one.event.at_us), *tablet, step, what, why, _took(one), by, one.event.plan_id))
    headings = ("time", *(["tablet"] if with_tablet else []), "step", "what", "why", "took", "by", "plan")
    print_table(title, headings, rows, ("plan", "by"))


def _print_lines(told: Iterable[Told], as_json: bool) -> None:
    """Print one line for each step."""
    for one in told:
        if as_json:
            typer.echo(json.dumps(document_of(one)))
            continue
        by, what, why = _words(one)
        rest = "; ".join(filter(None, (what, why, by and f"by {by}", _took(one))))
        step = (f"{one.event.step.value:<9}", _COLOURS.get(one.event.step, ""))
        head = f"{time_text(one.event.at_us)} {_short(one.event.tablet_id)} "
        console.print(line(head, step, f" {rest}"), soft_wrap=True)


def _notes(log: DecisionLog, told: Sequence[Told], *, since: str = "", table: str = "", tablet: str = "") -> None:
    """Say on standard error what the topics do not hold, and which records were left out."""
    tell_absent(log)
    if lost := pipeline.without_beginning(told):
        why = "Kafka keeps the newest decision of each tablet only"
        typer.echo(f"outcomes whose decision is not shown: {lost:,}; {why}", err=True)
    tell_left_out(log)
    if not told and not log.absent and not tablet:
        of = f" of table {shown(table)}" if table else ""
        typer.echo(f"Kafka has no proposal, decision or outcome{of}" + (f" since {since}" if since else ""), err=True)
