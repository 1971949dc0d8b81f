"""Makes the records of the topic `reports`: the state of each server and tablet, when it changes and periodically, at a
bounded rate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from operator import attrgetter

from nyala.replica.policy import ServerView, TabletView, desired_numbers
from nyala.replica.types import DataState, Member, ReplicaReport, Report

from ..catalog.records import TABLE, TABLET, Tablet
from ..state import MasterState
from ..tablets.view import wanted_voters

SIZES_EVERY_US = 5_000_000
"""Sizes and row counts change all the time, so they are published at most once in this time."""
SIZES_SHARE = 10
"""One record in ten may be published for changed sizes alone, or busy tablets would use up the rate, and 0.4 of a
core."""
SERVER_WITHIN_S = 60
TABLET_WITHIN_S = 1_800
"""The record of each server, and of each tablet, is published again within this time. The age of a server's record
shows whether the masters still publish. So records of tablets, which are published on change, may come less often:
333,000 tablets take 230 records a second."""
VISITS_PER_RECORD = 4
"""The most tablets that are compared with their published records, for each record that may be published."""
ALLOWANCE_US = 2_000_000
"""The longest pause between two ticks."""
OF_CLUSTER = 15
"""The hexadecimal digits of the cluster's id that a record has: as many as fit in a number of 64 bits."""

_OF_REPLICA = attrgetter(
    "uuid", "address", "votes", "promote", "replace", "health", "data_state", "is_leader", "location"
)
_OF_REPORT = attrgetter(
    "table_id", "table_name", "range_pos", "bucket", "replication_factor", "config_opid", "pending_change",
    "leader_uuid", "term", "server_address", "alive", "location", "catalog_term",
)  # fmt: skip
LONG_MAX = 2**63 - 1
"""The largest number that fits into a record. A sum over servers may be larger, and is cut."""
RATES = ("write_rows_per_s", "read_rows_per_s")
VOLATILE = frozenset({"disk_bytes_free", "servers", "tablets", "again_within_s", *RATES})
"""The numbers of a record that change all the time."""

Told = tuple[int, int, int]
"""The last record under a key: hashes of its shape and of its sizes, and the time of publication. It is a plain tuple
of numbers, because the garbage collector does not visit those."""


