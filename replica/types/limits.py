"""Every bound of the system in one place. The end of a name says whether it is bytes, microseconds or a count."""

from __future__ import annotations

from typing import NamedTuple

ROW_SIZE_BYTES_MAX = 1 << 20
"""Bounds all values of variable length of a row: those that a batch has, and those that the row has afterwards."""
ROW_EVENT_BYTES_MAX = ROW_SIZE_BYTES_MAX + (64 << 10)
"""Bounds the value of a row event: beside its texts, the largest row has numbers, and lengths in Avro."""
BATCH_SIZE_BYTES_MAX = 8 << 20
BATCH_ROWS_MAX = 1 << 20
BATCH_FILLED_BYTES_MAX = 128 << 20
"""Bounds what the columns that a batch leaves out add to its rows: in each row their defaults or nulls. A row of eight
bytes becomes one of a megabyte if a default is as long."""
DEFAULTS_BYTES_MAX = 16 << 10
"""Bounds the defaults of variable length of all columns of one table together; a key has the same bound. Each row that
leaves the columns out is longer by these defaults, and so is every row that is older than a column."""
WRITE_REPLY_BYTES_MAX = 15 << 20
"""Bounds the reply to one batch all of whose rows fail. The reply is one message, so a batch that could have a longer
one is refused."""
BATCH_KEPT_BYTES_MAX = 128 << 20
"""Bounds the stored values of variable length that the rows of one batch keep because the batch leaves their columns
out. The leader estimates them and refuses a batch above the bound; the client then sends its rows in two batches."""
BATCH_PASSES_MAX = 1000
"""Passes in which a tablet applies one batch: rows of one key, if each depends on the row before, need one each, and so
do different keys of one hash. A pass takes up to about half a millisecond, during which the tablet cannot be read. A
batch with more is refused, and clients send its rows in two batches."""
BATCH_PASS_VALUES_MAX = 30_000
"""The same passes times the columns of the table: a pass of 300 columns takes ten times as long as one of thirty."""
BATCH_PASS_PLACES = 512
"""The places at which one pass finds its rows at most, approximately: batches in memory, and blocks."""
BATCH_PASS_READS_MAX = 160_000
"""Bounds the reads of keys in all passes of one batch. A pass reads each column of the key at each place where it finds
rows, in some 5 us. One pass may read all 300 columns at all places."""
KEPT_BYTES_MAX = 8 << 20
"""Bounds the values that a tablet copies at a time for rows of which a batch has some columns only; a longer row is
copied alone. A batch itself may have as many bytes."""
BATCH_TARGET_BYTES = 1 << 20
COLUMNS_MAX = 300
KEY_SIZE_BYTES_MAX = 16 << 10
NAME_LENGTH_MAX = 256
NUMBER_MAX = 1 << 62
"""Received whole numbers (offsets, terms, durations in microseconds and so on) are from 0 to this: the sum of two does
not overflow. Hybrid times alone may be larger."""
ID_LENGTH_MAX = 128
"""Ids of tablets, tables, servers and clusters. File names consist of a tablet's id, a prefix and a suffix."""
TOKEN_LENGTH_MAX = 256
"""Bounds keys that callers make up: request ids, plan ids, runs."""
TEXT_LENGTH_MAX = 4096
"""Bounds received texts that people read: reasons, errors, versions, locations."""
REPORTED_TEXT_LENGTH_MAX = 64 << 10
"""The same bound for the errors in a server's report: a long one must not cause the report's refusal."""
JSON_DEPTH_MAX = 32
SCHEMA_DEPTH_MAX = 100
"""Bounds the nesting of an Avro schema as JSON: a record within a record is three levels."""
SECONDS_MAX = 366 * 86_400.0
"""Bounds received durations in seconds."""
TOPIC_LENGTH_MAX = 249
"""Kafka has the same bound."""
TABLE_NAME_LENGTH_MAX = 236
"""With this bound `dead-letters.<table>`, the longest of a table's topics, is a name that Kafka accepts."""

TOPIC_RECORD_BYTES_MAX = 1 << 20
"""Bounds a record on one of the masters' topics; it is Kafka's default."""
TOPIC_TEXT_BYTES_MAX = 64 << 10
"""Bounds one text in such a record; the longest that a master or an executor writes is a reason or an error's
message."""
TOPIC_ITEMS_MAX = 64
"""Bounds one list in such a record; the longest are the members of a config and the edits of a decision."""
TOPIC_NAME_CHARS_MAX = 512
"""An id in such a record. A proposal's consists of two uuids; its sender may have made a longer one."""
CHANGE_DEADLINE_US_MAX = 7 * 86_400 * 1_000_000
"""Bounds how far ahead the deadline of a desired change may be. Until the deadline no other change of its tablet is
accepted."""

WAL_SEGMENT_SIZE_BYTES_MAX = 64 << 20
WAL_SEGMENT_SIZE_BYTES_FIRST = 256 << 10
WAL_QUEUE_BYTES_MAX = 64 << 20
WAL_APPENDING_THREADS = 64
"""The group commits of a process that may wait for the disk at a time, whatever the number of its logs. One core makes
some 10,000 group commits a second, so a disk with syncs of 5 ms keeps about 50 threads waiting."""
WAL_PREALLOCATING_THREADS = 4

APPEND_BATCH_BYTES_MAX = 4 << 20
APPEND_META_BYTES_MAX = 16 << 10
APPEND_ENTRIES_MAX = 512
"""Bounds the entries of one AppendEntries, unless its first entry alone has more meta. Followers decode every meta
before they accept the entries, and this many take 4 ms of their loop. A message with more, such as an older build
sends, is decoded on a thread."""
APPEND_INFLIGHT_BYTES_MAX = 16 << 20
APPEND_INFLIGHT_MESSAGES_MAX = 64

