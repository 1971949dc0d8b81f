"""`nyala decisions replay`: the configs of all tablets, replayed from Kafka and compared with the masters' catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from nyala import pipeline
from nyala.infra.printing import cell
from nyala.replica.types import Code, EventKind, RaftConfig, Refused, kafka_topics

from .context import Json, Masters, client, print_table
from .decision_topics import Prefix, log_of, moment_us, tell_absent, tell_left_out, time_text
from .letters import Kafka, KafkaProperties

if TYPE_CHECKING:
    from nyala.pipeline import DecisionLog, Difference, Replayed

ROWS_SHOWN = 50
SHOWN_MAX = 1_000_000
NAMED_MAX = 10
"""As many gaps, and missing entries, are named."""
SETTLE_S = 15.0
"""So long, the masters may take to append a change to the history that their catalog has."""
LOOK_EVERY_S = 0.5
PROGRESS_EVERY_S = 5.0
_TOLD = {"": "equal", "OTHER_CONFIG": "has", "NOT_IN_CATALOG": "not there", "NOT_IN_HISTORY": "has"}
At = Annotated[
    str, typer.Option("--at", help="as of then: a span ago such as 15m or 7d, or an ISO 8601 time with a zone")
]
Limit = Annotated[
    int | None,
    typer.Option(min=0, max=SHOWN_MAX, show_default=False, help=f"tablets to show; default {ROWS_SHOWN}, --json all"),
]


def replay(
    at: At = "",
    limit: Limit = None,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    topic_prefix: Prefix = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Replay the topic `history` from its oldest snapshot, and compare the configs with those in the masters' catalog.

    Tablets that differ are shown first, and the exit status is 2 then. Without masters, or with --at, nothing is
    compared. With --json each line is one tablet, and the last one the result.
    """
    now_us = time.time_ns() // 1000
    at_us = moment_us(at, now_us, "--at")
    if at_us > now_us:
        raise typer.BadParameter(f"--at {time_text(at_us)} is in the future: the history ends now, {time_text(now_us)}")
    with log_of(kafka, kafka_properties, topic_prefix, masters, None, names=(kafka_topics.HISTORY,)) as log:
        told = History(at_us)
        told.read(log)
        _need_events(log, told)
        found, catalog, why_not = told.replay.result(), None, "--at names a time: nothing is compared"
        if not at_us:
            found, catalog, why_not = _compared(log, told, masters)
    differ = told.differ
    _print(found, catalog, differ, limit, as_json)
    tell_absent(log)
    tell_left_out(log)
    if as_json:
        typer.echo(json.dumps(_summary(found, told, why_not)))
    else:
        _tell(found, told, catalog, why_not)
    if differ:
        raise typer.Exit(2)


@dataclass
class History:
    """The events of the history up to `at_us`, 0 for all of them, and what a comparison found."""

    at_us: int
    replay: pipeline.Replay = field(default_factory=lambda: pipeline.Replay())
    events: int = 0
    first_us: int = 0
    """The time of the oldest event, of a later one than `at_us` too."""
    gaps: set[tuple[int, str]] = field(default_factory=set)
    """(time, reason) of the newest NAMED_MAX losses that the masters told."""
    differ: Mapping[str, Difference] = field(default_factory=dict)

    def read(self, log: DecisionLog) -> None:
        """Add the events that the topic has now and that were not read yet."""
        for event, written_us in log.history(_progress()):
            # A snapshot is made over minutes. Its configs are of the time at which their records are written.
            known_us = event.at_us if event.kind is not EventKind.SNAPSHOT else max(event.at_us, written_us + 999)
            self.first_us = min(self.first_us or known_us, known_us)
            if self.at_us and known_us > self.at_us:
                continue
            self.events += 1
            self.replay.add(event)
            if event.kind is EventKind.GAP:
                self.gaps = set(sorted(self.gaps | {(event.at_us, event.reason[:1000])})[-NAMED_MAX:])


def _need_events(log: DecisionLog, told: History) -> None:
    """NOT_FOUND if there is nothing to replay."""
    if told.events:
        return
    tell_absent(log)
    tell_left_out(log)
    what = "Kafka has no event of a history that can be read: check --kafka and --topic-prefix, and that the masters of"
    what += " this version have Kafka (`nyala cluster check`)"
    if told.first_us:
        what = f"the oldest event of the history is of {time_text(told.first_us)}: name a later time with --at"
    raise Refused(Code.NOT_FOUND, what)


def _compared(
    log: DecisionLog, told: History, masters: str
) -> tuple[Replayed, Mapping[str, tuple[str, RaftConfig]] | None, str]:
    """The replay, the catalog, and "", with `told.differ`; or no catalog, and why not.

    Changes go on meanwhile. A tablet differs if the two did not agree on it once within SETTLE_S.
    """
    deadline = time.monotonic() + SETTLE_S
    left: set[str] | None = None
    while True:
        try:
            catalog = _catalog(masters)
        except (Refused, typer.BadParameter) as error:
            return told.replay.result(), None, f"nothing is compared, because no master answers: {error}"
        told.read(log)
        found = told.replay.result()
        now = pipeline.differences(found.configs, {tablet_id: config for tablet_id, (_, config) in catalog.items()})
        left = now.keys() if left is None else left & now.keys()  # type: ignore[assignment]
        told.differ = {tablet_id: now[tablet_id] for tablet_id in sorted(left or ())}
        if not told.differ or time.monotonic() > deadline:
            return found, catalog, ""
        time.sleep(LOOK_EVERY_S)


