"""`nyala unsafe replace`: empty tablets in the place of those of which no replica is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from nyala import pipeline
from nyala.infra.printing import line
from nyala.replica import tools
from nyala.replica.types import Code, Refused

from .context import (
    Confirmed,
    Json,
    Masters,
    Tablets,
    client,
    console,
    find_tablet,
    local_kafka,
    not_yet,
    print_json,
    print_table,
)
from .letters import Kafka, KafkaProperties, login_of
from .unsafe import print_lowerings

if TYPE_CHECKING:
    from nyala.replica.client import Client
    from nyala.replica.rows import SourceKey
    from nyala.replica.rpc import pb

WARNING = (
    "All rows of these tablets are lost, but for those that Kafka still has and an ingest reads again. What is left\n"
    "of them on servers that return is deleted, and there is no way back. Do this only if no replica will ever\n"
    "return: if one may, wait for it, and let `nyala unsafe recover` go on from it."
)


def replace(
    tablet: Tablets = [],  # noqa: B006
    table: Annotated[list[str], typer.Option(help="all lost tablets of this table; repeat it")] = [],  # noqa: B006
    yes_i_lose_data: Confirmed = "",
    despite_replicas: Annotated[
        bool, typer.Option("--despite-replicas", help="unsafe: also tablets with rows on running servers; deletes them")
    ] = False,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    no_kafka: Annotated[
        bool, typer.Option("--no-kafka", help="do not ask Kafka how far back it goes: sources go back to their start")
    ] = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Print, or carry out, a plan that puts empty tablets in the place of those that lost every replica.

    The last resort: where a replica is left, `nyala unsafe recover` goes on from it. Run it once to see the plan and
    again with its fingerprint. The new tablets have the partitions of the lost ones; source positions go back, so that
    an ingest that begins without its checkpoint reads again what Kafka still has. Members that return are emptied.
    """
    if not (tablet or table):
        raise typer.BadParameter("say which tablets: --tablet ID or --table NAME")
    with client(masters) as connected:
        infos = _infos(connected, tablet, table)
        positions = connected.list_sources()
        floors = _first_kept(
            positions, {i.table_id for i in infos}, "" if no_kafka else kafka or local_kafka(), kafka_properties
        )
        plan = _plan(connected, infos, positions, floors or {}, despite_replicas=despite_replicas)
        asked_for = [i.tablet_id for i in infos if any(i.tablet_id.startswith(t) for t in tablet)]
        failed = any(a.tablet_id in asked_for for a in plan.left_alone)
        made: dict[str, str] = {}
        if not as_json:
            _print_plan(plan, kafka_asked=floors is not None)
        if yes_i_lose_data:
            made = _carry_out(connected, plan, yes_i_lose_data, floors or {}, despite_replicas=despite_replicas)
    if as_json:
        print_json({"carried_out": bool(made), **tools.replacement_json(plan, made)})
    elif made:
        for old, new in sorted(made.items()):
            console.print(f"T {old} replaced by {new}")
        text = f": {len(made)} tablets replaced; empty ones take their place now. Look with"
        console.print(line(("done", "green"), text))
        console.print("  nyala cluster check")
    elif plan.tablets and not yes_i_lose_data:
        not_yet(plan.fingerprint)
    if failed:
        raise typer.Exit(1)


def _infos(connected: Client, tablets: Sequence[str], tables: Sequence[str]) -> list[pb.TabletInfo]:
    """The masters' descriptions of the requested tablets, each once."""
    found: dict[str, pb.TabletInfo] = {}
    for prefix in tablets:
        name, tablet_id = find_tablet(connected, prefix)
        found.update((i.tablet_id, i) for i in connected.tablet_infos(name) if i.tablet_id == tablet_id)
    for name in tables:
        found.update((i.tablet_id, i) for i in connected.tablet_infos(name))
    return list(found.values())