class Reporter:
    """Remembers the published records, and finds the ones to publish next. Concurrency: the loop's thread.

    Servers come first, then tablets that changed, then the tablets with the oldest records, then some tablets of which
    only sizes changed.
    """

    def __init__(self, state: MasterState) -> None:
        self._state = state
        self._allowed_us = state.mono_us
        """The time up to which `allowance` has counted."""
        self.published = 0
        self.visited = 0
        """The number of tablets that were compared with their published records, or published again."""
        self.forget()

    def forget(self) -> None:
        """Forget the published records, so that all are published again, at the bounded rate."""
        self._servers: dict[str, Told] = {}
        self._servers_due: OrderedDict[str, Report | None] = OrderedDict()
        self._told: OrderedDict[str, Told] = OrderedDict()
        """By tablet, the oldest first."""
        self._gone: set[str] = set()
        """The dropped tablets whose deletion from the topic was handled, while the catalog still has their records."""
        self._untold: set[str] | None = None
        """The tablets that were not compared yet; None: all."""
        self._due: OrderedDict[str, None] = OrderedDict()
        """The other tablets that may have changed, the one that waits longest first. It is an OrderedDict, because a
        dict finds its first key only after it has skipped all removed ones."""
        self._sized: OrderedDict[str, None] = OrderedDict()
        """The tablets of which only sizes changed, too soon after their last record."""
        self._unheard_due = True
        """Whether the tablets of which no member has reported are still to be noted."""

    def repeat(self, key: str) -> None:
        """Forget the report of that key, which another client overwrote, so that it is published again."""
        self._servers.pop(key, None)
        self._told.pop(key, None)
        self._gone.discard(key)
        self._due[key] = None

    @property
    def oldest_us(self) -> int | None:
        """The time at which the oldest record of a tablet was published; None if none was."""
        return next((at_us for _, _, at_us in self._told.values()), None)

    def allowance(self) -> int:
        """The number of reports that the rate allows for the time since the last call, or for ALLOWANCE_US if that is
        less."""
        now_us, rate = self._state.mono_us, self._state.options.reports_per_second_max
        since_us = max(self._allowed_us, now_us - ALLOWANCE_US)
        count = (now_us - since_us) * rate // 1_000_000
        self._allowed_us = since_us + count * 1_000_000 // rate
        return count

    def note(self, servers: Sequence[ServerView], refreshed: Set[str]) -> None:
        """Note which servers and tablets may have changed. `refreshed`: the tablets whose views were refreshed since
        the last call.

        Only the first call after `forget` walks over all tablets."""
        now_us, kept = self._state.mono_us, self._state.kept
        known = [*servers, *self._silent(servers)]
        numbers = {**self._numbers(SERVER_WITHIN_S, len(known)), "servers": len(known), "tablets": kept.formed()}
        reports = {f"server:{server.uuid}": self._server(server, numbers) for server in known}
        for key in self._servers.keys() - reports.keys():
            self._servers_due[key] = None  # it was forgotten
        for key, report in reports.items():
            told = self._servers.get(key)
            if told is None or told[0] != _shape(report) or now_us - told[2] >= SERVER_WITHIN_S * 500_000:
                self._servers_due[key] = report
        if self._untold is None:
            self._untold = {*(t for t, _ in self._state.catalog.dropped()), *kept.tablets}
        self._due.update(dict.fromkeys(refreshed - self._untold))
        if self._unheard_due and self._led_long:
            self._unheard_due = False
            self._due.update(dict.fromkeys(kept.unheard))

    @property
    def _led_long(self) -> bool:
        """Whether this leadership is so long that servers which were not heard in it are reported as silent."""
        state = self._state
        return state.mono_us - state.soft.since_us > state.options.rereplicate_after_ms * 1000

    def _silent(self, servers: Sequence[ServerView]) -> Iterator[ServerView]:
        """The servers that have replicas and were not heard in this leadership, if it is long."""
        state = self._state
        if self._led_long:
            for uuid in sorted(state.kept.replica_load().keys() - {s.uuid for s in servers}):
                yield ServerView(uuid=uuid, member=Member(uuid, tuple(state.places_of(uuid))), alive=False)

    def take(self, most: int) -> dict[str, Report | None]:
        """By key, at most `most` reports to publish now; None deletes the key. The cost is bounded by `most`, so the
        result may be empty although tablets are left to compare: the next call goes on with them."""
        now_us, out = self._state.mono_us, dict[str, Report | None]()
        while self._servers_due and len(out) < most:
            key, report = self._servers_due.popitem(last=False)
            out[key] = report
            if report is None:
                del self._servers[key]
            else:
                self._servers[key] = (_shape(report), 0, now_us)
        due, untold = self._due, self._untold or set[str]()
        for _ in range(most * VISITS_PER_RECORD):
            if len(out) == most or not (due or untold):
                break
            self._compare(due.popitem(last=False)[0] if due else untold.pop(), now_us, out)
        while len(out) < most and self._is_old(next(iter(self._told), None), TABLET_WITHIN_S * 800_000, now_us):
            self._tell(next(iter(self._told)), now_us, out)
        for _ in range(min(most - len(out), max(1, most // SIZES_SHARE))):
            if self._is_old(next(iter(self._sized), None), SIZES_EVERY_US, now_us):
                self._tell(self._sized.popitem(last=False)[0], now_us, out)
        self.published += len(out)
        return out

    def _is_old(self, key: str | None, age_us: int, now_us: int) -> bool:
        """Whether there is a key, and its record has that age or there is none."""
        return key is not None and (key not in self._told or now_us - self._told[key][2] >= age_us)

    def _compare(self, key: str, now_us: int, out: dict[str, Report | None]) -> None:
        """Publish the report of a tablet if it changed, or delete it if the tablet is gone."""
        record = self._state.catalog.get(TABLET, key)
        told = self._told.get(key)
        self.visited += 1
        if record is not None and record.dropped:
            if key not in self._gone:
                self._gone.add(key)
                self._told.pop(key, None)
                out[key] = None
            return
        self._gone.discard(key)  # if the record of a dropped tablet was removed
        report = self._tablet(key, record)
        if told is None or report is None or told[0] != _shape(report):
            self._publish(key, report, now_us, out)
        elif told[1] != _sizes(report):
            self._sized[key] = None

    def _tell(self, key: str, now_us: int, out: dict[str, Report | None]) -> None:
        self.visited += 1
        self._publish(key, self._tablet(key, self._state.catalog.get(TABLET, key)), now_us, out)

    def _publish(self, key: str, report: Report | None, now_us: int, out: dict[str, Report | None]) -> None:
        self._sized.pop(key, None)
        if report is not None:
            self._told[key] = (_shape(report), _sizes(report), now_us)
            self._told.move_to_end(key)
            out[key] = report
        elif self._told.pop(key, None) is not None:
            out[key] = None

    def _numbers(self, within_s: int, count: int) -> dict[str, int]:
        """The numbers that each record has. The first is the seconds within which it is published again; that takes
        longer if there are too many records for the rate. The second is the cluster's, so that readers can distinguish
        the records of two clusters on one topic."""
        within_s = max(within_s, 5 * count // (4 * self._state.options.reports_per_second_max))
        return {"again_within_s": within_s, "cluster": int(self._state.cluster_id[:OF_CLUSTER] or "0", 16)}

    def _server(self, server: ServerView, numbers: Mapping[str, int]) -> Report:
        addresses, known = server.member.addresses, self._state.soft.servers.get(server.uuid)
        more = {
            "tablets_max": server.tablets_max,
            "copies_failing": len(known.last_report.copies_failing) if known is not None else 0,
            "avoided": server.avoided,
            "retired": server.draining,
            "maintenance": server.maintenance,
            "quiescing": server.quiescing,
        }
        if server.disk_bytes_free is not None:
            numbers = {**numbers, "disk_bytes_free": server.disk_bytes_free}
        return Report(
            server_uuid=server.uuid,
            server_address=str(addresses[0]) if addresses else "",
            alive=server.alive,
            location=server.location,
            numbers={**numbers, **{name: int(number) for name, number in more.items() if number}},
            catalog_term=self._state.led_term,
            at_us=self._state.clock.wall_us(),
        )

    def _tablet(self, tablet_id: str, record: Tablet | None) -> Report | None:
        """The report of a tablet; None if it has none. If no member of a tablet has been heard for long, the report has
        the catalog's knowledge."""
        state = self._state
        tablet = state.kept.tablets.get(tablet_id)
        if tablet is None and record is not None and tablet_id in state.kept.unheard and self._led_long:
            voters, config = wanted_voters(state.catalog, tablet_id), record.known_config
            tablet = TabletView(tablet_id=tablet_id, table_id=record.table_id, replication_factor=voters, config=config)
        if record is None or tablet is None:
            return None
        table = state.catalog.get(TABLE, tablet.table_id)
        known = state.soft.tablets.get(tablet_id)
        return Report(
            tablet_id=tablet_id,
            table_id=tablet.table_id,
            table_name=table.name if table else "",
            range_pos=record.range_pos,
            bucket=record.bucket,
            replication_factor=tablet.replication_factor,
            config_opid=tablet.config.opid,
            pending_change=tablet.pending or tablet.desired is not None,
            leader_uuid=tablet.leader_uuid,
            term=max(known.leader_term, 0) if known else 0,
            replicas=tuple(self._replica(tablet, m) for m in tablet.config.members),
            numbers={
                **self._numbers(TABLET_WITHIN_S, len(state.kept.tablets)),
                **self._rates(tablet),
                **desired_numbers(tablet),
            },
            catalog_term=state.led_term,
            at_us=state.clock.wall_us(),
        )

    def _rates(self, tablet: TabletView) -> dict[str, int]:
        """The rows a second that its leader applies, and those that all of its replicas send to readers."""
        members = ((m.uuid, self._state.soft.replica(m.uuid, tablet.tablet_id)) for m in tablet.config.members)
        told = [(uuid == tablet.leader_uuid, replica) for uuid, replica in members if replica is not None]
        written = sum(replica.write_rows_per_s for leads, replica in told if leads)
        read = sum(replica.read_rows_per_s for _, replica in told)
        return {name: min(n, LONG_MAX) for name, n in zip(RATES, (written, read), strict=True) if n}

    def _replica(self, tablet: TabletView, member: Member) -> ReplicaReport:
        server = self._state.soft.servers.get(member.uuid)
        status = self._state.soft.replica(member.uuid, tablet.tablet_id)
        addresses = server.addresses if server else member.addresses
        return ReplicaReport(
            uuid=member.uuid,
            address=str(addresses[0]) if addresses else "",
            votes=member.votes,
            promote=member.promote,
            replace=member.replace,
            health=tablet.health_of(member.uuid).name,
            data_state=status.data_state if status else DataState.DOES_NOT_EXIST,
            bytes_on_disk=status.bytes_on_disk if status else 0,
            rows=status.rows if status else 0,
            is_leader=member.uuid == tablet.leader_uuid,
            location=server.last_report.location if server else "",
        )


def _shape(report: Report) -> int:
    """A hash of the report without sizes, numbers that change all the time, and its time."""
    steady = tuple((name, number) for name, number in report.numbers.items() if name not in VOLATILE)
    return hash((_OF_REPORT(report), steady, *map(_OF_REPLICA, report.replicas)))


def _sizes(report: Report) -> int:
    rates = tuple(report.numbers.get(name, 0) for name in RATES)
    return hash((rates, *((each.bytes_on_disk, each.rows) for each in report.replicas)))