RAFT_TERM_MAX = (1 << 63) - 1
"""The wire and the metadata hold a term as an int64. A replica in this term starts no election."""
RAFT_INDEX_MAX = 1 << 62
"""Log indexes and numbers of heartbeat rounds: half of what an int64 holds, so that adding one never overflows."""
RAFT_TERMS_HONEST_MAX = 1 << 31
"""Bounds the terms of a generation that a group can have reached: with the shortest interval, 0.6 s, it would have held
elections without a break for forty years. It is half of a generation, so as many terms are left."""
RAFT_TERM_JUMP_MAX = 1 << 24
"""Above those terms, a message whose term is higher than the receiver's by more than this is refused: it takes at least
128 messages to reach the last term."""
RAFT_GENERATION_JUMP_MAX = 1000
"""The same bound for generations. Only an operator begins one."""
CONFIG_MEMBERS_PROPOSED_MAX = 16
"""Bounds the members of one group to which a leader adds one. The leader sends to each of them; seven voters and as
many joining members are enough for every group."""
CONFIG_MEMBERS_MAX = 64
"""Bounds the members of a config that followers, copies and masters accept. It is never less than what a leader may
propose: a replica that refused a config could not go on in its group, since the entry stays in the log."""
VOTE_REASON_CHARS_MAX = 1024
HOST_CHARS_MAX = 255
"""Bounds a host name in an address: DNS has no longer one."""
PEER_QUEUE_BYTES_MAX = 64 << 20

CONNECTIONS_WITHOUT_TICKET_MAX = 256
"""Bounds the connections to the links' port that have not shown their ticket. A server shows it a round trip after it
connects, so there is time enough even at a thousand new ones a second. Beyond the bound the oldest connection of the
address with the most is closed."""
LINKS_OF_SERVERS_MAX = 1024
"""Bounds the links of servers that are in a config of this server, or that the masters name. Each has one, so this is
the largest cluster."""
LINKS_OF_SERVERS_BYTES_MAX = 128 << 20
"""Bounds the batches that have arrived in part. A batch has 4 MB and is complete within milliseconds, so there are few
at a time."""
LINKS_OF_STRANGERS_MAX = 64
"""Bounds the links of servers that this server does not know. An honest one is unknown for a moment: a new server that
is about to get its first replica hears from its leader before it knows a config."""
LINKS_OF_STRANGERS_BYTES_MAX = 32 << 20
LINKS_OF_CLIENTS_MAX = 1024
"""Bounds the links for small writes; a client process has one to each server. The link that was idle longest is closed
first, and its client opens another when it writes again."""
LINKS_OF_CLIENTS_PER_ADDRESS_MAX = 512
"""Half of all, so that one host cannot take every link; no host runs so many client processes. If the whole cluster
runs on one machine, all clients have one address; the servers' links are counted separately."""
LINKS_OF_CLIENTS_BYTES_MAX = 64 << 20
LINK_REPLIES_BYTES_MAX = 16 << 20
"""Bounds the replies that wait for one client that does not read them; beyond the bound the link ends."""
FRAME_S_MAX = 15.0
"""A connection is closed if a frame is not complete within this time of its first byte; a long frame has the time that
its bytes need at `FRAME_BYTES_PER_S_MIN`."""
FRAME_BYTES_PER_S_MIN = 256 << 10
ANSWER_BYTES_MAX = 128 << 10
"""Bounds a tablet server's answer to a master, before it is parsed: an identity, or the status of one tablet, which has
at most REPLICA_STATUS_BYTES_MAX. As many bytes of empty statuses are parsed in milliseconds."""
TICKET_BYTES_MAX = 64
"""Bounds the ticket of a connection, which its holder sends as the first frame; it has 16 bytes."""
PEERS_UNKNOWN_MAX = 256
"""Bounds the unknown servers whose addresses this server remembers, and for which answers may wait."""
LINK_CALLS_MAX = 128
LINK_CALLS_PER_HOST_MAX = 32
"""Bounds the requests for links whose sender this server is asking for at its address, in all and of one host. An
answer takes some milliseconds, and a request above the bound gets a stranger's link, which ends after a second."""
METRICS_CONNECTIONS_MAX = 32
"""Bounds the connections of the page of metrics and health, a thread each. One that is silent for five seconds ends; if
there is one too many, the oldest ends."""
GRPC_CONNECTIONS_MAX = 2048
"""Bounds the gRPC connections of one server; a client process has one or two to each server. Further ones are closed at
once."""
GRPC_CONNECTIONS_PER_HOST_MAX = GRPC_CONNECTIONS_MAX // 2
"""The same for one host, so that it cannot take all of them."""
GRPC_STREAMS_PER_CONNECTION_MAX = 256
"""Bounds the calls under way on one connection; further ones wait at the client."""
GRPC_HANDSHAKE_MS_MAX = 10_000
"""A connection on which HTTP/2's preface is not complete by then is closed."""
GRPC_IDLE_MS_MAX = 300_000
"""A connection without a call for this time is closed; its client connects anew when it calls again."""
CALLS_MAX = 16_384
CALLS_PER_HOST_MAX = 8192
"""Bounds the gRPC calls under way of one host: half of all, so that one host cannot take everything. A task of a Spark
job has up to four writes under way for each tablet: 256 tasks on one host, with eight tablets led here, have as many.
Small writes are not counted, because they come on links."""
CALLS_MEMORY_BYTES_MAX = 1 << 30
CALLS_MEMORY_PER_HOST_BYTES_MAX = 512 << 20
"""Bounds the memory that one host's calls may take together, computed from their rows of REQUESTS
(`replica/rpc/call_costs.py`): half of all. The costliest single call, a write of 8 MB in the smallest rows, fits into
it."""
REQUEST_WINDOW_BYTES = 64 << 10
"""Bounds what a server stores of a request before it begins to receive it, or beside one that it has received."""
CALL_BEGUN_BYTES = REQUEST_WINDOW_BYTES + (32 << 10)
"""A call is charged for this much until it ends: these bytes, and gRPC's objects of some 20 KiB (measured)."""
REQUESTS_READ_MAX = 16
REQUESTS_READ_PER_HOST_MAX = 4
"""Bounds the requests that a server receives at a time: a quarter of all for one host, so that one host cannot keep
others out. Calls whose row of REQUESTS allows more than REQUEST_SMALL_BYTES have as many slots of their own, so that no
short call waits for long ones. gRPC stores a request until it is whole and compares its length with one number for all
calls. So requests that are not whole take 2 x 16 x 9 MiB at a tablet server, and 2 x 16 x 16 MiB at a master, a quarter
of it for one host. A slot is free as soon as its request is there: four requests of a megabyte in 5 ms are more than a
network card transmits."""
SHORT_REQUEST_TURN_S = 2.0
LONG_REQUEST_TURN_S = 5.0
"""If all slots are taken, a call whose request is not whole after this time makes room for a host with fewer slots.
Half requests of a few addresses would keep all others out otherwise."""
REQUEST_WAIT_S_MAX = 60.0
"""Bounds how long a call waits for a slot if its deadline is later; writers of ours have this deadline."""
REQUEST_BYTES_PER_S_MIN = 128 << 10
"""A call ends if its request is not whole FRAME_S_MAX after it got its slot, plus the time that the longest request of
its row needs at this rate. For a write that is 80 s: a client of ours gives up before, at 60 s. All slots of a host
together then need 512 KiB/s."""
GIVE_BACK_S = 2.0
"""So long after a request that ended before it was whole, the process gives its free memory back to the kernel. gRPC
has it in pieces of some kilobytes between others, so the C library would keep much of it."""
REPLY_S_MAX = 60.0
"""A reply is dropped if its caller has not received it within this time plus what its bytes need at
`FRAME_BYTES_PER_S_MIN`. Until then it is charged to the caller's host."""
PEER_BATCH_MESSAGES_MAX = 8192
"""Bounds the messages of one batch between servers; a sender splits a longer one. A batch has two or three for each
tablet that both servers have, which are 1,500 at most."""
PEER_BATCH_ENTRIES_MAX = 1 << 16
"""Bounds the entries of one batch: a leader counts 64 bytes for each besides what it holds, and sends 4 MB at a
time."""
PEER_BATCH_ENTRIES_SENT = 1024
"""Bounds the entries of one batch that this build sends, unless its first message has more: the receiver handles a
batch in one iteration of its loop, at about 25 us for an entry."""
PEER_BATCH_SMALL_BYTES = 1 << 20
"""A batch up to this length is parsed without counting its fields first. Parsed, it takes up to a hundred times as much
memory for a moment."""

