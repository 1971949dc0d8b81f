"""Operators' tools: they read a cluster or a stopped server's files, judge what they find, and repair offline."""

from typing import TYPE_CHECKING

from nyala.replica.types import lazy_imports

if TYPE_CHECKING:
    from nyala.replica.master import (
        CATALOG_ID,
        LOST,
        Allowed,
        FoundCluster,
        Rebuilt,
        first_term,
        has_catalog,
        rebuild_catalog,
    )

    from .catalog_copy import copy_catalog
    from .certificates import init_ca, issue, issued
    from .check import (
        ClusterView,
        Finding,
        MasterView,
        ReplicaView,
        Severity,
        as_json,
        ask_masters,
        bytes_on_disk,
        committed_index,
        gather,
        judge,
        lag,
        replica_json,
    )
    from .check_kafka import kafka_line, kafka_problems, letters_text
    from .directory_evidence import block_bytes, of_directory
    from .dumps import CmetaFiles, read_cmeta_files, read_file
    from .evidence import ReplicaEvidence, SourceMark, by_tablet, of_running
    from .forced_config import Rewritten, force_config, raise_term, rewrite_config
    from .fs import KINDS, WipePlan, format_root, identity, need_formattable, need_server_directory, plan_wipe, wipe
    from .fs_check import DirectoryView, check_directory, directory_json, remove_orphans, tablet_json
    from .local_replica import connect_source, copy_replica, erase, last_logged_of, make_tombstone
    from .moves import COPY_OVER, has_moved, is_copy_over, list_copies, start_copy
    from .plan_file import load_journal, plan_json
    from .rebuild import need_new_directory, rebuilt_json, refuse_living_masters, write_directory, write_master
    from .recover import Recovery, abandon, involved, plans_agree
    from .recovery_plan import (
        LeftAlone,
        RecoveryPlan,
        SourceLowering,
        TabletPlan,
        Target,
        Why,
        chosen_tablets,
        make_plan,
    )
    from .replacement import ReplacementPlan, plan_replacement, replacement_json
    from .restart import at_risk
    from .server_evidence import ask_servers, read_tablets, server_problems
    from .tablet_files import FileFinding, TabletFiles, read_tablet
    from .upgrading import ProcessBuild, UpgradeView, gather_builds, upgrade_words
    from .verify import (
        ReplicaSum,
        checked,
        judge_compared,
        left_out,
        next_reads,
        only_tables,
        plan_text,
        readable,
        table_lines,
        to_read,
        with_sums,
    )
    from .wanted import (
        Wanted,
        change_json,
        change_words,
        drain_json,
        drain_words,
        maintenance_json,
        maintenance_words,
        unsettled,
    )

__getattr__, __dir__, __all__ = lazy_imports(__name__)