def _plan(
    connected: Client,
    infos: Sequence[pb.TabletInfo],
    positions: Sequence[pb.SourcePosition],
    floors: dict[SourceKey, int],
    *,
    despite_replicas: bool,
) -> tools.ReplacementPlan:
    running, silent = tools.of_running(connected)
    return tools.plan_replacement(
        infos,
        {t.table_id: t.name for t in connected.list_tables()},
        tools.by_tablet(running),
        {s.uuid for s in connected.list_servers().servers} - silent.keys(),
        positions=positions,
        floors=floors,
        despite_replicas=despite_replicas,
    )


def _first_kept(
    positions: Iterable[pb.SourcePosition], table_ids: set[str], kafka: str, properties: str
) -> dict[SourceKey, int] | None:
    """The first offset that Kafka has, for each source of these tables; None if no broker is known."""
    from nyala.replica.rows import SourceKey

    mine = [p for p in positions if p.table_id in table_ids]
    if not mine:
        return {}
    if not kafka:
        return None
    found: dict[SourceKey, int] = {}
    topics = pipeline.Topics(kafka, security=login_of(properties))
    try:
        for name in sorted({p.topic for p in mine}):
            now = topics.identity(name)
            first = topics.offsets(name, now.partitions)
            found.update((SourceKey(now.cluster_id, now.topic_id, number), offset) for number, offset in first.items())
    except (pipeline.QueryRefused, pipeline.QueryInterrupted) as error:
        raise typer.BadParameter(f"{error}; nothing was changed. Without it: --no-kafka") from error
    finally:
        topics.close()
    return found


def _print_plan(plan: tools.ReplacementPlan, *, kafka_asked: bool) -> None:
    if plan.tablets:
        rows = [
            (t.tablet_id, t.table_name, *(" ".join(u[:8] for u in uuids) or "-" for uuids in (t.members, t.unseen)))
            for t in plan.tablets
        ]
        headings = ("tablet", "table", "members", "not seen")
        print_table(f"replacement plan {plan.fingerprint}", headings, rows, ("members", "table"))
    for uuid in sorted({u for t in plan.tablets for u in t.unseen}):
        count = sum(uuid in t.unseen for t in plan.tablets)
        what = "If it lives, or only its directory does, start it, or recover from it"
        console.print(line(("not seen", "red"), f": {uuid}, a member of {count} of these tablets. {what}"))
    for uuid in sorted({u for t in plan.tablets for u in t.with_rows}):
        count = sum(uuid in t.with_rows for t in plan.tablets)
        text = f": rows of {count} of these tablets on {uuid}, which runs"
        console.print(line(("thrown away", "red"), text))
    print_lowerings(plan.lowerings)
    for loss in plan.losses:
        place = f": {loss.topic}[{loss.kafka_partition}] from {loss.start} to {loss.first_kept}"
        text = f"{place}, of which rows of these tablets do not come back"
        console.print(line(("not in Kafka any more", "red"), text))
    if plan.lowerings and not kafka_asked:
        goes = "with --kafka HOST:PORT sources go back no further than that, where an ingest can begin"
        console.print(line(("Kafka was not asked", "yellow"), f" how far back it goes: {goes}"))
    for alone in plan.left_alone:
        text = f" tablet {alone.tablet_id} of {alone.table_name}: {alone.what}"
        console.print(line(("left alone", "green"), text))
    console.print(line((WARNING, "red")) if plan.tablets else "nothing to replace")


def _carry_out(
    connected: Client,
    plan: tools.ReplacementPlan,
    confirmed: str,
    floors: dict[SourceKey, int],
    *,
    despite_replicas: bool,
) -> dict[str, str]:
    """New tablet by lost one; empty if there is none to replace. Refused(CAS_FAILED) for another plan's fingerprint."""
    if confirmed != plan.fingerprint:
        what = "that is not this plan's fingerprint: read the plan again"
        raise Refused(Code.CAS_FAILED, what, given=confirmed, plan=plan.fingerprint)
    if not plan.tablets:
        return {}
    reply = connected.replace_tablets(
        [t.tablet_id for t in plan.tablets], floors=floors, despite_replicas=despite_replicas
    )
    return {r.tablet_id: r.new_tablet_id for r in reply.replacements}