TABLET_WRITES_PENDING_MAX = 4096
WRITES_PER_LINK_MAX = 1024
"""Bounds the writes under way on one link; at this number the server stops reading the link, and flow control makes the
client wait."""
TABLET_WRITE_BYTES_PENDING_MAX = 32 << 20
SERVER_MEMORY_SOFT_BYTES = 340 << 20
MEMSTORE_FLUSH_BYTES = 64 << 20

SCAN_BATCH_BYTES = 1 << 20
"""Bounds the rows that a scan evaluates together, measured in the columns that it reads; a longer row is evaluated
alone."""
SCAN_PIECE_ROWS_MAX = 1 << 16
"""Bounds the number of these rows."""
SCAN_CHUNK_BYTES_MAX = 2 * SCAN_BATCH_BYTES + (256 << 10)
"""Bounds one message of a scan: SCAN_BATCH_BYTES of rows or one row, and Arrow's metadata of 300 columns. The rows
count twice, because updates of single columns made longer rows in older builds."""
SCAN_SLICES_MAX = 1 << 20
"""Bounds the slices of a tablet's hash space."""
SCAN_PREDICATES_MAX = 1000
"""Bounds the conditions of one scan: each is one comparison for every batch."""
SCAN_VALUES_MAX = 100_000
"""Bounds the values of all conditions of one scan together. A scan's thread prepares them once: in a few milliseconds
if they have the column's type, otherwise in steps that end if the caller leaves."""
SCAN_VALUES_BYTES_MAX = 7 << 20
"""Bounds the same values in wire form: SCAN_VALUES_MAX texts of 64 characters (SHA-256 sums) fit."""
SCAN_ODD_VALUES_MAX = 1000
"""Bounds the values in lists of one scan that the column's type cannot hold: each is one comparison for every batch."""
GET_KEYS_MAX = 4096
"""Bounds the keys in one call of Get."""
GET_KEYS_BYTES_MAX = 1 << 20
"""Bounds these keys in wire form."""
GET_BYTES_MAX = 4 << 20
"""Bounds the rows in the answer of one call of Get, approximately; the client requests the remaining keys again. The
answer always has at least one row."""
GET_REPLY_BYTES_MAX = GET_BYTES_MAX + (1 << 20) + (512 << 10)
GETS_OPEN_MAX = 256
GETS_OPEN_PER_HOST_MAX = 192
SCANS_OPEN_MAX = 64
SCANS_OPEN_PER_HOST_MAX = 48
SCAN_HANDSHAKES = 4
"""Bounds the TLS handshakes of connections for scans at a time, a thread each. Those of further scans wait, and the
rows of a scan that waits for too long leave on its call."""
CHECKSUMS_OPEN_MAX = 64
"""Bounds the checksum calls of one server. Each reads a whole replica on one of the threads for checksums; further
calls wait for a thread."""
CHECKSUMS_OPEN_PER_HOST_MAX = 48
CHECKSUM_WAIT_S = 60.0
"""Bounds the time in which one replica must get a thread and apply all entries up to the time of a comparison."""
CHECKSUM_BYTES_PER_S_MIN = 20 << 20
CHECKSUM_CELLS_PER_S_MIN = 1_000_000
"""A caller of a replica's checksum allows it the time that its bytes and its cells need at these rates. A core sums ten
times as fast (`nyala bench checksum`); a busy core, or a disk that is read for the first time, may be slower."""
MAPS_SHARE_TO_OPEN_MAX = 0.95
"""A process that uses a larger share of its memory maps opens no blocks, of two maps each, of a replica that a copy
brought: `REMEDIES` says what to do. The rest is for flushes, and for threads and libraries, which abort the process if
they get no map."""
MAPS_SHARE_TO_FLUSH_MAX = 0.98
"""The same for the new blocks of a flush, and for those of a replica that ran here before: a restart opens what was
open. A merge needs no leave, because it closes more blocks than it opens."""
LOOP_THREADS = 8
"""Threads of a server's event loop for calls that may block: a name look-up, a read of the identity's file, a mount."""
CALLER_STAYS_S_MAX = 24 * 3600.0
"""The work for one call ends after this time, whatever its deadline."""
CALLER_STAYS_S_DEFAULT = 600.0
"""The same for a caller that sends no deadline."""
GRPC_MESSAGE_BYTES_MAX = 16 << 20
REPORT_BYTES_MAX = 4 << 20
"""Bounds the replicas' statuses in one heartbeat: 1,500 of them, each of a tablet with seven members, are smaller."""
REPORT_REPLICAS_MAX = 10_000
"""Bounds the statuses in one heartbeat: a server sends no more, and a master accepts no more. Further ones, for example
of many deleted tablets, are in the next heartbeats."""
ORDERS_BYTES_MAX = 4 << 20
"""Bounds the orders in one heartbeat's reply. An order to create a tablet holds the whole description of its table."""
DESCRIPTIONS_PER_HEARTBEAT_MAX = 50
"""Bounds the table descriptions that the master encodes for the orders of one heartbeat, one in each step of the loop:
300 columns take some 5 ms, and a server waits 3 s for the reply. The next heartbeat's reply has the remaining
orders."""
DESCRIPTIONS_BYTES_MAX = 32 << 20
"""Bounds the encoded descriptions that a master keeps: those of 2,500 tables with 300 columns, or as many as eight
replies can hold."""
LOOK_UPS_BYTES_MAX = 64 << 20
"""Bounds the encoded pages of tables' tablets that a master keeps: those of some 60,000 tablets of three replicas."""
TABLE_BYTES_MAX = 1 << 20
"""Bounds the description of one table. 300 columns with names of 256 characters and ten schemas of 40 KB are
smaller."""
WRITER_SCHEMA_BYTES_MAX = 256 << 10
WRITER_SCHEMAS_MAX = 200
"""Bounds the writer schemas of one table. At the bound an operator removes one, because only people know which events
still wait in Kafka."""
TABLES_MAX = 20_000
TABLETS_PER_TABLE_MAX = 1024
TABLETS_MAX = 100_000
"""Bounds the tablets of all tables, including dropped ones until the catalog forgets them."""
SOURCES_PER_TABLE_MAX = 10_000
CATALOG_BYTES_MAX = 192 << 20
"""Bounds the masters' catalog: at this size no table, tablet or source is added. A copy of it is one message of at most
COPY_MANIFEST_BYTES_MAX; the difference is left for changes of the existing ones."""
READ_TIMES_MAX = 20_000
"""Bounds the times of Spark queries that the catalog keeps, the newest. One takes up to 350 bytes of the state and 3 KB
of memory. CATALOG_BYTES_MAX does not bound them: the difference to COPY_MANIFEST_BYTES_MAX has room for them."""
READ_TIMES_PER_HOST_MAX = READ_TIMES_MAX // 2
"""The same bound for those that callers of one host proposed, so that it cannot push out all others. Each costs a
committed entry of the masters' log."""
PLACE_LENGTH_MAX = 256
"""Bounds the place in a list after which a page begins: a source's key, of four names, is the longest."""
PAGE_BYTES = 1 << 20
"""The length of one page of a list that our clients request."""
PAGE_BYTES_MAX = 12 << 20
"""Bounds one page, whatever its caller requests. With the largest single item it stays below one message."""
COPY_MANIFEST_BYTES_MAX = 256 << 20
"""Bounds a session's superblock, which is one message: the masters' holds the catalog, a tablet's the ledger of sources
and clients."""

