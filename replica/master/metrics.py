"""Prometheus metrics of one master, computed at each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.transport import Exporter, call_families
from nyala.replica.types import limits

from .collection_pauses import CollectionPauses
from .kafka.kafka_link import KafkaLink
from .kafka.kafka_state import Link
from .state import MasterState

NEVER_S = -1.0


class Metrics(Exporter):
    """The metrics of the master's parts."""

    def __init__(
        self,
        checks: RequestChecks,
        connections: ConnectionBound,
        pauses: CollectionPauses,
        state: MasterState | None = None,
    ) -> None:
        super().__init__()
        self.state = state
        """None before this master has opened its catalog: until then there are only metrics of calls."""
        self._pauses = pauses
        self._checks = checks
        self._connections = connections

    def collect(self) -> Iterator[Any]:
        """All metric families."""
        if (state := self.state) is not None:
            yield from self._of_master(state)
        yield from call_families("nyala_master", self._checks, self._connections)

    def _of_master(self, state: MasterState) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        catalog = state.catalog
        for name, what, value in (
            ("nyala_master_leads", "Whether this master leads", int(state.group.is_leader)),
            ("nyala_master_tables", "Tables of the catalog", catalog.count("table/")),
            ("nyala_master_tablets", "Tablets of the catalog, dropped ones included", catalog.count("tablet/")),
            ("nyala_master_tablets_busy", "Tablets that are not at rest", len(state.kept.busy)),
            ("nyala_master_catalog_bytes", "Bytes of the catalog's records", catalog.size_bytes),
            ("nyala_master_gc_pause_seconds_max", "The longest full garbage collection so far", self._pauses.longest_s),
            ("nyala_master_catalog_bytes_max", "Above these nothing may be added", limits.CATALOG_BYTES_MAX),
        ):
            yield GaugeMetricFamily(name, what, value=value)
        looks = "Views of tablets that were refreshed, because they may have changed"
        yield CounterMetricFamily("nyala_master_tablet_looks", looks, value=state.kept.refreshes)
        refused = "Ticks without decisions, because a change of the catalog was refused"
        yield CounterMetricFamily("nyala_master_ticks_refused", refused, value=state.ticks_refused)
        reports = "Records of reports that were handed to Kafka's client"
        yield CounterMetricFamily("nyala_master_reports", reports, value=state.reports_published)
        compared = "Tablets that were compared with their records of reports, or published again"
        yield CounterMetricFamily("nyala_master_reports_compared", compared, value=state.reports_compared)
        since_us = state.oldest_report_us
        age_s = NEVER_S if since_us is None else (state.mono_us - since_us) / 1e6
        oldest = "The age of the oldest record of a tablet in reports; -1: this master published none"
        yield GaugeMetricFamily("nyala_master_report_age_seconds_max", oldest, value=age_s)
        if state.kafka is not None:
            yield from kafka_families(state.kafka, state.mono_us)


def kafka_families(link: KafkaLink, now_us: int) -> Iterator[Any]:
    """The status of Kafka as numbers; `now_us`: the monotonic clock's time."""
    yield GaugeMetricFamily("nyala_master_kafka_connected", "Whether Kafka answered lately", value=int(link.connected))
    yield CounterMetricFamily("nyala_master_kafka_dropped", "Records given up unpublished", value=link.dropped)
    labels = ["topic", "doing"]
    ups = GaugeMetricFamily(
        "nyala_master_kafka_up", "1: it works; 0: it does not, or is not this master's", labels=labels
    )
    dead = GaugeMetricFamily("nyala_master_kafka_dead", "1: its thread has ended by a defect", labels=labels)
    ages = GaugeMetricFamily(
        "nyala_master_kafka_success_age_seconds", "Since the last success; -1: there was none", labels=labels
    )
    failures = CounterMetricFamily("nyala_master_kafka_failures", "Failures so far", labels=labels)
    for channel in link.state.channels():
        of = [channel.topic, channel.doing.value]
        ups.add_metric(of, int(channel.link is Link.CONNECTED))
        dead.add_metric(of, int(channel.link is Link.DEAD))
        ages.add_metric(of, NEVER_S if channel.success_us is None else max(0, now_us - channel.success_us) / 1e6)
        failures.add_metric(of, channel.failures)
    skipped = CounterMetricFamily(
        "nyala_master_kafka_skipped", "Records that could not be used", labels=["topic", "fault"]
    )
    for each in link.state.all_skipped():
        skipped.add_metric([each.topic, each.fault.value], each.count)
    yield from (ups, dead, ages, failures, skipped)
