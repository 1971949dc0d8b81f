"""Mutants: a replica, its start and its reads."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="others' times count as a clock's own",
        rows="IN-50, IN-60",
        test="tests/unit/raft_driver/test_driver_times.py::test_no_sequence_of_times_pushes_a_clock_further_than_one_of_them_may",
        file="replica/types/time.py",
        function="HybridClock.ahead_us",
        before="self._own_us = max(self._clock.wall_us(), self._own_us + mono_us - self._own_at_us)",
        after="self._own_us = max(self._clock.wall_us(), us_of_hybrid(self._last))",
    ),
    Mutant(
        name="clock that was set back does not count on",
        rows="IN-50",
        test="tests/unit/raft_driver/test_driver_times.py::test_no_sequence_of_times_pushes_a_clock_further_than_one_of_them_may",
        file="replica/types/time.py",
        function="HybridClock.ahead_us",
        before="self._own_us + mono_us - self._own_at_us",
        after="self._own_us",
    ),
    Mutant(
        name="log of another server gives a clock its own time",
        rows="IN-50",
        test="tests/unit/raft_driver/test_driver_times.py::test_no_sequence_of_times_pushes_a_clock_further_than_one_of_them_may",
        file="replica/types/time.py",
        function="HybridClock.observe_own",
        before="if self._opens_logs:",
        after="if True:",
    ),
    Mutant(
        name="times of ignored appends push the clock",
        rows="IN-50, IN-60",
        test="tests/unit/raft_driver/test_driver_times.py::test_many_appends_in_small_steps_push_the_clock_no_further_than_one",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.step",
        before="if self.core.log.term_at(last.index) == last.term:",
        after="if True:",
    ),
    Mutant(
        name="blank server says not ready",
        rows="TC-23",
        test="tests/unit/raft_driver/test_driver_parts.py::test_no_replica_reply_checks_name_then_term_then_state",
        file="replica/raft_driver/no_replica.py",
        before="DataState.DOES_NOT_EXIST: Code.TABLET_NOT_FOUND,",
        after="DataState.DOES_NOT_EXIST: Code.NOT_READY,",
    ),
    Mutant(
        name="wiped server answers in the old name",
        rows="TC-74",
        test="tests/unit/server/test_server_amnesia.py::test_outdated_server_and_a_wiped_one_found_no_group",
        file="replica/raft_driver/no_replica.py",
        function="no_replica_reply",
        before="""
            if message.to_uuid != uuid:
                code = Code.INVALID_NAME
            elif message.term < own_term:
        """,
        after="""
            if message.term < own_term:
        """,
    ),
    Mutant(
        name="state checked before the term",
        rows="TC-22, TC-24",
        test="tests/unit/raft_driver/test_driver_parts.py::test_no_replica_reply_checks_name_then_term_then_state",
        file="replica/raft_driver/no_replica.py",
        function="no_replica_reply",
        before="elif message.term < own_term:",
        after="elif message.term < own_term and data_state is not DataState.DELETED:",
    ),
    Mutant(
        name="replaying server votes",
        rows="CN-40",
        test="tests/unit/raft_driver/test_driver_life.py::test_majority_that_is_still_replaying_is_no_majority",
        file="replica/raft_driver/no_replica.py",
        function="no_replica_reply",
        before="if isinstance(message, VoteRequest) and message.to_uuid != uuid:",
        after="if isinstance(message, VoteRequest):",
        more=(
            Edit(
                file="replica/raft_driver/no_replica.py",
                function="no_replica_reply",
                before="granted=False,",
                after="granted=message.to_uuid == uuid,",
            ),
        ),
    ),
    Mutant(
        name="config of the log is not read back",
        rows="CC-19, CC-24",
        test="tests/unit/raft_driver/test_driver_configs.py::test_committed_config_survives_the_death_of_everybody_at_once",
        file="replica/raft_driver/bootstrap.py",
        function="recover",
        before="configs.append(decode_config(entry.meta).with_opid(entry.opid))",
        after="pass",
        more=(
            Edit(
                file="replica/raft/core.py",
                function="RaftCore.__init__",
                before="configs=membership.initial_configs(committed_config, pending_config, found),",
                after="configs=[committed_config],",
            ),
        ),
    ),
    Mutant(
        name="config that was taken back counts as committed",
        rows="CN-34, TC-81",
        test="tests/unit/raft_driver/test_driver_parts.py::test_recover_takes_no_config_for_committed_that_was_taken_back",
        file="replica/raft_driver/bootstrap.py",
        function="_settle",
        before="taken_back = len(newer) > 1 and chain[-3].members == chain[-1].members",
        after="taken_back = False",
    ),
    Mutant(
        name="pending config taken for committed",
        rows="CN-34",
        test="tests/unit/raft_driver/test_driver_parts.py::test_recover_settles_configs_by_what_follows_them",
        file="replica/raft_driver/bootstrap.py",
        function="_settle",
        before="return chain[-3 if taken_back else -2], chain[-1]",
        after="return chain[-1], None",
    ),
    Mutant(
        name="log gc passes an unsaved config",
        rows="CC-22",
        test="tests/unit/raft_driver/test_driver_parts.py::test_keep_from_honours_each_need_up_to_its_bound",
        file="replica/raft_driver/log_gc.py",
        function="keep_from",
        before="must = min(must, config_committed_index)",
        after="pass",
    ),
    Mutant(
        name="read does not wait until applied",
        rows="CN-24",
        test="tests/sim/test_driver_sim.py tests/unit/raft_driver/test_driver_reads.py",
        file="replica/raft_driver/reads.py",
        function="Reads.confirmed",
        before="""
            if applied_index >= index:
                done(index)
            else:
                self.by_index.add(index, tick + self._wait_ticks_max, done)
        """,
        after="""
            done(index)
        """,
    ),
    Mutant(
        name="waiting snapshots never end",
        rows="CN-24",
        test="tests/unit/raft_driver/test_driver_times.py::test_snapshot_without_a_quorum_times_out_and_leaves_nothing_behind",
        file="replica/raft_driver/reads.py",
        function="Reads.expire",
        before="""
            self.by_time.expire(tick)
        """,
        after="",
    ),
    Mutant(
        name="log from the future is opened silently",
        rows="D-30",
        test="tests/unit/raft_driver/test_driver_times.py::test_log_far_ahead_of_the_wall_is_told_when_it_is_opened",
        file="replica/raft_driver/times.py",
        function="Times.recovered",
        before="if logged and ahead_us > limits.CLOCK_AHEAD_OF_PEERS_US_MAX:",
        after="if False:",
    ),
    Mutant(
        name="restart forgets the logs time",
        rows="CN-24",
        test="tests/unit/raft_driver/test_driver_times.py::test_times_go_on_after_a_restart_with_clocks_an_hour_back",
        file="replica/raft_driver/times.py",
        function="Times.recovered",
        before="""
            self._clock.observe_own(logged)
        """,
        after="",
    ),
    Mutant(
        name="only the hinted one may lead",
        rows="CN-37, CN-41",
        test="tests/unit/raft_driver/test_driver_life.py::test_hinted_leader_that_is_dead_loses_to_another",
        file="replica/raft_driver/replica.py",
        function="Replica.start",
        before="withheld=replay.withheld,",
        after="withheld=replay.withheld if campaign or term > 0 else OpId(1, 1),",
    ),
    Mutant(
        name="hint is not heeded",
        rows="CN-37",
        test="tests/unit/raft_driver/test_driver_life.py::test_phases_of_a_group_come_in_order_on_every_member",
        file="replica/raft_driver/replica.py",
        function="Replica.start",
        before="""
            if campaign:
                core.campaign()
        """,
        after="",
    ),
    Mutant(
        name="replayed log taken for committed",
        rows="CN-02",
        test="tests/unit/raft_driver/test_driver_life.py::test_restart_applies_nothing_before_the_commit_index_is_learned_again",
        file="replica/raft_driver/replica.py",
        function="Replica.start",
        before="""
            executor.pump()
        """,
        after="""
            core._s.commit_index = cache.last.index
            executor.pump()
        """,
    ),
    Mutant(
        name="waiting reader is slept over",
        rows="CN-24",
        test="tests/unit/raft_driver/test_driver_quiet.py::test_replica_that_somebody_waits_at_does_not_rest",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.may_rest",
        before="waits = len(self.writer) or self.callers.waiting",
        after="waits = len(self.writer) or self.callers.waiting - self.callers.reads.waiting",
    ),
    Mutant(
        name="silent while it replays",
        rows="CN-33",
        test="tests/unit/raft_driver/test_driver_life.py::test_append_during_replay_is_answered_not_ready_and_by_term_first",
        file="replica/raft_driver/replica.py",
        function="Replica.step",
        before="return self._answer_absent(message)",
        after='return ""',
    ),
    Mutant(
        name="entry of a write does not decode",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor.step",
        before="if refusal := unfit or self._times.from_the_future(append):",
        after="if refusal := self._times.from_the_future(append):",
    ),
    Mutant(
        name="large change is decoded on the loop",
        rows="IN-60",
        test=("tests/unit/master/test_master_large_entries.py::test_largest_change_costs_a_followers_loop_no_decode"),
        file="replica/raft_driver/fit_check.py",
        function="FitCheck.refusal",
        before="if meta_bytes <= limits.APPEND_META_BYTES_MAX and",
        after="if meta_bytes >= limits.APPEND_META_BYTES_MAX and",
    ),
    Mutant(
        name="bytes of small entries are not summed up",
        rows="IN-60",
        test=(
            "tests/unit/raft_driver/test_driver_long_appends.py::"
            "test_follower_decodes_no_more_of_one_message_on_its_loop_than_the_bound"
        ),
        file="replica/raft_driver/fit_check.py",
        function="FitCheck.refusal",
        before="meta_bytes = sum(",
        after="meta_bytes = max(",
    ),
    Mutant(
        name="thousands of entries are decoded on the loop",
        rows="IN-60",
        test=(
            "tests/unit/raft_driver/test_driver_long_appends.py::"
            "test_follower_decodes_no_more_of_one_message_on_its_loop_than_the_bound"
        ),
        file="replica/raft_driver/fit_check.py",
        function="FitCheck.refusal",
        before="and len(new) <= limits.APPEND_ENTRIES_MAX",
        after="and len(new) <= limits.PEER_BATCH_ENTRIES_MAX",
    ),
    Mutant(
        name="another entry has the verdict of the one that was looked at",
        rows="IN-50",
        test=(
            "tests/unit/master/test_master_large_entries.py::"
            "test_large_forged_change_is_refused_and_only_what_was_looked_at_is_taken"
        ),
        file="replica/raft_driver/fit_check.py",
        function="FitCheck.refusal",
        before="if self._found is not None and self._found[0] == new:",
        after="if self._found is not None:",
    ),
    Mutant(
        name="large change is taken unseen",
        rows="IN-50",
        test=(
            "tests/unit/master/test_master_large_entries.py::"
            "test_large_forged_change_is_refused_and_only_what_was_looked_at_is_taken"
        ),
        file="replica/raft_driver/fit_check.py",
        function="FitCheck._looked",
        before="self._found = (new, found)",
        after='self._found, found = (new, ""), ""',
    ),
    Mutant(
        name="large write overtakes small ones",
        rows="CN-14",
        test="tests/unit/raft_driver/test_driver_writes.py::test_large_write_does_not_wait_and_does_not_overtake",
        file="replica/raft_driver/writer.py",
        function="Writer.write",
        before="self._propose([*self._batcher.take(), write])",
        after="self._propose([write, *self._batcher.take()])",
    ),
    Mutant(
        name="snapshot by the clock alone",
        rows="CN-24",
        test=(
            "tests/unit/raft_driver/test_driver_reads.py::"
            "test_snapshot_served_by_a_leader_is_the_same_after_failover_to_a_slow_clock"
        ),
        file="replica/raft_driver/replica.py",
        function="Replica.wait_safe",
        before="running.callers.reads.wait_time(hybrid_time, running.callers.tick, self.applied_time, done)",
        after=(
            "running.callers.reads.wait_index("
            "self.commit_index, running.callers.tick, self.applied_index, lambda _: done(hybrid_time))"
        ),
    ),
    Mutant(
        name="log is not held for members",
        rows="CC-18",
        test=(
            "tests/unit/server/test_server_vivify.py::"
            "test_members_own_progress_takes_the_log_over_from_its_copys_session_without_a_gap"
        ),
        file="replica/raft_driver/log_gc.py",
        function="LogGc.collect",
        before="peers_match=[peer.match_index for peer in self.core.peer_status() if not peer.needs_copy],",
        after="peers_match=[],",
    ),
    Mutant(
        name="leader is changed though all disks hang",
        rows="CN-26",
        test="tests/unit/raft_driver/test_driver_hung_disk.py::test_all_logs_that_hang_move_no_leader",
        file="replica/raft_driver/ready_executor.py",
        function="ReadyExecutor._handle_stalled_disk",
        before="None and (self.persister.full or core.commit_index > core.persisted_index)",
        after="None",
    ),
    Mutant(
        name="quiet leader tells of no absence",
        rows="CN-24",
        test=(
            "tests/unit/raft_driver/test_driver_quiet.py::"
            "test_member_that_was_away_when_its_leader_went_quiet_grows_ever_longer_out_of_touch"
        ),
        file="replica/raft_driver/status.py",
        function="peer_status",
        before="contact_ticks = peer.contact_ticks + (rested_ticks if peer.absent else 0)",
        after="contact_ticks = peer.contact_ticks + 0",
    ),
    Mutant(
        name="step down waits for who cannot come",
        rows="IN-35",
        test="tests/unit/raft_driver/test_driver_frozen.py::test_step_down_whose_target_is_frozen_is_answered_within_the_bound",
        file="replica/raft_driver/transfer.py",
        function="Transfer.answer_if_known",
        before="elif core.role is not Role.LEADER and core.term == self._term:",
        after="elif False:",
    ),
)