COPY_FAILURES_MAX = 3
"""After this many copies in a row that failed for reasons of the target server, the masters choose another server. One
or two failures may have a temporary cause, for example a quarantine that is being purged; three, with a leader's
back-off between them, do not. A wrong decision costs a copy elsewhere; waiting for more failures costs time with one
replica too few."""
MASTERS = (1, 3, 5)
"""The allowed numbers of masters. An even number survives no more failures than the odd number below it, and with more
than five each change of the catalog waits for more disks."""
MASTER_ADDRESSES_MAX = 16
"""Bounds the addresses to which one server sends heartbeats: those of its options, which may include former ones and
second names of one master, and those that the masters name. It is three for each of five masters, and one more."""
SERVERS_MAX = 4096
"""Bounds the tablet servers without a tablet that the masters know, each of which has answered a call of theirs. It is
a hundred times the largest cluster tried. Servers in a config take no room from others: the catalog bounds them."""
SERVERS_PER_HOST_MAX = 256
"""Bounds the tablet servers whose heartbeats come from one host. A machine runs one, or some dozens in a test; a rack
behind one address has room too. Servers that the catalog's configs have count towards neither bound."""
SERVER_ADDRESSES_MAX = 4
SERVER_ADDRESS_PROVEN_US = 600 * 1_000_000
"""A tablet server that counts at another address than the catalog has proves nothing until it has counted there for
this time. A process elsewhere may have taken its uuid while it was down: a restart takes seconds, that of a machine
minutes, and then the server itself counts again."""
SERVER_APPLICANTS_MAX = 1024
SERVER_APPLICANTS_PER_HOST_MAX = 64
"""Bounds the senders of heartbeats that the leading master has not yet reached at the address they name. An honest one
is an applicant for some milliseconds, so there is room for a whole machine's servers; false ones fill their own host's
share."""
SERVER_APPLICANTS_PER_UUID_MAX = 8
SERVER_APPLICANTS_PER_UUID_AND_HOST_MAX = 2
"""Bounds the applicants with one uuid: a server that starts again while the call to its former process is under way
needs two. Known addresses of the server are counted separately, so forged heartbeats do not take the server's
places."""
SERVER_CALLS_MAX = 16
SERVER_CALLS_PER_HOST_MAX = 4
"""Bounds the applicants of one host that the master calls at the same time; a call ends after 1.5 s. Servers at
addresses where the masters know them have as many calls of their own."""
REPLICAS_REPORTED_MAX = 20_000
"""Bounds the replicas and tombstones that the masters accept from one server: it holds 1,500 tablets, and remembers
deleted ones."""
REPLICA_STATUS_BYTES_MAX = 64 << 10
REPORT_MEMORY_BYTES_MAX = 64 << 20
"""Bounds the memory for what the masters keep of one server's statuses, computed by
`master/heartbeats/report_limits.py`: 1,500 tablets of seven members each are 14 MB, and as many deleted ones as may be
reported 21 MB."""
REPORT_STRANGERS_MEMORY_BYTES_MAX = 512 << 20
"""The same bound for statuses of replicas whose servers are no members of the tablet, of all servers together. The
catalog bounds members; any process that answers at an address may report other replicas."""
REPORT_STATUSES_PER_S_MAX = 8000
REPORT_STATUSES_BURST_MAX = 60_000
REPORT_STATUSES_OF_HEARTBEAT = 50
"""Each heartbeat counts as this many more statuses. A server of 1,500 tablets that all change reports 3,000 statuses a
second, and one with 20,000 reports all of them at once to a new leading master."""
FULL_REPORTS_MAX = 8
"""Bounds the servers that a master lets report all their replicas at the same time; the others wait."""
COPIES_FAILING_MAX = 200
COPY_ERROR_CHARS_MAX = 300
"""Bounds the failing copies of one server, and the text of each error, in a heartbeat and in what masters keep and
show."""
INQUIRIES_MAX = 8
"""Bounds the tablets whose members the master calls at the same time, before a deletion or after a change: usually
three calls for each."""
INQUIRIES_PENDING_MAX = 64
"""Bounds the inquiries under way or waiting; a later tick or heartbeat repeats the request for the others."""
INQUIRIES_PENDING_PER_SERVER_MAX = 8
"""Bounds those of them that concern replicas that one server reports: one that reports thousands does not delay
others."""
PEERS_SOUGHT_MAX = 64
"""Bounds the servers whose addresses one heartbeat requests; the next heartbeats request the others."""