def _catalog(masters: str) -> dict[str, tuple[str, RaftConfig]]:
    """By id of each tablet, its table's name and its config in the masters' catalog."""
    from nyala.replica.rpc import config_from_pb

    found = {}
    with client(masters) as connected:
        for name in connected.table_names():
            try:
                tablets = connected.tablet_infos(name)
            except Refused as error:
                if error.code is Code.NOT_FOUND:  # dropped since
                    continue
                raise
            found.update({tablet.tablet_id: (name, config_from_pb(tablet.config)) for tablet in tablets})
    return found


def _progress() -> Callable[[int, int], None]:
    """A function that says on standard error, each PROGRESS_EVERY_S, how much is read."""
    last = time.monotonic()

    def tell(read: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_EVERY_S:
            last = time.monotonic()
            typer.echo(f"read {read:,} of {total:,} records of the history", err=True)

    return tell


def _print(
    found: Replayed,
    catalog: Mapping[str, tuple[str, RaftConfig]] | None,
    differ: Mapping[str, Difference],
    limit: int | None,
    as_json: bool,
) -> None:
    """Print the tablets, those that differ first."""
    ids = [*differ, *(tablet_id for tablet_id in found.configs if tablet_id not in differ)]
    limit = limit if limit is not None else SHOWN_MAX if as_json else ROWS_SHOWN
    rows = []
    for tablet_id in ids[:limit]:
        config = found.configs.get(tablet_id)
        table = catalog[tablet_id][0] if catalog and tablet_id in catalog else ""
        recorded = catalog[tablet_id][1] if catalog and tablet_id in differ and tablet_id in catalog else None
        difference = differ[tablet_id].value if tablet_id in differ else ""
        if as_json:
            documents = {"tablet_id": tablet_id, "table": table, "config": _document(config), "difference": difference}
            typer.echo(json.dumps(documents | ({"catalog": _document(recorded)} if difference else {})))
            continue
        state = f"{_TOLD[difference]} {' '.join(_words(recorded)[:2])}".rstrip()
        state = state if catalog is not None else ""
        rows.append((table, tablet_id[:12], *_words(config), cell(state, "red" if difference else "")))
    if not as_json and rows:
        headings = ("table", "tablet", "config", "members", "last decision", "catalog")
        print_table("configs", headings, rows, ("catalog", "table"))
        if len(ids) > len(rows):
            typer.echo(f"{len(rows):,} of {len(ids):,} tablets; --limit shows more", err=True)


def _words(config: RaftConfig | None) -> tuple[str, str, str]:
    """A config's position, its members, and the last decision in it, or that it was forced."""
    if config is None:
        return "", "", ""
    decision = "{}.{}".format(*config.decision) if config.decision[0] else ""
    members = ", ".join(member.uuid[:8] for member in config.members)
    return str(config.opid), members, "forced by an operator" if config.unsafe else decision


def _document(config: RaftConfig | None) -> dict[str, object] | None:
    """A config as a JSON object."""
    if config is None:
        return None
    return {
        "opid": str(config.opid), "decision": "{}.{}".format(*config.decision), "forced": config.unsafe,
        "members": [
            {"uuid": m.uuid, "votes": m.votes, "holds_data": m.holds_data, "promote": m.promote, "replace": m.replace}
            for m in config.members
        ],
    }  # fmt: skip


def _summary(found: Replayed, told: History, why_not: str) -> dict[str, object]:
    """The result as a JSON object."""
    return {
        "events": told.events, "tablets": len(found.configs), "begins": str(found.begins) if found.begins else "",
        "until": str(found.until), "missing": len(found.missing), "missing_first": list(map(str, found.missing[:10])),
        "gaps": [{"at_us": at_us, "reason": reason} for at_us, reason in sorted(told.gaps)],
        "compared": not why_not, "differences": len(told.differ), "equal": not why_not and not told.differ,
        "not_compared": why_not,
    }  # fmt: skip


def _tell(found: Replayed, told: History, catalog: Mapping[str, tuple[str, RaftConfig]] | None, why_not: str) -> None:
    """Say what was replayed, what is missing, and whether it equals the catalog."""
    typer.echo(
        f"{len(found.configs):,} tablets of {told.events:,} events, up to entry {found.until} of the masters' catalog"
    )
    if found.begins is None:
        typer.echo("no snapshot in the topic is complete: tablets may be missing, and no change is proven")
    elif found.missing:
        some = ", ".join(map(str, found.missing[:NAMED_MAX]))
        typer.echo(
            f"since entry {found.begins}, where the oldest complete snapshot began, changes of configs are missing: "
            f"{len(found.missing):,} entries are named and not there, such as {some}"
        )
    else:
        typer.echo(
            f"since entry {found.begins}, where the oldest complete snapshot began, no change of a config is missing"
        )
    for at_us, reason in sorted(told.gaps):
        typer.echo(f"events were lost before {time_text(at_us)}: {reason}")
    if why_not:
        typer.echo(why_not)
    elif not told.differ:
        typer.echo("the configs equal those in the masters' catalog")
    else:
        typer.echo(f"the configs differ from the masters' catalog: {len(told.differ):,} tablets")
        if found.configs and catalog and not found.configs.keys() & catalog.keys():
            typer.echo("the two have no tablet in common: the history is of another cluster; check --topic-prefix")
