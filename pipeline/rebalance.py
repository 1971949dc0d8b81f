"""Rebalancing and placement as Spark batch jobs: reports -> a plan -> proposals -> their outcomes.

Spark's tasks read the compacted `reports` topic, keep the newest report of each tablet and server, and plan by the
policy's pure functions, which the masters call, too. The driver gets the plan, but not the tablets for which it was
made.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.policy import (
    Caps,
    ClusterView,
    Goals,
    Inputs,
    Move,
    MoveKind,
    Moves,
    TabletView,
    inputs_of,
    not_settled,
    plan_placement,
    plan_rebalance,
    replica_load,
    room_left,
    skews,
    view_of_reports,
)
from nyala.replica.types import Outcome, Proposal, Report, Subject, Wanted, check, kafka_topics, new_uuid, some_of
from nyala.schemas import encode_record

from .errors import QueryInterrupted, QueryRefused, of_spark
from .kafka_security import security_of
from .kafka_timeouts import (
    CLOSE_TIMEOUT_S,
    KAFKA_TIMEOUT_S,
    check_reachable,
    client_options,
    producer_options,
    spark_options,
)
from .plan_tasks import made_in_tasks
from .topics import Topics

_log = logging.getLogger("nyala.pipeline")
OUTCOMES_PER_POLL = 500
POLL_S = 1.0
"""The seconds between two readings of the reports, while the job waits for tablets to settle."""


@dataclass(frozen=True, kw_only=True)
class RebalanceOptions:
    """Options of one rebalance; all stable."""

    bootstrap: str
    topic_prefix: str = ""
    """The masters' prefix of the topics `reports`, `proposals` and `outcomes`."""
    moves_max: int = 10
    moves_per_server_max: int = 2
    bytes_max: int = 1 << 62
    leader_moves_max: int = 200
    leader_moves_per_server_max: int = 50
    deadline_s: float = 600.0
    """The time after which a proposal that was not carried out is dropped."""
    drain: tuple[str, ...] = ()
    """The uuids of servers to empty, or their beginnings."""
    inputs_wait_s: float = 30.0
    """How long a plan waits for reports that are missing or out of date, as right after a master's start."""
    kafka_timeout_s: float = KAFKA_TIMEOUT_S
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Both as of the ingest query."""

    def __post_init__(self) -> None:
        check(self.deadline_s > 0, "deadline_s is positive")
        security_of(self.kafka)

    @property
    def caps(self) -> Caps:
        """Return the bounds of the plan."""
        return Caps(
            moves_max=self.moves_max,
            moves_per_server_max=self.moves_per_server_max,
            bytes_max=self.bytes_max,
            leader_moves_max=self.leader_moves_max,
            leader_moves_per_server_max=self.leader_moves_per_server_max,
        )

    def subject(self, names: Mapping[str, str]) -> frozenset[str]:
        """Return the ids of the tables that the plan is about; empty: all. `names`: table names by table id."""
        return frozenset()

    def moves(self, view: ClusterView, subject: frozenset[str]) -> Moves:
        """Return the moves that the view needs; `subject` as of that function. Pure."""
        return plan_rebalance(view, self.caps)


@dataclass(frozen=True, kw_only=True)
class PlacementOptions(RebalanceOptions):
    """Options of one placement. At least one of `tables`, `under_replicated`, `spread` and `drain` says what is placed;
    all stable."""

    tables: tuple[str, ...] = ()
    """The names of the tables to place. Replicas of other tables do not move."""
    under_replicated: bool = False
    """Whether replicas that failed get a place on another server."""
    spread: bool = False
    """Whether replicas of a tablet leave locations in which they are crowded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        goals = "--table, --under-replicated, --spread, --drain"
        if not (self.tables or self.under_replicated or self.spread or self.drain):
            raise QueryRefused(f"say what is to be placed, by one or more of {goals}: nothing was planned")

    def subject(self, names: Mapping[str, str]) -> frozenset[str]:
        """Return the ids of `tables`; QueryRefused for a table without reports."""
        of_name = {name: table_id for table_id, name in names.items()}
        if unknown := sorted(set(self.tables) - of_name.keys()):
            raise QueryRefused(
                f"there are no reports of table {', '.join(unknown)}: nothing was proposed. Reported are "
                f"{', '.join(sorted(of_name)) or 'none'}; a new table's reports come within seconds"
            )
        return frozenset(of_name[name] for name in self.tables)

    def moves(self, view: ClusterView, subject: frozenset[str]) -> Moves:
        """Return the moves that these goals need. Pure."""
        goals = Goals(
            tables=subject,
            under_replicated=self.under_replicated,
            spread=self.spread,
            drain=bool(self.drain),
        )
        return plan_placement(view, goals, self.caps)