LEDGER_ERRORS_BYTES_MAX = 8 << 20
"""Bounds the memory for the row errors of all clients that a tablet remembers; saved they take no more than half of it.
They are in the superblock, which a copy sends in one message."""
LEDGER_RESULTS_MAX = 50_000
"""Bounds the results of all clients that a tablet remembers."""
LEDGER_ERROR_RUNS_MAX = 1_000_000
"""Bounds the runs of failed rows that a tablet remembers of one source. No micro-batch may have more offsets than this:
then it can be applied, and replayed, whatever its rows are, before the source's done position moves."""
LEDGER_CLIENTS_MAX = 10_000
LEDGER_RESULTS_PER_CLIENT_MAX = 256
LEDGER_CLIENT_ID_CHARS_MAX = 128
LEDGER_CLIENT_TTL_US = 10 * 60 * 1_000_000

TABLETS_PER_SERVER_MAX = 1500
"""Measured by `nyala bench idle --local --tablets 1500`: at rest each of three servers with so many used 12 % of a core
and 266 MB, and after all were killed, all tablets had a leader again in 44 s; see replica/server/DESIGN.md."""

CLOCK_AHEAD_OF_CALLERS_US_MAX = 10 * 1_000_000
"""Bounds how far a time that a caller has seen may lie above this server's wall clock."""
CLOCK_AHEAD_OF_PEERS_US_MAX = 30 * 1_000_000
"""The same bound for times of a leader. It is larger, so that a server whose clock followed a caller to the bound is
still followed by others."""

CLOCK_DIFFERENCE_US_MAX = 500_000
"""Bounds the difference between the wall clocks of two servers. If it is larger, reads of bounded staleness may be
older than requested; nothing else depends on it."""
REPLICAS_MAX = 7
"""Bounds the voting replicas that an operator may ask for."""
HISTORY_RETENTION_US_MAX = 10 * 366 * 86_400 * 1_000_000
STALENESS_US_MAX = 366 * 86_400 * 1_000_000

COPY_CHUNK_BYTES = 1 << 20
COPY_READ_BYTES = 256 << 10
"""Bytes of a copy that are received and written at once. The allocator returns larger blocks of memory to the kernel,
which clears them anew each time."""
COPY_STREAMS_MAX = 4
"""Bounds the files of one session that are fetched at once. For each one's connection the kernels of both ends keep up
to 10 MB."""
COPY_IN_FLIGHT_BYTES = 16 << 20
"""Bounds the bytes of one session that the target has fetched and not written yet. With the kernel's memory for its
connections a session stays below 64 MB."""
COPY_BUSY_RATE_BYTES_PER_S = 32 << 20
"""The rate of all copies of a server while clients write, unless an operator sets another."""
COPY_RATE_MIN_BYTES_PER_S = 128 << 10
"""At a lower rate, which all streams of a server share, a stream could wait longer than its receiver's time limit."""
COPY_FETCH_BYTES = 8 << 20
"""Bounds the bytes of a file in one request."""
COPY_BEGIN_S_MAX = 30.0
"""Bounds how long a target waits until a source has answered BeginCopy, so that a source that says nothing returns its
place among the few that run. The source reads the log above its last flush once, which is 600 MiB at
CHECKSUM_BYTES_PER_S_MIN; a server flushes a tablet whose log has grown by 64 MiB."""
COPY_BEGIN_FLUSH_S = 60.0
"""The further time if the source flushes first: it waits up to 30 s for entries to be applied, and writes
MEMSTORE_FLUSH_BYTES. Only a server's own jobs, which bring rows to a witness, ask for that."""
COPY_BEGIN_CATALOG_S_MAX = 120.0
"""The first bound for a copy of the masters' catalog, whose superblock may have COPY_MANIFEST_BYTES_MAX, and for
offline tools. Neither takes a place from other copies."""
COPY_LOG_SUMS_MAX = 1024
"""Bounds the checksums of segments that a source keeps of captures that ended before they were complete."""
COPY_PART_WAIT_S_MAX = 300.0
"""Bounds how long a target waits for each COPY_CHUNK_BYTES of a file. At COPY_RATE_MIN_BYTES_PER_S a source has sent a
part on each of its COPY_FETCHES_MAX connections in 256 s."""
COPY_SIGNS_OF_LIFE_MAX = 1000
"""Bounds the empty parts in that time. An honest source sends 60, one every 5 s; others cost the target a message
each."""
COPY_SESSIONS_MAX = 4
COPY_SESSIONS_PER_HOST_MAX = 3
"""Bounds the sessions of one host, whatever uuids it names, so that there is always a place for another host."""
COPY_SESSIONS_OF_STRANGERS_MAX = 2
"""Bounds the sessions of all servers that are no members of their tablet's config. A leader adds a server before it
copies to it, so only operators' copies are among these (`nyala copy start`)."""
COPY_FETCHES_PER_SESSION_MAX = 8
"""Bounds the connections on which a session's files are fetched: COPY_STREAMS_MAX, and as many again that are about to
end."""
COPY_FETCHES_MAX = COPY_SESSIONS_MAX * COPY_FETCHES_PER_SESSION_MAX
"""The same bound for all sessions together. A connection whose session is over is closed when another one comes."""
COPIES_WAITING_MAX = 256
"""Bounds the copies that leaders asked this server for and that wait for a place (`--copy-jobs-max`), whose tablets are
remembered. A leader asks again for each that is refused, so the bound costs no copy."""
COPIES_WAITING_PER_HOST_MAX = 128
"""The same bound for the copies that one host asked for: half of all, so that it cannot take every place."""
COPY_SESSION_TTL_US = 60 * 1_000_000
COPY_ATTEMPT_AHEAD_US_MAX = 100 * 366 * 86_400 * 1_000_000
"""Bounds how far the number of an attempt that a source has seen may be above this server's wall clock. The clock of an
earlier process may have been wrong; a higher number would leave none for later attempts."""
QUARANTINES_LISTED_MAX = 1000
"""Bounds the quarantines that one page of their list looks at; the superblock of each is read."""
QUARANTINE_PURGED_MAX = 10_000
"""Bounds the files and folders that one purge removes; its reply lists them, and another purge removes the rest."""


