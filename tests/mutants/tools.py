"""Mutants: checks and dumps."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="any detail is the number of a takeover",
        rows="IN-82",
        test="tests/unit/tools/test_catalog_copy.py::test_takeover_by_a_number_that_is_none_ends_with_the_leaders_reason",
        file="replica/tools/catalog_copy.py",
        function="_take_over",
        before="elif NUMBER.fullmatch(taken.error.detail):",
        after="elif taken.error.detail:",
    ),
    Mutant(
        name="check speaks of force to who forced nothing",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_voter_of_two_that_is_lost_while_a_third_joins_is_named_with_the_command_that_ends_it"
        ),
        file="replica/tools/check.py",
        function="_judge_proof",
        before="if forced or not told.believed:",
        after="if True:",
    ),
    Mutant(
        name="lost voter is not named",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_voter_of_two_that_is_lost_while_a_third_joins_is_named_with_the_command_that_ends_it"
        ),
        file="replica/tools/check.py",
        function="_judge_proof",
        before="sorted(voters - set(told.told_by))",
        after="sorted(set(told.told_by) - voters)",
    ),
    Mutant(
        name="voter that a config leaves out is not named",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_voter_of_two_that_is_lost_while_a_third_joins_is_named_with_the_command_that_ends_it"
        ),
        file="replica/tools/check.py",
        function="_judge_proof",
        before="voters = {*config.voters, *told.known_voters}",
        after="voters = {*config.voters}",
    ),
    Mutant(
        name="voters of the known config are not carried",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/requests/infos.py",
        function="tablet_info",
        before="known_voters=unproven.recorded.voters,",
        after="known_voters=(),",
    ),
    Mutant(
        name="election is taken for a tablet without a leader for good",
        rows="CN-22",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_tablet_whose_voters_lost_the_ends_of_their_logs_is_told_with_what_to_do"
        ),
        file="replica/tools/check.py",
        function="_judge_lost_ends",
        before="if living is None or living.goes_on or not lost:",
        after="if living is None or not lost:",
    ),
    Mutant(
        name="lost end of a running replica's log is not seen",
        rows="CN-22",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_tablet_whose_voters_lost_the_ends_of_their_logs_is_told_with_what_to_do"
        ),
        file="replica/tools/evidence.py",
        function="of_status",
        before="withheld=opid_from_pb(status.withheld),",
        after="",
    ),
    Mutant(
        name="replica does not tell of the lost end of its log",
        rows="TC-36",
        test=(
            "tests/unit/server/test_server_tombstone.py::"
            "test_replica_whose_logs_end_is_damaged_keeps_that_end_as_a_tombstone"
        ),
        file="replica/server/tablets/status.py",
        function="_of_replica",
        before="if status.withheld is not None:",
        after="if False:",
    ),
    Mutant(
        name="checksum has one time for every size",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_checksum_may_take_as_long_as_what_its_tablet_holds_needs",
        file="replica/tools/check.py",
        function="checksum_timeout_s",
        before="return limits.CHECKSUM_WAIT_S + checksum_work_s(replicas, columns)",
        after="return limits.CHECKSUM_WAIT_S",
    ),
    Mutant(
        name="verify job has one time for every size",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_verify_job_gives_a_checksum_as_long_as_its_server_may_need",
        file="replica/tools/verify.py",
        function="next_reads",
        before="timeout_s or limits.CHECKSUM_WAIT_S + most[server.uuid]",
        after="timeout_s or 600.0",
    ),
    Mutant(
        name="replicas of one server do not wait for each other",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_verify_job_gives_a_checksum_as_long_as_its_server_may_need",
        file="replica/tools/verify.py",
        function="next_reads",
        before="[: max(1, at_a_time)]",
        after="[:1]",
    ),
    Mutant(
        name="rows in memory take no time",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_checksum_may_take_as_long_as_what_its_tablet_holds_needs",
        file="replica/tools/check.py",
        function="checksum_work_s",
        before="(r.bytes_on_disk + r.memory_bytes)",
        after="r.bytes_on_disk",
    ),
    Mutant(
        name="narrow rows take no time",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_checksum_may_take_as_long_as_what_its_tablet_holds_needs",
        file="replica/tools/check.py",
        function="checksum_work_s",
        before="r.rows * columns /",
        after="0 * columns /",
    ),
    Mutant(
        name="each replica has its own time",
        rows="IN-04",
        test="tests/unit/tools/test_tools_verify.py::test_checksum_may_take_as_long_as_what_its_tablet_holds_needs",
        file="replica/tools/check.py",
        function="_add_checksums",
        before="[r.status for r in replicas]",
        after="[r.status for r in replicas[:1]]",
    ),
    Mutant(
        name="copy goes to who is no member",
        rows="MF-17, MF-18",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_replacement_needs_the_uuid_of_the_lost_one_and_that_one_gone"
        ),
        file="replica/tools/catalog_copy.py",
        function="copy_catalog",
        before="if member is None:",
        after="if member is None and False:",
    ),
    Mutant(
        name="copy while the lost one answers",
        rows="MF-10",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_replacement_needs_the_uuid_of_the_lost_one_and_that_one_gone"
        ),
        file="replica/tools/catalog_copy.py",
        function="copy_catalog",
        before="_need_nobody(address, own.uuid)",
        after="pass",
    ),
    Mutant(
        name="doubts are not told",
        rows="IN-40",
        test="tests/unit/tools/test_tools_check.py::test_check_tells_what_a_server_says_and_is_not_believed",
        file="replica/tools/check.py",
        function="_judge_applicants",
        before="return found + doubts",
        after="return found",
    ),
    Mutant(
        name="silent master is no error",
        rows="IN-21, MF-03",
        test="tests/unit/tools/test_tools_check.py::test_check_each_master_that_does_not_serve_is_an_error",
        file="replica/tools/check.py",
        function="_judge_master",
        before='return Finding(Severity.ERROR, f"master {master.uuid}", what)',
        after='return Finding(Severity.WARNING, f"master {master.uuid}", what)',
    ),
    Mutant(
        name="check counts voters without rows as a majority",
        rows="none",
        test="tests/unit/tools/test_tools_check.py::test_check_voters_that_take_no_part_make_no_majority",
        file="replica/tools/check.py",
        function="_judge_tablet",
        before="if len(standing) - len(out) < config.majority:",
        after="if len(standing) < config.majority:",
    ),
    Mutant(
        name="check counts a closed voter",
        rows="none",
        test="tests/unit/tools/test_tools_check.py::test_check_voter_that_does_not_run_is_named",
        file="replica/tools/check.py",
        function="_takes_part",
        before='return status.data_state == DataState.READY and status.phase in ("CONFIGURING", "RUNNING")',
        after="return status.data_state == DataState.READY",
    ),
    Mutant(
        name="check counts a voter that is copied",
        rows="none",
        test="tests/unit/tools/test_tools_check.py::test_check_voter_that_does_not_run_is_named",
        file="replica/tools/check.py",
        function="_takes_part",
        before='return status.data_state == DataState.READY and status.phase in ("CONFIGURING", "RUNNING")',
        after='return status.phase in ("CONFIGURING", "RUNNING")',
    ),
    Mutant(
        name="check bears any lag",
        rows="none",
        test=(
            "tests/unit/tools/test_tools_check.py::test_check_voter_that_is_far_behind_is_a_warning_and_the_lag_is_told"
        ),
        file="replica/tools/check.py",
        function="_judge_voters",
        before="elif behind > LAG_ENTRIES_MAX:",
        after="elif behind > 100 * LAG_ENTRIES_MAX:",
    ),
    Mutant(
        name="disk leaves the log out",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_disk_of_a_replica_is_its_blocks_and_its_log",
        file="replica/tools/check.py",
        function="bytes_on_disk",
        before="return int(status.bytes_on_disk + status.wal_bytes)",
        after="return int(status.bytes_on_disk)",
    ),
    Mutant(
        name="kafka that is away is no finding",
        rows="IN-91",
        test=(
            "tests/unit/master/test_master_topics.py::"
            "test_cluster_check_tells_what_is_wrong_with_kafka_and_what_was_skipped"
        ),
        file="replica/tools/check_kafka.py",
        function="kafka_problems",
        before="if channel.link not in FINE:",
        after='if channel.link == "dead":',
    ),
    Mutant(
        name="skipped records are not told",
        rows="IN-90",
        test=(
            "tests/unit/master/test_master_topics.py::"
            "test_cluster_check_tells_what_is_wrong_with_kafka_and_what_was_skipped"
        ),
        file="replica/tools/check_kafka.py",
        function="kafka_problems",
        before="for skipped in status.skipped:",
        after="for skipped in status.skipped[:0]:",
    ),
    Mutant(
        name="status of a stack leaves kafka out",
        rows="IN-91",
        test="tests/unit/infra/test_stack_state.py::test_status_of_a_stack_says_how_its_masters_fare_with_kafka",
        file="replica/tools/check_kafka.py",
        function="kafka_line",
        before="bad = [text for _, text in kafka_problems(status)]",
        after="bad: list[str] = []",
    ),
    Mutant(
        name="deleted tablet fails cmeta print",
        rows="IN-22",
        test=(
            "tests/unit/tools/test_tools_dumps.py::"
            "test_metadata_of_a_tablet_deleted_meanwhile_is_named_and_the_others_are_read"
        ),
        file="replica/tools/dumps.py",
        function="read_cmeta_files",
        before="except FileNotFoundError:",
        after="except NotImplementedError:",
    ),
    Mutant(
        name="identity is wiped last",
        rows="TC-72",
        test="tests/unit/tools/test_tools_offline.py::test_wipe_that_dies_leaves_no_server_that_could_start",
        file="replica/tools/fs.py",
        function="wipe",
        before="for name in names:",
        after="for name in reversed(names):",
    ),
    Mutant(
        name="blocks are orphans without their metadata",
        rows="TC-46",
        test="tests/unit/tools/test_tools_offline.py::test_blocks_are_no_orphans_where_what_names_them_is_lost",
        file="replica/tools/fs_check.py",
        function="remove_orphans",
        before="_lost(instance, _refusal_of_start(disk, instance))",
        after="_lost(instance, None)",
    ),
    Mutant(
        name="damaged metadata stop the offline deletion",
        rows="TC-55",
        test="tests/unit/tools/test_tools_offline.py::test_replica_without_its_promises_is_replaced_and_abstains",
        file="replica/tools/local_replica.py",
        function="last_logged_of",
        before="return last_of_unopened(superblock, ConsensusMeta.load_if_present(disk, tablet_id, or_lost=True))",
        after="return last_of_unopened(superblock, ConsensusMeta.load_if_present(disk, tablet_id, or_lost=False))",
    ),
    Mutant(
        name="damaged metadata stop the offline copy",
        rows="TC-55",
        test="tests/unit/tools/test_tools_offline.py::test_replica_without_its_promises_is_replaced_and_abstains",
        file="replica/tools/local_replica.py",
        function="copy_replica",
        before="cmeta = ConsensusMeta.load_if_present(disk, tablet_id, or_lost=before is not None or lost_here)",
        after="cmeta = ConsensusMeta.load_if_present(disk, tablet_id, or_lost=False)",
    ),
    Mutant(
        name="second attempt keeps the first floor",
        rows="MF-19",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_new_master_abstains_from_votes_in_every_term_that_the_survivors_know"
        ),
        file="replica/tools/local_replica.py",
        function="copy_replica.merge",
        before="merged.raise_vote_floor(max(merged.term, vote_floor))",
        after="pass",
    ),
    Mutant(
        name="lost promises are replaced from who leads nobody",
        rows="TC-55",
        test="tests/unit/tools/test_tools_offline.py::test_replica_without_its_promises_is_replaced_and_abstains",
        file="replica/tools/local_replica.py",
        function="copy_replica",
        before="allow_leaderless=allow_leaderless and not lost,",
        after="allow_leaderless=allow_leaderless,",
    ),
    Mutant(
        name="copy begins where the tablet is already",
        rows="CC-07",
        test=(
            "tests/process/test_membership_process.py::"
            "test_copy_made_before_its_server_is_added_is_used_and_an_abandoned_one_is_deleted"
        ),
        file="replica/tools/moves.py",
        function="start_copy",
        before="if here is DataState.READY:",
        after="if here is DataState.COPYING:",
    ),
    Mutant(
        name="copy is asked of a follower",
        rows="CC-06",
        test=(
            "tests/process/test_membership_process.py::"
            "test_copy_made_before_its_server_is_added_is_used_and_an_abandoned_one_is_deleted"
        ),
        file="replica/tools/moves.py",
        function="_leader",
        before='"LEADER"',
        after='"FOLLOWER"',
    ),
    Mutant(
        name="check of files knows nothing of replays",
        rows="IN-03",
        test="tests/unit/tools/test_tools_offline.py::test_replica_that_failed_at_an_entry_is_told_as_such",
        file="replica/tools/tablet_files.py",
        function="_tell_replays",
        before="marker.told()):",
        after="marker.told()) and not found.tablet_id:",
    ),
    Mutant(
        name="check claims a comparison with a witness",
        rows="none",
        test="tests/unit/tools/test_tools_verify.py::test_verify_names_what_was_left_out_of_the_comparison",
        file="replica/tools/verify.py",
        function="left_out",
        before="and (state",
        after="and not r.status.witness and (state",
    ),
    Mutant(
        name="check does not look again",
        rows="none",
        test="tests/unit/tools/test_tools_verify.py::test_check_looks_again_while_something_is_found_and_time_is_left",
        file="replica/tools/verify.py",
        function="checked",
        before="if not findings or over or any(REPLICAS_DIFFER in f.what for f in findings):",
        after="if True or any(REPLICAS_DIFFER in f.what for f in findings):",
    ),
    Mutant(
        name="unproven config is told by the log alone",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/tools/check.py",
        function="_judge_proof",
        before='if info is None or not info.HasField("unproven"):',
        after='if info is None or info.HasField("unproven"):',
    ),
    Mutant(
        name="unproven config is told by the log alone, check",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/tools/check.py",
        function="_judge_proof",
        before='if info is None or not info.HasField("unproven"):',
        after='if info is None or info.HasField("unproven"):',
    ),
)