@dataclass(frozen=True)
class Numbers:
    """How many tablets there are, the replicas and leaders of each server, and the skew of each table and in all."""

    tablets: int
    replicas: Mapping[str, int]
    leaders: Mapping[str, int]
    skews: Mapping[str | None, int]


@dataclass(frozen=True)
class Plan:
    """Moves for a view, which was made of `inputs`. `names`: table names by table id. `subject`: the ids of the tables
    that the plan is about, none for all. The other fields are those of `Moves`."""

    plan_id: str
    view: ClusterView
    moves: tuple[Move, ...]
    names: Mapping[str, str]
    inputs: Inputs
    subject: frozenset[str] = frozenset()
    left_out: int = 0
    leaders_left_out: int = 0
    replica_bound: int | None = None
    leader_bound: int | None = None
    deadline_us: int = 0
    """The wall-clock time after which the masters give up moves that are not done; 0: never."""

    def without_tablets(self, deadline_us: int = 0) -> Plan:
        """Return this plan with this deadline, and with numbers instead of tablets: the driver gets no more."""
        known = {"unsettled": self.unsettled, "stuck": self.stuck, "numbers": self.numbers}
        view, inputs = replace(self.view, tablets=()), replace(self.inputs, records=())
        light = replace(self, view=view, inputs=inputs, deadline_us=deadline_us)
        vars(light).update(known)
        return light

    @cached_property
    def numbers(self) -> Numbers:
        """Return the numbers of the view's tablets, for operators."""
        tablets = self.view.tablets
        leaders = Counter(t.leader_uuid for t in tablets)
        return Numbers(len(tablets), replica_load(self.view), leaders, skews(self.view))

    def proposals(self) -> tuple[Proposal, ...]:
        """Return the moves as proposals to the masters, in their order."""
        return tuple(proposal_of(self.plan_id, move, self.deadline_us) for move in self.moves)

    @property
    def ages_s(self) -> tuple[float, float]:
        """Return the ages of the newest and of the oldest input, in seconds."""
        newest, oldest = self.view.now_us - self.inputs.newest_us, self.view.now_us - self.inputs.oldest_us
        return max(0, newest) / 1e6, max(0, oldest) / 1e6

    @cached_property
    def _about(self) -> tuple[TabletView, ...]:
        return tuple(t for t in self.view.tablets if not self.subject or t.table_id in self.subject)

    @cached_property
    def unsettled(self) -> tuple[str, ...]:
        """Return the tablets that the plan leaves out because they are changing; they may have to move later."""
        moved = {move.tablet_id for move in self.moves}
        return tuple(t for t in not_settled(replace(self.view, tablets=self._about)) if t not in moved)

    @cached_property
    def stuck(self) -> tuple[str, ...]:
        """Return the settled tablets on servers to empty, sorted, if the plan can move no replica."""
        if any(move.kind is MoveKind.REPLICA for move in self.moves):
            return ()
        away = {s.uuid for s in self.view.servers if s.draining}
        here = {t.tablet_id for t in self._about if not away.isdisjoint(t.config.voters)}
        return tuple(sorted(here.difference(self.unsettled)))

    @property
    def complete(self) -> bool:
        """Return whether no further plan is needed once the moves are done."""
        return not (self.unsettled or self.stuck or self.left_out or self.leaders_left_out)


def planned_of(options: RebalanceOptions, now_us: int, reports: Iterable[Report]) -> Plan | Inputs | QueryRefused:
    """Return the plan for these reports, without their tablets. If reports are missing, it returns the inputs; if no
    plan can be made, the reason. It runs in a task, and is pure except for the plan's id."""
    inputs = inputs_of(reports, now_us)
    if inputs.lacks:
        return replace(inputs, records=())
    try:
        return plan_of(options, inputs, now_us).without_tablets()
    except QueryRefused as refused:
        return refused


