"""The write-ahead log: Avro segments, group commit, recovery of a torn tail, anchors and log GC."""

from .dump import dump_segment
from .inspect import LogView, inspect_log
from .live_dump import dump_log, dump_settled
from .log import Log
from .offline import read_offline
from .options import WalOptions
from .records import Anchor, Pin, Replay, SegmentInfo
from .recovery import WITHHELD_NAME
from .reservation import OnDurable, Reservation
from .verify import verify_segment

__all__ = [
    "WITHHELD_NAME",
    "Anchor",
    "Log",
    "LogView",
    "OnDurable",
    "Pin",
    "Replay",
    "Reservation",
    "SegmentInfo",
    "WalOptions",
    "dump_log",
    "dump_segment",
    "dump_settled",
    "inspect_log",
    "read_offline",
    "verify_segment",
]
