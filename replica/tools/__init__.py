"""Operators' tools: looking at a cluster or at a stopped server's files, judging what is seen, mending offline."""

from .check import (
    ClusterView,
    Finding,
    MasterView,
    ReplicaView,
    Severity,
    as_json,
    ask_masters,
    gather,
    judge,
    replica_json,
)
from .evidence import ReplicaEvidence, SourceMark, by_tablet, of_directory, of_running
from .forced_config import Rewritten, force_config, raise_term, rewrite_config
from .fs import KINDS, WipePlan, format_root, identity, need_server_directory, plan_wipe, wipe
from .fs_check import DirectoryView, check_directory, directory_json, remove_orphans, tablet_json
from .local_replica import connect_source, copy_replica, erase, last_promised, make_tombstone
from .moves import has_moved, list_copies
from .plan_file import load_journal, plan_json
from .recover import Recovery, involved, plans_agree
from .recovery_plan import (
    LeftAlone,
    RecoveryPlan,
    SourceLowering,
    TabletPlan,
    Target,
    Why,
    make_plan,
)
from .tablet_files import FileFinding, TabletFiles, read_tablet
from .verify import ReplicaSum, judge_compared, only_tables, plan_text, readable, table_lines, to_read, with_sums
from .wanted import Wanted, change_words, drain_json, drain_words, unsettled, wish_json

__all__ = [
    "KINDS",
    "ClusterView",
    "DirectoryView",
    "FileFinding",
    "Finding",
    "LeftAlone",
    "MasterView",
    "Recovery",
    "RecoveryPlan",
    "ReplicaEvidence",
    "ReplicaSum",
    "ReplicaView",
    "Rewritten",
    "Severity",
    "SourceLowering",
    "SourceMark",
    "TabletFiles",
    "TabletPlan",
    "Target",
    "Wanted",
    "Why",
    "WipePlan",
    "as_json",
    "ask_masters",
    "by_tablet",
    "change_words",
    "check_directory",
    "connect_source",
    "copy_replica",
    "directory_json",
    "drain_json",
    "drain_words",
    "erase",
    "force_config",
    "format_root",
    "gather",
    "has_moved",
    "identity",
    "involved",
    "judge",
    "judge_compared",
    "last_promised",
    "list_copies",
    "load_journal",
    "make_plan",
    "make_tombstone",
    "need_server_directory",
    "of_directory",
    "of_running",
    "only_tables",
    "plan_json",
    "plan_text",
    "plan_wipe",
    "plans_agree",
    "raise_term",
    "read_tablet",
    "readable",
    "remove_orphans",
    "replica_json",
    "rewrite_config",
    "table_lines",
    "tablet_json",
    "to_read",
    "unsettled",
    "wipe",
    "wish_json",
    "with_sums",
]
