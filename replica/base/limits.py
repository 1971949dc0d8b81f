"""Every bound of the system in one place. Bytes, microseconds or counts, as the name's end says."""

from __future__ import annotations

ROW_SIZE_BYTES_MAX = 1 << 20
BATCH_SIZE_BYTES_MAX = 8 << 20
BATCH_ROWS_MAX = 1 << 20
BATCH_TARGET_BYTES = 1 << 20
COLUMNS_MAX = 300
KEY_SIZE_BYTES_MAX = 16 << 10
NAME_LENGTH_MAX = 256
TOPIC_LENGTH_MAX = 249
"""Kafka's own."""
TABLE_NAME_LENGTH_MAX = 236
"""So that `dead-letters.<table>`, the longest of a table's topics, is a name that Kafka takes."""

WAL_SEGMENT_SIZE_BYTES_MAX = 64 << 20
WAL_SEGMENT_SIZE_BYTES_FIRST = 256 << 10
WAL_QUEUE_BYTES_MAX = 64 << 20

APPEND_BATCH_BYTES_MAX = 4 << 20
APPEND_INFLIGHT_BYTES_MAX = 16 << 20
APPEND_INFLIGHT_MESSAGES_MAX = 64
LOG_CACHE_BYTES_PER_TABLET_MAX = 32 << 20
PEER_QUEUE_BYTES_MAX = 64 << 20

TABLET_WRITES_PENDING_MAX = 4096
TABLET_WRITE_BYTES_PENDING_MAX = 32 << 20
SERVER_MEMORY_SOFT_BYTES = 340 << 20
MEMSTORE_FLUSH_BYTES = 64 << 20

SCAN_BATCH_BYTES = 1 << 20
SCANS_OPEN_MAX = 64
GRPC_MESSAGE_BYTES_MAX = 16 << 20
COPY_MANIFEST_BYTES_MAX = 256 << 20
"""A session's superblock travels whole: the masters' holds the catalog, a tablet's what sources and writers left."""

COPY_FAILURES_MAX = 3
"""So many copies in a row failed for the target's own reasons: another server is tried. One or two may be due to what
passes by itself, such as a quarantine that is just being purged; three, with a leader's back-off between them, are not.
A wrong verdict costs a copy elsewhere, and waiting for more costs time with a replica too few."""
MASTERS_MAX = 16
"""Masters that a server sends heartbeats to: those that it was told of, and those that these name."""
PEERS_SOUGHT_MAX = 64
"""Servers that one heartbeat asks the masters for; the others are asked for by the next ones."""

LEDGER_ERRORS_BYTES_MAX = 8 << 20
"""Memory for the row errors of all clients that a tablet remembers; saved they take no more than half of it. They are
in the superblock, which a copy sends in one message."""
LEDGER_RESULTS_MAX = 50_000
"""Results of all clients that a tablet remembers."""
LEDGER_ERROR_RUNS_MAX = 1_000_000
"""Runs of failed rows that a tablet remembers of one source. No micro-batch may have more offsets than this: then
whatever its rows are, it can be applied, and replayed, before the source's done position moves."""
LEDGER_CLIENTS_MAX = 10_000
LEDGER_RESULTS_PER_CLIENT_MAX = 256
LEDGER_CLIENT_ID_CHARS_MAX = 128
LEDGER_CLIENT_TTL_US = 10 * 60 * 1_000_000

TABLETS_PER_SERVER_MAX = 1500
"""Measured by `nyala bench idle --local --tablets 1500`: at rest 12 % of a core and 266 MB of each of three servers
with so many, all led again 44 s after all were killed; see replica/server/DESIGN.md."""

CLOCK_AHEAD_OF_CALLERS_US_MAX = 10 * 1_000_000
"""How far a time that a caller has seen may lie above this server's hybrid clock."""
CLOCK_AHEAD_OF_PEERS_US_MAX = 30 * 1_000_000
"""The same for times of a leader: more, so that a server which followed a caller to its bound is still followed."""

CLOCK_DIFFERENCE_US_MAX = 500_000
"""How far the wall clocks of two servers of a cluster may lie apart for reads of bounded staleness to be as fresh as
they say. Nothing else rests on it."""
STALENESS_US_MAX = 366 * 86_400 * 1_000_000

COPY_CHUNK_BYTES = 1 << 20
COPY_READ_BYTES = 256 << 10
"""So many bytes of a copy are taken from the network and written at once: larger blocks of memory are given back to the
kernel and cleared anew each time."""
COPY_STREAMS_MAX = 4
"""Files of one session that are fetched at once. Of each one's connection the kernels of both ends keep up to 10 MB."""
COPY_IN_FLIGHT_BYTES = 16 << 20
"""Of one session, fetched by the target and not written yet. With the kernel's share of its connections a session stays
below 64 MB of memory."""
COPY_BUSY_RATE_BYTES_PER_S = 32 << 20
"""What a server's copies get while clients write, unless an operator says otherwise."""
COPY_RATE_MIN_BYTES_PER_S = 128 << 10
"""Below it, a stream's turn could come after the other end's patience, while all streams of a server share the rate."""
COPY_FETCH_BYTES = 8 << 20
"""One request for a file's bytes asks for so many at most."""
COPY_SESSIONS_MAX = 4
COPY_FETCHES_MAX = 32
"""Connections on which a server serves copies at once: what its sessions need, and again as many that end just now."""
COPY_SESSION_TTL_US = 60 * 1_000_000