REQUEST_FIELD_BYTES = 256
"""Memory for one field of a message that is parsed and not yet handled."""
REPLY_SHORT_BYTES = 16 << 10
"""A reply that holds no list, or an empty one."""


class RequestBound(NamedTuple):
    """What one call may cost its receiver. The first two bounds are checked before the request is parsed.

    Memory for one request, from its bytes to its answer, what is kept of it in memory included, is `fixed_bytes + bytes
    * memory_factor + fields * field_bytes + items * item_bytes`, plus `memory_base` if it is longer than
    REQUEST_SMALL_BYTES, plus REPLY_COPIES times the reply, plus CALL_BEGUN_BYTES. `replica/rpc/call_costs.py` adds
    that up, and no call begins whose sum does not fit into CALLS_MEMORY_BYTES_MAX. Time on the event loop is counted in
    calls of functions by the handler, each 0.1 us to 1 us: `REQUEST_STEPS + fields * field_steps`. A page, and the
    descriptions of tables for the reply to a heartbeat, are made in many steps of the loop, each of which has no more
    than that, with the fields of one item. `tests/unit/rpc/test_rpc_request_costs.py` measures both. A request that may
    have more than REQUEST_FIELDS_INLINE_MAX fields is read on a thread if it is longer than REQUEST_SMALL_BYTES. Time
    on other threads is counted in the same way; THREADS bounds it. Before a request is whole, REQUESTS_READ_MAX bounds
    its bytes.
    """

    bytes_max: int
    fields_max: int = 200
    """Bounds the fields on the wire; those of nested messages are counted if they or their parts may repeat."""
    memory_factor: int = 4
    field_bytes: int = REQUEST_FIELD_BYTES
    """Memory for one field, parsed and handled. An empty message in a list has two bytes on the wire."""
    memory_base: int = 1 << 20
    """Memory that a request longer than REQUEST_SMALL_BYTES may take, whatever is in it."""
    fixed_bytes: int = 48 << 10
    """Memory that a request of any size may take."""
    items: str = ""
    """The field that holds how many items the request is for: a number, or a list."""
    item_bytes: int = 0
    """Memory that the handler takes for one item, beyond its bytes."""
    reply_bytes: int = REPLY_SHORT_BYTES
    """Bounds the reply; of a stream, the longest of its messages. Nothing longer is sent."""
    reply_item_bytes: int = 0
    """The reply's bytes for one item, if it holds nothing but those; 0: any reply may have `reply_bytes`."""
    reply_late: bool = False
    """Whether the reply is charged only when it has been made, because another bound limits how many are made at a
    time."""
    field_steps: int = 100
    wait_s: float = 0.0
    """Bounds how long the handler may wait, or work on a thread, if the caller sends no deadline and does not leave; 0:
    it answers at once. With a deadline it may work until then."""


REQUEST_SMALL_BYTES = 64 << 10
"""A request up to this length is parsed without counting its fields, because they cannot be many."""
REPLY_COPIES = 2
"""Copies of a reply in memory: the message and its encoded bytes; of a stream: the message being sent and the next."""
REPLY_PAGE_BYTES_MIN = (1 << 20) + (256 << 10)
"""A page is charged for this many bytes even if its caller requests fewer, because it has at least one item, and a
table's description may be as long. A longer first item is charged when it has been made."""
REQUEST_STEPS = 20_000
"""Calls of functions by the handler of a request of any size."""
THREAD_STEPS = 5000
"""Calls of functions on a thread between two looks at whether the caller still waits."""
REQUEST_FIELDS_INLINE_MAX = 4000
_KIB, _MIB = 1 << 10, 1 << 20
_CHANGE = RequestBound(64 * _KIB, wait_s=30.0)
_TABLE = RequestBound(4 * _MIB, 12_000, memory_factor=24, field_bytes=5120, field_steps=400, wait_s=30.0)
_PAGE = RequestBound(4 * _KIB, reply_bytes=GRPC_MESSAGE_BYTES_MAX)
_SOURCES = RequestBound(
    4 * _MIB, 10_100, field_bytes=4096, wait_s=30.0, reply_bytes=GRPC_MESSAGE_BYTES_MAX, reply_item_bytes=2 * _KIB
)

