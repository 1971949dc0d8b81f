"""Reads the topic `reports` beside a benchmark: when every record is there, how much is published, how old it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from nyala.replica.types import KAFKA_AWAY, kafka_topics

from .options import BenchmarkError
from .report import Figures

POLL_MS = 50
RECORDS_PER_POLL = 2_000
SERVER = "server:"
"""The keys of servers' records begin so."""


@dataclass
class Published:
    """What was published so far: the time of each key's last record. Times are Kafka's, in seconds."""

    servers: int
    tablets: int
    last_s: dict[str, float] = field(default_factory=dict)
    records: int = 0
    size_bytes: int = 0
    first_s: float | None = None
    servers_whole_s: float | None = None
    whole_s: float | None = None
    """When the last of all servers and tablets had its first record."""
    first_round: tuple[int, int] = (0, 0)
    """The records and their bytes until then."""
    _servers_there: int = 0

    def add(self, key: str, size_bytes: int, at_s: float) -> None:
        """Count one record."""
        self.first_s = at_s if self.first_s is None else self.first_s
        self.records += 1
        self.size_bytes += size_bytes
        self._servers_there += key.startswith(SERVER) and key not in self.last_s
        self.last_s[key] = at_s
        if self.servers_whole_s is None and self._servers_there >= self.servers:
            self.servers_whole_s = at_s
        if self.whole_s is None and len(self.last_s) >= self.servers + self.tablets:
            self.whole_s, self.first_round = at_s, (self.records, self.size_bytes)

    def figures(self, began_s: float) -> Figures:
        """The first round: how long it took from `began_s` on, and its rates. KeyError if it has not ended."""
        if self.whole_s is None or self.servers_whole_s is None or self.first_s is None:
            raise KeyError(f"{len(self.last_s)} of {self.servers + self.tablets} records are there")
        records, size_bytes = self.first_round
        seconds = max(0.001, self.whole_s - self.first_s)
        return {
            "scale_reports_servers_s": self.servers_whole_s - began_s,
            "scale_reports_whole_s": self.whole_s - began_s,
            "scale_reports_per_s": records / seconds,
            "scale_reports_kb_per_s": size_bytes / 1000 / seconds,
        }

    def ages(self, now_s: float) -> Figures:
        """The ages of the oldest last record of a server, and of a tablet."""
        of_servers = [at for key, at in self.last_s.items() if key.startswith(SERVER)]
        of_tablets = [at for key, at in self.last_s.items() if not key.startswith(SERVER)]
        return {
            "scale_reports_server_age_s": now_s - min(of_servers, default=now_s),
            "scale_reports_tablet_age_s": now_s - min(of_tablets, default=now_s),
        }


class ReportsWatch:
    """Reads the topic from its beginning, on a thread of its own. Ends with its `with`."""

    def __init__(self, bootstrap: str, servers: int, tablets: int, cpu_s: Callable[[], float]) -> None:
        """`cpu_s`: the CPU time of the master so far."""
        self.published = Published(servers, tablets)
        self._bootstrap, self._cpu_s = bootstrap, cpu_s
        self._cpu: list[tuple[float, float]] = []
        """(CPU, time) of the master at the first record, and when all were there."""
        self._closing, self._lock = threading.Event(), threading.Lock()
        self._whole = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="reports-watch", daemon=True)

    def __enter__(self) -> ReportsWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def wait_whole(self, timeout_s: float) -> None:
        """Wait until each server and each tablet has a record; BenchmarkError after that time."""
        there = self._whole.wait(timeout_s) and not self._failure
        if not there:
            found, wanted = len(self.published.last_s), self.published.servers + self.published.tablets
            why = self._failure or f"{timeout_s:.0f} s have passed"
            raise BenchmarkError(f"`{kafka_topics.REPORTS}` has {found:,} of {wanted:,} records: {why}")

    def figures(self, began_s: float) -> Figures:
        """The first round since `began_s`, with the share of a core that the master used meanwhile."""
        with self._lock:
            (cpu_first, first_s), (cpu_last, last_s) = self._cpu[0], self._cpu[-1]
            busy = 100 * (cpu_last - cpu_first) / max(0.001, last_s - first_s)
            return self.published.figures(began_s) | {"scale_reports_cpu_percent": busy}

    def ages(self) -> Figures:
        """How old the oldest records are now."""
        with self._lock:
            return self.published.ages(time.time())

    def _run(self) -> None:
        try:
            consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
            try:
                self._read(consumer)
            finally:
                consumer.close()
        except (BenchmarkError, KafkaError, *KAFKA_AWAY) as error:
            self._failure = f"{type(error).__name__}: {error}"
            self._whole.set()

    def _read(self, consumer: KafkaConsumer) -> None:
        while not (places := consumer.partitions_for_topic(kafka_topics.REPORTS)):
            if self._closing.wait(POLL_MS / 1000):
                return
        consumer.assign([TopicPartition(kafka_topics.REPORTS, number) for number in sorted(places)])
        consumer.seek_to_beginning()
        while not self._closing.is_set():
            polled = consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL)
            with self._lock:
                for records in polled.values():
                    for record in records:
                        size_bytes = len(record.key) + len(record.value or b"")
                        self.published.add(record.key.decode(), size_bytes, record.timestamp / 1000)
                if self.published.records and (not self._cpu or not self._whole.is_set()):
                    self._cpu[1:] = [(self._cpu_s(), time.monotonic())]
                    if self.published.whole_s is not None:
                        self._whole.set()
