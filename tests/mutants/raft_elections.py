"""Mutants: elections, leases and quiet groups."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="new group waits for its hint",
        rows="CN-41",
        test=(
            "tests/unit/raft_driver/test_driver_groups.py::"
            "test_hinted_leader_that_nobody_hears_is_not_waited_for_and_nobody_serves_until_then"
        ),
        file="replica/raft/election.py",
        function="tick_passive",
        before="if s.election.elapsed >= s.election.timeout:",
        after="if s.election.elapsed >= s.election.timeout and s.commit_index > 0:",
    ),
    Mutant(
        name="asking raises the term",
        rows="CC-32",
        test="tests/unit/raft/test_raft_membership_rules.py::test_denied_pre_vote_leaves_both_terms_alone",
        file="replica/raft/election.py",
        function="campaign",
        before="""
            s.election.votes = {s.uuid: True}
        """,
        after="""
            s.hard.set_term(s.hard.term + 1, None)
            s.election.votes = {s.uuid: True}
        """,
    ),
    Mutant(
        name="wish to lead counts as all votes",
        rows="CN-43,CN-37",
        test="tests/unit/raft_driver/test_driver_life.py::test_whoever_is_told_to_lead_leads_by_the_votes_of_others_only",
        file="replica/raft/election.py",
        function="on_own_vote_durable",
        before="s.election.votes[s.uuid] = True",
        after="s.election.votes = dict.fromkeys(s.voters, True)",
    ),
    Mutant(
        name="denied pre vote takes everybody along",
        rows="CC-31",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_removed_server_that_was_not_told_disturbs_nobody_for_ten_minutes[own-log]"
        ),
        file="replica/raft/election.py",
        function="on_vote_request",
        before="""
            if not reason and not m.pre_vote:
        """,
        after="""
            if reason and m.term > s.hard.term:
                become_follower(s, m.term, None, f"pre-vote request of {m.from_uuid}")
            if not reason and not m.pre_vote:
        """,
    ),
    Mutant(
        name="denied request raises the term",
        rows="CC-32, CC-31, D-3",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_vote_request_of_a_higher_term_under_a_live_leader_leaves_the_term"
        ),
        file="replica/raft/election.py",
        function="on_vote_request",
        before="""
            if not reason and not m.pre_vote:
        """,
        after="""
            if reason and not m.pre_vote and m.term > s.hard.term:
                become_follower(s, m.term, None, "a higher term")
            if not reason and not m.pre_vote:
        """,
    ),
    Mutant(
        name="election goes beyond the last term",
        rows="IN-50",
        test="tests/unit/raft/test_raft_terms.py::test_no_election_begins_in_the_last_term_that_the_metadata_hold",
        file="replica/raft/election.py",
        function="campaign",
        before="if s.hard.term >= limits.RAFT_TERM_MAX:",
        after="if s.hard.term > limits.RAFT_TERM_MAX:",
    ),
    Mutant(
        name="pre vote is remembered",
        rows="CC-33",
        test="tests/unit/raft/test_raft_core.py::test_pre_vote_writes_nothing_at_the_recipient",
        file="replica/raft/election.py",
        function="on_vote_request",
        before="if granted and not m.pre_vote:",
        after="if granted:",
    ),
    Mutant(
        name="transfer waits for the live leader",
        rows="CC-34",
        test=(
            "tests/raft_scripts/test_raft_scripts.py::"
            "test_script_prints_what_was_kept[removing_the_leader_hands_over_first]"
        ),
        file="replica/raft/election.py",
        function="_why_not",
        before="if not m.transfer and not (m.term == s.hard.term and s.hard.voted_for == m.from_uuid):",
        after="if not (m.term == s.hard.term and s.hard.voted_for == m.from_uuid):",
    ),
    Mutant(
        name="followers forget their leader",
        rows="CC-31",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_removed_server_that_was_not_told_disturbs_nobody_for_ten_minutes[any-log]"
        ),
        file="replica/raft/election.py",
        function="_why_not",
        before="if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min:",
        after="if s.role is Role.LEADER:",
    ),
    Mutant(
        name="leader gives votes away",
        rows="CC-31, D-4",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_vote_request_of_a_higher_term_under_a_live_leader_leaves_the_term"
        ),
        file="replica/raft/election.py",
        function="_why_not",
        before="if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min:",
        after="if s.role is not Role.LEADER and s.election.ticks_since_leader < s.options.election_ticks_min:",
    ),
    Mutant(
        name="live leader is deposed",
        rows="CC-31",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[live_leader_is_not_deposed]",
        file="replica/raft/election.py",
        function="_why_not",
        before="if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min:",
        after="if s.election.ticks_since_leader < 0:",
    ),
    Mutant(
        name="patience of a heartbeat",
        rows="CC-35",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_voter_is_patient_for_the_minimum_election_timeout_not_for_a_heartbeat"
        ),
        file="replica/raft/election.py",
        function="_why_not",
        before="if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min:",
        after="if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.heartbeat_ticks:",
    ),
    Mutant(
        name="equal log is enough for a pre vote",
        rows="CC-30, CC-31",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_equal_log_gets_a_removed_server_past_the_log_test_but_not_past_a_live_leader"
        ),
        file="replica/raft/election.py",
        function="_why_not",
        before="s.election.ticks_since_leader < s.options.election_ticks_min",
        after="s.election.ticks_since_leader < s.options.election_ticks_min and m.last < s.last",
    ),
    Mutant(
        name="damaged tail votes",
        rows="D-7",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/election.py",
        function="_why_not",
        before="if s.hard.withheld is not None:",
        after="if False:",
    ),
    Mutant(
        name="hint makes a leader of a shorter log",
        rows="CN-43, CN-37",
        test="tests/unit/raft/test_raft_roles.py::test_hinted_leader_with_a_shorter_log_is_not_elected",
        file="replica/raft/election.py",
        function="_why_not",
        before="if m.pre_vote and m.last < s.last:",
        after="if m.pre_vote and m.last.term < s.last.term:",
    ),
    Mutant(
        name="successor brings no entry",
        rows="CN-38",
        test=(
            "tests/unit/raft/test_raft_roles.py::"
            "test_first_entry_of_a_term_is_pushed_by_the_next_leader_when_its_leader_dies"
        ),
        file="replica/raft/election.py",
        function="_become_leader",
        before="""
      s.lead.term_start = s.append_own(EntryKind.NOOP, s.next_hybrid_time(), 0, b"", b"", 0).index
        """,
        after="""
      fresh = s.last.index == 0
      own = s.append_own(EntryKind.NOOP, s.next_hybrid_time(), 0, b"", b"", 0).index if fresh else 0
      s.lead.term_start = own or s.last.index
        """,
    ),
    Mutant(
        name="lease extended by learners",
        rows="CN-24, CN-29",
        test="tests/unit/raft/test_raft_lease.py::test_lease_is_not_extended_by_learners",
        file="replica/raft/lease.py",
        function="confirmed_round",
        before="return reached(s.voters, rounds)",
        after="return reached(sorted(rounds), rounds)",
    ),
    Mutant(
        name="lease before the terms first commit",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_needs_a_commit_of_the_own_term",
        file="replica/raft/lease.py",
        function="holds",
        before="s.commit_index < s.lead.term_start or s.lead.lease_given_up",
        after="s.lead.lease_given_up",
    ),
    Mutant(
        name="lease counts from the echo",
        rows="CN-24",
        test="tests/unit/raft/test_raft_lease.py::test_lease_counts_from_the_start_of_a_round_not_from_its_echo",
        file="replica/raft/lease.py",
        function="holds",
        before="confirmed = confirmed_round(s)",
        after="confirmed = s.lead.round if confirmed_round(s) else 0",
    ),
    Mutant(
        name="quiet while a member lacks an entry",
        rows="CN-24",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[quiet_needs_everybody]",
        file="replica/raft/quiet.py",
        function="_settled",
        before="ProgressState.REPLICATE and p.match == s.last.index and p.commit_index == s.commit_index",
        after="ProgressState.REPLICATE",
    ),
    Mutant(
        name="restarted voter falls asleep",
        rows="CN-24",
        test="tests/unit/raft/test_raft_quiet.py::test_follower_that_must_not_vote_yet_does_not_rest",
        file="replica/raft/quiet.py",
        function="agrees",
        before=" and s.ticks >= s.election.withhold_until",
        after="",
    ),
    Mutant(
        name="old answer counts for a new question",
        rows="CN-24",
        test="tests/unit/raft/test_raft_quiet.py::test_quiet_is_counted_from_answers_to_this_stretch_of_asking_alone",
        file="replica/raft/quiet.py",
        function="rest_if_all_agreed",
        before="if all(p.quiet_round >= s.lead.quiet_round or p.uuid in s.absent for p in s.lead.progress.values()):",
        after="if all(p.quiet_round > 0 or p.uuid in s.absent for p in s.lead.progress.values()):",
    ),
    Mutant(
        name="lease kept while quiet",
        rows="CN-24",
        test="tests/unit/raft/test_raft_quiet.py::test_lease_ends_when_the_group_goes_quiet",
        file="replica/raft/quiet.py",
        function="rest_if_all_agreed",
        before="""
            s.lead.round_stamps.clear()
        """,
        after="",
    ),
    Mutant(
        name="woken follower does not ask",
        rows="CN-28",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[quiet_follower_asks]",
        file="replica/raft/quiet.py",
        function="wake",
        before="if s.leader_uuid is not None:",
        after="if s.leader_uuid is not None and s.election.checks < 0:",
    ),
    Mutant(
        name="silence of a link wakes nobody",
        rows="CN-28",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[quiet_leader_dies]",
        file="replica/raft/quiet.py",
        function="server_silent",
        before="""
            wake(s, f"nothing is heard from {uuid}")
        """,
        after="""
            if s.role is Role.LEADER:
                wake(s, f"nothing is heard from {uuid}")
        """,
    ),
    Mutant(
        name="nobody looks around",
        rows="CN-28",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[quiet_follower_asks]",
        file="replica/raft/quiet.py",
        function="probe_quiet_group",
        before="if s.role is Role.LEADER or s.election.checks >= CHECKS_MISSED_MAX:",
        after="if s.role is Role.LEADER:",
    ),
    Mutant(
        name="every master has to answer",
        rows="MF-01",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_masters_outlive_one_that_is_away_and_say_so_and_not_two"
        ),
        file="replica/raft/quorum.py",
        function="majority",
        before="return count // 2 + 1",
        after="return count",
    ),
    Mutant(
        name="half of a group decides",
        rows="CN-23",
        test=(
            "tests/unit/raft_driver/test_driver_groups.py::"
            "test_group_of_2f_plus_1_serves_without_f_and_promises_nothing_without_one_more[1-killed]"
        ),
        file="replica/raft/quorum.py",
        function="majority",
        before="return count // 2 + 1",
        after="return max(1, count // 2)",
    ),
    Mutant(
        name="majority of four is two",
        rows="CN-23",
        test="tests/unit/raft/test_raft_quorum.py",
        file="replica/raft/quorum.py",
        function="majority",
        before="return count // 2 + 1",
        after="return (count + 1) // 2 if count else 1",
    ),
    Mutant(
        name="strangers count",
        rows="CN-28, CN-29, CC-11",
        test="tests/unit/raft/test_raft_quorum.py",
        file="replica/raft/quorum.py",
        function="tally",
        before="granted = sum(1 for uuid in voters if votes.get(uuid) is True)",
        after="granted = sum(1 for uuid in votes if votes.get(uuid) is True)",
    ),
    Mutant(
        name="change before the term is open",
        rows="CC-05, CN-39",
        test=(
            "tests/raft_scripts/test_raft_scripts.py::"
            "test_script_prints_what_was_kept[config_change_waits_for_an_entry_of_the_term]"
        ),
        file="replica/raft/transfer.py",
        function="check_open",
        before="if s.commit_index < s.lead.term_start:",
        after="if s.commit_index < 0:",
    ),
    Mutant(
        name="write before the term is open",
        rows="CN-39, CN-41",
        test="tests/unit/raft_driver/test_driver_writes.py::test_write_before_the_terms_first_entry_is_committed_is_refused",
        file="replica/raft/transfer.py",
        function="check_open",
        before="if s.commit_index < s.lead.term_start:",
        after="if s.commit_index < s.lead.term_start and s.role is not Role.LEADER:",
    ),
    Mutant(
        name="lease kept during a transfer",
        rows="CN-24, CC-34",
        test=(
            "tests/unit/raft/test_raft_lease.py::"
            "test_lease_is_given_up_before_timeout_now_leaves_and_for_the_whole_term"
        ),
        file="replica/raft/transfer.py",
        function="continue_transfer",
        before="""
            lease.give_up(s.lead)
        """,
        after="",
    ),
    Mutant(
        name="lease back after a transfer timed out",
        rows="CN-24, CC-34",
        test=(
            "tests/unit/raft/test_raft_lease.py::"
            "test_lease_is_given_up_before_timeout_now_leaves_and_for_the_whole_term"
        ),
        file="replica/raft/transfer.py",
        function="abort_transfer",
        before="""
            s.lead.transfer_target = None
        """,
        after="""
            s.lead.transfer_target = None
            s.lead.lease_given_up = False
        """,
    ),
    Mutant(
        name="yielding voter stands like others",
        rows="OP-03",
        test="tests/unit/raft/test_raft_yield.py::test_voter_that_yields_stands_only_when_nobody_else_was_elected",
        file="replica/raft/election.py",
        function="tick_passive",
        before="if yields(s) and s.election.elapsed < YIELD_TIMEOUTS * s.options.election_ticks_max:",
        after="if yields(s) and s.election.elapsed < s.options.election_ticks_min:",
    ),
    Mutant(
        name="yielding voter never stands",
        rows="OP-03",
        test="tests/unit/raft/test_raft_yield.py::test_voter_that_yields_stands_only_when_nobody_else_was_elected",
        file="replica/raft/election.py",
        function="tick_passive",
        before="if yields(s) and s.election.elapsed < YIELD_TIMEOUTS * s.options.election_ticks_max:",
        after="if yields(s):",
    ),
    Mutant(
        name="only voter yields",
        rows="OP-03",
        test="tests/unit/raft/test_raft_yield.py::test_only_voter_yields_to_nobody",
        file="replica/raft/election.py",
        function="yields",
        before="len(s.voters) > 1 and s.yields()",
        after="s.yields()",
    ),
    Mutant(
        name="yielding voter takes over",
        rows="OP-03",
        test="tests/unit/raft/test_raft_yield.py::test_voter_that_yields_takes_over_from_no_leader_and_is_no_first_leader",
        file="replica/raft/election.py",
        function="on_timeout_now",
        before="if yields(s):",
        after="if yields(s) and s.quiet:",
    ),
    Mutant(
        name="yielding voter leads a new group",
        rows="OP-03",
        test="tests/unit/raft/test_raft_yield.py::test_voter_that_yields_takes_over_from_no_leader_and_is_no_first_leader",
        file="replica/raft/core.py",
        function="RaftCore.campaign",
        before="if election.yields(s):",
        after="if election.yields(s) and s.quiet:",
    ),
)