REQUESTS: dict[str, RequestBound] = {
    "TabletService.GetIdentity": RequestBound(1 * _KIB),
    "TabletService.IsProcess": RequestBound(1 * _KIB),
    "TabletService.Write": RequestBound(
        BATCH_SIZE_BYTES_MAX + 64 * _KIB,
        2000,
        items="rows",
        item_bytes=400,
        wait_s=60.0,
        reply_bytes=WRITE_REPLY_BYTES_MAX,
        reply_item_bytes=276,  # an error of a row, with the longest name of a column in ASCII
    ),
    "TabletService.OpenWrites": RequestBound(1 * _KIB),
    "TabletService.Scan": RequestBound(
        SCAN_VALUES_BYTES_MAX + 2 * _MIB,
        REQUEST_FIELDS_INLINE_MAX,
        memory_factor=8,
        field_bytes=1024,
        memory_base=SCAN_VALUES_MAX * 128,
        fixed_bytes=SCAN_BATCH_BYTES,
        wait_s=600.0,
        reply_bytes=SCAN_CHUNK_BYTES_MAX,
    ),
    "TabletService.Get": RequestBound(
        GET_KEYS_BYTES_MAX + 64 * _KIB,
        2000,
        items="count",
        item_bytes=2400,
        wait_s=60.0,
        reply_bytes=GET_REPLY_BYTES_MAX,
        reply_item_bytes=ROW_SIZE_BYTES_MAX + 128 * _KIB,
    ),
    "TabletService.ListTablets": RequestBound(2 * _MIB, 10_100, field_bytes=512, reply_bytes=GRPC_MESSAGE_BYTES_MAX),
    "TabletService.CreateTablet": _TABLE._replace(fixed_bytes=128 * _KIB),
    "TabletService.DeleteTablet": _CHANGE._replace(fixed_bytes=128 * _KIB),
    "TabletService.ChangeConfig": _CHANGE._replace(reply_bytes=512 * _KIB),
    "TabletService.TransferLeadership": _CHANGE,
    "TabletService.Checksum": RequestBound(1 * _KIB, fixed_bytes=SCAN_BATCH_BYTES, wait_s=600.0),
    "TabletService.ServerTime": RequestBound(64 * _KIB, 1100, field_bytes=512, wait_s=30.0, reply_bytes=64 * _KIB),
    "TabletService.Lateness": RequestBound(1 * _KIB),
    "TabletService.Quiesce": RequestBound(1 * _KIB),
    "TabletService.Ledger": RequestBound(1 * _KIB, wait_s=30.0, reply_bytes=4 * _MIB),
    "TabletService.Flush": RequestBound(1 * _KIB, fixed_bytes=128 * _KIB, wait_s=600.0),
    "TabletService.ListQuarantine": _PAGE._replace(bytes_max=1 * _KIB, wait_s=60.0),
    "TabletService.PurgeQuarantine": RequestBound(1 * _KIB, wait_s=600.0, reply_bytes=4 * _MIB),
    "CopyService.StartTabletCopy": RequestBound(16 * _KIB),
    "CopyService.BeginCopy": RequestBound(  # of manifests, there are as many at a time as sessions: COPY_SESSIONS_MAX
        4 * _KIB, fixed_bytes=128 * _KIB, wait_s=600.0, reply_bytes=COPY_MANIFEST_BYTES_MAX, reply_late=True
    ),
    "CopyService.OpenFetch": RequestBound(1 * _KIB),
    "CopyService.EndCopy": RequestBound(8 * _KIB, wait_s=30.0),
    "CopyService.ListCopies": RequestBound(1 * _KIB, reply_bytes=4 * _MIB),
    "CopyService.CancelCopy": RequestBound(1 * _KIB, wait_s=30.0, reply_bytes=128 * _KIB),
    "PeerService.OpenLink": RequestBound(4 * _KIB, wait_s=5.0),
    "PeerService.IsProcess": RequestBound(1 * _KIB),
    "MasterService.TakeOver": RequestBound(1 * _KIB, wait_s=30.0),
    "MasterService.GetIdentity": RequestBound(1 * _KIB),
    "MasterService.Heartbeat": RequestBound(  # orders are added in the last step of the handler: to one reply at a time
        GRPC_MESSAGE_BYTES_MAX, 400_000, wait_s=30.0, reply_bytes=ORDERS_BYTES_MAX + 2 * _MIB, reply_late=True
    ),
    "MasterService.CreateTable": _TABLE._replace(
        fixed_bytes=TABLETS_PER_TABLE_MAX * 8 * _KIB, reply_bytes=GRPC_MESSAGE_BYTES_MAX
    ),
    "MasterService.DropTable": _CHANGE,
    "MasterService.GetTable": _PAGE,
    "MasterService.ListTables": _PAGE,
    "MasterService.ListServers": _PAGE._replace(bytes_max=1 * _KIB),
    "MasterService.AddWriterSchema": RequestBound(  # the table's whole description is written anew
        WRITER_SCHEMA_BYTES_MAX + 64 * _KIB,
        memory_factor=24,
        fixed_bytes=16 * TABLE_BYTES_MAX,
        wait_s=30.0,
        reply_bytes=GRPC_MESSAGE_BYTES_MAX,
    ),
    "MasterService.OpenSources": _SOURCES._replace(items="opens"),
    "MasterService.AdvanceSources": _SOURCES._replace(items="advances"),
    "MasterService.ListSources": _PAGE,
    "MasterService.ResetSource": _CHANGE,
    "MasterService.MoveReplica": _CHANGE,
    "MasterService.AddReplica": _CHANGE,
    "MasterService.RemoveReplica": _CHANGE,
    "MasterService.ChangeRole": _CHANGE,
    "MasterService.CancelChange": _CHANGE,
    "MasterService.SetReplication": _CHANGE,
    "MasterService.RetireServer": _CHANGE,
    "MasterService.MaintainServer": _CHANGE,
    "MasterService.ForgetServer": _CHANGE,
    "MasterService.ReplaceTablets": RequestBound(4 * _MIB, 11_200, wait_s=30.0, reply_bytes=GRPC_MESSAGE_BYTES_MAX),
    "MasterService.ConfirmConfig": _CHANGE,
    "MasterService.FinalizeUpgrade": _CHANGE,
    "MasterService.ChangeMasters": _CHANGE,
    "MasterService.AgreeReadTime": RequestBound(1 * _KIB, wait_s=30.0),
    "MasterService.Status": RequestBound(1 * _KIB, reply_bytes=1 * _MIB),
    # The health service of gRPC (`replica/transport/health.py`). A call of Watch lasts as long as its caller wants.
    "Health.Check": RequestBound(1 * _KIB),
    "Health.List": RequestBound(1 * _KIB),
    "Health.Watch": RequestBound(1 * _KIB),
    # Frames of the connections that OpenWrites and OpenFetch grant.
    "WriteBundle": RequestBound(GRPC_MESSAGE_BYTES_MAX, WRITES_PER_LINK_MAX, memory_factor=24),
    "FetchRequest": RequestBound(16 * _KIB, wait_s=600.0),
}
"""Every call that a server answers, by service and method; one that is not here is refused. (Batches of consensus
messages, `PeerBatch`, are bounded by `replica/transport/batch_bounds.py`.)"""
TABLET_REQUEST_BYTES_MAX = max(
    b.bytes_max for m, b in REQUESTS.items() if m.startswith(("Tablet", "Copy", "Peer", "Health"))
)
"""Bounds the requests of a tablet server: the longest is a scan."""


class ThreadBound(NamedTuple):
    """What one piece of work costs a thread, in calls of functions: `steps`, and `each` for what it has many of."""

    each: dict[str, int]
    steps: int = REQUEST_STEPS
    look: int = THREAD_STEPS
    """The most of them between two looks at whether the caller still waits; 0: the work is done to its end."""

    def most(self, **many: int) -> int:
        """The steps of work that has so many of each."""
        return self.steps + sum(self.each[name] * count for name, count in many.items())


