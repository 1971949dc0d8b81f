"""The write-ahead log: Avro segments, group commit, recovery of a torn tail, anchors and log GC."""

from .dump import dump_segment
from .handles import Anchor, Replay, SegmentInfo
from .live_dump import dump_log, dump_settled
from .log import Log
from .log_report import LogReport, inspect_log
from .offline import latest_time, read_offline
from .options import WalOptions
from .recovery import WITHHELD_NAME
from .reservation import Reservation
from .threads import LogThreads
from .verify import verify_segment
