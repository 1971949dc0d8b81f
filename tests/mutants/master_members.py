"""Mutants: masters that are added to the running group, removed, and found again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/master/test_master_members.py"
PROCESS = "tests/process/test_master_members_process.py"
LISTS = "tests/unit/master/test_master_lists.py"
RULES = "replica/master/group/changing_members.py"
REFUSED = f"{UNIT}::test_master_that_must_not_be_added_is_refused"

MUTANTS = (
    Mutant(
        name="follower answers look-ups however old its catalog is",
        test=f"{LISTS}::test_follower_answers_look_ups_from_a_catalog_that_is_new_enough",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.check_fresh",
        before="or time < needed",
        after="",
    ),
    Mutant(
        name="follower answers look-ups of clients that allow no staleness",
        test=f"{LISTS}::test_follower_answers_look_ups_from_a_catalog_that_is_new_enough",
        file="replica/master/requests/master_service.py",
        function="MasterService.GetTable",
        before="request.staleness_us and not",
        after="not",
    ),
    Mutant(
        name="client looks failed locations up at a follower again",
        test=f"{LISTS}::test_first_look_up_may_be_of_any_master_and_the_next_is_of_the_leading_one",
        file="replica/client/client.py",
        function="Client._look_up",
        before="staleness_us and not self.locator.version(table_name)",
        after="staleness_us",
    ),
    Mutant(
        name="promise of the leader counts before it is applied",
        test=(
            "tests/unit/raft_driver/test_driver_times.py::"
            "test_follower_is_as_new_as_the_last_promise_that_it_has_applied"
        ),
        file="replica/raft_driver/times.py",
        function="Times.heard",
        before="if applied_index >= self._safe_time[0] else self._kept",
        after="if applied_index >= 0 else self._kept",
    ),
    Mutant(
        name="new master votes before it has the catalog",
        rows="MF-04",
        test=f"{UNIT}::test_waiting_master_is_added_without_a_vote_and_once",
        file=RULES,
        function="addition",
        before="Member(found.uuid, (address,), votes=False, promote=True)",
        after="Member(found.uuid, (address,))",
    ),
    *(
        Mutant(
            name=name,
            rows="MF-04",
            test=REFUSED,
            file=RULES,
            function="addition",
            before=before,
            after=after,
        )
        for name, before, after in (
            ("master that joins another cluster is added", 'if joins not in ("", cluster_id):', "if False:"),
            ("removed master is added again with its uuid", "if found.cluster_id:", "if False:"),
            (
                "master that forms a group of its own is added",
                "if not found.joins or found.advertised is None:",
                "if found.advertised is None and found.joins:",
            ),
        )
    ),
    Mutant(
        name="removal leaves no living majority",
        rows="MF-03, MF-04",
        test=f"{UNIT}::test_removal_leaves_a_living_majority",
        file=RULES,
        function="removal",
        before="if len(alive) <= len(rest) // 2:",
        after="if not alive:",
    ),
    Mutant(
        name="members are asked once only",
        rows="MF-04",
        test=f"{UNIT}::test_members_that_do_not_answer_at_once_are_asked_again",
        file="replica/master/requests/changing_masters.py",
        function="remove_master",
        before="if turn == ASKED_TIMES:",
        after="if True:",
    ),
    Mutant(
        name="the only master is asked for others again",
        rows="MF-04",
        test=f"{UNIT}::test_removal_of_the_only_master_is_refused_at_once",
        file="replica/master/requests/changing_masters.py",
        function="remove_master",
        before="except MembersSilent:",
        after="except Refused:",
    ),
    Mutant(
        name="older masters are not asked for",
        rows="MF-04",
        test=f"{UNIT}::test_member_of_an_older_build_that_answers_forbids_a_change",
        file=RULES,
        function="refuse_older",
        before="if b is not None and not b.takes_changes",
        after="if False",
    ),
    Mutant(
        name="an outdated answer ends a master",
        rows="MF-04, MF-10",
        test=f"{UNIT}::test_only_a_later_config_of_a_member_proves_a_removal",
        file="replica/master/group/leaving.py",
        function="leaves_out",
        before="seen.config.opid > own.opid",
        after="True",
    ),
    Mutant(
        name="another cluster's answer ends a master",
        rows="MF-04, MF-10",
        test=f"{UNIT}::test_only_a_later_config_of_a_member_proves_a_removal",
        file="replica/master/group/leaving.py",
        function="leaves_out",
        before="seen.uuid == asked and seen.cluster_id == cluster_id",
        after="seen.uuid == asked",
    ),
    Mutant(
        name="options of the first start stop a changed group",
        rows="MF-05",
        test=f"{UNIT}::test_changed_group_counts_more_than_the_options_of_its_first_start",
        file="replica/master/group/startup_checks.py",
        function="check_config",
        before="changed = config.opid.index > 0 and not config.unsafe",
        after="changed = False",
    ),
    Mutant(
        name="heartbeats to former masters go on",
        rows="MF-32",
        test=(
            "tests/unit/server/test_other_masters.py::"
            "test_heartbeats_to_a_former_master_end_once_the_leading_one_does_not_name_it"
        ),
        file="replica/server/heartbeats/other_masters.py",
        function="former_masters",
        before="former.union(before).difference(now)",
        after="former",
    ),
    Mutant(
        name="server forgets the masters that replaced those of its options",
        rows="MF-04, MF-32",
        test=f"{PROCESS}::test_each_of_three_masters_is_replaced_while_rows_are_written_and_read",
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats.run_forever",
        before="(*self._manager.options.masters, *self._listed)",
        after="self._manager.options.masters",
    ),
    Mutant(
        name="masters give addresses of any server",
        rows="IN-50, CN-34",
        test="tests/unit/master/test_master_found.py::test_masters_give_addresses_of_members_alone",
        file="replica/master/requests/master_service.py",
        function="MasterService.Heartbeat",
        before="if state.catalog.tablets_with(uuid)]",
        after="if uuid]",
    ),
    Mutant(
        name="another cluster's config is learned",
        rows="MF-04, IN-50",
        test="tests/unit/master/test_master_found.py::test_master_that_was_away_learns_a_later_config_from_the_masters_that_it_knows",
        file="replica/master/group/leaving.py",
        function="learned",
        before=" and seen.cluster_id == cluster_id",
        after="",
    ),
)