THREADS: dict[str, ThreadBound] = {
    # `replica/tablet/key_ranges.py` bounds the searches in a block's key.
    "scan": ThreadBound({"values": 8, "conditions_of_pieces": 40, "searches": 400}),
    # A key whose hash another key has in memory is hashed anew, without a look in between. With a `snapshot_time`, each
    # block is halved until all keys are found, once for each bit of its number of rows, and each time the key's columns
    # and the rows' times are read; memory is read in pieces. Each page of a file that is used is checked once.
    "get": ThreadBound(
        {"keys_of_one_hash": 10, "columns_of_halvings": 80, "pieces": 200, "pages": 10}, steps=2 * REQUEST_STEPS
    ),
    # Of each batch of a scan, 32,768 cells at a time, or one column.
    "checksum": ThreadBound({"pieces": 100, "columns_of_pieces": 80}),
    # A batch has at most BATCH_SIZE_BYTES_MAX. Its keys are hashed before their lengths are checked, each up to
    # KEY_SIZE_BYTES_MAX.
    "check of a write": ThreadBound({"columns": 150, "kib_of_keys": 30}, look=0),
    # A committed batch is applied to its end. BATCH_PASSES_MAX, BATCH_PASS_VALUES_MAX and BATCH_PASS_READS_MAX bound
    # the passes, their columns and their reads; a pass finds rows at up to BATCH_PASS_PLACES places. Values that rows
    # keep are read at these places once: after that they are together.
    "apply of a write": ThreadBound(
        {"rows": 8, "passes": 2000, "columns_of_passes": 20, "places": 25, "reads": 5, "kept_columns_of_places": 8},
        look=0,
    ),
    # The files of the manifest; segments of the log are read in pieces of COPY_CHUNK_BYTES.
    "capture of a copy": ThreadBound({"files": 100, "pieces": 30}),
    # The target that doubts a block need not wait for its check.
    "end of a copy": ThreadBound({"pieces": 30}, look=0),
    # It ends with its connection. A part has at most COPY_CHUNK_BYTES.
    "part of a copy": ThreadBound({}, steps=1000, look=0),
    # SCAN_HANDSHAKES at a time, each of HANDSHAKE_S_MAX.
    "handshake of a scan's connection": ThreadBound({}, steps=1000, look=0),
    # Of each quarantine, its superblock, its blocks and the segments of its log; of QUARANTINES_LISTED_MAX in one page.
    "list of quarantines": ThreadBound({"quarantines": 1000, "files": 80}),
    # It reads the superblock of each tablet and quarantine twice, and removes QUARANTINE_PURGED_MAX files and folders.
    "purge of quarantines": ThreadBound({"superblocks": 1000, "files": 100}),
    # A change of the catalog is computed to its end; SOURCES_PER_TABLE_MAX bounds the table's sources.
    "source positions": ThreadBound({"positions": 400, "sources": 10}, look=0),
    # Of a new table, or in the place of lost ones; up to TABLETS_PER_TABLE_MAX. A place is a server that is compared
    # with others for one replica.
    "tablets of a table": ThreadBound({"tablets": 1100, "places": 25}, look=0),
    # Of a table, up to TABLE_BYTES_MAX together. The names are checked before the parser multiplies them.
    "reading of writer schemas": ThreadBound({"bytes": 3}, look=0),
    # Before a handler gets it, a request is read to its end; its row in REQUESTS bounds its fields.
    "reading of a long request": ThreadBound({"fields": 20}, look=0),
}
"""Work for requests on threads. `tests/unit/rpc/test_rpc_thread_costs.py`, `test_rpc_apply_costs.py` and
`test_rpc_copy_costs.py` measure it; `tests/tidy/test_request_bounds.py` finds work that has no row."""

REPEATED: dict[str, int] = {
    "ScanRequest.columns": COLUMNS_MAX,
    "GetRequest.columns": COLUMNS_MAX,
    "ScanRequest.predicates": SCAN_PREDICATES_MAX,
    "WriteRequest.column_ids": COLUMNS_MAX,
    "ListTabletsRequest.tablet_ids": 10_000,
    "ReplaceTabletsRequest.tablet_ids": TABLETS_PER_TABLE_MAX,
    "ServerTimeRequest.tablet_ids": TABLETS_PER_TABLE_MAX,
    "ReplaceTabletsRequest.floors": 10_000,
    "FinalizeUpgradeRequest.without": 1_000,
    "TableSchema.columns": COLUMNS_MAX,
    "TableSchema.key": COLUMNS_MAX,
    "PartitionSpec.hash_columns": COLUMNS_MAX,
    "PartitionSpec.range_splits_json": TABLETS_PER_TABLE_MAX - 1,
    "TableInfo.writer_schemas": 1000,
    "TableInfo.older_schemas": 100,
    "RaftConfig.members": CONFIG_MEMBERS_MAX,
    "Member.addresses": 16,
    "StartTabletCopyRequest.from_addresses": 16,
    "ChangeConfigRequest.edits": 64,
    "HeartbeatRequest.addresses": 16,
    "HeartbeatRequest.replicas": REPORT_REPLICAS_MAX,
    "HeartbeatRequest.copies_failing": 10_000,
    "HeartbeatRequest.seeking": 10_000,
    "ReplicaStatus.peers": 64,
    "OpenSourcesRequest.opens": 10_000,
    "AdvanceSourcesRequest.advances": 10_000,
    "WriteBundle.writes": WRITES_PER_LINK_MAX,
}
"""Items of every repeated field of a request."""
REPEATED_IN_REPLIES: dict[str, int] = {
    "BeginCopyReply.files": 100_000,  # three terabytes in blocks of 64 MB, each of which has two files
    "HeartbeatReply.orders": ORDERS_BYTES_MAX // 32,  # each order names a server, by a uuid of 32 characters
    "HeartbeatReply.found": PEERS_SOUGHT_MAX,
    "ListTabletsReply.replicas": 10_000,  # as many as a request may ask for
    "LedgerReply.sources": SOURCES_PER_TABLE_MAX,
    "HeartbeatReply.masters": CONFIG_MEMBERS_MAX,
    "MasterStatusReply.kafka": 64,  # a few kinds of work with each of four topics
    "MasterStatusReply.skipped": 256,  # a few kinds of faults of each of them
    "ServerPlace.addresses": 16,
}
"""Items of the repeated fields that only replies have. `replica/rpc/reply_fields.py` says which replies are checked."""
