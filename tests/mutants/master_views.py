"""Mutants: what the masters know."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

KEPT = "tests/unit/master/test_master_kept_view.py"
KEPT_INPUTS = "tests/unit/master/test_master_kept_inputs.py"
KEPT_WALK = f"{KEPT}::test_kept_view_decides_what_a_walk_over_all_tablets_decides"
KEPT_COST = f"{KEPT_INPUTS}::test_look_costs_what_changed_and_not_what_stands"
KEPT_EACH = f"{KEPT_INPUTS}::test_each_input_of_the_policy_marks_what_it_changes"
REPORTER = "tests/unit/master/test_master_reporter.py"
DROPPED_ONCE = f"{REPORTER}::test_dropped_tablets_are_told_once_and_cost_nothing_later"

WALKLESS = "tests/unit/master/test_master_forgetting.py::test_request_about_one_server_walks_over_no_tablets_of_others"
LOOK_UPS = "tests/unit/master/test_master_look_ups.py"

PAUSES = "tests/unit/master/test_master_collection_pauses.py"
MUTANTS = (
    Mutant(
        name="wrong name has no next step",
        rows="none",
        test="tests/unit/api/test_api_refusals.py::test_refusal_of_what_is_not_there_says_how_to_see_what_is",
        file="replica/master/catalog/tables.py",
        function="find_table",
        before="; `nyala table list` shows the tables",
        after="",
        on_disk=True,
    ),
    Mutant(
        name="consumer of a topic's ends warns",
        rows="none",
        test="tests/unit/api/test_api_refusals.py::test_no_consumer_without_a_group_commits",
        file="pipeline/topics.py",
        function="Topics.offsets",
        before=", enable_auto_commit=False",
        after="",
        on_disk=True,
    ),
    Mutant(
        name="long collection visits everything again",
        test=f"{PAUSES}::test_what_a_long_collection_found_alive_is_not_visited_again",
        file="replica/master/collection_pauses.py",
        function="CollectionPauses._note",
        before="gc.freeze()",
        after="pass",
    ),
    Mutant(
        name="short collection keeps objects for good",
        test=f"{PAUSES}::test_short_collection_leaves_everything_to_the_next_one",
        file="replica/master/collection_pauses.py",
        function="CollectionPauses._note",
        before="if took_s > LONG_S:",
        after="if took_s >= LONG_S:",
    ),
    Mutant(
        name="partial collections are measured",
        test=f"{PAUSES}::test_short_collection_leaves_everything_to_the_next_one",
        file="replica/master/collection_pauses.py",
        function="CollectionPauses._note",
        before='if info["generation"] < 2:',
        after='if info["generation"] < 1:',
    ),
    Mutant(
        name="view of a tablet refers to itself",
        test=f"{PAUSES}::test_records_and_reports_of_a_master_form_no_cycles",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._look_at",
        before="self.tablets[tablet_id] = view",
        after="self.tablets[tablet_id] = view; object.__setattr__(view, 'own', view)",
    ),
    Mutant(
        name="collections are watched for ever",
        test=f"{PAUSES}::test_collections_are_watched_only_while_the_master_runs",
        file="replica/master/collection_pauses.py",
        function="CollectionPauses.__exit__",
        before="gc.callbacks.remove(self._note)",
        after="pass",
    ),
    Mutant(
        name="each server's report of a tablet has a config of its own",
        rows="IN-80",
        test="tests/unit/master/test_master_belief.py::test_equal_configs_of_a_tablet_are_converted_once",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._with_config",
        before="if replica.config_wire == wire",
        after="if False",
    ),
    Mutant(
        name="tick follows a long one at once",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_inquiries.py::"
            "test_tick_that_looked_at_many_tablets_is_followed_by_a_longer_pause"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.next_in_s",
        before="self._state.kept.refreshes - self._refreshes, self._state.kept.refreshes",
        after="0, self._state.kept.refreshes",
    ),
    Mutant(
        name="tablets of a server keep those of former configs",
        test=KEPT_WALK,
        file="replica/master/catalog/catalog.py",
        function="Catalog._index",
        before="self._of_server[member.uuid].pop(tablet_id, None)",
        after="pass",
    ),
    Mutant(
        name="believed memberships keep those of former configs",
        test=KEPT_WALK,
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before="self._member_of[uuid].discard(tablet_id)",
        after="pass",
    ),
    Mutant(
        name="live replica outside of the config does not keep its server from being empty",
        test=KEPT_WALK,
        file="replica/master/tablets/draining.py",
        function="tablets_on",
        before=", *reported}",
        after="}",
    ),
    Mutant(
        name="tablet that nobody reported is not counted",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView._is_unreported",
        before="record.formed and",
        after="record.formed and False and",
    ),
    Mutant(
        name="forgotten server is sought in all believed configs",
        test=WALKLESS,
        rows="IN-80",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._forget_server",
        before="if self.member_of(server.uuid):",
        after="if any(t.config and t.config.member(server.uuid) for t in self.tablets.values()):",
    ),
    Mutant(
        name="new leader counts nothing as unreported before its first look",
        test="tests/unit/master/test_master_desired.py::test_retired_server_is_wanted_empty_by_every_later_master",
        file="replica/master/tablets/kept_view.py",
        function="KeptView.unreported",
        before="return self._catalog().count(TABLET)",
        after="return 0",
    ),
    Mutant(
        name="look-up tells of the leader before the last report",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView.is_current",
        before="or not touched.isdisjoint(numbers)",
        after="or len(touched) < 0",
    ),
    Mutant(
        name="look-up tells what the last look but one saw",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView.is_current",
        before="all(map(eq, map(self._number_of.get, numbers), numbers.values()))",
        after="len(numbers) >= 0",
    ),
    Mutant(
        name="look-up of a master that does not tick is kept",
        test=f"{LOOK_UPS}::test_page_is_kept_only_while_the_master_looks",
        file="replica/master/tablets/kept_view.py",
        function="KeptView.is_current",
        before="if not recent or touched",
        after="if touched",
    ),
    Mutant(
        name="state of a moment is kept",
        test=f"{LOOK_UPS}::test_what_a_look_has_not_seen_is_not_kept",
        file="replica/master/tablets/kept_view.py",
        function="KeptView.number",
        before="return self._number_of[tablet_id] if same else None",
        after="return self._number_of[tablet_id] if same or True else None",
    ),
    Mutant(
        name="age of what is unproven stands still",
        test=f"{LOOK_UPS}::test_unproven_config_is_told_with_its_age",
        file="replica/master/tablets/kept_view.py",
        function="KeptView.number",
        before="or soft.tablets[tablet_id].later is not None",
        after="or soft.tablets[tablet_id].config is None",
    ),
    Mutant(
        name="look-up does not know what is desired",
        test=f"{LOOK_UPS}::test_look_up_encodes_what_changed_and_not_the_table",
        file="replica/master/catalog/catalog.py",
        function="Catalog._count",
        before="self.get(TABLET, name) if group == group_of(DESIRED_CHANGE) else None",
        after="None",
    ),
    Mutant(
        name="look-up does not know its table's number of voters",
        test=f"{LOOK_UPS}::test_look_up_encodes_what_changed_and_not_the_table",
        file="replica/master/catalog/catalog.py",
        function="Catalog._count",
        before="if tablet is not None else name] += 1",
        after='if tablet is not None else ""] += 1',
    ),
    Mutant(
        name="look-up encodes the whole table",
        test=f"{LOOK_UPS}::test_look_up_encodes_what_changed_and_not_the_table",
        file="replica/master/tablets/look_ups.py",
        function="LookUps.parts",
        before="if part is None or number is None or part.number != number or not same:",
        after="if True:",
    ),
    Mutant(
        name="part of a page outlives its record",
        test=KEPT_WALK,
        file="replica/master/tablets/look_ups.py",
        function="LookUps.parts",
        before="or part.number != number or not same:",
        after="or part.number != number:",
    ),
    Mutant(
        name="part of a page outlives its look",
        test=KEPT_WALK,
        file="replica/master/tablets/look_ups.py",
        function="LookUps.parts",
        before="or part.number != number or not same:",
        after="or not same:",
    ),
    Mutant(
        name="page with a part that may have changed is told again",
        test=f"{LOOK_UPS}::test_unproven_config_is_told_with_its_age",
        file="replica/master/tablets/look_ups.py",
        function="LookUps.get",
        before="or len(page.numbers) < len(page.parts):",
        after="or len(page.numbers) > len(page.parts):",
    ),
    Mutant(
        name="pages fill the memory",
        test=f"{LOOK_UPS}::test_kept_pages_are_bounded_in_bytes",
        file="replica/master/tablets/look_ups.py",
        function="LookUps.keep",
        before="while self._bytes > limits.LOOK_UPS_BYTES_MAX:",
        after="while self._bytes < 0:",
    ),
    Mutant(
        name="sizes that came too early are never told",
        test=f"{REPORTER}::test_sizes_wait_for_a_while_and_a_dropped_tablet_is_told_once",
        file="replica/master/decisions/reporter.py",
        function="Reporter._compare",
        before="self._sized[key] = None",
        after="pass",
    ),
    Mutant(
        name="tablets dropped before a connection are never told",
        test=DROPPED_ONCE,
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="{*(t for t, _ in self._state.catalog.dropped()), *kept.tablets}",
        after="set(kept.tablets)",
    ),
    Mutant(
        name="dropped tablet is told at each look",
        test=DROPPED_ONCE,
        file="replica/master/decisions/reporter.py",
        function="Reporter._compare",
        before="if key not in self._gone:",
        after="if key:",
    ),
    Mutant(
        name="tablets that are gone for good are remembered",
        test=DROPPED_ONCE,
        file="replica/master/decisions/reporter.py",
        function="Reporter._compare",
        before="self._gone.discard(key)  # if the record of a dropped tablet was removed",
        after="pass",
    ),
    Mutant(
        name="overwritten report stays overwritten",
        test=f"{REPORTER}::test_servers_come_first_and_every_record_comes_once",
        file="replica/master/decisions/reporter.py",
        function="Reporter.repeat",
        before="self._due[key] = None",
        after="self._due.pop(key, None)",
    ),
    Mutant(
        name="record that is old is not published again",
        test=f"{REPORTER}::test_every_record_is_published_again_within_its_time",
        file="replica/master/decisions/reporter.py",
        function="Reporter.take",
        before="TABLET_WITHIN_S * 800_000",
        after="TABLET_WITHIN_S * 1_800_000",
    ),
    Mutant(
        name="server's record is published only when it changes",
        test=f"{REPORTER}::test_every_record_is_published_again_within_its_time",
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="SERVER_WITHIN_S * 500_000",
        after="SERVER_WITHIN_S * 1_500_000",
    ),
    Mutant(
        name="cluster at rest is compared again and again",
        test=f"{REPORTER}::test_every_record_is_published_again_within_its_time",
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="self._due.update(dict.fromkeys(refreshed - self._untold))",
        after="self._due.update(dict.fromkeys(kept.tablets))",
    ),
    Mutant(
        name="record promises what the rate cannot keep",
        test=f"{REPORTER}::test_too_many_records_for_the_rate_promise_less",
        file="replica/master/decisions/reporter.py",
        function="Reporter._numbers",
        before="within_s = max(within_s, 5 * count // (4 * self._state.options.reports_per_second_max))",
        after="pass",
    ),
    Mutant(
        name="old records wait for sizes",
        test=f"{REPORTER}::test_a_change_comes_before_old_records_and_those_before_sizes",
        file="replica/master/decisions/reporter.py",
        function="Reporter._publish",
        before="self._told.move_to_end(key)",
        after="self._told.move_to_end(key, last=False)",
    ),
    Mutant(
        name="jobs are not told of retirements",
        test=f"{REPORTER}::test_records_of_servers_have_what_a_plan_needs",
        file="replica/master/decisions/reporter.py",
        function="Reporter._server",
        before='"retired": server.draining,',
        after="",
    ),
    Mutant(
        name="servers lost before a failover have no record",
        test=f"{REPORTER}::test_what_a_new_leader_never_heard_of_is_reported_as_silent",
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="known = [*servers, *self._silent(servers)]",
        after="known = [*servers]",
    ),
    Mutant(
        name="new leader reports at once what it never heard of",
        test=f"{REPORTER}::test_what_a_new_leader_never_heard_of_is_reported_as_silent",
        file="replica/master/decisions/reporter.py",
        function="Reporter._silent",
        before="if self._led_long:",
        after="if True:",
    ),
    Mutant(
        name="tablets lost before a failover have no record",
        test=f"{REPORTER}::test_what_a_new_leader_never_heard_of_is_reported_as_silent",
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="self._due.update(dict.fromkeys(kept.unheard))",
        after="pass",
    ),
    Mutant(
        name="forgotten server's record stays",
        test=f"{REPORTER}::test_what_a_new_leader_never_heard_of_is_reported_as_silent",
        file="replica/master/decisions/reporter.py",
        function="Reporter.note",
        before="self._servers_due[key] = None  # it was forgotten",
        after="pass",
    ),
    Mutant(
        name="servers that lie about their load end a tick",
        test=f"{REPORTER}::test_a_server_that_lies_about_its_load_ends_no_tick",
        file="replica/master/decisions/reporter.py",
        function="Reporter._rates",
        before="min(n, LONG_MAX)",
        after="n",
    ),
    Mutant(
        name="number of a foreign report is not checked",
        test=(
            "tests/unit/decision_executor/test_topic_records.py::"
            "test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong"
        ),
        file="replica/decision_executor/records.py",
        function="_value_problems",
        before='yield f"{key} is negative: {number}" if number < 0 else ""',
        after='yield ""',
    ),
    Mutant(
        name="busy tablets use up the rate",
        test=f"{REPORTER}::test_busy_tablets_use_a_tenth_of_the_rate",
        file="replica/master/decisions/reporter.py",
        function="Reporter.take",
        before="min(most - len(out), max(1, most // SIZES_SHARE))",
        after="most - len(out)",
    ),
    Mutant(
        name="all reports are made in one step",
        test=f"{REPORTER}::test_reports_are_made_in_bounded_steps",
        file="replica/master/decisions/decision_sinks.py",
        function="slices_of",
        before="[REPORTS_PER_STEP] * whole + [rest] * (rest > 0)",
        after="[whole * REPORTS_PER_STEP + rest]",
    ),
    Mutant(
        name="silent server's tablets are not looked at",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="if before.get(uuid) != standing:",
        after="if uuid not in before:",
    ),
    Mutant(
        name="view never changes by time alone",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="while self._times and self._times[0][0] <= mono_us:",
        after="while self._times and self._times[0][0] < 0:",
    ),
    Mutant(
        name="factor of a table is seen by no tablet",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="elif group == group_of(TABLE):",
        after='elif group == "":',
    ),
    Mutant(
        name="tablets of a retired server stay at rest",
        test=f"{KEPT_EACH}[retirement_undone]",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="(heard, uuid in draining, uuid in works)",
        after="(heard, uuid in works)",
    ),
    Mutant(
        name="end of maintenance is not looked at",
        test=f"{KEPT_EACH}[maintenance_ends_by_time]",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="(heard, uuid in draining, uuid in works)",
        after="(heard, uuid in draining)",
    ),
    Mutant(
        name="maintenance ends by the clock of silences",
        test=f"{KEPT_EACH}[maintenance_ends_by_a_clock_that_is_set]",
        file="replica/master/tablets/kept_view.py",
        function="KeptView.refresh",
        before="in_maintenance(catalog, wall_us)",
        after="in_maintenance(catalog, mono_us)",
    ),
    Mutant(
        name="standing of a server without tablets is kept",
        test=f"{KEPT_INPUTS}::test_server_that_had_no_tablet_for_a_while_is_compared_anew",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="before, self._standing = self._standing, {}",
        after="before = self._standing",
    ),
    Mutant(
        name="times of one tablet pile up",
        test=f"{KEPT_INPUTS}::test_one_time_is_kept_of_each_tablet_however_often_it_is_looked_at",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._refresh_at",
        before="if at is not None and (known is None or at < known):",
        after="if at is not None:",
    ),
    Mutant(
        name="records tell former addresses",
        test=f"{KEPT_EACH}[address]",
        file="replica/master/tablets/view.py",
        function="standing_of",
        before="server.last_report.location, server.addresses",
        after="server.last_report.location",
    ),
    Mutant(
        name="records tell former locations",
        test=f"{KEPT_EACH}[location]",
        file="replica/master/tablets/view.py",
        function="standing_of",
        before="server.last_report.booting, server.last_report.location",
        after="server.last_report.booting",
    ),
    Mutant(
        name="servers of which copies fail are as before",
        test=f"{KEPT_EACH}[copies_fail]",
        file="replica/master/tablets/view.py",
        function="standing_of",
        before="server.back_us, failing",
        after="server.back_us",
    ),
    Mutant(
        name="answers of members are not looked at",
        test="tests/unit/master/test_master_inquiries.py::test_masters_tick_keeps_what_changed_and_asks_only_then",
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._ask",
        before="self._soft().touched.add(tablet_id)",
        after="self._soft().touched.discard(tablet_id)",
    ),
    Mutant(
        name="master that only follows keeps all keys",
        test=f"{KEPT_INPUTS}::test_keys_that_changed_are_kept_within_a_bound",
        file="replica/master/catalog/catalog.py",
        function="Catalog._index",
        before="if len(self._changed) <= CHANGED_MAX else None",
        after="if len(self._changed) >= 0 else None",
    ),
    Mutant(
        name="refresh of views leaves no time to heartbeats",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_refresh_of_views_leaves_half_of_the_time_to_heartbeats"
        ),
        file="replica/master/state.py",
        function="MasterState.refresh_views_unless",
        before="await asyncio.sleep((self.mono_us - began_us) / 1e6)",
        after="await asyncio.sleep(0)",
    ),
    Mutant(
        name="look visits everything in one step",
        test="tests/unit/master/test_master_loop_steps.py::test_requests_after_thousands_of_changes_are_no_long_step_of_the_loop",
        file="replica/master/state.py",
        function="MasterState.refresh_views_unless",
        before="self.clock.wall_us(), REFRESHES_PER_STEP",
        after="self.clock.wall_us()",
    ),
    Mutant(
        name="new table visits everything in one step",
        test="tests/unit/master/test_master_loop_steps.py::test_requests_after_thousands_of_changes_are_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.CreateTable",
        before="change_aside(created, state.refresh_views)",
        after="change_aside(created)",
    ),
    Mutant(
        name="numbers of voters visit everything in one step",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_number_of_voters_of_the_largest_table_is_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.SetReplication",
        before="change(wanted, self.state.refresh_views)",
        after="change(wanted)",
    ),
    Mutant(
        name="change visits what the one before it changed in one step",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_number_of_voters_of_the_largest_table_is_no_long_step_of_the_loop",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._changed_for",
        before="task = self._loop.create_task(self._change(prepare, first, aside=aside))",
        after=(
            "await first() if first is not None else None\n"
            "        task = self._loop.create_task(self._change(prepare, None, aside=aside))"
        ),
    ),
    Mutant(
        name="new leadership goes on with old views",
        test=KEPT_WALK,
        file="replica/master/tablets/kept_view.py",
        function="KeptView._gather",
        before="if changed is None or soft.touched is not self._touched:",
        after="if changed is None:",
    ),
    Mutant(
        name="lost replica is at rest",
        test=KEPT_WALK,
        file="replica/policy/membership.py",
        function="is_at_rest",
        before="and not any(tablet.health_of(m.uuid).failed for m in members)",
        after="and bool(members)",
    ),
    Mutant(
        name="changed report is not looked at",
        test=KEPT_WALK,
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take",
        before="if not told_before or before != replica or was",
        after="if not told_before or was",
    ),
    Mutant(
        name="server that starts has open replicas",
        test=KEPT_WALK,
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.heartbeat",
        before="turned = beat.booting is not server.counted_booting",
        after="turned = False",
    ),
    Mutant(
        name="replica that a config leaves out gets no order",
        test=KEPT_WALK,
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before="for uuid in self._reporters.get(tablet_id, ()):",
        after="for uuid in ():",
    ),
    Mutant(
        name="formed tablet waits to be created",
        test=KEPT_WALK,
        file="replica/master/catalog/catalog.py",
        function="Catalog._index",
        before="waiting.discard(tablet_id)",
        after="waiting.add(tablet_id)",
    ),
    Mutant(
        name="tablet that exists again counts as dropped",
        test=KEPT_WALK,
        file="replica/master/catalog/catalog.py",
        function="Catalog._index",
        before="self._dropped.pop(tablet_id, None)",
        after="self._dropped.setdefault(tablet_id, tablet)",
    ),
    Mutant(
        name="repeated report is looked at",
        test=KEPT_COST,
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take",
        before="if not told_before or before != replica or was",
        after="if told_before or not told_before or was",
    ),
    Mutant(
        name="tombstone of a former generation counts as a replica",
        rows="CC-46",
        test="tests/unit/master/test_master_soft_state.py::test_view_tells_who_holds_a_replica_of_a_former_generation",
        file="replica/master/tablets/view.py",
        function="_of_former_generation",
        before="if replica is not None and replica.data_state in LIVE",
        after="if replica is not None",
    ),
    Mutant(
        name="former generation is not seen",
        rows="CC-46",
        test="tests/unit/master/test_master_soft_state.py::test_view_tells_who_holds_a_replica_of_a_former_generation",
        file="replica/master/tablets/view.py",
        function="_of_former_generation",
        before="if generation_of(told.opid.term) < generation",
        after="if generation_of(told.opid.term) > generation",
    ),
    Mutant(
        name="other servers replicas are reported",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_impossible_reports_are_refused_whole",
        file="replica/rpc/heartbeats.py",
        function="check_status",
        before='if replica.uuid not in ("", server_uuid):',
        after="if len(replica.uuid) > 99:",
    ),
    Mutant(
        name="config of a term nobody entered",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_impossible_configs_tell_nothing",
        file="replica/master/heartbeats/belief.py",
        function="reported_config",
        before=" or config.opid.term > report.term",
        after="",
    ),
    Mutant(
        name="configs are ordered by index alone",
        rows="CC-46",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_forced_config_of_a_lower_index_outranks_what_lost_members_committed"
        ),
        file="replica/master/heartbeats/belief.py",
        function="newer",
        before="return a > b",
        after="return a.index > b.index",
    ),
    Mutant(
        name="first reported config stays",
        rows="TC-02",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_a_config_changed_behind_the_masters_is_followed_and_not_reverted"
        ),
        file="replica/master/heartbeats/belief.py",
        function="believed",
        before="c.opid, config.opid",
        after="config.opid, c.opid",
    ),
    Mutant(
        name="anybody tells of a config",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_only_a_member_tells_of_a_later_config",
        file="replica/master/heartbeats/belief.py",
        function="believed",
        before="config.opid) and config.member(uuid) is not None",
        after="config.opid)",
    ),
    Mutant(
        name="anybody leads",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_server_that_is_no_member_changes_nothing_of_a_tablet",
        file="replica/master/heartbeats/belief.py",
        function="may_lead",
        before="return member is not None and member.votes",
        after="return member is None or member.votes",
    ),
    Mutant(
        name="learner leads",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_leader_is_a_voter_by_its_own_word_and_in_no_lower_term",
        file="replica/master/heartbeats/belief.py",
        function="may_lead",
        before="return member is not None and member.votes",
        after="return member is not None",
    ),
    Mutant(
        name="metrics leave skipped records out",
        rows="IN-91",
        test="tests/unit/master/test_master_topics.py::test_metrics_of_a_master_say_what_its_status_says_of_kafka",
        file="replica/master/metrics.py",
        function="kafka_families",
        before="for each in link.state.all_skipped():",
        after="for each in link.state.all_skipped()[:0]:",
    ),
    Mutant(
        name="another process keeps its admission",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_heartbeat_counts_only_if_the_server_sent_it",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission.admit",
        before="if known is not None and known.addresses == told and known.process == beat.process:",
        after="if known is not None and known.addresses == told:",
    ),
    Mutant(
        name="applicants are not waited for",
        rows="IN-43",
        test="tests/unit/infra/test_registered_servers.py::test_table_that_comes_before_its_servers_count_waits_for_them",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission.heard_within",
        before="return any(c.heard_us > since_us for c in self._applicants)",
        after="return any(c.heard_us > since_us + recent_us for c in self._applicants)",
    ),
    Mutant(
        name="known servers wait for calls to strangers",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_nobody_keeps_a_server_out_that_starts_again",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="async with self._applicants.calls_of(applicant), self._calls[applicant.listed]:",
        after="async with self._applicants.calls_of(applicant), self._calls[False]:",
    ),
    Mutant(
        name="one host holds all calls",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_one_host_holds_few_calls",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="async with self._applicants.calls_of(applicant), self._calls[applicant.listed]:",
        after="async with self._calls[applicant.listed]:",
    ),
    Mutant(
        name="stranger that listens nowhere is a server",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_server_counts_once_it_answered_at_its_address",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="if why := await self._absent(address, applicant, cluster_id):",
        after="if False and (why := await self._absent(address, applicant, cluster_id)):",
    ),
    Mutant(
        name="heartbeat alone makes a server",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_server_counts_once_it_answered_at_its_address",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="if why := await self._absent(address, applicant, cluster_id):",
        after="if False and (why := await self._absent(address, applicant, cluster_id)):",
    ),
    Mutant(
        name="former address is looked up once",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_of_two_that_give_one_uuid_at_once_one_counts",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="!= (former := self._former(applicant)):  # another one of its uuid may be admitted meanwhile",
        after="is None and (former := self._former(applicant)) is not None:",
    ),
    Mutant(
        name="new address counts beside the former one",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_changed_address_counts_only_if_the_former_one_is_gone",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="if at := await self._elsewhere(applicant, former, cluster_id):",
        after="if at := await self._elsewhere(applicant, (), cluster_id):",
    ),
    Mutant(
        name="process counts only with its caller",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_process_counts_though_its_caller_hung_up",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="now_us, c.process",
        after="now_us",
    ),
    Mutant(
        name="anybody speaks under a servers uuid",
        rows="IN-41, IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_heartbeat_counts_only_if_the_server_sent_it",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._absent",
        before="is not False",
        after="or not same",
    ),
    Mutant(
        name="new leader asks nobody else",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_new_leader_asks_where_the_catalog_says_that_a_server_listens"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._former",
        before="former = [*home] if known is None or known.instead_of else []",
        after="former = [*home] if known is not None and known.instead_of else []",
    ),
    Mutant(
        name="who came while a server was down keeps its place",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._former",
        before="if known is not None and not (known.instead_of and {*applicant.addresses} <= {*home}):",
        after="if known is not None:",
    ),
    Mutant(
        name="who came while a server was down locks it out",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_whole_master_that_hears_lies_under_the_uuids_of_stopped_servers_believes_them_when_they_are_back"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._former",
        before="if known is not None and not (known.instead_of and {*applicant.addresses} <= {*home}):",
        after="if known is not None:",
    ),
    Mutant(
        name="server that comes elsewhere takes the place of any",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._former",
        before="{*applicant.addresses} <= {*home}",
        after="True",
    ),
    Mutant(
        name="every address is proven",
        rows="IN-41, IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="instead_of = () if {*c.addresses} <= {*home} else",
        after="instead_of = () if True else",
    ),
    Mutant(
        name="address is proven at once",
        rows="IN-41, IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._is_proven",
        before="counted_us >= limits.SERVER_ADDRESS_PROVEN_US",
        after="counted_us >= 0",
    ),
    Mutant(
        name="address is never proven",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._is_proven",
        before="counted_us >= limits.SERVER_ADDRESS_PROVEN_US or ",
        after="",
    ),
    Mutant(
        name="another address is proven with the former one",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="server.addresses, server.placed_us = addresses, now_us",
        after="server.addresses = addresses",
    ),
    Mutant(
        name="who came while servers were down testifies",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_whole_master_that_hears_lies_under_the_uuids_of_stopped_servers_believes_them_when_they_are_back"
        ),
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._answer",
        before="or not server.addresses or server.instead_of:",
        after="or not server.addresses:",
    ),
    Mutant(
        name="address that is not proven goes into the catalog",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_whole_master_that_hears_lies_under_the_uuids_of_stopped_servers_believes_them_when_they_are_back"
        ),
        file="replica/master/state.py",
        function="MasterState.places_of",
        before="return known.recorded_at if known",
        after="return known.addresses if known",
    ),
    Mutant(
        name="address that is not proven goes into a new tablet",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_does_not_make_its_replicas_failed_or_move_the_records"
        ),
        file="replica/master/tablets/view.py",
        function="server_view",
        before="member=Member(s.uuid, s.recorded_at)",
        after="member=s.member",
    ),
    Mutant(
        name="who came while a server was down has its replicas replaced",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_does_not_make_its_replicas_failed_or_move_the_records"
        ),
        file="replica/master/tablets/view.py",
        function="_reports_failed",
        before="if server is None or server.instead_of:",
        after="if server is None:",
    ),
    Mutant(
        name="who came while a server was down has it avoided",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_does_not_make_its_replicas_failed_or_move_the_records"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="ServerState.copies_fail",
        before="() if self.instead_of else self.last_report.copies_failing",
        after="self.last_report.copies_failing",
    ),
    Mutant(
        name="who came while a server was down tells of a config",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before="proven if any(map(config.member, proven)) else state.told",
        after="state.told",
    ),
    Mutant(
        name="servers that all moved tell of no config",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before="proven if any(map(config.member, proven)) else state.told",
        after="proven",
    ),
    Mutant(
        name="far term of one that is not proven outlasts it",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._hear_of_leader",
        before="replica.term if proven else -1",
        after="replica.term",
    ),
    Mutant(
        name="who came while a server was down names a leader",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._hear_of_leader",
        before="member = proven and state.config",
        after="member = state.config",
    ),
    Mutant(
        name="who came while a server was down leads",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._replaces",
        before="return term >= state.leader_term and silent_us > LEADER_SILENT_US",
        after="return term >= state.leader_term",
    ),
    Mutant(
        name="server that moved never leads",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._replaces",
        before="return term >= state.leader_term and silent_us > LEADER_SILENT_US",
        after="return False",
    ),
    Mutant(
        name="proven leader waits for the term of one that is not",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::"
            "test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._replaces",
        before="return True",
        after="return term >= state.leader_term",
    ),
    Mutant(
        name="jobs are not told the limit",
        rows="CN-03",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_what_full_servers_could_not_hold_is_refused_with_the_room_there_is"
        ),
        file="replica/master/decisions/reporter.py",
        function="Reporter._server",
        before='"tablets_max": server.tablets_max,',
        after="",
    ),
    Mutant(
        name="failing copies fill the list of servers",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_soft_state.py::test_copies_that_fail_are_kept_within_what_one_message_lists"
        ),
        file="replica/rpc/heartbeats.py",
        function="heartbeat_from_pb",
        before="f.error[: limits.COPY_ERROR_CHARS_MAX]",
        after="f.error",
    ),
    Mutant(
        name="a server is avoided no longer each time",
        rows="TC-65",
        test="tests/unit/master/test_master_soft_state.py::test_view_a_server_is_avoided_for_twice_as_long_each_time",
        file="replica/master/heartbeats/soft_state.py",
        function="ServerState.hear",
        before="self.avoid_us = min(max(2 * self.avoid_us, AVOID_US_FIRST), AVOID_US_MAX)",
        after="self.avoid_us = min(AVOID_US_FIRST, AVOID_US_MAX)",
    ),
    Mutant(
        name="one listener is many servers",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_one_listener_is_one_server_however_many_uuids_it_answers_by"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="!= uuid",
        after="== ''",
    ),
    Mutant(
        name="one host has any number of servers",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_one_listener_is_one_server_however_many_uuids_it_answers_by"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="if not listed and (server is None or server.peer != peer):",
        after='if not listed and server is None and peer == "":',
    ),
    Mutant(
        name="servers move to a full host",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_one_listener_is_one_server_however_many_uuids_it_answers_by"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="if not listed and (server is None or server.peer != peer):",
        after="if not listed and server is None:",
    ),
    Mutant(
        name="listed servers keep new ones out",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_servers_that_no_config_has_take_no_room_from_those_that_one_has"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._has_room",
        before="[s for s in servers if not s.listed]",
        after="list(servers)",
    ),
    Mutant(
        name="a silent server with a tablet keeps new ones out",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_servers_that_no_config_has_take_no_room_from_those_that_one_has"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._has_room",
        before="""
        silent.listed = not self._forget_server(silent)
        return True
        """,
        after="""
        return self._forget_server(silent)
        """,
    ),
    Mutant(
        name="a server with tablets at a new address needs room",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_servers_that_no_config_has_take_no_room_from_those_that_one_has"
        ),
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission._call",
        before="bool(self._listed(c.uuid))",
        after="c.listed",
    ),
    Mutant(
        name="a listed server takes room once it counts",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_servers_that_no_config_has_take_no_room_from_those_that_one_has"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="server.listed = server.listed or listed",
        after="pass",
    ),
    Mutant(
        name="liars leave listed servers no room",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_server_admission.py::"
            "test_one_listener_is_one_server_however_many_uuids_it_answers_by"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.admit",
        before="not listed and server",
        after="server",
    ),
    Mutant(
        name="overtaken heartbeat is heard",
        rows="TC-02",
        test=(
            "tests/unit/master/test_master_requests_table.py::"
            "test_overtaken_calls_leave_the_master_as_it_is[MasterService.Heartbeat-behind_the_next_one]"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.heartbeat",
        before="elif beat.process and beat.sequence <= server.sequence:",
        after="elif beat.process and beat.sequence == server.sequence:",
    ),
    Mutant(
        name="slice is taken for everything",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_reports_in_slices_end_in_what_is_there",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take_slice",
        before="> after and (not until or t <= until) and t not",
        after="not",
    ),
    Mutant(
        name="first slice counts as everything",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_reports_in_slices_end_in_what_is_there",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take_slice",
        before="server.reported = server.reported or not until",
        after="server.reported = True",
    ),
    Mutant(
        name="places are told without a bound",
        rows="CN-34",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_masters_tell_where_servers_are_and_of_no_more_than_were_asked_for"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.places",
        before="known = (self.servers.get(uuid) for uuid in islice(uuids, limits.PEERS_SOUGHT_MAX))",
        after="known = (self.servers.get(uuid) for uuid in uuids)",
    ),
    Mutant(
        name="grace runs while it is copied",
        rows="CC-10, X-12",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_copy_that_may_still_be_added_is_left_alone_for_the_grace"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._take",
        before="if replica.data_state == DataState.READY:",
        after="if replica.data_state in LIVE:",
    ),
    Mutant(
        name="term of a lie stays",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_lie_under_a_members_uuid_ends_with_the_members_next_report",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before='state.leader_uuid, state.leader_status, state.leader_term = "", None, -1',
        after='state.leader_uuid, state.leader_status = "", None',
    ),
    Mutant(
        name="new leader waits for its next change",
        rows="IN-40",
        test="tests/unit/master/test_master_belief.py::test_new_member_is_heard_as_soon_as_an_old_one_tells_of_it",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._settle",
        before="for member in config.members:",
        after="for member in ():",
    ),
    Mutant(
        name="wanted witness joins as a learner",
        rows="CC-47, CC-52",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_witness_wanted_of_a_tablet_joins_without_data_after_a_failover_too"
        ),
        file="replica/master/catalog/records.py",
        function="read",
        before="for n in _FIELDS[kind] if n in found}",
        after='for n in _FIELDS[kind] if n in found and n != "witness"}',
    ),
    Mutant(
        name="first member that is back condemns the others",
        rows="CN-23",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_members_that_come_back_with_their_leader_are_not_lost"
        ),
        file="replica/master/tablets/view.py",
        function="_health_of",
        before="soft.missed_us(uuid, tablet_id, mono_us)",
        after="silent_us",
    ),
    Mutant(
        name="damaged replica of a silent server is only slow",
        rows="CN-23",
        test="tests/unit/master/test_master_soft_state.py::test_view_health_follows_heartbeats_and_the_leader",
        file="replica/master/tablets/view.py",
        function="_health_of",
        before="if _reports_failed(soft, tablet_id, uuid):",
        after="if _reports_failed(soft, tablet_id, uuid) and silent_us == 0:",
    ),
    Mutant(
        name="slow start is death",
        rows="CN-23",
        test="tests/unit/master/test_master_soft_state.py::test_view_health_follows_heartbeats_and_the_leader",
        file="replica/master/tablets/view.py",
        function="_health_of",
        before="server.last_report.booting or not",
        after="not",
        more=(
            Edit(
                file="replica/master/tablets/view.py",
                function="_as_reported",
                before="""
                    if tablet_id not in server.open_us:
                        return Health.UNKNOWN  # slow to start is not dead
                    return _as_leader_sees(peer, replica, mono_us - server.open_us[tablet_id], options)
                """,
                after="""
                    open_us = server.open_us.get(tablet_id, 0)
                    return _as_leader_sees(peer, replica, mono_us - open_us, options)
                """,
            ),
        ),
    ),
    Mutant(
        name="copies that fail are waited for",
        rows="TC-65",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_a_replica_whose_copies_fail_is_unrecoverable_and_its_server_avoided"
        ),
        file="replica/master/tablets/view.py",
        function="_health_of",
        before="health is Health.UNKNOWN and server.copies_fail(tablet_id)",
        after="False",
    ),
    Mutant(
        name="follower that nobody leads is only slow",
        rows="CN-23",
        test="tests/unit/master/test_master_soft_state.py::test_view_health_follows_heartbeats_and_the_leader",
        file="replica/master/tablets/view.py",
        function="_as_reported",
        before="if tablet_id not in server.open_us:",
        after='if replica.phase != "RUNNING" or tablet_id not in server.open_us:',
    ),
    Mutant(
        name="leaders word from before the opening counts",
        rows="CN-23",
        test="tests/unit/master/test_master_soft_state.py::test_view_health_follows_heartbeats_and_the_leader",
        file="replica/master/tablets/view.py",
        function="_as_leader_sees",
        before="out_of_touch_us = min(peer.last_contact_us_ago, open_for_us)",
        after="out_of_touch_us = peer.last_contact_us_ago",
    ),
    Mutant(
        name="replica behind the log is waited for though nobody reaches it",
        rows="CN-23",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_a_lost_replica_behind_its_leaders_log_is_unrecoverable"
        ),
        file="replica/master/tablets/view.py",
        function="_as_leader_sees",
        before="peer) if out_of_touch_us",
        after='peer) if peer.health == "UNREACHABLE" and out_of_touch_us',
    ),
    Mutant(
        name="each change is told as unproven",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="if state is None or known is None or state.later is None or now_us - state.later[1] < UNPROVEN_US:",
        after="if state is None or known is None or state.later is None:",
    ),
    Mutant(
        name="strangers config is not told",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="config = state.config if believes else max(later, key=lambda c: c.opid, default=None)",
        after="config = state.config if believes else None",
    ),
    Mutant(
        name="confirmed config is told on",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="later = [c for c in state.told.values() if newer(c.opid, known.opid)]",
        after="later = [c for c in state.told.values() if newer(c.opid, state.recorded.opid)]",
    ),
    Mutant(
        name="strangers take the memory of members",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._keep",
        before="strange = believes is None or believes.member(server.uuid) is None",
        after="strange = True",
    ),
    Mutant(
        name="peers are kept of a follower",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::"
            "test_master_keeps_what_it_decides_by_and_nothing_of_the_message"
        ),
        file="replica/rpc/reported_replicas.py",
        function="reported_replica_from_pb",
        before=" if leads else ()",
        after="",
    ),
    Mutant(
        name="heartbeats come at any rate",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::"
            "test_server_that_reports_too_fast_is_refused_and_changes_nothing"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.heartbeat",
        before="server.rate.take(beat.replicas, now_us)",
        after="server.rate.take(0, 0)",
    ),
    Mutant(
        name="one server reports without end",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs"
        ),
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.take",
        before="if of_server > limits.REPORT_MEMORY_BYTES_MAX:",
        after="if of_server < 0:",
    ),
    Mutant(
        name="strangers report without end",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs"
        ),
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.take",
        before="if strange and strangers + size > limits.REPORT_STRANGERS_MEMORY_BYTES_MAX:",
        after="if strange and strangers + size < 0:",
    ),
    Mutant(
        name="room of a forgotten report stays taken",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs"
        ),
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.give_back",
        before="self._of[uuid] -= report_bytes(report)",
        after="self._of[uuid] -= 0",
    ),
    Mutant(
        name="honest full reports are too fast",
        rows="IN-43",
        test=("tests/unit/master/test_master_report_limits.py::test_largest_honest_server_has_room_and_time"),
        file="replica/master/heartbeats/report_limits.py",
        function="StatusRate.take",
        before="limits.REPORT_STATUSES_PER_S_MAX / 1e6",
        after="limits.REPORT_STATUSES_PER_S_MAX / 4e6",
    ),
    Mutant(
        name="heartbeats come at any rate, soft state",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_report_limits.py::"
            "test_server_that_reports_too_fast_is_refused_and_changes_nothing"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.heartbeat",
        before="server.rate.take(beat.replicas, now_us)",
        after="server.rate.take(0, 0)",
    ),
    Mutant(
        name="strangers take the memory of members, soft state",
        rows="IN-43",
        test="tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs",
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._keep",
        before="strange = believes is None or believes.member(server.uuid) is None",
        after="strange = True",
    ),
    Mutant(
        name="config that changed is not converted anew",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_belief.py::test_lie_under_a_members_uuid_ends_with_the_members_next_report"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState._with_config",
        before="if replica.config_wire == wire",
        after="if len(wire) >= 0",
    ),
    Mutant(
        name="each change is told as unproven, soft state",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="None or now_us - state.later[1] < UNPROVEN_US",
        after="None",
    ),
    Mutant(
        name="confirmed config is told on, soft state",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="later = [c for c in state.told.values() if newer(c.opid, known.opid)]",
        after="later = [c for c in state.told.values() if newer(c.opid, state.recorded.opid)]",
    ),
    Mutant(
        name="strangers config is not told, soft state",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_tools_check.py::"
            "test_check_config_that_nobody_can_prove_names_what_an_operator_can_do"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.unproven",
        before="config = state.config if believes else max(later, key=lambda c: c.opid, default=None)",
        after="config = state.config if believes else None",
    ),
    Mutant(
        name="silence in maintenance counts",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_silent_server_in_maintenance_is_replaced_only_after_it",
        file="replica/master/tablets/view.py",
        function="health_of",
        before="if uuid not in maintenance or not health.failed or",
        after="if not health.failed or uuid in soft.servers or",
    ),
    Mutant(
        name="maintenance never ends",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_silent_server_in_maintenance_is_replaced_only_after_it",
        file="replica/master/tablets/view.py",
        function="in_maintenance",
        before="if wall_us < record.until_us",
        after="if record.until_us",
    ),
    Mutant(
        name="failed replica waits for maintenance",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_replica_that_its_server_calls_failed_is_replaced_in_maintenance_too",
        file="replica/master/tablets/view.py",
        function="health_of",
        before=" or _reports_failed(soft, tablet_id, uuid)",
        after="",
    ),
    Mutant(
        name="replicas go to a server in maintenance",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_server_in_maintenance_gets_no_replica",
        file="replica/policy/views.py",
        function="ServerView.takes_replicas",
        before=" and not self.maintenance",
        after="",
    ),
    Mutant(
        name="operator may add to a server in maintenance",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_server_in_maintenance_gets_no_replica",
        file="replica/master/requests/change_requests.py",
        function="_may_join",
        before="if view.maintenance:",
        after="if view.maintenance and view.draining:",
    ),
    Mutant(
        name="maintenance without a longest time",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_maintenance_that_cannot_be_is_refused",
        file="replica/master/requests/desired.py",
        function="maintain",
        before="if not 0 <= seconds <= MAINTENANCE_S_MAX:",
        after="if seconds < 0:",
    ),
    Mutant(
        name="repeated maintenance begins anew",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_repeated_request_keeps_the_end_and_a_new_one_moves_it",
        file="replica/master/requests/desired.py",
        function="maintain",
        before="seen == changes(state.catalog) - 1:",
        after="seen is not None and seen > changes(state.catalog):",
    ),
    Mutant(
        name="maintenance that is over is kept",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_records_of_maintenance_are_bounded_and_removed_when_it_is_over",
        file="replica/master/requests/desired.py",
        function="maintain",
        before="if r.until_us <= now_us and u != uuid]",
        after="if r.until_us < 0 and u != uuid]",
    ),
    Mutant(
        name="maintenance that is over is shown",
        rows="OP-01",
        test="tests/unit/master/test_master_maintenance.py::test_maintenance_is_shown_until_its_end",
        file="replica/master/requests/infos.py",
        function="_add_maintenance",
        before="if works is not None and master.clock.wall_us() < works.until_us:",
        after="if works is not None:",
    ),
    Mutant(
        name="living server is forgotten",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_server_that_is_there_is_not_forgotten",
        file="replica/master/requests/forgetting.py",
        function="_is_silent",
        before="return state.soft.silent_us(uuid, state.mono_us) > state.options.server_dead_ms * 1000",
        after="return state.soft.silent_us(uuid, state.mono_us) >= 0",
    ),
    Mutant(
        name="server that answers is forgotten",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_server_that_is_there_is_not_forgotten",
        file="replica/master/requests/forgetting.py",
        function="forget_server",
        before="(address := await state.admission.answering(uuid, state.cluster_id)) is not None",
        after="(address := await state.admission.answering(uuid, state.cluster_id)) == uuid",
    ),
    Mutant(
        name="any process stands for the server",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_server_that_is_there_is_not_forgotten",
        file="replica/master/heartbeats/server_admission.py",
        function="ServerAdmission.answering",
        before="if not why_not(await self._servers.identity(address), uuid, cluster_id):",
        after="if await self._servers.identity(address):",
    ),
    Mutant(
        name="member is forgotten",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_member_is_not_forgotten",
        file="replica/master/requests/forgetting.py",
        function="forgotten",
        before="if members:",
        after="if not members and seen == -1:",
    ),
    Mutant(
        name="believed member is forgotten",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_member_is_not_forgotten",
        file="replica/master/requests/forgetting.py",
        function="_memberships",
        before="{*catalog.tablets_with(uuid), *state.soft.member_of(uuid)}",
        after="catalog.tablets_with(uuid)",
    ),
    Mutant(
        name="new leader forgets at once",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_new_leading_master_waits_before_it_forgets",
        file="replica/master/requests/forgetting.py",
        function="_check_gone",
        before="raise Refused(Code.NOT_READY, what, server=uuid)",
        after="return",
    ),
    Mutant(
        name="server that came back is forgotten",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_heartbeat_during_the_change_keeps_the_server",
        file="replica/master/requests/forgetting.py",
        function="forget_server",
        before="if _is_silent(state, uuid):",
        after="if state.mono_us:",
    ),
    Mutant(
        name="retirement outlives the server",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_forgotten_server_leaves_nothing_and_may_come_back_as_a_new_one",
        file="replica/master/requests/forgetting.py",
        function="forgotten",
        before="for key in (RETIRED + uuid, MAINTENANCE + uuid)",
        after="for key in (MAINTENANCE + uuid,)",
    ),
    Mutant(
        name="dropped tablets wait for a forgotten server",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_dropped_tablets_wait_no_longer_for_a_forgotten_server",
        file="replica/master/requests/forgetting.py",
        function="forget_server",
        before="while done.more:",
        after="while done.more and not done.changed:",
    ),
    Mutant(
        name="tablet without holders is never gone",
        rows="OP-02",
        test="tests/unit/master/test_master_forgetting.py::test_dropped_tablets_wait_no_longer_for_a_forgotten_server",
        file="replica/master/requests/forgetting.py",
        function="forgotten",
        before="gone_us=None if left else state.clock.wall_us()",
        after="gone_us=None",
    ),
    Mutant(
        name="leadership moves to a quiescing server",
        rows="OP-03",
        test="tests/unit/master/test_master_quiescing.py::test_no_leadership_is_moved_to_a_server_that_quiesces",
        file="replica/master/requests/change_requests.py",
        function="_move",
        before="if server is not None and server.last_report.quiescing:",
        after="if server is None:",
    ),
    Mutant(
        name="quiescing server is not shown",
        rows="OP-03",
        test="tests/unit/master/test_master_quiescing.py::test_no_leadership_is_moved_to_a_server_that_quiesces",
        file="replica/master/tablets/view.py",
        function="server_view",
        before="quiescing=s.last_report.quiescing,",
        after="quiescing=False,",
    ),
    Mutant(
        name="restart halves a tablet",
        rows="OP-04",
        test="tests/unit/tools/test_tools_restart.py::test_server_may_end_if_every_tablet_has_a_healthy_majority_without_it",
        file="replica/tools/restart.py",
        function="at_risk",
        before="len(fit) <= len(config.voters) // 2",
        after="len(fit) < len(config.voters) // 2",
    ),
    Mutant(
        name="sick voter counts for a restart",
        rows="OP-04",
        test="tests/unit/tools/test_tools_restart.py::test_server_may_end_if_every_tablet_has_a_healthy_majority_without_it",
        file="replica/tools/restart.py",
        function="at_risk",
        before=" and tablet.health.get(v) == HEALTHY",
        after="",
    ),
    Mutant(
        name="unknown server counts for a restart",
        rows="OP-04",
        test="tests/unit/tools/test_tools_restart.py::test_server_may_end_if_every_tablet_has_a_healthy_majority_without_it",
        file="replica/tools/restart.py",
        function="at_risk",
        before="if v in known - may_end",
        after="if v not in may_end",
    ),
    Mutant(
        name="witnesses suffice for a restart",
        rows="OP-04",
        test="tests/unit/tools/test_tools_restart.py::test_server_may_end_if_every_tablet_has_a_healthy_majority_without_it",
        file="replica/tools/restart.py",
        function="at_risk",
        before="elif not _holds_data(config, fit):",
        after="elif not fit:",
    ),
    Mutant(
        name="two servers restart at once",
        rows="OP-04",
        test="tests/unit/tools/test_tools_restart.py::test_server_that_may_end_itself_does_not_count",
        file="replica/tools/restart.py",
        function="at_risk",
        before="if not s.alive or s.quiescing or s.maintenance_until_us",
        after="if not s.alive or s.quiescing",
    ),
)