def plan_of(options: RebalanceOptions, inputs: Inputs, now_us: int) -> Plan:
    """Return the moves that these inputs need; QueryRefused as in `Rebalancer.plan`."""
    drained = servers_of(options.drain, {each.server_uuid for each in inputs.records} - {""})
    view = view_of_reports(inputs.records, now_us, drained)
    names = {each.table_id: each.table_name for each in inputs.records if each.tablet_id}
    if drained:
        check_room(view)
    subject = options.subject(names)
    planned = options.moves(view, subject)
    moves = tuple(replace(m, reason=named(m, names)) for m in planned)
    return Plan(
        new_uuid(),
        view,
        moves,
        names,
        inputs,
        subject,
        left_out=planned.left_out,
        leaders_left_out=planned.leaders_left_out,
        replica_bound=planned.replica_bound,
        leader_bound=planned.leader_bound,
    )


class Rebalancer:
    """Reads, plans, proposes and waits. Concurrency: one thread."""

    def __init__(self, spark: Any, options: RebalanceOptions) -> None:
        self._spark = spark
        self._options = options
        self._security = security_of(options.kafka)

    def planned(self, now_us: int) -> Plan | Inputs | QueryRefused:
        """Return the result of `planned_of` for the reports that are in the topic now, without tablets and records.

        QueryRefused if there is no such topic, QueryInterrupted if Kafka does not answer.
        """
        options = self._options
        topic = options.topic_prefix + kafka_topics.REPORTS
        self._partitions_of(topic)
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", options.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.options(**{**spark_options(options.kafka_timeout_s), **options.kafka})
        records = reader.option("failOnDataLoss", "false").load()
        # The tasks that plan need no access to Kafka.
        make = partial(planned_of, replace(options, kafka={}), now_us)
        try:
            return made_in_tasks(records, make)
        except Exception as error:
            raise of_spark(error) from error

    def plan(self) -> Plan:
        """Return the moves that are needed now; none if the cluster is even.

        QueryRefused if reports are missing or out of date, if a server to empty is unknown, or if no other server has
        room for its replicas.
        """
        deadline = time.monotonic() + self._options.inputs_wait_s
        while True:
            # Spark reads up to the end of the topic at the query's start, so no record is newer than this.
            found = self.planned(time.time_ns() // 1000)
            if isinstance(found, QueryRefused):
                raise found
            if isinstance(found, Plan):
                until_us = time.time_ns() // 1000 + int(self._options.deadline_s * 1e6)
                return found.without_tablets(deadline_us=until_us)
            if not found.passing or time.monotonic() >= deadline:
                topic = self._options.topic_prefix + kafka_topics.REPORTS
                raise QueryRefused(f"nothing was planned of topic {topic} and nothing proposed: {found.lacks}")
            time.sleep(POLL_S)

    def plan_when_settled(self, timeout_s: float, tell: Callable[[str], None] = lambda _: None) -> Plan:
        """Plan as `plan` does. If no move is possible only because tablets are not settled, plan again, until
        `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        told = False
        while not (plan := self.plan()).moves and plan.unsettled and time.monotonic() < deadline:
            if not told:
                tell(left_alone(plan))
            told = True
            time.sleep(POLL_S)
        return plan

    def propose(self, plan: Plan) -> None:
        """Publish the plan's moves to `proposals`; returns when Kafka has acknowledged them."""
        check_reachable(self._options.bootstrap)
        options = producer_options(self._options.kafka_timeout_s) | self._security.python()
        try:
            producer = KafkaProducer(bootstrap_servers=self._options.bootstrap, **options)
            try:
                sent = [
                    producer.send(
                        self._options.topic_prefix + kafka_topics.PROPOSALS,
                        key=proposal.tablet_id.encode(),
                        value=encode_record(proposal),
                    )
                    for proposal in plan.proposals()
                ]
                producer.flush(timeout=self._options.kafka_timeout_s)
                for future in sent:
                    future.get(timeout=self._options.kafka_timeout_s)
            finally:
                producer.close(timeout=CLOSE_TIMEOUT_S)
        except KafkaError as error:
            raise QueryInterrupted(f"not every proposal reached Kafka: {error}; run the job again") from error

    def _partitions_of(self, topic: str) -> int:
        topics = Topics(self._options.bootstrap, self._options.kafka_timeout_s, self._security)
        try:
            return topics.identity(topic).partitions
        finally:
            topics.close()

    def wait(self, plan: Plan, timeout_s: float, tell: Callable[[str], None] = lambda _: None) -> dict[str, str]:
        """Follow `outcomes` until each of the plan's tablets is DONE, REFUSED or FAILED, or time is up.

        Returns tablet id -> last result; WAITING for those without an outcome.
        """
        state = {move.tablet_id: "WAITING" for move in plan.moves}
        deadline = time.monotonic() + timeout_s
        for outcome in self._outcomes(deadline):
            # If a master cannot read a proposal, its outcome names only the tablet.
            unread = outcome.plan_id == "" and outcome.at_us >= plan.view.now_us
            ours = (outcome.plan_id == plan.plan_id or unread) and outcome.tablet_id in state
            if ours and ends_or_accepts(outcome):
                state[outcome.tablet_id] = outcome.result
                tell(f"tablet {outcome.tablet_id}: {outcome.result.lower()} {outcome.message}".rstrip())
            if not any(result in ("WAITING", "ACCEPTED") for result in state.values()):
                break
        return state

    def _outcomes(self, deadline: float) -> Iterator[Outcome]:
        """Yield the outcomes in `outcomes` from its beginning, until the monotonic `deadline`; other records are left
        out."""
        topic = self._options.topic_prefix + kafka_topics.OUTCOMES
        places = [TopicPartition(topic, number) for number in range(self._partitions_of(topic))]
        options = client_options(self._options.kafka_timeout_s) | self._security.python()
        try:
            consumer = KafkaConsumer(bootstrap_servers=self._options.bootstrap, enable_auto_commit=False, **options)
            try:
                consumer.assign(places)
                consumer.seek_to_beginning()
                while time.monotonic() < deadline:
                    found = poll(consumer, OUTCOMES_PER_POLL, _warn_of_skipped)
                    yield from _usable((record.key, record.value) for _, record in found)
            finally:
                consumer.close()
        except KafkaError as error:
            raise QueryInterrupted(f"{topic} cannot be read: {error}; what was proposed is still decided") from error


def _warn_of_skipped(partition: TopicPartition, offset: int, error: Exception) -> None:
    _log.warning(
        "Kafka's client cannot decode a record, which was skipped: %s, offset %d: %s", partition, offset, error
    )


def _usable(records: Iterable[tuple[bytes | None, bytes | None]]) -> Iterator[Outcome]:
    """Yield the outcomes among these keys and values; foreign records are left out and logged."""
    skipped: list[str] = []
    for key, value in records:
        found = read_record(Outcome, key, value)
        if isinstance(found, Unusable):
            skipped.append(found.reason)
        else:
            yield found
    if skipped:
        _log.warning("%d records were skipped that are no outcome, the last one because: %s", len(skipped), skipped[-1])


def servers_of(prefixes: Iterable[str], uuids: Iterable[str]) -> tuple[str, ...]:
    """Return the server whose uuid begins with each prefix; QueryRefused for a prefix of none, or of several."""
    known = sorted(uuids)
    found = []
    for prefix in prefixes:
        fitting = [uuid for uuid in known if prefix and uuid.startswith(prefix)]
        if len(fitting) != 1:
            raise QueryRefused(
                f"{len(fitting)} servers begin with {prefix!r}: nothing was proposed. Known are "
                f"{', '.join(known) or 'none'}; `nyala server list` shows them"
            )
        found.append(fitting[0])
    return tuple(found)


def check_room(view: ClusterView) -> None:
    """Raise QueryRefused if servers are to be emptied and none of the others has room for one more replica."""
    load = replica_load(view)
    leaving = [s.uuid for s in view.servers if s.draining and load[s.uuid]]
    if leaving and room_left(view.servers, load) == 0:
        raise QueryRefused(
            f"no other server has room for the {sum(load[u] for u in leaving)} replicas of {', '.join(leaving)}: each "
            "that is alive holds as many as it may (--tablets-max), or none is alive. Nothing was proposed: add "
            "servers, or drop tables"
        )


def ends_or_accepts(outcome: Outcome) -> bool:
    """Return whether an outcome belongs to a whole proposal. An outcome of a decision belongs to one step of a move
    only."""
    return outcome.subject is Subject.PROPOSAL


def named(move: Move, names: Mapping[str, str]) -> str:
    """Return a move's reason with the table's name in place of its id, for operators and for proposals."""
    return move.reason.replace(move.table_id, names[move.table_id]) if move.table_id in names else move.reason


def proposal_of(plan_id: str, move: Move, deadline_us: int) -> Proposal:
    """Return a move as a proposal to the masters."""
    return Proposal(
        proposal_id=f"{plan_id}/{move.tablet_id}",
        plan_id=plan_id,
        tablet_id=move.tablet_id,
        wanted=Wanted.MOVE_REPLICA if move.kind is MoveKind.REPLICA else Wanted.TRANSFER_LEADERSHIP,
        from_uuid=move.from_uuid,
        to_uuid=move.to_uuid,
        config_opid=move.config_opid,
        deadline_us=deadline_us,
        reason=move.reason,
    )


def describe(plan: Plan) -> str:
    """Return the plan as text for operators: the present state, and each move with its reason."""
    view, numbers = plan.view, plan.numbers
    lines = [
        f"plan {plan.plan_id}: {len(view.servers)} servers, {numbers.tablets} tablets",
        told_inputs(plan),
        "",
        "server     replicas leaders  state",
    ]
    for server in view.servers:
        replicas, leaders = numbers.replicas.get(server.uuid, 0), numbers.leaders.get(server.uuid, 0)
        full = server.alive and not server.has_room(replicas)
        state = "draining" if server.draining else "full" if full else "alive" if server.alive else "silent"
        lines.append(f"{server.uuid[:8]:<10} {replicas:>8} {leaders:>7}  {state}")
    lines += ["", f"replica skew over the cluster: {numbers.skews[None]}"]
    lines += [
        f"replica skew of table {name}: {numbers.skews.get(table, 0)}" for table, name in sorted(plan.names.items())
    ]
    lines.append("")
    kinds = Counter(move.kind for move in plan.moves)
    for kind, bound in ((MoveKind.REPLICA, plan.replica_bound), (MoveKind.LEADER, plan.leader_bound)):
        if bound is not None:
            lines.append(
                f"{kind.lower()} moves: {kinds[kind]} in this plan; at least {bound} are needed until numbers are even"
            )
    if plan.left_out:
        lines.append(
            f"the caps leave out {plan.left_out} moves or more (--moves-max, --moves-per-server-max; an exchange of "
            "two replicas needs 2 of each): the cluster is not even after this plan. Plan again when its moves are "
            "done, or raise the caps"
        )
    if plan.leaders_left_out:
        lines.append(
            f"the caps leave out {plan.leaders_left_out} leader moves (--leader-moves-max, "
            "--leader-moves-per-server-max): plan again when these are done, or raise the caps"
        )
    if not (plan.moves or plan.left_out or plan.leaders_left_out):
        lines.append("nothing to move")
    if plan.unsettled:
        lines.append(left_alone(plan))
    if plan.stuck:
        lines.append(
            f"not emptied: {len(plan.stuck)} tablets stay on servers to empty, {some_of(plan.stuck, _short)}. Each "
            "other server that may get replicas has one of theirs already, or is full, or the caps are too small: add "
            "servers"
        )
    for number, move in enumerate(plan.moves, start=1):
        what = "replica" if move.kind is MoveKind.REPLICA else "leader "
        size = f", {move.bytes / 1e6:.1f} MB" if move.bytes else ""
        name = plan.names.get(move.table_id, move.table_id[:8])
        path = f"{move.from_uuid[:8]} -> {move.to_uuid[:8]}"
        lines.append(f"{number:>3}. {what} of {name}/{move.tablet_id[:8]}: {path}{size} ({move.reason})")
    return "\n".join(lines)


def told_inputs(plan: Plan) -> str:
    """Return a line with the ages of the plan's inputs, and with what was left out of them."""
    newest, oldest = plan.ages_s
    text = f"by reports that are from {newest:.1f} s to {oldest:.1f} s old"
    if not plan.inputs.dated:
        text += "; the masters' build does not publish them again and again, so no age was judged"
    if gone := plan.inputs.left_out:
        text += f"; without {len(gone)} servers that have no replicas and whose reports are out of date"
    return text


def left_alone(plan: Plan) -> str:
    """Return a text about the tablets that the plan leaves out, with the reason."""
    return (
        f"left alone because they are not settled (a change under way, no leader, a sick replica): "
        f"{len(plan.unsettled)} of {plan.numbers.tablets} tablets, {some_of(plan.unsettled, _short)}; what they "
        "need, a later plan says"
    )


def _short(tablet_id: str) -> str:
    return tablet_id[:8]


def summary(state: Mapping[str, str]) -> str:
    """Return one line with the number of moves for each result."""
    counts = {result: sum(1 for each in state.values() if each == result) for result in sorted(set(state.values()))}
    return ", ".join(f"{count} {result.lower()}" for result, count in counts.items()) or "nothing to wait for"


def all_done(state: Iterable[str]) -> bool:
    """Return whether every move was carried out."""
    return all(result == "DONE" for result in state)
