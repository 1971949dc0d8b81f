"""Mutants: what carries entries to the log, to peers and to the tablet."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="driver judges leases by its own ticks",
        rows="CN-24",
        test=(
            "tests/unit/raft_driver/test_driver_reads.py::"
            "test_read_barrier_at_a_leader_that_was_stopped_is_not_served_by_its_lease"
        ),
        file="replica/raft_driver/callers.py",
        function="Callers.read_barrier",
        before="self.core.read_index(token, self.environment.ticks_now())",
        after="self.core.read_index(token, self.tick)",
        more=(
            Edit(
                file="replica/raft_driver/ready_executor.py",
                function="ReadyExecutor.tick",
                before="self.core.tick(self._environment.ticks_now())",
                after="self.core.tick(self.callers.tick)",
            ),
        ),
    ),
    Mutant(
        name="write does not wake the timer",
        rows="CN-24",
        test="tests/unit/server/test_server_ticking.py::test_quiet_tablet_is_not_ticked_until_something_reaches_it",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.mark_active",
        before="self._environment.on_awake(self.tablet_id)",
        after="pass",
    ),
    Mutant(
        name="follower does not learn its leaders time",
        rows="CN-24",
        test="tests/unit/raft_driver/test_driver_times.py::test_times_go_on_at_a_successor_whose_clock_is_behind",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._execute",
        before="self._environment.hybrid_clock.observe(ready.safe_time[1])",
        after="pass",
        more=(
            Edit(
                file="replica/raft_driver/times.py",
                function="Times.observe",
                before="self._clock.observe(time)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="committed config is not written",
        rows="CC-21",
        test="tests/unit/raft_driver/test_driver_configs.py::test_config_is_written_at_commit_and_not_on_receipt",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._execute",
        before="""
            self.persister.save_config(ready.config_committed)
        """,
        after="",
    ),
    Mutant(
        name="applied ahead of the own log",
        rows="CN-02",
        test="tests/sim/test_driver_sim.py::test_driver_under_random_faults_keeps_every_promise",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.apply_committed",
        before="""
            if self.applier.applied_index < self._committed:
        """,
        after="""
            self._committed = max(self._committed, self.core.commit_index)
            if self.applier.applied_index < self._committed:
        """,
    ),
    Mutant(
        name="wait for more of them has no end",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_writes_that_wait_for_more_leave_when_nobody_else_comes",
        file="replica/raft_driver/writer.py",
        function="Writer._waited_for_more",
        before="if self._batcher.waited(number):",
        after="if self._batcher.waited(-number):",
    ),
    Mutant(
        name="entries not read fail the leader",
        rows="IN-30",
        test="tests/unit/raft_driver/test_driver_exhausted.py::test_entries_that_cannot_be_read_back_just_now_are_read_later",
        file="replica/raft_driver/loader.py",
        function="Loader.load.loaded",
        before="if isinstance(result, BaseException) and exhausted(result) is not None:",
        after="if result is None:",
    ),
    Mutant(
        name="config written on receipt",
        rows="CC-20",
        test="tests/unit/raft_driver/test_driver_configs.py::test_config_is_written_at_commit_and_not_on_receipt",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._update_phase",
        before="""
            if core.role is Role.LEADER:
        """,
        after="""
            if core.pending_config is not None:
                self.persister.save_config(core.pending_config)
            if core.role is Role.LEADER:
        """,
    ),
    Mutant(
        name="running before the first commit",
        rows="CN-42, CN-41",
        test="tests/unit/raft_driver/test_driver_life.py::test_phases_of_a_group_come_in_order_on_every_member",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._update_phase",
        before="running = core.term_committed",
        after="running = True",
    ),
    Mutant(
        name="alone it is running",
        rows="CN-36",
        test="tests/unit/raft_driver/test_driver_life.py::test_group_with_one_of_three_up_waits_and_runs_with_the_second",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._update_phase",
        before="self._life.enter(Phase.RUNNING if running else Phase.CONFIGURING)",
        after="self._life.enter(Phase.RUNNING)",
    ),
    Mutant(
        name="mark of a lost end stays",
        rows="CN-22",
        test="tests/unit/raft_driver/test_driver_life.py::test_mark_of_a_lost_end_goes_when_the_loss_is_made_up_for",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._update_phase",
        before="self._environment.run_heavy(self._files.log.forget_withheld, self._withheld_forgotten)",
        after="pass",
    ),
    Mutant(
        name="gathered writes are forgotten",
        rows="CN-26",
        test="tests/unit/raft_driver/test_driver_writes.py::test_gathered_writes_that_got_no_index_are_told_so",
        file="replica/raft_driver/writer.py",
        function="Writer.leadership_lost",
        before="for write in self._batcher.abandon():",
        after="for write in self._batcher.abandon()[:1]:",
    ),
    Mutant(
        name="writer at a full leader waits for room",
        rows="CN-26",
        test=(
            "tests/unit/raft_driver/test_driver_full_disk.py::"
            "test_writer_at_a_leader_without_room_is_answered_though_the_others_committed_its_row"
        ),
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._leadership_lost",
        before="answered_when_applied = min(answered_when_applied, self.core.persisted_index)",
        after="pass",
    ),
    Mutant(
        name="apply without memory fails the replica",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_replica_that_runs_out_of_memory_as_it_applies_starts_again_and_has_lost_nothing"
        ),
        file="replica/raft_driver/lifecycle.py",
        function="Lifecycle.fail",
        before="wanted = None if _is_fatal(error) else exhausted(error)",
        after="wanted = None",
    ),
    Mutant(
        name="defect counts as damage",
        rows="IN-03",
        test=(
            "tests/process/test_defect_process.py::"
            "test_tablet_whose_replicas_failed_at_a_defect_is_back_with_a_build_without_it"
        ),
        file="replica/raft_driver/lifecycle.py",
        function="Lifecycle.fail",
        before="self.damaged = isinstance(error, Corruption) and error.copy_heals",
        after="self.damaged = not isinstance(error, Corruption) or error.copy_heals",
    ),
    Mutant(
        name="failed leader rests on",
        rows="CN-28",
        test="tests/unit/raft_driver/test_driver_quiet.py::test_leader_that_fails_at_rest_is_replaced_though_its_server_lives",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.end_serving",
        before="self._wake_members(phase)",
        after="pass",
    ),
    Mutant(
        name="writes that wait for more of them are forgotten",
        rows="CN-26",
        test=(
            "tests/unit/raft_driver/test_write_batcher.py::"
            "test_writes_that_wait_for_more_are_answered_whatever_happens_to_the_leader"
        ),
        file="replica/raft_driver/writer.py",
        function="Writer.fail_all",
        before="for write in self._batcher.abandon():",
        after="for write in ():",
    ),
    Mutant(
        name="no hint for writes at followers",
        rows="CN-25",
        test="tests/unit/raft_driver/test_driver_writes.py::test_write_to_a_follower_is_refused_with_the_leaders_address",
        file="replica/raft_driver/status.py",
        function="with_hint",
        before="error.detail = leader_hint(core)",
        after='error.detail = ""',
    ),
    Mutant(
        name="single writer waits for itself",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_single_writer_is_never_held_back",
        file="replica/raft_driver/write_batcher.py",
        before="_WRITERS_MIN = 2",
        after="_WRITERS_MIN = 1",
    ),
    Mutant(
        name="small writes wait for nobody",
        rows="CN-14",
        test=(
            "tests/unit/raft_driver/test_driver_writes.py::"
            "test_small_writes_wait_for_the_batch_that_is_under_way_and_leave_together"
        ),
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.hold_back",
        before="if not (self._left or self._expected) or write.size_bytes > WRITE_BYTES_MAX:",
        after="if write.size_bytes > 0:",
    ),
    Mutant(
        name="writers miss one another",
        rows="CN-06",
        test=(
            "tests/unit/raft_driver/test_write_batcher.py::"
            "test_syncs_a_write_fall_with_the_number_of_writers_and_a_write_takes_hardly_longer"
        ),
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.hold_back",
        before="if not (self._left or self._expected) or write.size_bytes > WRITE_BYTES_MAX:",
        after="if write.size_bytes >= 0 or write.size_bytes > WRITE_BYTES_MAX:",
    ),
    Mutant(
        name="wait that all came to counts as empty",
        rows="CN-14",
        test=(
            "tests/unit/raft_driver/test_write_batcher.py::test_wait_that_everybody_ends_counts_as_one_in_which_somebody_came"
        ),
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.hold_back",
        before="self._write_came, self._skips = True, 0",
        after="self._write_came = True",
    ),
    Mutant(
        name="batch takes without end",
        rows="CN-14",
        test="tests/unit/raft_driver/test_driver_writes.py::test_batch_takes_no_more_writes_than_are_applied_in_one_step",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.hold_back",
        before="len(self._writes) >= BATCH_WRITES_MAX or self.bytes",
        after="self.bytes",
    ),
    Mutant(
        name="full batch waits for more",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_batch_never_waits_for_more_writers_than_fit_into_it",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.hold_back",
        before="if full or 0 < self._expected <= len(self._writes) + 1:",
        after="if 0 < self._expected <= len(self._writes) + 1:",
    ),
    Mutant(
        name="writer is counted twice",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_batch_that_goes_on_with_others_counts_nobody_twice",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.proposed",
        before="self._batch_writes = 0",
        after="pass",
    ),
    Mutant(
        name="joined writes are not counted",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_batch_waits_for_those_whom_the_last_one_answered",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.proposed",
        before="self._batch_writes += 1",
        after="self._batch_writes = 1",
    ),
    Mutant(
        name="batch leaves without those it answered",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_batch_waits_for_those_whom_the_last_one_answered",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.end",
        before="if now_us is None or seen < _WRITERS_MIN:",
        after="if now_us is None or seen > 0:",
    ),
    Mutant(
        name="wait outlasts the batch",
        rows="CN-14",
        test=(
            "tests/unit/raft_driver/test_write_batcher.py::"
            "test_wait_for_more_is_no_longer_than_half_the_batch_took_and_ten_milliseconds"
        ),
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.end",
        before="return Wait(self._wait_number, min(took_us // 2, _WAIT_US_MAX))",
        after="return Wait(self._wait_number, _WAIT_US_MAX)",
    ),
    Mutant(
        name="old wait ends a new one",
        rows="CN-14",
        test=(
            "tests/unit/raft_driver/test_write_batcher.py::"
            "test_wait_for_more_ends_with_the_last_writer_that_is_expected_or_with_its_time"
        ),
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.waited",
        before="if not self._expected or number != self._wait_number:",
        after="if not self._expected:",
    ),
    Mutant(
        name="batches without writers wait on",
        rows="CN-14",
        test="tests/unit/raft_driver/test_write_batcher.py::test_batches_stop_waiting_where_nobody_comes_again",
        file="replica/raft_driver/write_batcher.py",
        function="WriteBatcher.waited",
        before="self._skips_left = self._skips",
        after="self._skips_left = 0",
    ),
    Mutant(
        name="stopped replica keeps entries",
        rows="TC-39",
        test="tests/unit/server/test_server_memory.py::test_stopped_replica_holds_neither_rows_nor_entries",
        file="replica/raft_driver/log_cache.py",
        function="LogCache.clear",
        before="""
            self.evict_below(self.last.index + 1)
        """,
        after="",
    ),
    Mutant(
        name="lost writes count as not applied",
        rows="IN-35",
        test=(
            "tests/unit/raft_driver/test_driver_frozen.py::"
            "test_writes_at_a_leader_whose_followers_are_frozen_are_given_up_within_the_bound"
        ),
        file="replica/raft_driver/pending.py",
        function="PendingEntries.leadership_lost",
        before="applied=Applied.UNKNOWN,",
        after="applied=Applied.NOT_APPLIED,",
    ),
    Mutant(
        name="unknown outcome called not applied",
        rows="CN-26",
        test=(
            "tests/unit/raft_driver/test_driver_writes.py::"
            "test_write_without_a_quorum_is_not_acknowledged_and_told_the_truth_later"
        ),
        file="replica/raft_driver/pending.py",
        function="PendingEntries.leadership_lost",
        before="applied=Applied.UNKNOWN,",
        after="applied=Applied.NOT_APPLIED,",
    ),
    Mutant(
        name="leader whose log hangs leads on",
        rows="CN-26",
        test=(
            "tests/unit/raft_driver/test_driver_hung_disk.py::"
            "test_leader_whose_log_hangs_lets_another_lead_and_tells_its_writers[1]"
        ),
        file="replica/raft_driver/persister.py",
        function="Persister.hangs",
        before="return self._ticks_without_completion >= self.hang_ticks",
        after="return False",
    ),
    Mutant(
        name="terms are kept a tick after they are told",
        rows="TC-14, I1",
        test="tests/unit/raft_driver/test_driver_life.py::test_vote_leaves_only_after_it_is_durable",
        file="replica/raft_driver/persister.py",
        function="Persister.submit",
        before="""
            self._save_next()
        """,
        after="",
        more=(
            Edit(
                file="replica/raft_driver/persister.py",
                function="Persister.tick",
                before="""
                    self._ticks_without_completion = self._ticks_without_completion + 1 if self._items else 0
                """,
                after="""
                    self._save_next()
                    self._ticks_without_completion = self._ticks_without_completion + 1 if self._items else 0
                """,
            ),
            Edit(
                file="replica/raft_driver/persister.py",
                function="Persister._complete",
                before=".hard_state_left and not self._items[0].entries_left",
                after=".entries_left",
            ),
        ),
    ),
    Mutant(
        name="promise without room counts as saved",
        rows="TC-14, I1",
        test=(
            "tests/unit/raft_driver/test_driver_full_disk.py::"
            "test_follower_without_room_for_a_new_term_promises_nothing_and_votes_once_there_is_room"
        ),
        file="replica/raft_driver/persister.py",
        function="Persister._save_succeeded",
        before="""
                return False
            if isinstance(result, BaseException):
        """,
        after="""
                return True
            if isinstance(result, BaseException):
        """,
    ),
    Mutant(
        name="entries are logged beside their term",
        rows="TC-14",
        test="tests/unit/raft_driver/test_driver_full_disk.py::test_terms_that_found_no_room_are_saved_in_order",
        file="replica/raft_driver/persister.py",
        function="Persister._append_held",
        before="""
            if self._unsaved and _number(self._unsaved[0]) <= _number(first):
                return
        """,
        after="",
    ),
    Mutant(
        name="full queue blocks the owners thread",
        rows="CN-10",
        test=(
            "tests/unit/raft_driver/test_driver_hung_disk.py::"
            "test_appends_that_come_at_once_to_a_full_queue_wait_and_block_nobody"
        ),
        file="replica/raft_driver/persister.py",
        function="Persister._append_held",
        before="not self.log.has_room(sum(entry.size_bytes for entry in first.ready.entries))",
        after="False",
    ),
    Mutant(
        name="change at a full queue blocks its leader",
        rows="CN-10, CN-26",
        test=(
            "tests/unit/raft_driver/test_driver_hung_disk.py::"
            "test_change_at_a_leader_whose_queue_is_full_waits_and_blocks_nobody"
        ),
        file="replica/raft_driver/persister.py",
        function="Persister._append_held",
        before="""
            if self._log_queue_full:
                return  # `_appended` calls this again when the entries in the queue are durable
        """,
        after="",
    ),
    Mutant(
        name="what waited for the queue is forgotten",
        rows="CN-10",
        test=(
            "tests/unit/raft_driver/test_driver_hung_disk.py::"
            "test_appends_that_come_at_once_to_a_full_queue_wait_and_block_nobody"
        ),
        file="replica/raft_driver/persister.py",
        function="Persister._appended",
        before="""
            self._append_held()
        """,
        after="",
    ),
    Mutant(
        name="promises leave before the disk",
        rows="TC-14, I1",
        test="tests/unit/raft_driver/test_driver_life.py::test_vote_leaves_only_after_it_is_durable",
        file="replica/raft_driver/persister.py",
        function="Persister._complete",
        before=".hard_state_left and not self._items[0].entries_left",
        after=".entries_left",
    ),
    Mutant(
        name="full disk is told to nobody",
        rows="CN-08",
        test="tests/unit/raft_driver/test_driver_full_disk.py::"
        "test_replica_without_room_says_so_at_once_and_seldom_again",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._handle_stalled_disk",
        before="if self.persister.full and self.callers.tick >= self._warning_due_tick:",
        after="if self.persister.hangs and self.callers.tick >= self._warning_due_tick:",
    ),
    Mutant(
        name="full disk is told every second",
        rows="CN-08",
        test="tests/unit/raft_driver/test_driver_full_disk.py::"
        "test_replica_without_room_says_so_at_once_and_seldom_again",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._handle_stalled_disk",
        before="self._warning_due_tick = self.callers.tick + _WARNING_TICKS",
        after="self._warning_due_tick = self.callers.tick",
    ),
    Mutant(
        name="replica without room says that it has some",
        rows="CN-08",
        test="tests/unit/master/test_master_group.py::test_changes_behind_one_that_waits_for_room_are_refused_by_name",
        file="replica/raft_driver/replica.py",
        function="Replica.without_room",
        before="running.persister.full",
        after="running.persister.hangs",
    ),
)
