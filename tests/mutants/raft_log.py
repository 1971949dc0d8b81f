"""Mutants: the log: replication, commitment and what a step does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="learner counts for commit",
        rows="CN-29",
        test="tests/unit/raft/test_raft_core.py::test_learner_acks_never_commit",
        file="replica/raft/commitment.py",
        function="advance_commit",
        before="index = reached(s.voters, marks)",
        after="index = reached(sorted(marks), marks)",
    ),
    Mutant(
        name="older term is committed by counting",
        rows="CN-26",
        test=(
            "tests/paper/test_raft_paper_section_5.py::"
            "test_section_5_4_2_figure_8_majority_of_an_older_term_may_still_be_overwritten"
        ),
        file="replica/raft/commitment.py",
        function="advance_commit",
        before="if s.log.term_at(index) == s.hard.term:",
        after="if True:",
    ),
    Mutant(
        name="append of thousands of small entries",
        rows="IN-60",
        test="tests/unit/raft/test_raft_core.py::test_append_holds_no_more_than_its_receiver_decodes_at_once",
        file="replica/raft/replication.py",
        function="send_entries",
        before="hi = min(through + 1, p.next + s.options.append_entries_max)",
        after="hi = through + 1",
    ),
    Mutant(
        name="metas of an append without a bound",
        rows="IN-60",
        test="tests/unit/raft/test_raft_core.py::test_append_holds_no_more_than_its_receiver_decodes_at_once",
        file="replica/raft/replication.py",
        function="_decoded_together",
        before="if count and total > meta_bytes_max:",
        after="if False:",
    ),
    Mutant(
        name="full append waits for an answer",
        test="tests/unit/raft/test_raft_core.py::test_append_holds_no_more_than_its_receiver_decodes_at_once",
        file="replica/raft/replication.py",
        function="send_entries",
        before="full = len(entries) < len(found) or len(entries) == s.options.append_entries_max",
        after="full = False",
    ),
    Mutant(
        name="pending config forgotten at restart",
        rows="CC-24",
        test=(
            "tests/unit/raft/test_raft_membership.py::test_uncommitted_config_of_the_log_is_pending_again_after_restart"
        ),
        file="replica/raft/core.py",
        function="RaftCore.__init__",
        before="configs=membership.initial_configs(committed_config, pending_config, found),",
        after="configs=membership.initial_configs(committed_config, pending_config, found[:0]),",
    ),
    Mutant(
        name="restarted voter votes at once",
        rows="CN-24, CC-31",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/core.py",
        function="RaftCore.__init__",
        before="s.election.withhold_until = options.election_ticks_min if withhold_votes else 0",
        after="s.election.withhold_until = 0",
    ),
    Mutant(
        name="rest counts as patience",
        rows="CN-24",
        test="tests/unit/raft/test_raft_quiet.py::test_resting_voter_withholds_its_vote_as_long_as_one_that_is_awake",
        file="replica/raft/core.py",
        function="RaftCore.tick",
        before="""
            if s.quiet:
                return
            s.ticks += 1
        """,
        after="""
            s.ticks += 1
            s.election.ticks_since_leader += s.quiet
            if s.quiet:
                return
        """,
    ),
    Mutant(
        name="leader of a rest counts as silent",
        rows="CC-31",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_removed_server_that_was_not_told_disturbs_nobody_for_ten_minutes[at-rest]"
        ),
        file="replica/raft/core.py",
        function="RaftCore.tick",
        before="""
            return
        """,
        after="""
            s.election.ticks_since_leader += 1
            return
        """,
    ),
    Mutant(
        name="only the message is looked at",
        rows="IN-50",
        test="tests/unit/raft_driver/test_driver_liars.py::test_member_that_is_lied_to_about_anything_lives_on",
        file="replica/raft/core.py",
        function="RaftCore.refusal",
        before="return message_checks.invalid_reason(msg) or message_checks.conflict_reason(self._s, msg)",
        after="return message_checks.invalid_reason(msg)",
    ),
    Mutant(
        name="term checked before the name",
        rows="TC-22",
        test="tests/unit/raft/test_raft_core.py::test_append_check_order_name_before_term_before_content",
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if msg.to_uuid != s.uuid:",
        after="if msg.to_uuid != s.uuid and msg.term >= s.hard.term:",
    ),
    Mutant(
        name="vote meant for another is given",
        rows="TC-22",
        test=(
            "tests/unit/server/test_server_messages_table.py::"
            "test_misaddressed_stale_and_repeated_messages_leave_the_replica_as_it_was[vote_request]"
        ),
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if msg.to_uuid != s.uuid:",
        after="if msg.to_uuid != s.uuid and not isinstance(msg, VoteRequest):",
    ),
    Mutant(
        name="lost member is answered",
        rows="CC-46",
        test=(
            "tests/unit/raft/test_raft_forced_config.py::"
            "test_lost_majority_that_returns_neither_learns_the_term_nor_disturbs"
        ),
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if generation_of(msg.term) != generation_of(s.hard.term):",
        after="if generation_of(msg.term) > generation_of(s.hard.term) + 1:",
    ),
    Mutant(
        name="lost member takes entries of the new group",
        rows="CC-46",
        test=(
            "tests/unit/raft/test_raft_forced_config.py::"
            "test_members_of_an_older_generation_take_no_entries_of_the_new_one"
        ),
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if generation_of(msg.term) != generation_of(s.hard.term):",
        after="if generation_of(msg.term) < generation_of(s.hard.term):",
    ),
    Mutant(
        name="strangers votes are counted",
        rows="IN-50",
        test="tests/unit/transport/test_transport_forged_messages.py::test_answer_of_a_server_without_a_say_is_not_counted",
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if message_checks.is_stranger(s.hard, msg):",
        after="if False:",
    ),
    Mutant(
        name="lease extended by another terms acknowledgement",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_is_not_extended_by_an_acknowledgement_of_another_term",
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if msg.term < s.hard.term:",
        after="if msg.term < s.hard.term and not isinstance(msg, AppendReply):",
    ),
    Mutant(
        name="asker never learns the term",
        rows="D-15",
        test="tests/unit/raft/test_raft_core.py::test_pre_candidate_of_a_lower_term_learns_the_term_and_can_win",
        file="replica/raft/core.py",
        function="RaftCore.step",
        before="if msg.term > s.hard.term and not (isinstance(msg, VoteReply) and msg.granted):",
        after="if msg.term > s.hard.term and not (isinstance(msg, VoteReply) and msg.pre_vote):",
    ),
    Mutant(
        name="voter campaigns under a lease",
        rows="CN-24, CC-31",
        test="tests/unit/raft/test_raft_lease.py::test_campaign_by_hand_waits_as_long_as_a_vote_does",
        file="replica/raft/core.py",
        function="RaftCore.campaign",
        before="if s.role is not Role.LEADER and s.ticks >= s.election.withhold_until and not heard:",
        after="if s.role is not Role.LEADER and s.ticks >= s.election.withhold_until:",
    ),
    Mutant(
        name="lease kept after a pause",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_is_judged_by_the_clock_of_the_read_not_by_ticks",
        file="replica/raft/core.py",
        function="RaftCore.read_index",
        before="""
            lease.observe_clock(self._s, now)
        """,
        after="",
    ),
    Mutant(
        name="witness is not sent what became durable",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_is_never_ahead_of_every_disk_with_rows",
        file="replica/raft/core.py",
        function="RaftCore.advance",
        before="s.lead.sends_wanted = True  # a witness is sent what is durable here",
        after="pass",
    ),
    Mutant(
        name="heartbeats do not calm",
        rows="CN-27",
        test="tests/unit/raft/test_raft_roles.py::test_followers_of_a_healthy_leader_ask_for_no_vote",
        file="replica/raft/following.py",
        function="on_append",
        before="s.election.elapsed = 0",
        after="s.election.elapsed = 0 if m.entries else s.election.elapsed",
    ),
    Mutant(
        name="leader that looks around is not heard",
        rows="CN-27",
        test=(
            "tests/unit/raft/test_raft_roles.py::"
            "test_group_that_mostly_rests_for_a_healthy_hour_asks_for_no_vote_and_followers_only_answer"
        ),
        file="replica/raft/following.py",
        function="on_append",
        before="""
            s.election.checks = 0
        """,
        after="",
    ),
    Mutant(
        name="truncated config stays in force",
        rows="CC-23",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[pending_config_rolls_back]",
        file="replica/raft/following.py",
        function="_take",
        before="roll_back_configs(s, keep)",
        after="roll_back_configs(s, s.last.index + 9)",
    ),
    Mutant(
        name="heartbeat answered when durable",
        rows="D-2",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/following.py",
        function="_acknowledge",
        before="""
            if m.entries and end.index > s.persisted:
        """,
        after="""
            if end.index > s.persisted:
        """,
    ),
    Mutant(
        name="append acknowledged before durable",
        rows="CN-26",
        test="tests/unit/raft/test_raft_core.py::test_append_reply_waits_for_the_disk_and_heartbeat_reply_does_not",
        file="replica/raft/following.py",
        function="_acknowledge",
        before="s.send_after_sync(_reply(s, m, last=end))",
        after="s.send(_reply(s, m, last=end))",
    ),
    Mutant(
        name="heartbeat acknowledges what is not durable",
        rows="CN-26",
        test="tests/unit/raft/test_raft_core.py::test_append_reply_waits_for_the_disk_and_heartbeat_reply_does_not",
        file="replica/raft/following.py",
        function="_acknowledge",
        before="_reply(s, m, last=min(end, s.durable))",
        after="_reply(s, m, last=end)",
    ),
    Mutant(
        name="lease as long as the election timeout",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_ends_before_any_voter_may_vote",
        file="replica/raft/options.py",
        function="RaftOptions.lease_ticks",
        before="return (self.election_ticks_min - TICK_SLACK) * 100 // (100 + CLOCK_DRIFT_PERCENT)",
        after="return self.election_ticks_min",
    ),
    Mutant(
        name="whole before its data",
        rows="CC-53",
        test="tests/unit/raft/test_raft_witness.py::test_witness_takes_two_steps_to_become_a_whole_member",
        file="replica/raft/progress.py",
        function="Progress.has_data",
        before="return self.data_from is not None and self.applied_index >= self.data_from",
        after="return self.data_from is not None",
    ),
    Mutant(
        name="promoted after slow rounds",
        rows="CC-13, TC-19",
        test="tests/unit/raft/test_raft_membership.py::test_promotion_waits_for_a_short_round_and_goes_one_by_one",
        file="replica/raft/progress.py",
        function="Progress.observe_round",
        before="self.caught_up = now - self.round_started <= self.options.promote_round_ticks_max",
        after="self.caught_up = True",
    ),
    Mutant(
        name="absent tablet brings no copy",
        rows="TC-07",
        test="tests/unit/server/test_server_vivify.py::test_blank_member_is_copied_at_its_leaders_request",
        file="replica/raft/replication.py",
        before="""
            Code.TABLET_NOT_FOUND: DataState.DOES_NOT_EXIST,
        """,
        after="",
    ),
    Mutant(
        name="absent tablet is left alone",
        rows="TC-18",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept",
        file="replica/raft/replication.py",
        before="""
            Code.TABLET_NOT_FOUND: DataState.DOES_NOT_EXIST,
        """,
        after="",
    ),
    Mutant(
        name="tombstone brings no copy",
        rows="TC-08",
        test="tests/unit/server/test_server_vivify.py::test_tombstone_is_revived_with_a_term_no_lower_than_it_had",
        file="replica/raft/replication.py",
        before="""
            Code.TABLET_DELETED: DataState.DELETED,
        """,
        after="",
    ),
    Mutant(
        name="lost request is not repeated",
        rows="TC-25",
        test=(
            "tests/unit/server/test_server_one_copy.py::test_leader_asks_for_a_copy_until_it_is_heard_and_one_copy_runs"
        ),
        file="replica/raft/replication.py",
        function="tick_leader",
        before="p.copy_due_ticks -= 1",
        after="p.copy_due_ticks -= 0",
    ),
    Mutant(
        name="nobody is missed",
        rows="IN-35",
        test=(
            "tests/unit/raft_driver/test_driver_frozen.py::"
            "test_writes_at_a_leader_whose_followers_are_frozen_are_given_up_within_the_bound"
        ),
        file="replica/raft/replication.py",
        function="_check_quorum_and_retry",
        before="not VoteResult.WON",
        after="None",
    ),
    Mutant(
        name="leader steps down with its change",
        rows="TC-80, D-19",
        test="tests/unit/raft/test_raft_abort.py::test_change_without_a_quorum_is_taken_back_and_the_leader_stays",
        file="replica/raft/replication.py",
        function="_check_quorum_and_retry",
        before="VoteResult.WON and not abort_instead_of_stepping_down(s, heard)",
        after="VoteResult.WON",
    ),
    Mutant(
        name="overdue change stays",
        rows="TC-80",
        test=(
            "tests/unit/raft/test_raft_abort.py::test_change_that_is_heard_but_never_durable_is_taken_back_when_overdue"
        ),
        file="replica/raft/replication.py",
        function="_check_quorum_and_retry",
        before="""
            abort_when_overdue(s)
        """,
        after="",
    ),
    Mutant(
        name="reads put off the look at the majority",
        rows="IN-35",
        test=(
            "tests/unit/raft_driver/test_driver_frozen.py::test_reads_that_keep_coming_do_not_keep_a_leader_that_nobody_answers"
        ),
        file="replica/raft/replication.py",
        function="flush",
        before="s.lead.heartbeat_elapsed = 0",
        after="s.lead.heartbeat_elapsed = s.lead.quorum_check_elapsed = 0",
    ),
    Mutant(
        name="majority is missed late",
        rows="IN-35",
        test=(
            "tests/unit/raft_driver/test_driver_frozen.py::"
            "test_writes_at_a_leader_whose_followers_are_frozen_are_given_up_within_the_bound"
        ),
        file="replica/raft/replication.py",
        function="_heard",
        before="s.options.election_ticks_max",
        after="2 * s.options.election_ticks_max",
    ),
    Mutant(
        name="witness is ahead of who may lead",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_is_never_ahead_of_who_may_lead_next",
        file="replica/raft/replication.py",
        function="_sent_through",
        before="if p.uuid not in s.witnesses:",
        after="if s.hard.term:",
    ),
    Mutant(
        name="witness is ahead of every disk",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_is_never_ahead_of_every_disk_with_rows",
        file="replica/raft/replication.py",
        function="_sent_through",
        before="durable = max([s.persisted, *(q.match for q in whole)])",
        after="durable = s.last.index",
    ),
    Mutant(
        name="witness waits for the leaders disk alone",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_is_never_ahead_of_every_disk_with_rows",
        file="replica/raft/replication.py",
        function="_sent_through",
        before="durable = max([s.persisted, *(q.match for q in whole)])",
        after="durable = s.persisted",
    ),
    Mutant(
        name="witness is ahead when a match is sought",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_does_not_wait_for_who_catches_up",
        file="replica/raft/replication.py",
        function="_keeps_up",
        before="sent = p.state is not ProgressState.COPY and p.next > s.commit_index",
        after="sent = p.state is ProgressState.REPLICATE and p.next > s.commit_index",
    ),
    Mutant(
        name="witness waits for who catches up",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_does_not_wait_for_who_catches_up",
        file="replica/raft/replication.py",
        function="_keeps_up",
        before="sent = p.state is not ProgressState.COPY and p.next > s.commit_index",
        after="sent = p.state is not ProgressState.COPY",
    ),
    Mutant(
        name="slow voter is waited for",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_witness_is_never_ahead_of_who_may_lead_next",
        file="replica/raft/replication.py",
        function="_keeps_up",
        before="return sent and p.behind_ticks < s.options.heartbeat_ticks",
        after="return sent",
    ),
    Mutant(
        name="heartbeat at the match point",
        rows="D-1",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/replication.py",
        function="send_heartbeat",
        before="_send(s, p, s.opid_at(after - 1), (), quiet=quiet)",
        after="_send(s, p, s.opid_at(p.match), (), quiet=quiet)",
    ),
    Mutant(
        name="entries lost to gc bring no copy",
        rows="TC-06",
        test="tests/unit/server/test_server_vivify.py::test_member_left_behind_by_log_gc_is_deleted_and_copied",
        file="replica/raft/replication.py",
        function="lose_to_gc",
        before="p.become_copy(DataState.READY, p.last_opid)",
        after="p.become_copy(DataState.COPYING, p.last_opid)",
    ),
    Mutant(
        name="copying peer is asked again",
        rows="TC-25",
        test="tests/unit/raft/test_raft_core.py::test_copying_peer_gets_heartbeats_only_and_no_second_request",
        file="replica/raft/replication.py",
        function="ask_for_copy",
        before="p.data_state is not DataState.COPYING and p.copy_due_ticks",
        after="p.copy_due_ticks",
    ),
    Mutant(
        name="lease extended by a tombstone",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_is_not_extended_by_servers_without_a_running_replica",
        file="replica/raft/replication.py",
        function="on_append_reply",
        before="""
            if m.code in _NO_LOG:
        """,
        after="""
            p.round_acked = max(p.round_acked, min(m.round, s.lead.round))
            if m.code in _NO_LOG:
        """,
    ),
    Mutant(
        name="peer without the tablet counts as heard",
        rows="TC-25,IN-35",
        test="tests/unit/raft/test_raft_abort.py::test_peers_that_answer_without_the_tablet_are_no_quorum",
        file="replica/raft/replication.py",
        function="on_append_reply",
        before="""
            _on_no_log(s, p, m)
        """,
        after="""
            p.contact_ticks = 0
            _on_no_log(s, p, m)
        """,
    ),
    Mutant(
        name="who only lacks the end is copied",
        rows="TC-18",
        test=(
            "tests/raft_scripts/test_raft_scripts.py::"
            "test_script_prints_what_was_kept[only_who_lacks_the_log_is_copied]"
        ),
        file="replica/raft/replication.py",
        function="_on_mismatch",
        before="if candidate < s.log.first_index:",
        after="if candidate <= s.last.index:",
    ),
    Mutant(
        name="vote sent before it is durable",
        rows="TC-14",
        test="tests/unit/raft/test_raft_core.py::test_vote_is_sent_only_after_persistence_and_once_a_term",
        file="replica/raft/state.py",
        function="State.send",
        before="if not self.hard_state_durable:",
        after="if self.hard.term < 0:",
    ),
    Mutant(
        name="part of a lost end heals it",
        rows="CN-22",
        test="tests/unit/raft/test_raft_core.py::test_damaged_tail_of_an_unknown_term_is_not_healed_by_a_part_of_it",
        file="replica/raft/persistent_state.py",
        function="PersistentState.healed",
        before="return lost is not None and (durable.index >= lost.index or durable.term > self.term_found)",
        after="return lost is not None and durable >= lost",
    ),
    Mutant(
        name="applied before the own disk has it",
        rows="D-6",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/state.py",
        function="State.committed_range",
        before="hi = min(self.commit_index, self.persisted)",
        after="hi = self.commit_index",
    ),
)
