"""Connects the reconciler on the loop with the threads of Kafka and of the decision executor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from nyala.replica.client import Client
from nyala.replica.decision_executor import Bounds, DecisionExecutor, execute
from nyala.replica.policy import ServerView
from nyala.replica.types import Decision, Outcome, Proposal, Refused, kafka_topics
from nyala.replica.types.log_records import about

from ..kafka.kafka_link import KafkaLink
from ..state import MasterState
from .history_writer import HistoryWriter
from .reconciler import Reconciler
from .reporter import Reporter

_log = logging.getLogger("nyala.master")
CONSIDER_TIMEOUT_S = 20.0
BOUNDS = Bounds(workers=4, per_target_max=2)
"""The retries of a decision have no limit of time: its deadline, a newer decision or a withdrawal ends them."""
REPORTS_PER_STEP = 50
"""The most reports that are made in one step of the loop: 8 ms of work."""
HISTORY_PER_STEP = 50
"""The most events that are encoded in one step of the loop: 5 ms of work."""
REPORTS_WAITING_MAX = 5_000
"""While so many records wait for Kafka, no more reports are made, because waiting records are soon out of date."""


def slices_of(reports: int, waiting: int) -> list[int]:
    """The number of reports to make in each step of the loop. `reports`: those that the rate allows; `waiting`: the
    records that wait for Kafka. Pure."""
    whole, rest = divmod(max(0, min(reports, REPORTS_WAITING_MAX - waiting)), REPORTS_PER_STEP)
    return [REPORTS_PER_STEP] * whole + [rest] * (rest > 0)


class DecisionSinks:
    """Connects the reconciler with its sinks. Concurrency: the loop's thread, except for callbacks that name another
    one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state: MasterState,
        reconciler: Reconciler,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_fatal` is called on the loop's thread when a thread of Kafka has ended by a defect."""
        self._on_fatal = on_fatal
        self._loop = loop
        self._state = state
        self._reconciler = reconciler
        self._link: KafkaLink | None = None

    def start_executor(self) -> DecisionExecutor:
        """Carry decisions out in this process, which gets them directly and not through Kafka."""
        state = self._state
        masters = state.group.replica.active_config.members
        addresses = [a for m in masters for a in m.addresses if m.uuid != state.uuid]
        client = Client([state.address, *addresses])
        executor = DecisionExecutor(lambda decision: execute(decision, client), self._executed, BOUNDS)
        executor.start()
        self._reconciler.add_sink(executor.accept)
        return executor

    def _executed(self, outcome: Outcome) -> None:
        """Called on an executor's thread."""
        link = self._link
        if link is not None:
            link.publish_outcome(
                replace(outcome, executor=f"master {self._state.uuid}", at_us=self._state.clock.wall_us())
            )

    def _defect(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._on_fatal, error)

    def start_kafka(self) -> KafkaLink:
        """Publish decisions, reports and outcomes, and answer proposals, while Kafka answers."""
        state = self._state
        options = state.options
        link = KafkaLink(
            options.kafka,
            options.topic_prefix,
            lambda: state.group.is_leader,
            self._consider,
            options.kafka_security,
            clock=state.clock,
            on_defect=self._defect,
        )
        self._link = link
        reporter = Reporter(state)
        history = HistoryWriter(lambda: state.catalog, state.uuid)
        was = {"connection": 0, "term": -1}

        def publish(decisions: dict[str, Decision | None]) -> None:
            for tablet_id, record in decisions.items():
                link.publish(kafka_topics.DECISIONS, tablet_id, record)

        def decided(sent: dict[str, Decision | None], wall_us: int) -> None:
            history.decided(state.led_term, sent, wall_us)

        async def append_history() -> None:
            if not link.connection:
                return
            events = history.take(state.led_term, state.mono_us, state.clock.wall_us())
            for count, event in enumerate(events, start=1):
                link.append_history(event, history.acknowledged)
                if count % HISTORY_PER_STEP == 0:
                    await asyncio.sleep(0)

        async def on_view(servers: Sequence[ServerView], refreshed: Set[str]) -> None:
            await append_history()
            await publish_reports(servers, refreshed)
            state.reports_published, state.reports_compared = reporter.published, reporter.visited
            state.oldest_report_us = reporter.oldest_us

        async def publish_reports(servers: Sequence[ServerView], refreshed: Set[str]) -> None:
            now = {"connection": link.connection, "term": state.led_term}
            if not now["connection"]:
                return
            if now != was:
                was.update(now)
                reporter.forget()
            for key in link.overwritten():
                reporter.repeat(key)
            reporter.note(servers, refreshed)
            for most in slices_of(reporter.allowance(), link.waiting):
                for key, report in reporter.take(most).items():
                    link.publish(kafka_topics.REPORTS, key, report)
                await asyncio.sleep(0)
                if state.led_term != now["term"]:
                    return  # the next leadership begins anew

        self._reconciler.add_sink(publish, lambda: link.connection)
        self._reconciler.on_view = on_view
        self._reconciler.on_decided = decided
        self._reconciler.on_outcome = link.publish_outcome
        state.kafka = link
        link.start()
        return link

    def _consider(self, proposal: Proposal) -> Outcome | None:
        """Called on the thread that reads proposals: ask the reconciler on the loop, and wait."""
        future = asyncio.run_coroutine_threadsafe(self._reconciler.consider(proposal), self._loop)
        try:
            return future.result(CONSIDER_TIMEOUT_S)
        except (Refused, concurrent.futures.TimeoutError, concurrent.futures.CancelledError) as error:
            about(_log, proposal.tablet_id).info("a proposal waits: %s", error)
            return None
