"""Mutants: copies, tombstones and the opening of replicas."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="any process has a led replica copied",
        rows="TC-28",
        test=(
            "tests/unit/tablet_copy/test_copy_checks.py::"
            "test_intact_replica_that_follows_a_leader_is_copied_anew_for_that_one_only"
        ),
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before='not in ("", request.from_uuid):',
        after='not in ("", request.from_uuid) and request.term == local.term:',
    ),
    Mutant(
        name="replica without a leader takes no copy",
        rows="TC-28",
        test=(
            "tests/unit/tablet_copy/test_copy_checks.py::"
            "test_intact_replica_that_follows_a_leader_is_copied_anew_for_that_one_only"
        ),
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before='not in ("", request.from_uuid):',
        after="not in (request.from_uuid,):",
    ),
    Mutant(
        name="config far away is near",
        rows="TC-58",
        test=("tests/unit/tablet_copy/test_copy_checks.py::test_source_that_does_not_fit_an_intact_replica_is_refused"),
        file="replica/tablet_copy/checks.py",
        function="replacement_refusal",
        before="<= 1 for config",
        after="<= 9 for config",
    ),
    Mutant(
        name="source that has no vote is a source",
        rows="TC-58",
        test=("tests/unit/tablet_copy/test_copy_checks.py::test_source_that_does_not_fit_an_intact_replica_is_refused"),
        file="replica/tablet_copy/checks.py",
        function="replacement_refusal",
        before="(near and source_uuid in offered.voters)",
        after="near",
    ),
    Mutant(
        name="copy that is not needed replaces a replica",
        rows="TC-58",
        test=("tests/unit/tablet_copy/test_copy_checks.py::test_source_that_does_not_fit_an_intact_replica_is_refused"),
        file="replica/tablet_copy/checks.py",
        function="replacement_refusal",
        before="elif first_retained_index <= here.committed.index + 1:",
        after="elif False:",
    ),
    Mutant(
        name="rows of an earlier term replace a replica",
        rows="TC-58",
        test=("tests/unit/tablet_copy/test_copy_checks.py::test_source_that_does_not_fit_an_intact_replica_is_refused"),
        file="replica/tablet_copy/checks.py",
        function="replacement_refusal",
        before="elif rows_end < here.committed:",
        after="elif rows_end.index < here.committed.index:",
    ),
    Mutant(
        name="offer over an intact replica is not judged",
        rows="TC-58",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_over_an_intact_replica_comes_from_a_voter_at_its_known_address_only"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy._accept",
        before="if self._healthy is not None:",
        after="if False:",
    ),
    Mutant(
        name="caller says where the leader is",
        rows="TC-28",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_over_an_intact_replica_comes_from_a_voter_at_its_known_address_only"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="if local.healthy is not None:",
        after="if False:",
    ),
    Mutant(
        name="no replica is intact",
        rows="TC-28",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_over_an_intact_replica_comes_from_a_voter_at_its_known_address_only"
        ),
        file="replica/server/tablets/hosted.py",
        function="HostedTablet.healthy",
        before="if self.replica is None or not self.running:",
        after="if True:",
    ),
    Mutant(
        name="write given up lets others overtake",
        rows="CN-25",
        test="tests/unit/server/test_server_writes.py::test_write_that_gets_no_index_lets_nobody_overtake",
        file="replica/server/tablets/write_order.py",
        function="WriteOrder.leave",
        before="arrival.gone = True",
        after="self._waiting.clear()",
    ),
    Mutant(
        name="copies share the disks pool",
        rows="TC-11",
        test="tests/unit/server/test_server_files.py::test_copies_run_on_a_pool_of_their_own",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.__init__",
        before='self._pool = started_pool(manager.options.copy_jobs_max, "copy-job")',
        after="self._pool = manager._open_pool",
    ),
    Mutant(
        name="number of copies is unbounded",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_pace.py::"
            "test_ten_copies_at_once_keep_to_number_and_rate_and_leave_leaders_alone"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.__init__",
        before='self._pool = started_pool(manager.options.copy_jobs_max, "copy-job")',
        after='self._pool = started_pool(32, "copy-job")',
        more=(
            Edit(
                file="replica/server/copies/copy_jobs.py",
                function="CopyJobs.__init__",
                before="CopyQueue(manager.options.copy_jobs_max)",
                after="CopyQueue(32)",
            ),
        ),
    ),
    Mutant(
        name="refused request leaves a file",
        rows="TC-27",
        test="tests/unit/server/test_server_one_copy.py::test_fifty_requests_at_once_leave_what_one_leaves",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="""
            raise refusal
        """,
        after="""
            manager.disk.replace(f"wals/{request.tablet_id}/refused", b"")
            raise refusal
        """,
    ),
    Mutant(
        name="copy starts in mid deletion",
        rows="TC-27",
        test="tests/unit/server/test_server_copy_faults.py::test_copy_during_a_deletion_is_refused",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="if hosted is not None and (hosted.transition.locked() or hosted.opening):",
        after="if hosted is not None and hosted.opening:",
    ),
    Mutant(
        name="full server is copied to",
        rows="CN-03",
        test="tests/unit/server/test_server_open.py::test_server_that_holds_as_many_tablets_as_it_may_takes_no_other",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="manager.check_room(request.tablet_id)",
        after="pass",
    ),
    Mutant(
        name="only a created tablet is copied to",
        rows="TC-17",
        test="tests/unit/server/test_server_vivify.py::test_blank_member_is_copied_at_its_leaders_request",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="hosted = manager.blank(request.tablet_id)",
        after='raise Refused(Code.TABLET_NOT_FOUND, "no such tablet", tablet=request.tablet_id)',
    ),
    Mutant(
        name="every request starts a copy",
        rows="TC-27",
        test="tests/unit/server/test_server_one_copy.py::test_fifty_requests_at_once_leave_what_one_leaves",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.local",
        before="""
            data_state=hosted.data_state,
            copying=hosted.copy is not None,
        """,
        after="""
            data_state=hosted.superblock.data_state,
            copying=False,
        """,
    ),
    Mutant(
        name="copied replica is not started",
        rows="TC-52",
        test="tests/unit/server/test_server_vivify.py::test_copied_replica_starts_and_its_match_rises",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._run",
        before="""
            await manager.open(hosted, checked=True)
        """,
        after="",
    ),
    Mutant(
        name="copied blocks are read again",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_vivify.py::"
            "test_blocks_of_a_copy_are_checked_as_they_come_and_by_a_start_but_not_in_between"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._run",
        before="await manager.open(hosted, checked=True)",
        after="await manager.open(hosted)",
    ),
    Mutant(
        name="end of a copy is not told",
        rows="CC-08",
        test="tests/unit/server/test_server_vivify.py::test_driver_sees_a_copy_begin_advance_and_end_at_the_new_server",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._done",
        before="""
            job.progress.phase = "DONE"
        """,
        after="",
    ),
    Mutant(
        name="copy without room stays under way",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_copy_that_finds_no_room_for_its_tombstone_either_is_one_later"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._settle_as_found",
        before="if hosted.superblock.data_state is DataState.COPYING:",
        after="if hosted.superblock.data_state is DataState.DELETED:",
    ),
    Mutant(
        name="copy does not tell the record that it saved",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._copy",
        before="target.in_force or hosted.superblock",
        after="hosted.superblock",
    ),
    Mutant(
        name="failed copy does not tell its tombstone",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy._back_to_deleted",
        before="self.in_force = end_unfinished_copy(self._disk, self.in_force)",
        after="end_unfinished_copy(self._disk, self.in_force)",
    ),
    Mutant(
        name="deletion that a full disk stops is undone",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory"
        ),
        file="replica/tablet_copy/deletion.py",
        function="delete_replica",
        before="""
            committed(tombstone)
        """,
        after="",
    ),
    Mutant(
        name="joined rows are given up again",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_witness.py::"
            "test_witness_whose_superblock_is_damaged_meanwhile_is_joined_by_its_data"
        ),
        file="replica/server/copies/witness_data.py",
        function="WitnessDataJobs.swap",
        before="""
            hosted.superblock = whole
        """,
        after="",
    ),
    Mutant(
        name="waiting job is not checked again",
        rows="TC-32",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_job_that_waited_is_checked_again_before_it_asks_the_source"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._copy",
        before="if refusal is not None:",
        after="if refusal is not None and request.term < 0:",
    ),
    Mutant(
        name="what was acknowledged meanwhile is wiped",
        rows="TC-58",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_job_over_a_replica_that_acknowledged_more_meanwhile_loses_nothing"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._copy.stop_and_delete",
        before="""
            check_source(last.opid, hosted.term)
        """,
        after="",
    ),
    Mutant(
        name="ready replica is not deleted first",
        rows="TC-29",
        test="tests/unit/server/test_server_copies.py::test_copy_job_replaces_a_replica_that_lags",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._copy.stop_and_delete",
        before="return manager.shutdowns.delete_files(hosted, last)",
        after="return None",
    ),
    Mutant(
        name="rate counts half of what comes",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_pace.py::"
            "test_ten_copies_at_once_keep_to_number_and_rate_and_leave_leaders_alone"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._pace",
        before="drawn = rate.draw(length_bytes)",
        after="drawn = rate.draw(length_bytes // 2)",
    ),
    Mutant(
        name="target ignores the rate",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_pace.py::test_copy_waits_for_the_rate_of_either_side",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._pace",
        before="drawn = rate.draw(length_bytes)",
        after="ticket = 0",
    ),
    Mutant(
        name="lost request is repeated without back off",
        rows="TC-25",
        test=(
            "tests/unit/server/test_server_one_copy.py::test_leader_asks_for_a_copy_until_it_is_heard_and_one_copy_runs"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester.needed",
        before="self._next[key] = (now + backoff, min(2 * backoff, BACKOFF_MAX_S))",
        after="self._next[key] = (now + backoff, backoff)",
    ),
    Mutant(
        name="nobody asks the peer to copy",
        rows="TC-05",
        test="tests/unit/server/test_server_vivify.py::test_blank_member_is_copied_at_its_leaders_request",
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester.needed",
        before="""
            self._busy.add(need.peer_uuid)
        """,
        after="""
            return
            self._busy.add(need.peer_uuid)
        """,
    ),
    Mutant(
        name="copy is asked for once",
        rows="TC-12",
        test="tests/unit/server/test_server_copy_faults.py::test_copy_whose_session_ends_is_told_so_and_is_retried",
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester._send",
        before="self._busy.discard(need.peer_uuid)",
        after="pass",
    ),
    Mutant(
        name="request without a term",
        rows="TC-26",
        test=(
            "tests/unit/server/test_server_vivify.py::"
            "test_request_for_a_copy_names_both_ends_the_term_and_what_is_believed"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester._ask",
        before="""
            term=term,
        """,
        after="",
    ),
    Mutant(
        name="leader does not say what the copy is for",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_deletion_ends_a_copy_under_way_unless_it_is_for_a_later_config"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester._ask",
        before="""
            config=opid_to_pb(hosted.replica.active_config.opid),
        """,
        after="",
    ),
    Mutant(
        name="a busy source is the targets failure",
        rows="TC-12",
        test="tests/unit/server/test_server_copy_failures.py::test_copy_failures_only_a_servers_own_ones_are_counted",
        file="replica/server/tablets/copy_failures.py",
        function="is_our_own",
        before="return is_transient(error)",
        after="return True",
    ),
    Mutant(
        name="failed copies are counted past a success",
        rows="TC-12",
        test="tests/unit/server/test_server_copy_failures.py::test_copy_failures_end_with_a_copy_or_with_the_attempts",
        file="replica/server/tablets/copy_failures.py",
        function="CopyFailures.succeeded",
        before="self._of.pop(tablet_id, None)",
        after="pass",
    ),
    Mutant(
        name="refused copies cost a member",
        test=(
            "tests/unit/server/test_server_copy_failures.py::"
            "test_refused_copies_over_an_intact_replica_are_told_and_replace_no_member"
        ),
        file="replica/server/tablets/copy_failures.py",
        function="CopyFailures.failed",
        before="count = count if own else min(count, REFUSALS_MAX)",
        after="pass",
    ),
    Mutant(
        name="refused copy is not told",
        test=(
            "tests/unit/server/test_server_copy_failures.py::"
            "test_refused_copies_over_an_intact_replica_are_told_and_replace_no_member"
        ),
        file="replica/server/tablets/copy_failures.py",
        function="is_refused",
        before="error.detail == INTACT",
        after="not error.detail",
    ),
    Mutant(
        name="refused copy hides failures",
        test=(
            "tests/unit/server/test_server_copy_failures.py::"
            "test_refused_copies_over_an_intact_replica_are_told_and_replace_no_member"
        ),
        file="replica/server/tablets/copy_failures.py",
        function="CopyFailures.failed",
        before="(known is None or not known.own)",
        after="True",
    ),
    Mutant(
        name="refused copies come first",
        test=(
            "tests/unit/server/test_server_copy_failures.py::"
            "test_refused_copies_over_an_intact_replica_are_told_and_replace_no_member"
        ),
        file="replica/server/tablets/copy_failures.py",
        function="CopyFailures.lasting",
        before="(not f.own, -f.count, f.tablet_id)",
        after="(-f.count, f.tablet_id)",
    ),
    Mutant(
        name="copy of an impossible id begins",
        rows="none",
        test=(
            "tests/unit/server/test_server_requests_table.py::"
            "test_misaddressed_stale_and_repeated_calls_leave_everything_as_it_was"
        ),
        file="replica/server/copies/copy_service.py",
        function="CopyServicer.StartTabletCopy",
        before="check_tablet_id(request.tablet_id)",
        after='check_tablet_id(request.tablet_id or "t")',
    ),
    Mutant(
        name="last opid of the caller is lost on the way",
        rows="TC-31",
        test=(
            "tests/process/test_master_process.py::"
            "test_master_dropped_table_ends_as_tombstones_everywhere_whoever_has_not_heard"
        ),
        file="replica/server/copies/copy_service.py",
        function="CopyServicer.StartTabletCopy",
        before='last_opid=opid_from_pb(request.last_opid) if request.HasField("last_opid") else None,',
        after="last_opid=None,",
    ),
    Mutant(
        name="log goes along while the config is saved",
        rows="CC-47",
        test=(
            "tests/unit/server/test_server_witness.py::"
            "test_witness_gets_no_log_while_the_config_that_makes_it_one_is_on_its_way_to_disk"
        ),
        file="replica/server/copies/copy_service.py",
        function="CopyServicer._ready",
        before="""
            await drained(hosted.meta_lane)
        """,
        after="",
    ),
    Mutant(
        name="tombstone forgets a damaged end",
        rows="TC-36, TC-61",
        test=(
            "tests/unit/server/test_server_tombstone.py::"
            "test_replica_whose_logs_end_is_damaged_keeps_that_end_as_a_tombstone"
        ),
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.halt_for_deletion",
        before="withheld or ZERO_OPID",
        after="ZERO_OPID",
    ),
    Mutant(
        name="deletion without room forgets the last opid",
        rows="TC-36",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_deletion_without_room_forgets_nothing_and_ends_once_there_is_room"
        ),
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.halt_for_deletion",
        before="""
            hosted.stopped_at = ended
        """,
        after="",
    ),
    Mutant(
        name="damaged superblock cannot be deleted",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_file_that_is_lost_while_the_server_is_stopped_leaves_a_replica_that_a_copy_replaces"
        ),
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.delete_files",
        before="if hosted.lost:",
        after="if False:",
    ),
    Mutant(
        name="tombstone remembers the damage",
        rows="TC-63",
        test="tests/unit/server/test_server_renewal.py::test_order_that_found_no_room_may_come_again",
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.delete_files",
        before='hosted.error, hosted.stopped_at, hosted.unreadable = "", None, False',
        after='hosted.error, hosted.stopped_at = "", None',
    ),
    Mutant(
        name="witness serves readers",
        rows="CC-47",
        test="tests/unit/server/test_server_witness.py::test_witness_commits_and_serves_no_reads",
        file="replica/server/tablets/hosted.py",
        function="HostedTablet.serving",
        before="self.superblock.witness",
        after="False",
    ),
    Mutant(
        name="copy goes on unwanted",
        rows="CC-52",
        test="tests/unit/server/test_server_witness.py::test_witness_that_is_not_wanted_whole_any_more_stops_its_copy",
        file="replica/server/copies/witness_data.py",
        function="WitnessDataJobs.look",
        before='if job.progress.phase != "JOIN.4" and (hosted is None or not wants_data(hosted)):',
        after='if job.progress.phase != "JOIN.4" and hosted is None:',
    ),
    Mutant(
        name="missing file is not noticed",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_large_file_that_is_lost_under_a_running_server_fails_its_replica_at_the_next_look"
        ),
        file="replica/server/maintenance/file_check.py",
        function="FileChecker.check_all",
        before="if lost is not None:",
        after="if lost is None:",
    ),
    Mutant(
        name="record of a running log stays lost",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_record_of_the_logs_end_that_is_lost_under_a_running_server_is_written_again"
        ),
        file="replica/server/maintenance/file_check.py",
        function="FileChecker._repair_roots",
        before="log is not None and log.repair_record()",
        after="False",
    ),
    Mutant(
        name="record of a failed replica stays lost",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_work_over_a_damaged_superblock_goes_by_memory",
        file="replica/server/maintenance/file_check.py",
        function="FileChecker.check_all",
        before="settled = hosted.replica is not None or",
        after="settled = hosted.running or",
    ),
    Mutant(
        name="record is lost at a second opening",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_work_over_a_damaged_superblock_goes_by_memory",
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before="hosted.repair_superblock(self.disk)",
        after="hosted.tablet",
    ),
    Mutant(
        name="damaged record ends a witness",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_witness.py::"
            "test_witness_whose_superblock_is_damaged_meanwhile_is_joined_by_its_data"
        ),
        file="replica/server/copies/witness_data.py",
        function="WitnessDataJobs.swap",
        before="whole.save(manager.disk, over=hosted.superblock)",
        after="whole.save(manager.disk)",
    ),
    Mutant(
        name="other folder is written into",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_file_is_not_written_into_a_folder_that_is_not_the_one_the_server_began_with"
        ),
        file="replica/server/maintenance/file_check.py",
        function="FileChecker._repair_roots",
        before="self._check_folders()",
        after='disk.exists("")',
    ),
    Mutant(
        name="empty folder is filled anew",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_folder_that_is_lost_under_a_running_server_is_not_made_anew_with_one_file"
        ),
        file="replica/server/maintenance/file_check.py",
        function="_folder_is_lost",
        before="1",
        after="9",
    ),
    Mutant(
        name="missing log is made anew",
        rows="TC-35",
        test="tests/unit/server/test_server_files.py::test_tablet_that_lacks_one_of_its_parts_stays_offline",
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before='raise Corruption("a READY tablet has no log folder", tablet=tablet_id)',
        after="self.disk.mkdir(wal_folder(tablet_id))",
    ),
    Mutant(
        name="start does not check blocks",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_vivify.py::"
            "test_blocks_of_a_copy_are_checked_as_they_come_and_by_a_start_but_not_in_between"
        ),
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before="not checked",
        after="False",
    ),
    Mutant(
        name="length of segments is not the operators",
        rows="CN-17",
        test="tests/unit/server/test_server_opening.py::test_logs_of_a_server_have_segments_as_long_as_it_is_told",
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before="options.wal_sync, segment_size_bytes_max=options.wal_segment_size_bytes_max",
        after="options.wal_sync",
    ),
    Mutant(
        name="creation leaves a stray file",
        rows="TC-33",
        test="tests/unit/server/test_server_files.py::test_created_tablet_has_its_files_where_they_are_documented",
        file="replica/server/tablets/opening.py",
        function="create_files",
        before="""
            Tablet.create(disk, superblock).close()
        """,
        after="""
            Tablet.create(disk, superblock).close()
            disk.replace(f"data/{tablet_id}.created", b"")
        """,
    ),
    Mutant(
        name="server rolls nothing forward",
        rows="TC-59, TC-60",
        test=(
            "tests/process/test_crash_matrix_server.py::"
            "test_server_that_dies_in_any_cell_of_the_matrix_ends_as_the_matrix_says"
        ),
        file="replica/server/tablets/opening.py",
        function="settle_all",
        before="found[tablet_id] = settle_at_startup(disk, Superblock.load(disk, tablet_id))",
        after="found[tablet_id] = Superblock.load(disk, tablet_id)",
    ),
    Mutant(
        name="superblock of a later build ends the server",
        rows="TC-63",
        test=(
            "tests/process/test_formats_process.py::"
            "test_server_serves_the_directory_of_an_earlier_build_and_refuses_what_a_later_one_wrote"
        ),
        file="replica/server/tablets/opening.py",
        function="settle_all",
        before="""
            except (Corruption, Refused) as error:
                found[tablet_id] = error
        """,
        after="""
            except Refused as error:
                found[tablet_id] = error
        """,
    ),
    Mutant(
        name="missing superblock is not told",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_file_that_is_lost_while_the_server_is_stopped_leaves_a_replica_that_a_copy_replaces"
        ),
        file="replica/server/tablets/opening.py",
        function="find_lost",
        before="for tablet_id in lost_tablets(disk):",
        after="for tablet_id in lost_tablets(disk)[:0]:",
    ),
    Mutant(
        name="unreadable folder of blocks ends the server",
        rows="TC-63",
        test=(
            "tests/unit/server/test_server_open.py::"
            "test_server_whose_folder_of_blocks_cannot_be_listed_serves_who_has_none_there"
        ),
        file="replica/server/tablets/opening.py",
        function="settle_all",
        before="""
           with data_trouble("data"):  # a bad folder of blocks fails the replicas that have blocks, when they open
        """,
        after="""
           if True:
        """,
    ),
    Mutant(
        name="server sweeps nothing",
        rows="TC-64",
        test=(
            "tests/process/test_crash_matrix_server.py::"
            "test_server_that_dies_in_any_cell_of_the_matrix_ends_as_the_matrix_says"
        ),
        file="replica/server/tablets/opening.py",
        function="settle_all",
        before='swept = sweep_orphans(disk, named | spared_blocks(disk, disk.listdir("data")))',
        after="swept = sorted(named)[:0]",
    ),
    Mutant(
        name="lost servers are asked for at every beat",
        rows="CN-34",
        test=(
            "tests/unit/server/test_server_seeking.py::"
            "test_reached_servers_are_not_asked_for_and_a_lost_one_ever_more_rarely"
        ),
        file="replica/server/heartbeats/seeking.py",
        function="Seeker.due",
        before="self._next[uuid] = now_s + pause, min(2 * pause, PAUSE_MAX_S)",
        after="self._next[uuid] = now_s + pause, pause",
    ),
    Mutant(
        name="tombstone votes under a lease",
        rows="CC-31, TC-76",
        test="tests/unit/server/test_server_tombstone.py::test_tombstone_gives_no_vote_while_a_leader_may_hold_a_lease",
        file="replica/server/tablets/tombstone.py",
        function="vote_reply",
        before="elif owes_lease and not message.transfer:",
        after="elif False:",
    ),
    Mutant(
        name="tombstone of an unread log votes",
        rows="TC-36, TC-76",
        test=(
            "tests/unit/server/test_server_tombstone.py::"
            "test_replica_that_could_not_be_opened_gives_no_vote_as_a_tombstone"
        ),
        file="replica/server/tablets/tombstone.py",
        function="vote_reply",
        before="elif not last_known:",
        after="elif False:",
    ),
    Mutant(
        name="tombstone ignores its last opid",
        rows="TC-76",
        test="tests/unit/server/test_server_tombstone.py::test_tombstone_votes_by_its_kept_last_opid",
        file="replica/server/tablets/tombstone.py",
        function="vote_reply",
        before="elif message.last < last:",
        after="elif message.last.index < 0:",
    ),
    Mutant(
        name="tombstones pre vote is remembered",
        rows="CC-33",
        test="tests/unit/server/test_server_tombstone.py::test_pre_vote_of_a_tombstone_writes_nothing",
        file="replica/server/tablets/tombstone.py",
        function="vote_reply",
        before="if not reason and not message.pre_vote:",
        after="if not reason:",
    ),
    Mutant(
        name="tombstone tells a lost member the term",
        rows="CC-46",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_tombstone_of_a_recovered_group_tells_a_lost_member_nothing"
        ),
        file="replica/server/tablets/tombstone.py",
        function="answer_without_replica",
        before="if generation_of(message.term) < generation_of(term):",
        after="if generation_of(message.term) + 1 < generation_of(term):",
    ),
    Mutant(
        name="interrupted copier gives no vote",
        rows="TC-78",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_voter_that_died_in_its_copy_still_votes_by_what_it_kept"
        ),
        file="replica/server/tablets/tombstone.py",
        function="answer_without_replica",
        before="hosted.superblock.data_state is not DataState.DELETED",
        after="hosted.superblock.wal_generation",
    ),
    Mutant(
        name="blank server votes",
        rows="TC-77",
        test="tests/unit/server/test_server_votes_of_the_absent.py::test_blank_server_gives_no_vote_and_writes_nothing",
        file="replica/server/tablets/tombstone.py",
        function="answer_without_replica",
        before="granted=False,",
        after="granted=hosted is None,",
    ),
    Mutant(
        name="tombstone takes any term",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_term_of_a_later_generation_is_refused_at_a_tombstone_too"
        ),
        file="replica/server/tablets/tombstone.py",
        function="_refusal",
        before="if term and too_far(term, message.term):",
        after="if False:",
    ),
    Mutant(
        name="earlier leader is not told of the term",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_server_that_lost_a_superblock_gives_no_vote_until_a_copy_is_complete"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.lost_term",
        before="return cmeta.term if cmeta is not None else 0",
        after="return 0",
    ),
    Mutant(
        name="copy looks for the file only",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._copy.stop_and_delete",
        before="if hosted.superblock.data_state is DataState.DOES_NOT_EXIST:",
        after="if not Superblock.exists(manager.disk, job.tablet_id):",
    ),
    Mutant(
        name="refused copy forgets a running replica",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._settle_as_found",
        before="if hosted.superblock.data_state is DataState.DOES_NOT_EXIST:",
        after="if True:",
    ),
    Mutant(
        name="quiescing server answers reads that others can",
        rows="OP-03",
        test="tests/unit/server/test_server_quiescing.py::test_leadership_and_reads_go_to_the_other_server_and_may_come_back",
        file="replica/server/requests/scans.py",
        function="Scans._fresh_enough",
        before="if self._quiescing() and not replica.is_leader:",
        after="if self._quiescing() and not replica.uuid:",
    ),
    Mutant(
        name="quiescing leader refuses reads",
        rows="OP-03",
        test="tests/unit/server/test_server_quiescing.py::test_leader_that_nobody_relieves_leads_on_and_serves_while_it_quiesces",
        file="replica/server/requests/scans.py",
        function="Scans._fresh_enough",
        before="if self._quiescing() and not replica.is_leader:",
        after="if self._quiescing():",
    ),
    Mutant(
        name="late request to quiesce counts",
        rows="OP-03",
        test="tests/unit/server/test_server_requests_table.py::test_overtaken_calls_leave_everything_as_it_is",
        file="replica/server/requests/quiescing.py",
        function="Quiescing.want",
        before="if seen not in (0, self._changes):",
        after="if seen < 0:",
    ),
    Mutant(
        name="repeated request to quiesce is a change",
        rows="OP-03",
        test="tests/unit/server/test_server_quiescing.py::test_leadership_and_reads_go_to_the_other_server_and_may_come_back",
        file="replica/server/requests/quiescing.py",
        function="Quiescing.want",
        before="if quiesce == self._manager.quiescing:",
        after="if not quiesce and not self._manager.quiescing:",
    ),
    Mutant(
        name="leadership is kept while quiescing",
        rows="OP-03",
        test="tests/unit/server/test_server_quiescing.py::test_leadership_and_reads_go_to_the_other_server_and_may_come_back",
        file="replica/server/requests/quiescing.py",
        function="Quiescing.want",
        before="self._began.set()",
        after="self._began.clear()",
    ),
    Mutant(
        name="only one voter is asked to lead",
        rows="OP-03",
        test="tests/unit/server/test_server_quiescing.py::test_leader_that_nobody_relieves_leads_on_and_serves_while_it_quiesces",
        file="replica/server/requests/quiescing.py",
        function="target_of",
        before="return others[(attempt - 1) % len(others)] if attempt else None",
        after="return others[0] if attempt else None",
    ),
    Mutant(
        name="waiting copies have no bound",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_waiting_copies_are_bounded_per_host_and_in_all_and_take_no_room"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.start",
        before="""
            check_waiting(self._jobs.values(), host)
        """,
        after="",
    ),
    Mutant(
        name="one host may have all that wait",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_waiting_copies_are_bounded_per_host_and_in_all_and_take_no_room"
        ),
        file="replica/server/copies/copy_queue.py",
        function="check_waiting",
        before="waiting.count(host), limits.COPIES_WAITING_PER_HOST_MAX",
        after="waiting.count(host), limits.COPIES_WAITING_MAX",
    ),
    Mutant(
        name="copy is of no host",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_waiting_copies_are_bounded_per_host_and_in_all_and_take_no_room"
        ),
        file="replica/server/copies/copy_service.py",
        function="CopyServicer.StartTabletCopy",
        before="self._jobs.start(wanted, addresses, host_of_caller(context))",
        after="self._jobs.start(wanted, addresses)",
    ),
    Mutant(
        name="waiting copies take room",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_waiting_copies_are_bounded_per_host_and_in_all_and_take_no_room"
        ),
        file="replica/server/tablets/hosted.py",
        function="HostedTablet.takes_room",
        before="if self.copy is not None and not self.copy.progress.waits:",
        after="if self.copy is not None:",
    ),
    Mutant(
        name="copy that waited does not look for room",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_copy_whose_turn_comes_when_the_server_is_full_is_refused_then"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._on_pool",
        before="if hosted is not None and not hosted.takes_room:",
        after="if False:",
    ),
    Mutant(
        name="host that asks most is served first",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_host_that_asks_for_many_copies_delays_another_ones_by_one"
        ),
        file="replica/server/copies/copy_queue.py",
        function="CopyQueue._grant",
        before="""
            self._waiting[host] = self._waiting.pop(host)  # behind the others
        """,
        after="",
    ),
    Mutant(
        name="running copies of a host do not count",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_queue.py::"
            "test_free_place_goes_to_the_host_with_the_fewest_running_copies"
        ),
        file="replica/server/copies/copy_queue.py",
        function="CopyQueue._grant",
        before="(host := min(self._waiting, key=self._running.__getitem__, default=None))",
        after="(host := next(iter(self._waiting), None))",
    ),
    Mutant(
        name="cancelled copy stays in the queue",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_queue.py::test_no_place_is_lost_or_given_twice_whatever_is_cancelled"
        ),
        file="replica/server/copies/copy_queue.py",
        function="CopyQueue.place",
        before="self._forget(job.host, place)",
        after="pass",
    ),
    Mutant(
        name="cancelled copy keeps its place",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_queue.py::test_no_place_is_lost_or_given_twice_whatever_is_cancelled"
        ),
        file="replica/server/copies/copy_queue.py",
        function="CopyQueue._grant",
        before="if not place.cancelled():",
        after="if True:",
    ),
    Mutant(
        name="copies bring any time to a server",
        rows="IN-50",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_copy_of_a_log_far_ahead_of_the_clock_here_does_not_move_the_clock"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs.attempt",
        before="ahead_us=manager.hybrid_clock.ahead_us,",
        after="",
    ),
    Mutant(
        name="failed copy writes a superblock beside a replica that is stopping",
        rows="none",
        test="tests/unit/server/test_server_open.py::test_copy_that_failed_writes_no_superblock_beside_a_replica_that_is_stopping",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._settle_as_found",
        before="async with hosted.transition:",
        after="async with asyncio.Lock():",
    ),
    Mutant(
        name="failed copy opens its replica while the server stops",
        rows="none",
        test="tests/unit/server/test_server_open.py::test_copy_that_failed_writes_no_superblock_beside_a_replica_that_is_stopping",
        file="replica/server/copies/copy_jobs.py",
        function="CopyJobs._settle_as_found",
        before="closed and not manager.stopping",
        after="closed",
    ),
    Mutant(
        name="stop that fails leaves the record of the opening",
        rows="none",
        test="tests/unit/server/test_server_open.py::test_stop_that_fails_takes_the_record_that_the_tablet_had",
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.halt",
        before="finally:",
        after="except KeyError:",
    ),
    Mutant(
        name="copy that is whole leaves the record of its beginning in memory",
        rows="none",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_copy_that_fails_leaves_a_tombstone_as_ignorant_as_it_was",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._copy",
        before="self.in_force = ready",
        after="pass",
    ),
    Mutant(
        name="check beside a stop writes the record of the opening",
        rows="none",
        test="tests/unit/server/test_server_open.py::test_check_of_files_that_a_stop_cuts_off_writes_no_earlier_superblock",
        file="replica/server/tablets/hosted.py",
        function="HostedTablet.repair_superblock",
        before="self.tablet or self.halting",
        after="self.tablet",
    ),
)
