"""Mutants: membership, roles and message checks."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="abort appends nothing",
        rows="TC-79",
        test="tests/unit/raft/test_raft_abort.py::test_abort_of_a_dead_voter_restores_a_group_of_one",
        file="replica/raft/aborting.py",
        function="_take_back",
        before="return append_config(s, s.hard.configs[0].members, pending.decision)",
        after="return append_config(s, pending.members, pending.decision)",
    ),
    Mutant(
        name="transfer does not take a change back",
        rows="TC-80, IN-35",
        test=(
            "tests/unit/raft/test_raft_abort.py::"
            "test_leader_does_not_hand_a_change_over_that_its_successor_cannot_commit"
        ),
        file="replica/raft/aborting.py",
        function="abort_when_overdue",
        before="waits >= s.options.election_ticks_min",
        after="waits >= s.options.config_abort_ticks",
    ),
    Mutant(
        name="change is handed over uncommitted",
        rows="TC-80, IN-35",
        test=(
            "tests/unit/raft/test_raft_abort.py::"
            "test_leader_does_not_hand_a_change_over_that_its_successor_cannot_commit"
        ),
        file="replica/raft/transfer.py",
        function="continue_transfer",
        before=" or s.voters != s.hard.configs[0].voters:",
        after=":",
    ),
    Mutant(
        name="abort without any quorum",
        rows="TC-80",
        test="tests/unit/raft/test_raft_abort.py::test_leader_without_a_quorum_of_either_config_steps_down",
        file="replica/raft/aborting.py",
        function="abort_instead_of_stepping_down",
        before=" or tally(s.hard.configs[0].voters, heard) is not VoteResult.WON:",
        after=":",
    ),
    Mutant(
        name="entries with gaps pass",
        rows="IN-50",
        test="tests/unit/raft_driver/test_driver_liars.py::test_impossible_messages_among_honest_ones_change_no_history",
        file="replica/raft/message_checks.py",
        function="_impossible_append",
        before="if entry.opid.index != before.index + 1 or not before.term <= entry.opid.term:",
        after="if False:",
    ),
    Mutant(
        name="term jumps to the end of a generation",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft/message_checks.py",
        function="too_far",
        before="offset_in_generation(term) > max(limits.RAFT_TERMS_HONEST_MAX, known + limits.RAFT_TERM_JUMP_MAX)",
        after="False",
    ),
    Mutant(
        name="newcomer is locked out of an old group",
        rows="IN-50",
        test="tests/unit/raft/test_raft_terms.py::test_replica_that_knows_nothing_follows_the_leader_of_an_old_group",
        file="replica/raft/message_checks.py",
        function="too_far",
        before="max(limits.RAFT_TERMS_HONEST_MAX, known + limits.RAFT_TERM_JUMP_MAX)",
        after="known + limits.RAFT_TERM_JUMP_MAX",
    ),
    Mutant(
        name="second leader of a term",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft/message_checks.py",
        function="_other_leader",
        before="if m.term == s.hard.term and s.leader_uuid not in (None, m.from_uuid):",
        after="if False:",
    ),
    Mutant(
        name="config that does not decode",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft/message_checks.py",
        function="_contradicts_append",
        before="if entry.kind is EntryKind.CONFIG and (why := _undecodable(s, entry)):",
        after="if False and (why := _undecodable(s, entry)):",
    ),
    Mutant(
        name="round from the future extends a lease",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft/message_checks.py",
        function="_contradicts_append_reply",
        before="if m.round > s.lead.round:",
        after="if False:",
    ),
    Mutant(
        name="reply beyond the leaders log",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_forged_field_is_refused_with_a_reason_and_nothing_changes"
        ),
        file="replica/raft/message_checks.py",
        function="_contradicts_append_reply",
        before="if m.last.index > s.last.index:",
        after="if False:",
    ),
    Mutant(
        name="copied before it answered",
        rows="TC-20",
        test=(
            "tests/unit/raft/test_raft_membership.py::"
            "test_new_member_is_first_contacted_by_a_heartbeat_and_copied_only_after_its_reply"
        ),
        file="replica/raft/membership.py",
        before="from .ready import Role",
        after="from .ready import CopyNeeded, DataState, Role",
        more=(
            Edit(
                file="replica/raft/membership.py",
                function="refresh_progress",
                before="""
                    if s.lead.transfer_target not in (None, *s.voters):
                """,
                after="""
                    for uuid in sorted(s.lead.progress.keys() - kept.keys()):
                        s.out.copies_needed.append(CopyNeeded(uuid, DataState.DOES_NOT_EXIST, OpId(0, 0)))
                    if s.lead.transfer_target not in (None, *s.voters):
                """,
            ),
        ),
    ),
    Mutant(
        name="right config id need not wait",
        rows="TC-70",
        test=(
            "tests/unit/raft/test_raft_drivers.py::"
            "test_change_beside_a_pending_one_is_refused_though_its_config_id_is_right"
        ),
        file="replica/raft/membership.py",
        function="propose_config",
        before="""
            if s.hard.pending_config is not None:
                raise Refused(Code.CHANGE_PENDING, "a config change is under way", pending=s.hard.pending_config.opid)
            base = s.hard.active_config
        """,
        after="""
            base = s.hard.configs[0]
            if s.hard.pending_config is not None and cas != base.opid:
                raise Refused(Code.CHANGE_PENDING, "a config change is under way", pending=s.hard.pending_config.opid)
        """,
    ),
    Mutant(
        name="second change while one is pending",
        rows="CC-04",
        test="tests/raft_scripts/test_raft_scripts.py::test_script_prints_what_was_kept[one_change_at_a_time]",
        file="replica/raft/membership.py",
        function="propose_config",
        before="if s.hard.pending_config is not None:",
        after="if s.hard.pending_config is s.hard.pending_config.__class__:",
    ),
    Mutant(
        name="master shuts clients out",
        rows="CC-06",
        test="tests/unit/raft/test_raft_drivers.py::test_client_program_and_master_drive_the_same_group_in_turn",
        file="replica/raft/membership.py",
        function="propose_config",
        before="if decision != (0, 0) and decision <= base.decision:",
        after="if decision < base.decision:",
    ),
    Mutant(
        name="config id is demanded",
        rows="TC-68",
        test="tests/unit/raft/test_raft_drivers.py::test_each_kind_of_change_takes_the_committed_config_id_or_none",
        file="replica/raft/membership.py",
        function="propose_config",
        before="if cas is not None and cas != base.opid:",
        after="if cas != base.opid:",
    ),
    Mutant(
        name="outdated caller is served",
        rows="TC-69",
        test="tests/unit/raft/test_raft_drivers.py::test_two_drivers_with_one_committed_config_id_never_both_succeed",
        file="replica/raft/membership.py",
        function="propose_config",
        before="if cas is not None and cas != base.opid:",
        after="if cas is not None and cas.term != base.opid.term:",
    ),
    Mutant(
        name="removal is not compared",
        rows="CC-25",
        test="tests/unit/raft/test_raft_membership_rules.py::test_removal_obeys_the_same_rules_as_an_addition",
        file="replica/raft/membership.py",
        function="propose_config",
        before="if cas is not None and cas != base.opid:",
        after="if cas is not None and cas != base.opid and edits[0].kind is EditKind.ADD:",
    ),
    Mutant(
        name="leader removes itself",
        rows="CC-27",
        test=(
            "tests/raft_scripts/test_raft_scripts.py::"
            "test_script_prints_what_was_kept[removing_the_leader_hands_over_first]"
        ),
        file="replica/raft/membership.py",
        function="propose_config",
        before="""
            _refuse_losing_leader(s, members)
        """,
        after="",
    ),
    Mutant(
        name="two voters at once",
        rows="CC-03",
        test="tests/unit/raft/test_raft_membership.py::test_edits_random_never_move_two_voters_and_never_leave_nobody",
        file="replica/raft/membership.py",
        function="edited_members",
        before="if len(moved) > 1:",
        after="if len(moved) > 2:",
    ),
    Mutant(
        name="retry adds the member again",
        rows="CC-15",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_add_whose_leader_died_is_retried_and_ends_with_one_member"
        ),
        file="replica/raft/membership.py",
        function="_edit",
        before="if old is not None:",
        after="if old is not None and old != new:",
    ),
    Mutant(
        name="witness stays one",
        rows="CC-54",
        test="tests/unit/raft/test_raft_witness.py::test_witness_with_its_data_becomes_a_whole_replica",
        file="replica/raft/membership.py",
        function="_edit",
        before="new = new if new.addresses else replace(new, addresses=old.addresses)",
        after="new = replace(new, addresses=new.addresses or old.addresses, holds_data=old.holds_data)",
    ),
    Mutant(
        name="leader adds members without end",
        rows="IN-50",
        test="tests/unit/raft/test_raft_membership.py::test_config_that_is_too_large_may_become_smaller",
        file="replica/raft/membership.py",
        function="_refuse_what_others_refuse",
        before="if len(members) > most:",
        after="if len(members) > most + 1:",
    ),
    Mutant(
        name="leader appends what followers refuse",
        rows="IN-50",
        test="tests/unit/raft/test_raft_membership.py::test_whatever_a_leader_appends_its_followers_take",
        file="replica/raft/membership.py",
        function="_refuse_what_others_refuse",
        before="if why := invalid_config_reason(RaftConfig(base.opid, members, base.decision)):",
        after="if False and (why := invalid_config_reason(RaftConfig(base.opid, members, base.decision))):",
    ),
    Mutant(
        name="config makes rows",
        rows="CC-53",
        test="tests/unit/raft/test_raft_witness.py::test_learner_whose_disk_has_no_rows_gets_no_vote_as_a_whole_member",
        file="replica/raft/membership.py",
        function="promote_caught_up",
        before="if (member.votes and not whole) or (member.holds_data and p.data_from is None):",
        after="if member.votes and not whole:",
    ),
    Mutant(
        name="promotions overlap",
        rows="CC-14",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::"
            "test_several_learners_wait_together_and_are_promoted_one_after_the_other"
        ),
        file="replica/raft/membership.py",
        function="promote_caught_up",
        before="""
            voter = replace(member, votes=True, promote=not whole, holds_data=whole)
            members = tuple(voter if m.uuid == voter.uuid else m for m in s.hard.active_config.members)
        """,
        after="""
            now = s.hard.active_config.members
            members = tuple(replace(m, votes=True, promote=False) if m.promote else m for m in now)
        """,
    ),
    Mutant(
        name="learner may become a candidate",
        rows="CN-31",
        test="tests/unit/raft/test_raft_roles.py::test_role_moves_are_those_of_the_diagram_and_no_others",
        file="replica/raft/role_changes.py",
        before="Role.LEARNER: (Role.FOLLOWER, Role.NON_PARTICIPANT),",
        after="Role.LEARNER: (Role.FOLLOWER, Role.CANDIDATE, Role.NON_PARTICIPANT),",
    ),
    Mutant(
        name="uncommitted removal takes the role",
        rows="CN-32, CN-30",
        test=(
            "tests/unit/raft/test_raft_roles.py::test_removed_member_is_a_non_participant_once_its_removal_is_committed"
        ),
        file="replica/raft/roles.py",
        function="passive_role",
        before="members = [m for config in s.hard.configs if (m := config.member(s.uuid)) is not None]",
        after="members = [m for config in s.hard.configs[-1:] if (m := config.member(s.uuid)) is not None]",
    ),
    Mutant(
        name="demoted voter still counts",
        rows="CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_step_of_the_appendix_tolerates_what_its_table_says",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.voters = s.hard.active_config.voters",
        after="s.voters = tuple(m.uuid for m in s.hard.active_config.members if m.votes or m.holds_data)",
    ),
    Mutant(
        name="learner raises the majority",
        rows="CC-12, CC-11",
        test=(
            "tests/unit/raft/test_raft_membership_rules.py::test_entry_that_adds_a_learner_needs_the_majority_of_before"
        ),
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.voters = s.hard.active_config.voters",
        after="s.voters = tuple(m.uuid for m in s.hard.active_config.members)",
    ),
    Mutant(
        name="removed voter still counts",
        rows="CC-26, CC-16",
        test="tests/unit/raft/test_raft_membership_rules.py::test_removed_voter_counts_no_more_from_the_entry_on",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.voters = s.hard.active_config.voters",
        after="s.voters = s.hard.configs[0].voters",
    ),
    Mutant(
        name="witness has no vote",
        rows="CC-49, CC-50, CC-51",
        test="tests/unit/raft/test_raft_witness.py::test_step_of_the_appendix_tolerates_what_its_table_says",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.voters = s.hard.active_config.voters",
        after="s.voters = tuple(m.uuid for m in s.hard.active_config.members if m.votes and m.holds_data)",
    ),
    Mutant(
        name="demoted voter stops at once",
        rows="D-9",
        test="tests/raft_scripts/test_raft_scripts.py",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="reversed(s.hard.configs)",
        after="s.hard.configs[-1:]",
    ),
    Mutant(
        name="learner asks for votes",
        rows="CN-31",
        test="tests/unit/raft/test_raft_votes.py::test_learner_that_hears_nobody_has_nothing_to_do",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="None and m.votes",
        after="None",
    ),
    Mutant(
        name="disk without rows leads",
        rows="CC-53",
        test="tests/unit/raft/test_raft_witness.py::test_replica_without_rows_never_leads_whatever_its_config_says",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.electable = member is not None and member.holds_data and not s.hard.no_data",
        after="s.electable = member is not None and member.holds_data",
    ),
    Mutant(
        name="removed member campaigns",
        rows="CN-30",
        test=(
            "tests/unit/raft/test_raft_roles.py::test_removed_member_is_a_non_participant_once_its_removal_is_committed"
        ),
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.electable = member is not None and member.holds_data and not s.hard.no_data",
        after="s.electable = member is None or member.holds_data",
    ),
    Mutant(
        name="witness campaigns",
        rows="CC-53",
        test="tests/unit/raft/test_raft_core.py::test_failure_detector_runs_on_electable_voters_only",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.electable = member is not None and member.holds_data and not s.hard.no_data",
        after="s.electable = member is not None",
    ),
    Mutant(
        name="witness is electable",
        rows="CC-48, CC-53",
        test="tests/unit/raft/test_raft_witness.py::test_witness_logs_votes_and_elects_but_never_leads",
        file="replica/raft/roles.py",
        function="config_in_force",
        before="s.electable = member is not None and member.holds_data and not s.hard.no_data",
        after="s.electable = member is not None",
    ),
)
