"""Mutants: requests, reports and heartbeats."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="unreadable list of masters ends the start",
        rows="IN-21",
        test="tests/unit/server/test_other_masters.py::test_file_of_masters_that_cannot_be_read_holds_up_no_start",
        file="replica/server/heartbeats/other_masters.py",
        function="read_known_masters",
        before="except ReplicaError as error:",
        after="except ZeroDivisionError as error:",
    ),
    Mutant(
        name="server tells its time without making sure that it leads",
        rows="IN-12",
        test=(
            "tests/process/test_strong_reads_process.py::"
            "test_first_strong_read_has_what_was_acknowledged_though_the_client_asks_a_former_leader"
        ),
        file="replica/server/requests/tablet_service.py",
        function="TabletServicer._led_here",
        before="""
            replica, _ = self._manager.get(tablet_id).serving()
            await when(replica.read_barrier, timeout_s, "the leader's read barrier")
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="rows of scans are no load",
        test="tests/unit/server/test_server_row_rate.py::test_status_of_a_replica_has_its_rates",
        file="replica/server/requests/scans.py",
        function="Scans.scan",
        before="hosted.rows_read += chunk.rows + chunk.link_rows",
        after="pass",
    ),
    Mutant(
        name="rows of reads by key are no load",
        test="tests/unit/server/test_server_row_rate.py::test_status_of_a_replica_has_its_rates",
        file="replica/server/requests/scans.py",
        function="Scans.get",
        before="hosted.rows_read += len(reply.found)",
        after="pass",
    ),
    Mutant(
        name="applied rows are no load",
        test="tests/unit/server/test_server_row_rate.py::test_status_of_a_replica_has_its_rates",
        file="replica/tablet/tablet.py",
        function="Tablet._apply_rows",
        before="self.rows_written += applied",
        after="pass",
    ),
    Mutant(
        name="one batch is a load",
        test="tests/unit/server/test_server_row_rate.py::test_rate_is_the_average_of_the_last_window",
        file="replica/server/tablets/row_rate.py",
        function="RowRate.sample",
        before=">= WINDOW_S:",
        after="> 0:",
    ),
    Mutant(
        name="counter that begins anew is a negative rate",
        test="tests/unit/server/test_server_row_rate.py::test_rate_is_the_average_of_the_last_window",
        file="replica/server/tablets/row_rate.py",
        function="RowRate.sample",
        before="if self._since is None or count < self._since[1]:",
        after="if self._since is None:",
    ),
    Mutant(
        name="rates are in no record",
        test="tests/unit/master/test_master_reporter.py::test_rates_are_in_the_records_of_tablets",
        file="replica/master/decisions/reporter.py",
        function="Reporter._tablet",
        before="**self._rates(tablet),",
        after="",
    ),
    Mutant(
        name="batch that holds the tablet for minutes gets an index",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_that_writes_one_key_too_often_is_refused_before_it_has_an_index"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="tablet.check_passes(meta, batch, size)",
        after="None",
    ),
    Mutant(
        name="batch is measured before those in front of it went on",
        rows="CN-25",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_whose_rows_keep_too_much_is_refused_whatever_is_under_way_before_it"
        ),
        file="replica/server/tablets/write_order.py",
        function="WriteOrder.when_first",
        before="arrival.look = look",
        after="look()",
    ),
    Mutant(
        name="what went on is forgotten before it is applied",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_whose_rows_keep_too_much_is_refused_whatever_is_under_way_before_it"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="hosted.under_way.add(given)",
        after="pass",
    ),
    Mutant(
        name="refused write is told of a read",
        test=(
            "tests/unit/server/test_server_writes.py::test_bad_batch_at_a_leader_without_followers_is_told_of_its_batch"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="the leader knows whether it answered this write before; if not, {error.what}",
        after="ask the leader",
    ),
    Mutant(
        name="what is answered stays under way",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_whose_rows_keep_too_much_is_refused_whatever_is_under_way_before_it"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="""
            hosted.under_way.discard(given)
            done(self._reply(result))
        """,
        after="""
            done(self._reply(result))
        """,
    ),
    Mutant(
        name="what another leader measured gets an index",
        rows="CN-25",
        test="tests/unit/server/test_server_writes.py::test_measured_batch_that_does_not_go_on_holds_nobody_up",
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="if replica.is_leader and replica.term == term:",
        after="if replica.is_leader:",
    ),
    Mutant(
        name="errors of a batch fit into no reply",
        rows="IN-60",
        test="tests/unit/server/test_server_writes.py::test_batch_whose_errors_fit_into_no_reply_is_refused",
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="if reply_bytes > limits.WRITE_REPLY_BYTES_MAX:",
        after="if False:",
    ),
    Mutant(
        name="query of a former generation is heard",
        rows="CC-44",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_of_a_source_that_was_opened_before_a_forced_recovery_is_refused"
        ),
        file="replica/server/requests/writes.py",
        function="need_same_generation",
        before="if generation_of(config.opid.term) > generation_of(request.config_term):",
        after="if False:",
    ),
    Mutant(
        name="sources are not asked for their generation",
        rows="CC-44",
        test=(
            "tests/process/test_lost_majority_process.py::"
            "test_two_of_three_servers_lost_for_good_the_third_goes_on_and_returning_ones_are_harmless"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="""if request.HasField("source"):""",
        after="if False:",
        on_disk=True,
    ),
    Mutant(
        name="query tells no generation",
        rows="CC-44",
        test=(
            "tests/process/test_lost_majority_process.py::"
            "test_two_of_three_servers_lost_for_good_the_third_goes_on_and_returning_ones_are_harmless"
        ),
        file="replica/client/writes.py",
        function="write_request",
        before="config_term=tablet.config_term if meta.source else 0,",
        after="config_term=0,",
        on_disk=True,
    ),
    Mutant(
        name="checksums take the threads of scans",
        rows="IN-60, IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_checksums_keep_no_reader_waiting_and_no_host_takes_all_places"
        ),
        file="replica/server/requests/scans.py",
        function="Scans.checksum",
        before="on_thread(self._sums,",
        after="on_thread(self._pool,",
    ),
    Mutant(
        name="any number of checksums waits",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_checksums_keep_no_reader_waiting_and_no_host_takes_all_places"
        ),
        file="replica/server/requests/scans.py",
        function="Scans.__init__",
        before="CallBounds(limits.CHECKSUMS_OPEN_MAX, ",
        after="CallBounds(9 * limits.CHECKSUMS_OPEN_MAX, ",
    ),
    Mutant(
        name="one host takes all places",
        rows="IN-60",
        test="tests/unit/server/test_server_callers.py::test_scans_of_one_host_leave_places_to_others",
        file="replica/server/requests/scans.py",
        function="Scans.__init__",
        before="CallBounds(limits.SCANS_OPEN_MAX, limits.SCANS_OPEN_PER_HOST_MAX)",
        after="CallBounds(limits.SCANS_OPEN_MAX, limits.SCANS_OPEN_MAX)",
    ),
    Mutant(
        name="mended clone counts as the same build",
        rows="IN-03",
        test="tests/unit/server/test_server_replay_watch.py::test_running_build_is_another_if_a_line_is",
        file="replica/server/startup/code_version.py",
        function="running_build",
        before="digest.update(path.read_bytes())",
        after="path.read_bytes()",
    ),
    Mutant(
        name="deadline of grpc is not seen",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_caller_is_waited_for_until_the_earlier_of_its_deadlines",
        file="replica/server/requests/request_deadline.py",
        function="RequestDeadline.of",
        before="if left_s is not None:",
        after="if left_s is not None and not limits_s:",
    ),
    Mutant(
        name="servers know one master only",
        rows="MF-02, MF-32",
        test="tests/process/test_master_migration_process.py::test_single_master_becomes_three_with_every_table",
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats.run_forever",
        before="for master in dict.fromkeys((*self._manager.options.masters, *self._listed)):",
        after="for master in dict.fromkeys((*self._manager.options.masters[:1], *stored)):",
    ),
    Mutant(
        name="masters of another cluster are believed",
        rows="MF-32",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_masters_that_the_others_name_are_beaten_at_and_only_those_of_our_cluster"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._hear_of_masters",
        before="""
            if not reply.cluster_id or self._identity.cluster_id not in ("", reply.cluster_id):
                return
        """,
        after="",
    ),
    Mutant(
        name="heartbeat second spelling of a master stays",
        rows="none",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_master_that_was_named_before_we_knew_it_by_another_address_is_beaten_at_once"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._one_master",
        before="""
            if self._answers_elsewhere(master, reply.master_uuid):
                del self._changed[master], self._uuids[master]
                return
        """,
        after="",
    ),
    Mutant(
        name="masters that others name are not heard of",
        rows="MF-32",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_masters_that_the_others_name_are_beaten_at_and_only_those_of_our_cluster"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._one_master",
        before="""
            self._hear_of_masters(group, reply)
        """,
        after="",
    ),
    Mutant(
        name="places of the masters are not heard",
        rows="CN-34",
        test=(
            "tests/process/test_moved_servers_process.py::test_cluster_whose_servers_all_moved_at_once_elects_and_heals"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._one_master",
        before="for listing in reply.found:",
        after="for listing in ():",
    ),
    Mutant(
        name="heartbeat silent spelling of a master stays",
        rows="none",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_master_that_was_named_before_we_knew_it_by_another_address_is_beaten_at_once[answers_at1]"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._one_master",
        before="""
            if self._answers_elsewhere(master, listed):
                del self._changed[master], self._uuids[master]
                return
        """,
        after="",
    ),
    Mutant(
        name="orders are not looked at",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_heartbeat.py::test_orders_of_a_master_that_name_what_cannot_be_make_nothing"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._order",
        before="""
            self._check_order(request)
        """,
        after="",
    ),
    Mutant(
        name="two clusters get one server",
        rows="TC-33",
        test="tests/unit/server/test_server_instance.py::test_two_clusters_that_answer_at_once_get_a_new_server_once",
        file="replica/server/runtime/identity.py",
        function="Identity.join",
        before="async with self._joining:",
        after="if True:",
    ),
    Mutant(
        name="maps are not counted",
        rows="IN-32",
        test="tests/unit/server/test_server_resources.py::test_server_counts_them_in_its_metrics_and_warns_in_its_log",
        file="replica/server/metrics.py",
        function="Metrics.collect",
        before='"nyala_server_memory_maps": ("Memory maps in use", self.maintenance.resources.maps.used),',
        after='"nyala_server_memory_maps": ("Memory maps in use", self.maintenance.resources.files.used),',
    ),
    Mutant(
        name="heartbeat master is known by address alone",
        rows="none",
        test="tests/unit/server/test_other_masters.py::test_who_is_known_by_address_or_uuid_is_not_heard_of_anew",
        file="replica/server/heartbeats/other_masters.py",
        function="unheard_of",
        before="uuid not in uuids and not",
        after="not",
    ),
    Mutant(
        name="server does not scrub",
        rows="TC-63",
        test=(
            "tests/process/test_disk_trouble_process.py::"
            "test_rot_that_nobody_reads_is_told_by_a_check_and_found_and_healed_by_the_scrub"
        ),
        file="replica/server/process.py",
        function="TabletServer.run",
        before="""
            self._tasks.start(scrub.run_forever())
        """,
        after="",
    ),
    Mutant(
        name="empty disk is taken for the lost one",
        rows="TC-72",
        test=(
            "tests/unit/server/test_server_file_check.py::test_folders_that_are_empty_mount_points_keep_a_server_down"
        ),
        file="replica/server/startup/durable_state.py",
        function="check_durable_state",
        before="if not disk.listdir(folder)]",
        after="if not disk.exists(folder)]",
    ),
    Mutant(
        name="what is gone is not told",
        rows="TC-65",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_tablet_that_is_gone_without_a_trace_is_told_by_a_full_report"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.next",
        before="self._full = self._full or bool(gone)  # only",
        after="self._full = self._full  # only",
    ),
    Mutant(
        name="heartbeat follower is told every replica",
        rows="none",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_master_that_does_not_lead_is_asked_whether_it_does_and_told_everything_then"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.next",
        before="return Report([], frozenset(gone))",
        after="return full_report(tablets, changed, status_of, after='', slices=False)",
    ),
    Mutant(
        name="heartbeat nothing is told as everything",
        rows="none",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_master_of_another_cluster_that_becomes_ours_is_never_told_that_nothing_is_here"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.next",
        before="return Report([], frozenset(gone))",
        after="return Report([], frozenset(gone), full=True)",
    ),
    Mutant(
        name="heartbeat new leader is not told everything",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_reports_in_slices_end_in_what_is_there",
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before="self._full = reply.need_full_report or",
        after="self._full =",
    ),
    Mutant(
        name="heartbeat new leader of an earlier build is not told everything",
        rows="none",
        test=(
            "tests/unit/server/test_server_heartbeat.py::"
            "test_master_that_does_not_lead_is_asked_whether_it_does_and_told_everything_then"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before="self._full = reply.need_full_report or bool(self._after) or anew",
        after="self._full = bool(self._after)",
    ),
    Mutant(
        name="late reply repeats everything",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_late_reply_repeats_a_slice_at_most_and_no_whole_report",
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before="anew = not before and (self._gone or not reply.takes_slices)",
        after="anew = not before",
    ),
    Mutant(
        name="late reply loses changes",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_late_reply_repeats_a_slice_at_most_and_no_whole_report",
        file="replica/rpc/report_state.py",
        function="ReportState.next",
        before="changed |= self._sent",
        after="pass",
    ),
    Mutant(
        name="lost slice loses a tablet that went",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_reports_in_slices_end_in_what_is_there",
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before="self._gone = self._gone and not (self._sent_full and not reply.heard_until)",
        after="self._gone = False",
    ),
    Mutant(
        name="waiting server reports everything",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_slices_follow_each_other_at_once_and_a_waiting_server_sends_none"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.next",
        before="if self._full and self._waits:",
        after="if False:",
    ),
    Mutant(
        name="next slice waits for the next heartbeat",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_slices_follow_each_other_at_once_and_a_waiting_server_sends_none"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before='(not before or waited or self._after == self._until != "")',
        after="(not before or waited)",
    ),
    Mutant(
        name="server that need not wait any more waits for the next heartbeat",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_slices_follow_each_other_at_once_and_a_waiting_server_sends_none"
        ),
        file="replica/rpc/report_state.py",
        function="ReportState.taken",
        before="(not before or waited or self._after",
        after="(not before or self._after",
    ),
    Mutant(
        name="any number of full reports at once",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_full_reports_under_way_are_bounded_and_every_server_comes_to_its_turn"
        ),
        file="replica/master/heartbeats/full_reports.py",
        function="FullReports._has_place",
        before="            return False",
        after="            pass",
    ),
    Mutant(
        name="silent server keeps its place",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_full_reports_under_way_are_bounded_and_every_server_comes_to_its_turn"
        ),
        file="replica/master/heartbeats/full_reports.py",
        function="FullReports._has_place",
        before="now_us - at < IDLE_US",
        after="True",
    ),
    Mutant(
        name="newcomer overtakes waiting servers",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_first_request_gets_no_place_while_others_wait",
        file="replica/master/heartbeats/full_reports.py",
        function="FullReports._has_place",
        before="return not self._waiting or uuid in self._waiting",
        after="return True",
    ),
    Mutant(
        name="end of a full report keeps its place",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_complete_report_gives_up_its_place",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take_slice",
        before="self.full_reports.end(server.uuid)",
        after="pass",
    ),
    Mutant(
        name="change outside of a slice is forgotten",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_reports_in_slices_end_in_what_is_there",
        file="replica/rpc/report_state.py",
        function="full_report",
        before="told = frozenset(t for t in changed if t > after and (not until or t <= until))",
        after="told = frozenset(t for t in changed if t)",
    ),
    Mutant(
        name="report has any number of statuses",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_rations.py::"
            "test_report_of_many_small_statuses_is_taken_by_a_master_slice_by_slice"
        ),
        file="replica/rpc/report_state.py",
        function="_fitting",
        before="if len(statuses) == limits.REPORT_REPLICAS_MAX:",
        after="if len(statuses) == limits.REPLICAS_REPORTED_MAX:",
    ),
    Mutant(
        name="reads that nobody confirms",
        rows="CN-24",
        test=(
            "tests/process/test_partitions.py::"
            "test_clients_see_a_linearizable_history_while_leaders_are_cut_off_stopped_and_killed"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._ready_to_read",
        before="""
            await when(replica.read_barrier, timeout_s, "the leader's read barrier")
            return None
        """,
        after="""
            return None
        """,
    ),
    Mutant(
        name="age told by times that stand still",
        rows="CN-24",
        test="tests/unit/server/test_server_freshness.py::test_times_that_stand_still_ahead_of_the_wall_tell_no_age",
        file="replica/server/requests/scans.py",
        function="Scans._fresh_enough",
        before="if self._hybrid_clock.ahead_of_wall_us() > limits.CLOCK_DIFFERENCE_US_MAX:",
        after="if False:",
    ),
    Mutant(
        name="stale read by contact not by data",
        rows="CN-24",
        test=(
            "tests/unit/server/test_server_freshness.py::"
            "test_follower_answers_while_its_data_is_new_enough_and_says_its_lag_when_it_is_not"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._fresh_enough",
        before="time_needed(self._hybrid_clock.now(), request.staleness_us, seen",
        after="(replica.applied_time if replica.leader_uuid else 0",
    ),
    Mutant(
        name="stale read of a leader counts as fresh",
        rows="CN-24",
        test="tests/unit/server/test_server_freshness.py::test_leader_that_lost_its_quorum_is_as_old_as_its_data",
        file="replica/server/requests/scans.py",
        function="Scans._fresh_enough",
        before="""
            await self._wait_safe(replica, needed, min(timeout_s, self._catch_up_s))
        """,
        after="""
            if not replica.is_leader:
                await self._wait_safe(replica, needed, min(timeout_s, self._catch_up_s))
        """,
    ),
    Mutant(
        name="scan begins for nobody",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_scan_whose_deadline_passed_while_it_waited_for_a_thread_is_not_begun"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._chunks.start",
        before="""
            deadline.stop()
        """,
        after="",
    ),
    Mutant(
        name="conditions are read on the loop",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_long_list_of_values_is_read_and_evaluated_on_the_threads_of_scans"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="schema, snapshot_time, batches = await on_thread(self._pool, start, left)",
        after="schema, snapshot_time, batches = start()",
    ),
    Mutant(
        name="damage that a read by key finds for nobody is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_that_a_read_finds_is_acted_on_although_its_caller_left"
        ),
        file="replica/server/requests/scans.py",
        function="Scans.get",
        before="partial(self._left, hosted)",
        after="lambda error: None",
    ),
    Mutant(
        name="damage that a checksum finds for nobody is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_that_a_read_finds_is_acted_on_although_its_caller_left"
        ),
        file="replica/server/requests/scans.py",
        function="Scans.checksum",
        before="partial(self._left, hosted)",
        after="lambda error: None",
    ),
    Mutant(
        name="damage at which a scan begins for nobody is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_that_a_read_finds_is_acted_on_although_its_caller_left"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="await on_thread(self._pool, start, left)",
        after="await on_thread(self._pool, start, lambda error: None)",
    ),
    Mutant(
        name="damage in a batch that nobody takes is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_in_the_batch_after_the_last_that_a_reader_took_is_acted_on"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="left(unseen)",
        after="pass",
    ),
    Mutant(
        name="damage that a scan raises is told twice",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_that_a_read_finds_is_acted_on_although_its_caller_left"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="unseen is not None and unseen is not told",
        after="unseen is not None",
    ),
    Mutant(
        name="failing disk under a read for nobody is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_damage_that_a_read_finds_is_acted_on_although_its_caller_left"
        ),
        file="replica/server/requests/scans.py",
        function="Scans._left",
        before="self._on_fatal(error)",
        after="pass",
    ),
    Mutant(
        name="work whose caller left is abandoned",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_failing_disk_is_acted_on_although_the_caller_of_the_work_left"
        ),
        file="replica/server/runtime/tasks.py",
        function="on_thread",
        before="await asyncio.shield(future)",
        after="await future",
    ),
    Mutant(
        name="failing disk under work for nobody is lost",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_failing_disk_is_acted_on_although_the_caller_of_the_work_left"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._left",
        before="self.on_fatal(error)",
        after="pass",
    ),
    Mutant(
        name="refusal of work for nobody ends the server",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_failing_disk_is_acted_on_although_the_caller_of_the_work_left"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._left",
        before="isinstance(error, DiskFailure | InvariantViolation)",
        after="error",
    ),
    Mutant(
        name="scan outlives its caller",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_nothing_more_is_evaluated_once_the_caller_has_left",
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="""
            deadline.leave()
        """,
        after="",
    ),
    Mutant(
        name="server sums up by its own definition",
        rows="IN-04",
        test="tests/unit/server/test_server_checksum.py::test_checksum_of_another_definition_is_refused",
        file="replica/server/requests/scans.py",
        function="Scans.checksum",
        before="if asked != CHECKSUM_DEFINITION:",
        after="if asked > CHECKSUM_DEFINITION + 100:",
    ),
    Mutant(
        name="checksum goes on",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_nothing_is_evaluated_after_the_deadline",
        file="replica/server/requests/scans.py",
        function="Scans.checksum",
        before="None, deadline.stop)",
        after="None)",
    ),
    Mutant(
        name="list of tablets has no pages",
        rows="IN-80",
        test="tests/unit/server/test_server_lists.py::test_tablets_and_quarantines_of_a_server_come_in_pages",
        file="replica/server/requests/tablet_service.py",
        function="TabletServicer.ListTablets",
        before="page, last = await page_of(found, request.limit_bytes)",
        after="page, last = await page_of(found, 0)",
    ),
    Mutant(
        name="refused change moves a member",
        rows="TC-69",
        test=(
            "tests/unit/server/test_server_requests_table.py::"
            "test_misaddressed_stale_and_repeated_calls_leave_everything_as_it_was[TabletService.ChangeConfig]"
        ),
        file="replica/server/requests/tablet_service.py",
        function="TabletServicer.ChangeConfig",
        before="""
        cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
        """,
        after="""
        for edit in edits:
            self._manager.learn_config(type(replica.active_config)(replica.active_config.opid, (edit.member,)))
        cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
        """,
    ),
    Mutant(
        name="transfer takes other tablets along",
        rows="CN-03",
        test=(
            "tests/process/test_many_groups_process.py::"
            "test_three_servers_in_twenty_groups_lead_some_and_follow_in_others_each_for_itself"
        ),
        file="replica/server/requests/tablet_service.py",
        function="TabletServicer.TransferLeadership",
        before="""
        leader = await when(
        """,
        after="""
        for other in self._manager.running():
            if other.replica is not None and other.replica is not replica and other.replica.is_leader:
                other.replica.transfer(request.target_uuid or None, lambda _: None)
        leader = await when(
        """,
    ),
    Mutant(
        name="leader takes a term that no master named",
        rows="IN-90",
        test=(
            "tests/unit/server/test_server_decision_terms.py::"
            "test_decision_of_a_term_that_no_master_named_is_refused_and_locks_no_later_one_out"
        ),
        file="replica/server/requests/tablet_service.py",
        function="TabletServicer._check_term",
        before="if self._manager.options.masters and decision_term > known:",
        after="if self._manager.options.masters and decision_term < 0:",
    ),
    Mutant(
        name="copied tablet counts as not created",
        rows="TC-27",
        test="tests/unit/server/test_server_vivify.py::test_tablet_that_is_being_copied_is_as_good_as_created",
        file="replica/server/requests/tablet_service.py",
        function="create_tablet",
        before="if hosted.replica is None and not hosted.opening and hosted.copy is None:",
        after="if hosted.replica is None and not hosted.opening:",
    ),
    Mutant(
        name="waiting replica is failed",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_replica_that_cannot_be_opened_for_a_want_waits_and_is_never_failed"
        ),
        file="replica/server/tablets/status.py",
        function="replica_status",
        before="failed = ready and not (hosted.opening or hosted.waiting)",
        after="failed = ready and not (hosted.opening)",
    ),
    Mutant(
        name="link outlives its server",
        rows="CN-25",
        test=(
            "tests/unit/server/test_server_write_links.py::test_link_that_was_granted_before_the_end_is_ended_after_it"
        ),
        file="replica/server/requests/write_links.py",
        function="WriteLinks.close",
        before="self.closed = True",
        after="self.closed = False",
    ),
    Mutant(
        name="broken link writes on",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_write_links.py::"
            "test_link_that_breaks_gives_up_the_writes_that_wait_and_no_others"
        ),
        file="replica/server/requests/write_links.py",
        function="WriteLink.connection_lost",
        before="""
            for give_up in waiting.values():
                give_up()
        """,
        after="""
            waiting.clear()
        """,
    ),
    Mutant(
        name="bundle of any number is begun",
        rows="CN-25",
        test="tests/unit/server/test_server_write_links.py::test_bundle_of_too_many_writes_begins_none",
        file="replica/server/requests/write_links.py",
        function="WriteLink.on_frame",
        before="if len(bundle.writes) > limits.WRITES_PER_LINK_MAX:",
        after="if len(bundle.writes) > 2 * limits.WRITES_PER_LINK_MAX:",
    ),
    Mutant(
        name="write that raised is waited for",
        rows="CN-25",
        test=(
            "tests/unit/server/test_server_write_links.py::"
            "test_write_that_raises_ends_the_link_and_takes_no_reply_with_it"
        ),
        file="replica/server/requests/write_links.py",
        function="WriteLink._reply",
        before="whole = False",
        after="whole = True",
    ),
    Mutant(
        name="writes of the leader do not count",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_pace.py::"
            "test_writes_of_clients_slow_copies_at_the_leader_and_where_they_are_replicated"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="""
            self._written()
        """,
        after="",
    ),
    Mutant(
        name="broken body hides the first answer",
        rows="CN-24",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_clients_number_that_was_answered_has_that_answer_whatever_body_comes"
        ),
        file="replica/server/requests/writes.py",
        function="Writes.begin.bad",
        before="if not meta.client_id:",
        after="if meta.client_id or not meta.client_id:",
    ),
    Mutant(
        name="refused write lets others overtake",
        rows="CN-25",
        test="tests/unit/server/test_server_writes.py::test_write_that_gets_no_index_lets_nobody_overtake",
        file="replica/server/requests/writes.py",
        function="Writes.begin",
        before="if not hosted.arrivals:",
        after="if True:",
    ),
    Mutant(
        name="replayed write says so",
        rows="CN-24",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_clients_number_that_was_answered_has_that_answer_whatever_body_comes"
        ),
        file="replica/server/requests/writes.py",
        function="Writes._reply",
        before="rows_replayed=result.rows_replayed if result.last_offset is not None else 0,",
        after="rows_replayed=result.rows_replayed,",
    ),
    Mutant(
        name="client id of any length is remembered",
        rows="none",
        test="tests/unit/server/test_server_writes.py::test_client_id_that_is_too_long_to_be_remembered_is_refused",
        file="replica/server/requests/writes.py",
        function="_meta",
        before="if request.client_id:",
        after="if False:",
    ),
    Mutant(
        name="link takes any number of columns",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_a_write_on_a_link_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/server/requests/writes.py",
        function="_meta",
        before="if len(request.column_ids) > limits.COLUMNS_MAX:",
        after="if len(request.column_ids) > limits.BATCH_SIZE_BYTES_MAX:",
    ),
    Mutant(
        name="writes on links are unchecked",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_a_write_on_a_link_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/server/requests/writes.py",
        function="_meta",
        before="_known_source",
        after="SourceKey",
    ),
    Mutant(
        name="any location is accepted",
        rows="OP-05",
        test="tests/unit/server/test_server_instance.py::test_location_that_cannot_be_is_refused_at_the_start",
        file="replica/server/options.py",
        function="ServerOptions.__post_init__",
        before="not self.location or bool(fits),",
        after="len(self.location) <= limits.NAME_LENGTH_MAX,",
    ),
    Mutant(
        name="location of any length is accepted",
        rows="OP-05",
        test="tests/unit/server/test_server_instance.py::test_location_that_cannot_be_is_refused_at_the_start",
        file="replica/server/options.py",
        function="ServerOptions.__post_init__",
        before="len(self.location) <= limits.NAME_LENGTH_MAX and ",
        after="",
    ),
    Mutant(
        name="location needs no slash",
        rows="OP-05",
        test="tests/unit/server/test_server_instance.py::test_location_that_cannot_be_is_refused_at_the_start",
        file="replica/server/options.py",
        function="",
        before="(?:/[A-Za-z0-9._-]+)+",
        after="/?[A-Za-z0-9._/-]+",
    ),
    Mutant(
        name="masters are believed unchecked",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_reply_of_a_master_that_cannot_be_is_dropped_told_and_counted"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._checked",
        before="""
            check_reply(reply, "the master")
        """,
        after="",
    ),
    Mutant(
        name="masters term is any",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_reply_of_a_master_that_cannot_be_is_dropped_told_and_counted"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._checked",
        before="if too_far(known, reply.catalog_term):",
        after="if too_far(known, reply.catalog_term) and known:",
    ),
    Mutant(
        name="level locks the server out of its directory",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_reply_of_a_master_that_cannot_be_is_dropped_told_and_counted"
        ),
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._checked",
        before="if reply.finalized_level > level and not reply.error.code:",
        after="if reply.finalized_level > level + 1 and not reply.error.code:",
    ),
    Mutant(
        name="every batch of a scan leaves on its call",
        rows="none",
        test=("tests/unit/server/test_server_scan_links.py::test_rows_after_the_first_batch_leave_on_the_connection"),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="if found is not None and offer is not None:",
        after="if False:",
    ),
    Mutant(
        name="connection for rows takes any certificate",
        rows="none",
        test=(
            "tests/unit/server/test_server_scan_links.py::test_rows_leave_on_the_call_if_the_client_opens_no_connection"
        ),
        file="replica/server/requests/scan_links.py",
        function="ScanLinks._secured",
        before="if holder != caller:",
        after="if False:",
    ),
    Mutant(
        name="scan waits for its connection for ever",
        rows="none",
        test=(
            "tests/unit/server/test_server_scan_links.py::test_rows_leave_on_the_call_if_the_client_opens_no_connection"
        ),
        file="replica/server/requests/scan_links.py",
        function="ScanLink.wait_opened",
        before="asyncio.timeout(self._come_s)",
        after="asyncio.timeout(None)",
    ),
    Mutant(
        name="reader of a connection may stop for ever",
        rows="none",
        test=("tests/unit/server/test_server_scan_links.py::test_reader_of_a_connection_that_takes_nothing_makes_room"),
        file="replica/server/requests/scans.py",
        function="Scans._chunks",
        before="""
with self._patient():
    await link.writable()
        """,
        after="""
await link.writable()
        """,
    ),
    Mutant(
        name="scan keeps its thread while the network takes nothing",
        rows="none",
        test=("tests/unit/server/test_server_scan_links.py::test_reader_of_a_connection_that_takes_nothing_makes_room"),
        file="replica/server/requests/scan_links.py",
        function="ScanLink.send",
        before="return False",
        after="continue",
    ),
)
