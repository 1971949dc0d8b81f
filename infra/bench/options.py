"""The options of benchmarks. Imports nothing, so that `nyala bench --help` is fast."""

from __future__ import annotations

from dataclasses import dataclass

PEERS = ("kudu",)
ROWS = 2_000_000
ROWS_PER_BATCH = 400_000
WRITES = 1000
COPY_MB = 1000
TABLETS_MAX = 5000
SCALE_TABLETS_MAX = 333_000
STREAM_S = 10.0
DECISIONS = 10_000
DECISIONS_MAX = 1_000_000
PLAN_REPLICAS_MAX = 10_000_000


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """The size of `masters-at-scale`: played servers, the tablets of all, and the replicas of each."""

    servers: int = 20
    tablets: int = 1000
    replicas: int = 3
    beat_ms: int = 500
    """The time between two heartbeats of a server."""
    watch_s: float = 10.0
    kafka: bool = False
    """Whether a broker is started for the master, and the publishing of `reports` is measured."""
    curve: tuple[int, ...] = ()
    """If there are any: the numbers of tablets that are measured one after the other, instead of `tablets`."""

    def __post_init__(self) -> None:
        if not 1 <= self.replicas < self.servers <= 1000 or not 100 <= self.beat_ms <= 60_000:
            raise ValueError(
                "there are up to 1000 servers, more than replicas, and 100 to 60,000 ms between heartbeats"
            )
        sizes = self.curve or (self.tablets,)
        if not all(5 <= n <= SCALE_TABLETS_MAX for n in sizes) or not 1 <= self.watch_s <= 600:
            raise ValueError(f"there are 5 to {SCALE_TABLETS_MAX:,} tablets, and they are watched for 1 to 600 s")

        if list(sizes) != sorted(set(sizes)):
            raise ValueError("the sizes of a curve are different, the smallest first")

    @property
    def rereplicate_ms(self) -> int:
        """The silence after which a server's replicas are replaced."""
        return max(6_000, 8 * self.beat_ms)


@dataclass(frozen=True, kw_only=True)
class PlanSize:
    """The size of `plan`: a cluster of played reports."""

    replicas: int = 100_000
    """Of all tablets, three each."""
    tables: int = 300
    servers: int = 1000
    moves_max: int = 1000
    """The moves of replicas, and of leaders, that a plan may have."""
    curve: tuple[int, ...] = ()
    """If there are any: the numbers of replicas that are measured one after the other, instead of `replicas`."""

    def __post_init__(self) -> None:
        sizes = self.curve or (self.replicas,)
        if not all(300 <= n <= PLAN_REPLICAS_MAX for n in sizes) or list(sizes) != sorted(set(sizes)):
            raise ValueError(f"a plan is of 300 to {PLAN_REPLICAS_MAX:,} replicas; a curve begins with the smallest")
        if not 30 <= self.servers <= 10_000 or not 1 <= self.tables <= 100_000 or self.moves_max < 1:
            raise ValueError("there are 30 to 10,000 servers, 1 to 100,000 tables, and 1 move or more")


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of a run. `masters` names a running cluster; without it a stack is started here."""

    masters: str = ""
    rounds: int = 5
    rows: int = ROWS
    writes: int = WRITES
    mb: int = COPY_MB
    rows_per_batch: int = ROWS_PER_BATCH
    tablets: int = 1000
    watch_s: float = 30.0
    peer: str = ""
    scale: ScaleOptions = ScaleOptions()
    decisions: int = DECISIONS
    plan: PlanSize = PlanSize()
    stream_s: float = STREAM_S
    """The least time of repeated scans, and of each bare stream beside them."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= 100:
            raise ValueError(f"{self.rounds} rounds asked for: between 1 and 100 make sense")
        if self.rows < 1000 or self.writes < 100 or self.mb < 1 or self.rows_per_batch < 1000:
            raise ValueError("too little work to be measured: at least 1000 rows, 100 writes, 1 MB")
        if not 1 <= self.tablets <= TABLETS_MAX or not 1 <= self.watch_s <= 600:
            raise ValueError(f"there are 1 to {TABLETS_MAX} tablets, and they are watched for 1 to 600 s")
        if not 0.1 <= self.stream_s <= 600:
            raise ValueError(f"scans repeated for {self.stream_s} s: between 0.1 and 600 make sense")
        if not 1 <= self.decisions <= DECISIONS_MAX:
            raise ValueError(f"there are 1 to {DECISIONS_MAX:,} decisions")
        if self.peer and self.peer not in PEERS:
            raise ValueError(f"no peer {self.peer!r}: choose from {', '.join(PEERS)}")


class BenchmarkError(RuntimeError):
    """A round did not do its work; the text is one line on the cause."""
