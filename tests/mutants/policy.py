"""Mutants: policy."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

REPORTS = "tests/unit/policy/test_policy_reports.py"

MUTANTS = (
    Mutant(
        name="plan of no server",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_gaps",
        before="if not servers:",
        after="if False:",
    ),
    Mutant(
        name="plan of fewer records than there are",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_gaps",
        before="if count < stated:",
        after="if False:",
    ),
    Mutant(
        name="plan without the record of a server that has replicas",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_gaps",
        before="if unknown:",
        after="if False:",
    ),
    Mutant(
        name="plan of records that are out of date",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_gaps",
        before="if old:",
        after="if False:",
    ),
    Mutant(
        name="record of a former build is never out of date",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_is_old",
        before="report.numbers.get(WITHIN, within_s)",
        after="report.numbers.get(WITHIN, 0)",
    ),
    Mutant(
        name="plan of the future",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_conflicts",
        before="> SPARE_US:",
        after="> 10 * SPARE_US:",
    ),
    Mutant(
        name="plan of two clusters",
        test=f"{REPORTS}::test_missing_and_stale_inputs_are_refused",
        file="replica/policy/reports.py",
        function="_conflicts",
        before="if len(clusters) > 1:",
        after="if False:",
    ),
    Mutant(
        name="server of long ago takes part in a plan",
        test=f"{REPORTS}::test_inputs_say_how_old_they_are",
        file="replica/policy/reports.py",
        function="inputs_of",
        before='if u not in named and (u, "") in late',
        after="if False",
    ),
    Mutant(
        name="oldest input is told as young",
        test=f"{REPORTS}::test_inputs_say_how_old_they_are",
        file="replica/policy/reports.py",
        function="inputs_of",
        before="oldest_us=min(times, default=0)",
        after="oldest_us=max(times, default=0)",
    ),
    Mutant(
        name="masters of the former build are refused",
        test=f"{REPORTS}::test_records_of_a_build_that_does_not_repeat_them_are_used_at_any_age",
        file="replica/policy/reports.py",
        function="inputs_of",
        before="if dated and _is_old(r, now_us, within_s)",
        after="if _is_old(r, now_us, within_s)",
    ),
    Mutant(
        name="plan moves what the masters move",
        test=f"{REPORTS}::test_plan_leaves_to_the_masters_what_they_move",
        file="replica/policy/reports.py",
        function="view_of_reports",
        before="leaving = frozenset(u for u, s in servers.items() if s.draining) - away",
        after="leaving = frozenset[str]()",
    ),
    Mutant(
        name="full disk gets a replica of a plan",
        test="tests/unit/policy/test_policy_rebalance.py::test_plan_gives_no_replica_to_a_server_that_could_not_take_it",
        file="replica/policy/rebalance.py",
        function="Layout.is_fit",
        before="and not server.nearly_full(bytes_wanted)",
        after="",
    ),
    Mutant(
        name="server is not emptied onto a nearly full one",
        test="tests/unit/policy/test_policy_rebalance.py::test_plan_gives_no_replica_to_a_server_that_could_not_take_it",
        file="replica/policy/rebalance.py",
        function="_drain",
        before="if layout.is_fit(u, size)] or fit",
        after="if layout.is_fit(u, size)]",
    ),
    Mutant(
        name="quiescing server gets leaderships of a plan",
        test="tests/unit/policy/test_policy_rebalance.py::test_plan_gives_no_replica_to_a_server_that_could_not_take_it",
        file="replica/policy/rebalance.py",
        function="_Leaders.__init__",
        before="if not layout.servers[u].quiescing",
        after="if u",
    ),
    Mutant(
        name="job does not wait for its inputs",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_plan_waits_for_its_inputs_and_is_refused_without_them",
        file="pipeline/rebalance.py",
        function="Rebalancer._inputs",
        before="if not inputs.passing or time.monotonic() >= deadline:",
        after="if True:",
    ),
    Mutant(
        name="job plans of what it has",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_plan_waits_for_its_inputs_and_is_refused_without_them",
        file="pipeline/rebalance.py",
        function="Rebalancer._inputs",
        before="if not inputs.lacks:",
        after="if True:",
    ),
    Mutant(
        name="estranged server is added",
        rows="CC-46",
        test=(
            "tests/unit/policy/test_policy_decide.py::"
            "test_decide_server_with_a_replica_of_a_former_generation_gets_none_before_that_is_gone"
        ),
        file="replica/policy/placement.py",
        function="replacements_for",
        before="names = {m.uuid for m in tablet.config.members} | tablet.estranged",
        after="names = {m.uuid for m in tablet.config.members}",
    ),
    Mutant(
        name="learners that cannot come fill the caps",
        rows="TC-65",
        test=(
            "tests/unit/policy/test_policy_decide.py::"
            "test_decide_a_server_where_copies_fail_is_used_if_no_other_is_free"
        ),
        file="replica/policy/decide.py",
        function="_Slots.__init__",
        before="if tablet.health_of(target) is Health.FAILED_UNRECOVERABLE:",
        after="if False:",
    ),
    Mutant(
        name="a learner goes though nobody takes its place",
        rows="TC-65",
        test=(
            "tests/unit/policy/test_policy_decide.py::"
            "test_decide_a_server_where_copies_fail_is_used_if_no_other_is_free"
        ),
        file="replica/policy/decide.py",
        function="_Evaluation._keeping_failing_learners",
        before="not failing",
        after="True",
    ),
    Mutant(
        name="a busy server blocks healing",
        rows="TC-65",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_busy_server_is_passed_over_for_the_next",
        file="replica/policy/decide.py",
        function="_Evaluation._heal",
        before="in fit if self.slots.take",
        after="in fit[:1] if self.slots.take",
    ),
    Mutant(
        name="a move insists on a server without copies",
        rows="TC-65",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_move_whose_target_takes_no_copies_ends_elsewhere",
        file="replica/policy/decide.py",
        function="_Evaluation._wanted_target",
        before="and not server.avoided else",
        after="else",
    ),
    Mutant(
        name="desired moves to a full server",
        rows="CN-03",
        test="tests/unit/policy/test_policy_decide.py::test_decide_full_servers_get_nothing",
        file="replica/policy/decide.py",
        function="_Evaluation._may_join",
        before="return server.takes_replicas and server.has_room(self.replicas[server.uuid])",
        after="return server.alive and not server.draining",
    ),
    Mutant(
        name="demoted before another votes",
        rows="TC-71",
        test="tests/unit/policy/test_policy_desired.py::test_decide_a_demoted_member_keeps_its_copy_once_another_votes",
        file="replica/policy/decide.py",
        function="_Evaluation._grant",
        before="""
            return None  # the table above does it, once the others suffice
        """,
        after="""
            member = tablet.config.member(desired.from_uuid)
            edits = (ConfigEdit(EditKind.CHANGE, replace(member, votes=False)),) if member else ()
            return self._change(tablet, edits, "demote") if member else None
        """,
    ),
    Mutant(
        name="add is wanted beside the added one",
        rows="TC-65",
        test="tests/unit/master/test_master_desired.py::test_masters_derive_the_same_need_anew_and_never_a_second_add",
        file="replica/policy/decide.py",
        function="_Evaluation._grant",
        before="""
            if server is None or not self._may_join(server) or tablet.config.member(desired.to_uuid):
                return None
            source = tablet.config.member(desired.from_uuid) if desired.kind is ChangeKind.MOVE else None
            if copy_is_under_way(tablet) or not self.slots.take(server.uuid, desired.from_uuid):
        """,
        after="""
            if server is None or not self._may_join(server):
                return None
            source = tablet.config.member(desired.from_uuid) if desired.kind is ChangeKind.MOVE else None
            if not self.slots.take(server.uuid, desired.from_uuid):
        """,
    ),
    Mutant(
        name="cancelled add stays",
        rows="TC-79",
        test="tests/unit/policy/test_policy_desired.py::test_decide_a_cancelled_desired_change_takes_back_what_it_began",
        file="replica/policy/decide.py",
        function="_Evaluation._cancel",
        before="edits.append(kept if desired.kind is ChangeKind.PROMOTE else ConfigEdit(EditKind.REMOVE, target))",
        after="edits += [kept] if desired.kind is ChangeKind.PROMOTE else []",
    ),
    Mutant(
        name="voter added directly",
        rows="TC-66",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_dead_server_is_healed_through_three_four_three",
        file="replica/policy/decide.py",
        function="_join",
        before="False, promote=votes",
        after="votes, promote=False",
    ),
    Mutant(
        name="renewed without a pause",
        rows="TC-63",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_damaged_replica_is_renewed_for_a_moment_and_not_soon_again"
        ),
        file="replica/policy/in_place.py",
        before="RENEW_AGAIN_US = 120_000_000",
        after="RENEW_AGAIN_US = 10_000_000",
    ),
    Mutant(
        name="damaged one vouches for itself",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="[u for u in voters if u not in tablet.damaged]",
        after="voters",
    ),
    Mutant(
        name="renewed where copies fail",
        rows="TC-63",
        test=(
            "tests/unit/policy/test_policy_in_place.py::"
            "test_no_copy_in_place_into_a_server_that_is_dead_or_where_copies_fail"
        ),
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="if server is None or not server.alive or server.avoided:",
        after="if server is None or not server.alive:",
    ),
    Mutant(
        name="renewed though another server is free",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_copies_in_place_only_where_no_other_server_is_free",
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="if any(not s.avoided for s in replacements_for(view, tablet, load)):",
        after="if False:",
    ),
    Mutant(
        name="pause holds no place",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_copies_in_place_that_do_not_help_let_the_others_have_their_turn",
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="""
                under_way[uuid] += 1
            else:
        """,
        after="""
                continue
            else:
        """,
    ),
    Mutant(
        name="pause holds places of other servers",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_copies_in_place_that_do_not_help_let_the_others_have_their_turn",
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="""
            else:
        """,
        after="""
                total += 1
            else:
        """,
    ),
    Mutant(
        name="renewed in vain always first",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_copies_in_place_that_do_not_help_let_the_others_have_their_turn",
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="due.append((age_us >= RENEW_AGAIN_US, -age_us, tablet.tablet_id, uuid, tablet.config.opid))",
        after="due.append((age_us >= RENEW_AGAIN_US, 0, tablet.tablet_id, uuid, tablet.config.opid))",
    ),
    Mutant(
        name="copies in place have no cap",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_copies_in_place_hold_the_caps_with_what_is_under_way",
        file="replica/policy/in_place.py",
        function="copies_in_place",
        before="""
            under_way[uuid] += 1
            total += 1
        """,
        after="",
    ),
    Mutant(
        name="renewed beside voters in doubt",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="tablet.health_of(u) is Health.HEALTHY and u",
        after="u",
    ),
    Mutant(
        name="renewed beside voters without the log",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="Health.HEALTHY and u in tablet.caught_up",
        after="Health.HEALTHY",
    ),
    Mutant(
        name="renewed in a change of config",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="tablet.pending or replaced",
        after="replaced",
    ),
    Mutant(
        name="renewed though another is on its way",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="replaced or len",
        after="len",
    ),
    Mutant(
        name="renewed beside a witness",
        rows="TC-63, CC-52",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_beside_a_witness_nor_of_one",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="if any(m.votes and not m.holds_data for m in tablet.config.members):",
        after="if False:",
    ),
    Mutant(
        name="renewed though the majority failed",
        rows="IN-03",
        test="tests/unit/policy/test_policy_in_place.py::test_tablet_whose_majority_failed_is_left_as_it_is",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="alone = len(damaged) == 1 and len(whole) == len(voters) - 1 >= tablet.config.majority",
        after="alone = len(damaged) >= 1",
    ),
    Mutant(
        name="renewed with another voter in trouble",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="alone = len(damaged) == 1 and len(whole) == len(voters) - 1 >= tablet.config.majority",
        after="alone = len(damaged) == 1 and len(whole) >= tablet.config.majority",
    ),
    Mutant(
        name="the only replica is renewed",
        rows="TC-63",
        test="tests/unit/policy/test_policy_in_place.py::test_no_copy_in_place_while_the_others_may_be_in_trouble",
        file="replica/policy/in_place.py",
        function="_damaged_alone",
        before="alone = len(damaged) == 1 and len(whole) == len(voters) - 1 >= tablet.config.majority",
        after="alone = len(damaged) == 1 and len(whole) == len(voters) - 1",
    ),
    Mutant(
        name="retired server keeps what it has",
        rows="TC-83",
        test=(
            "tests/unit/policy/test_policy_desired.py::"
            "test_decide_a_retired_server_is_emptied_and_never_below_the_factor"
        ),
        file="replica/policy/views.py",
        function="seen_leaving",
        before="m.replace or m.uuid in leaving",
        after="m.replace",
    ),
    Mutant(
        name="replicas wanted stay as created",
        rows="CC-01",
        test=(
            "tests/unit/policy/test_policy_desired.py::test_decide_each_purpose_of_a_change_is_served_by_the_same_rules"
        ),
        file="replica/policy/membership.py",
        function="is_under_replicated",
        before="return viable < tablet.replication_factor",
        after="return viable < min(3, tablet.replication_factor)",
    ),
    Mutant(
        name="retiring member holds the healing up",
        rows="CC-52",
        test="tests/unit/policy/test_policy_witness.py::test_member_on_a_retiring_server_is_nobody_that_comes_back",
        file="replica/policy/membership.py",
        function="_evict",
        before="if member.uuid not in leaving and (kept := _of_demoted(tablet, member)) is not None:",
        after="if (kept := _of_demoted(tablet, member)) is not None:",
    ),
    Mutant(
        name="lost voter leaves before its replacement",
        rows="D-20",
        test="tests/unit/policy/test_policy_quorum_table.py::test_advise_answers_as_kudu_or_says_why_not",
        file="replica/policy/membership.py",
        function="_evict",
        before="""
            if len(tablet.config.voters) <= tablet.replication_factor:
        """,
        after="""
            lost = Health.FAILED_UNRECOVERABLE in tablet.health.values()
            if len(tablet.config.voters) <= tablet.replication_factor and not lost:
        """,
    ),
    Mutant(
        name="old replica leaves before the new one votes",
        rows="CC-36",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_move_removes_nothing_until_the_new_one_votes",
        file="replica/policy/membership.py",
        function="_evict",
        before="if len(tablet.config.voters) <= tablet.replication_factor:",
        after="if len(tablet.config.voters) < tablet.replication_factor:",
        more=(
            Edit(
                file="replica/policy/membership.py",
                function="may_leave",
                before="return healthy >= tablet.replication_factor",
                after="return healthy >= tablet.replication_factor - 1",
            ),
        ),
    ),
    Mutant(
        name="old replica leaves first",
        rows="TC-81",
        test="tests/unit/policy/test_policy_decide.py::test_decide_servers_equal_rf_with_one_bad_removes_nothing",
        file="replica/policy/membership.py",
        function="_evict",
        before="if len(tablet.config.voters) <= tablet.replication_factor:",
        after="if len(tablet.config.voters) < tablet.replication_factor:",
    ),
    Mutant(
        name="surplus is left standing",
        rows="TC-82",
        test="tests/unit/policy/test_policy_desired.py::test_decide_another_number_of_voters_is_reached_one_by_one",
        file="replica/policy/membership.py",
        function="_evict",
        before="if len(tablet.config.voters) <= tablet.replication_factor:",
        after="if len(tablet.config.voters) <= max(3, tablet.replication_factor):",
    ),
    Mutant(
        name="lost voter is removed at once",
        rows="CC-52, CC-51",
        test="tests/unit/policy/test_policy_witness.py::test_lost_voter_is_demoted_once_a_witness_votes_in_its_place",
        file="replica/policy/membership.py",
        function="_evict",
        before="if is_lost(tablet, member) and stand_in(tablet) is not None:",
        after="if is_lost(tablet, member) and stand_in(tablet) is member:",
    ),
    Mutant(
        name="marked leader is passed over",
        rows="D-22",
        test="tests/unit/policy/test_policy_quorum_table.py::test_advise_answers_as_kudu_or_says_why_not",
        file="replica/policy/membership.py",
        function="_evict",
        before="target = transfer_target(tablet, load, quiescing)",
        after="continue",
    ),
    Mutant(
        name="kept voter not heard leaves",
        rows="CC-47",
        test=(
            "tests/unit/policy/test_policy_membership.py::test_advise_a_kept_voter_that_was_not_heard_yet_is_waited_for"
        ),
        file="replica/policy/membership.py",
        function="_is_awaited",
        before="member) or (tablet.health_of(member.uuid) is Health.UNKNOWN and not member.replace)",
        after="member)",
    ),
    Mutant(
        name="silent learner waits for ever",
        rows="TC-80",
        test="tests/unit/policy/test_policy_desired.py::test_decide_an_added_member_that_stays_silent_leaves_by_itself",
        file="replica/policy/membership.py",
        function="_why_evict_non_voter",
        before="if tablet.health_of(member.uuid).failed:",
        after="if tablet.health_of(member.uuid).failed and not kept:",
    ),
    Mutant(
        name="standby is evicted",
        rows="D-21",
        test="tests/unit/policy/test_policy_quorum_table.py::test_advise_answers_as_kudu_or_says_why_not",
        file="replica/policy/membership.py",
        function="_why_evict_non_voter",
        before="if (member.promote or member.replace) and spare >= tablet.replication_factor:",
        after="if spare >= tablet.replication_factor:",
    ),
    Mutant(
        name="replica with rows leaves for a witness",
        rows="CC-52",
        test="tests/unit/policy/test_policy_witness.py::test_wanted_witness_stays_until_it_is_whole",
        file="replica/policy/membership.py",
        function="may_leave",
        before="m.replace) and not stands_in(m)",
        after="m.replace)",
    ),
    Mutant(
        name="full servers are filled on",
        rows="CN-03",
        test="tests/unit/policy/test_policy_places.py::test_server_with_room_for_one_replica_gets_it_and_no_second_one",
        file="replica/policy/placement.py",
        function="_best",
        before=" and s.has_room(load.get(s.uuid, 0))",
        after="",
    ),
    Mutant(
        name="new table fills a server beyond its limit",
        rows="CN-03",
        test="tests/unit/policy/test_policy_places.py::test_heaps_place_tablets_where_a_comparison_of_all_servers_does",
        file="replica/policy/placement.py",
        function="place_tablets",
        before="if alive[uuid].has_room(total + 1):",
        after="if True:",
    ),
    Mutant(
        name="load of a server that got a tablet stays",
        rows="CN-03",
        test="tests/unit/policy/test_policy_places.py::test_heaps_place_tablets_where_a_comparison_of_all_servers_does",
        file="replica/policy/placement.py",
        function="place_tablets",
        before="(of_table + 1, total + 1, uuid)",
        after="(of_table, total + 1, uuid)",
    ),
    Mutant(
        name="copies that fail make no server worse",
        rows="TC-65",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_server_where_copies_fail_stops_nobodys_healing",
        file="replica/policy/placement.py",
        function="_kind",
        before="return server.avoided, ",
        after="return False, ",
    ),
    Mutant(
        name="a tablets own bytes are not seen",
        rows="TC-65",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_disk_that_is_nearly_full_is_taken_last",
        file="replica/policy/placement.py",
        function="replacements_for",
        before="return _best(others, staying, load, tablet.bytes_on_disk)",
        after="return _best(others, staying, load, 0)",
    ),
    Mutant(
        name="plan fills a full server",
        rows="CN-03",
        test="tests/unit/policy/test_policy_rebalance.py::test_plan_fills_no_server_beyond_what_it_holds",
        file="replica/policy/rebalance.py",
        function="Layout.move",
        before="""
            self.held[target] += 1
        """,
        after="",
    ),
    Mutant(
        name="a full disk is as good as another",
        rows="TC-65",
        test="tests/unit/policy/test_policy_decide.py::test_decide_a_disk_that_is_nearly_full_is_taken_last",
        file="replica/policy/views.py",
        function="ServerView.nearly_full",
        before="self.disk_bytes_free - bytes_wanted < DISK_BYTES_SPARE",
        after="False",
    ),
    Mutant(
        name="promoted member is the surplus one",
        rows="TC-71",
        test="tests/unit/policy/test_policy_desired.py::test_decide_a_promoted_member_stays_and_another_leaves",
        file="replica/policy/desired_changes.py",
        function="_settled",
        before="return ChangeState.DONE if target.votes and (enough or expired) else None",
        after="return ChangeState.DONE if target.votes else None",
    ),
    Mutant(
        name="wanted voter beside the only one is evicted",
        rows="TC-71",
        test="tests/unit/policy/test_policy_desired_changes.py::test_desired_change_for_a_voter_beside_the_only_one_ends",
        file="replica/policy/membership.py",
        function="_evict",
        before="target = transfer_target(tablet, load, quiescing)",
        after="""
            if not member.replace:
                continue
            target = transfer_target(tablet, load, quiescing)
        """,
    ),
    Mutant(
        name="another surplus voter leaves than the named one",
        rows="TC-81",
        test="tests/unit/policy/test_policy_desired_changes.py::test_desired_change_to_remove_a_surplus_voter_removes_no_other",
        file="replica/policy/decide.py",
        function="_Evaluation.decide",
        before="wanted.kind in (ChangeKind.DEMOTE, ChangeKind.REMOVE)",
        after="wanted.kind is ChangeKind.DEMOTE",
    ),
    Mutant(
        name="everybody is healed by witnesses",
        rows="CC-57",
        test="tests/unit/policy/test_policy_witness.py::test_healing_without_witnesses_is_as_it_was",
        file="replica/policy/witnesses.py",
        function="wants_witness",
        before="tablet.by_witness and places",
        after="places",
    ),
    Mutant(
        name="one loss makes two witnesses",
        rows="CC-57",
        test="tests/unit/policy/test_policy_witness.py::test_one_loss_has_one_witness",
        file="replica/policy/witnesses.py",
        function="wants_witness",
        before="sum(not tablet.health_of(m.uuid).failed for m in taken)",
        after="0",
    ),
    Mutant(
        name="witness copies on beside the original",
        rows="CC-52",
        test=(
            "tests/unit/policy/test_policy_witness.py::test_original_that_returns_before_the_data_takes_its_place_back"
        ),
        file="replica/policy/witnesses.py",
        function="restored",
        before="promote=False, replace",
        after="promote=True, replace",
    ),
    Mutant(
        name="wanted leadership goes to a quiescing server",
        rows="OP-03",
        test="tests/unit/policy/test_policy_desired.py::test_no_leadership_goes_to_a_server_that_quiesces",
        file="replica/policy/decide.py",
        function="_Evaluation._grant",
        before=" or desired.to_uuid in self.quiescing:",
        after=":",
    ),
    Mutant(
        name="leaving leader hands over to a quiescing server",
        rows="OP-03",
        test="tests/unit/policy/test_policy_desired.py::test_no_leadership_goes_to_a_server_that_quiesces",
        file="replica/policy/membership.py",
        function="transfer_target",
        before="if m.uuid not in quiescing",
        after="if m.uuid",
    ),
    Mutant(
        name="data center counts as little as a rack",
        rows="OP-05",
        test="tests/unit/policy/test_policy_places.py::test_replicas_are_spread_over_wider_locations_first",
        file="replica/policy/placement.py",
        function="_merit",
        before="tuple(used[place] for place in places)",
        after="(used[places[-1]],)",
    ),
    Mutant(
        name="rack does not count",
        rows="OP-05",
        test="tests/unit/policy/test_policy_places.py::test_replicas_are_spread_over_wider_locations_first",
        file="replica/policy/placement.py",
        function="_merit",
        before="tuple(used[place] for place in places)",
        after="(used[places[0]],)",
    ),
    Mutant(
        name="move leaves a data center",
        rows="OP-05",
        test="tests/unit/policy/test_policy_rebalance_moves.py::test_replicas_move_from_the_fuller_server_to_the_emptier_one",
        file="replica/policy/rebalance.py",
        function="_spread",
        before="return len({each[0] for each in known}), len(known)",
        after="return 0, len(known)",
    ),
)
