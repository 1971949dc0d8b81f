"""Mutants: what is decided, ordered and confirmed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="history: a forced config looks like any other",
        test="tests/e2e/test_forced_configs_e2e.py::test_replay_arrives_at_configs_that_an_operator_forced",
        file="replica/master/catalog/config_changes.py",
        function="ConfigChange.events",
        before="unsafe=held.unsafe",
        after="unsafe=False",
    ),
    Mutant(
        name="outcomes name decisions that Kafka does not have",
        test="tests/unit/master/test_master_refused_ticks.py::test_sinks_of_a_tick_get_the_same_decisions",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.tick",
        before="self._versions.begin_tick()",
        after="pass",
    ),
    Mutant(
        name="each sink has versions of its own",
        test="tests/unit/master/test_master_sent_decisions.py::test_sinks_give_a_decision_of_one_tick_one_version",
        file="replica/master/decisions/sent_decisions.py",
        function="Versions.next",
        before="if self._of_tick is None or tablet_id not in self._of_tick:",
        after="if True:",
    ),
    Mutant(
        name="one version for all ticks",
        test="tests/unit/master/test_master_sent_decisions.py::test_sinks_give_a_decision_of_one_tick_one_version",
        file="replica/master/decisions/sent_decisions.py",
        function="Versions.begin_tick",
        before="self._of_tick = {}",
        after="self._of_tick = self._of_tick or {}",
    ),
    Mutant(
        name="identity of a master is not checked",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_identity_of_a_master_is_checked",
        file="replica/master/group/forming.py",
        function="ask_build",
        before="check_reply(found, _SENDER)",
        after="pass",
    ),
    Mutant(
        name="identity of a master is unchecked where a group is formed",
        rows="IN-82",
        test=("tests/unit/master/test_master_answers.py::test_master_that_begins_uses_no_impossible_answer_of_another"),
        file="replica/master/group/forming.py",
        function="_identity",
        before="check_reply(await stub.GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S), _SENDER)",
        after="await stub.GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S)",
    ),
    Mutant(
        name="status of a master is unchecked where a group is formed",
        rows="IN-82",
        test=("tests/unit/master/test_master_answers.py::test_master_that_begins_uses_no_impossible_answer_of_another"),
        file="replica/master/group/forming.py",
        function="_identity",
        before="check_reply(await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S), _SENDER)",
        after="await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S)",
    ),
    Mutant(
        name="status of a master is unchecked by a master that joins",
        rows="IN-82",
        test=("tests/unit/master/test_master_answers.py::test_master_that_begins_uses_no_impossible_answer_of_another"),
        file="replica/master/group/joining.py",
        function="ask_master",
        before='check_reply(await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S), "the master").replica',
        after="(await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S)).replica",
    ),
    Mutant(
        name="chunk that gives a time is unchecked",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_answer_to_a_call_of_a_leader_or_a_follower_that_cannot_be_is_one_line_of_the_log"
        ),
        file="replica/server/requests/leaders.py",
        function="LeaderTime.ask",
        before='check_reply(chunk, "the leader").error',
        after="chunk.error",
    ),
    Mutant(
        name="answer of the target of a copy is unchecked",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_answer_to_a_call_of_a_leader_or_a_follower_that_cannot_be_is_one_line_of_the_log"
        ),
        file="replica/server/copies/copy_jobs.py",
        function="CopyRequester._ask",
        before='check_reply(await stub.StartTabletCopy(request, timeout=START_TIMEOUT_S), "the target")',
        after="await stub.StartTabletCopy(request, timeout=START_TIMEOUT_S)",
    ),
    Mutant(
        name="status does not tell refused ticks",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again"
        ),
        file="replica/master/requests/master_service.py",
        function="MasterService.Status",
        before="refused_ticks=_refused_ticks(state),",
        after="",
    ),
    Mutant(
        name="master that does not lead tells refused ticks",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again"
        ),
        file="replica/master/requests/master_service.py",
        function="_refused_ticks",
        before="if refused is None or not state.group.is_leader:",
        after="if refused is None:",
    ),
    Mutant(
        name="ticks are refused since the last one",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="(before.since_us, before.count) if before is not None",
        after="(state.mono_us, before.count) if before is not None",
    ),
    Mutant(
        name="policy interrupts the first full reports",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_policy_of_a_young_leadership_waits_while_full_reports_come"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="if state.soft.awaits_full_reports(state.mono_us):",
        after="if False:",
    ),
    Mutant(
        name="tick goes on when full reports begin to come",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_tick_ends_without_a_decision_when_full_reports_begin_to_come"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.tick",
        before="lambda: state.soft.awaits_full_reports(state.mono_us)",
        after="lambda: False",
    ),
    Mutant(
        name="full reports hold the policy up for ever",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_policy_of_a_young_leadership_waits_while_full_reports_come"
        ),
        file="replica/master/heartbeats/soft_state.py",
        function="SoftState.awaits_full_reports",
        before="now_us - self.since_us < HEAR_FIRST_US and ",
        after="",
    ),
    Mutant(
        name="silent server holds the policy up",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_policy_of_a_young_leadership_waits_while_full_reports_come"
        ),
        file="replica/master/heartbeats/full_reports.py",
        function="FullReports.is_busy",
        before="now_us - at < BUSY_US",
        after="True",
    ),
    Mutant(
        name="policy does not wait for the servers that wait",
        rows="IN-80",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_policy_of_a_young_leadership_waits_while_full_reports_come"
        ),
        file="replica/master/heartbeats/full_reports.py",
        function="FullReports.is_busy",
        before="return comes or any(now_us - at < IDLE_US for at in self._waiting.values())",
        after="return comes",
    ),
    Mutant(
        name="refusal of a tick that is over is told",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="state.refused_ticks = None",
        after="pass",
    ),
    Mutant(
        name="one refused tick is an error",
        rows="IN-40",
        test=(
            "tests/unit/master/test_master_refused_ticks.py::"
            "test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again"
        ),
        file="replica/tools/check.py",
        function="judge",
        before="m.status.refused_ticks.count > 1",
        after="m.status.refused_ticks.count",
    ),
    Mutant(
        name="ticket of a link may be long",
        rows="IN-60",
        test="tests/unit/master/test_master_answers.py::test_long_ticket_of_a_link_is_refused_before_anything_is_sent",
        file="replica/transport/link.py",
        function="open_link",
        before='check_reply(reply, "the server at the link\'s address").error',
        after="reply.error",
    ),
    Mutant(
        name="answer about a tablet may have any length",
        rows="IN-60",
        test="tests/unit/master/test_master_answers.py::test_answer_about_a_tablet_that_no_server_sends_is_refused",
        file="replica/master/heartbeats/tablet_servers.py",
        function="GrpcTabletServers.replicas",
        before=", ANSWER_CHANNEL_OPTIONS",
        after="",
    ),
    Mutant(
        name="answer that is too long reads as none",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_answer_about_a_tablet_that_no_server_sends_is_refused",
        file="replica/rpc/connections.py",
        function="failed_call",
        before="if kind is TooLong.ANSWER:",
        after="if False:",
    ),
    Mutant(
        name="answer about a tablet may have any number of reports",
        rows="IN-60",
        test="tests/unit/master/test_master_answers.py::test_answer_about_a_tablet_that_no_server_sends_is_refused",
        file="replica/master/heartbeats/tablet_servers.py",
        function="reports_in",
        before="if len(reply.replicas) > asked:",
        after="if False:",
    ),
    Mutant(
        name="answer about a tablet is not checked",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_answer_about_a_tablet_that_no_server_sends_is_refused",
        file="replica/master/heartbeats/tablet_servers.py",
        function="reports_in",
        before="check_reply(reply, _SENDER).error",
        after="reply.error",
    ),
    Mutant(
        name="reports in an answer are not checked",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_answer_about_a_tablet_that_no_server_sends_is_refused",
        file="replica/master/heartbeats/tablet_servers.py",
        function="reports_in",
        before="check_status(status, uuid)",
        after="pass",
    ),
    Mutant(
        name="identity of a tablet server is not checked",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_identity_and_process_are_checked_too",
        file="replica/master/heartbeats/tablet_servers.py",
        function="GrpcTabletServers.identity",
        before="check_reply(reply, _SENDER)",
        after="pass",
    ),
    Mutant(
        name="identity of a tablet server may have any length",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_identity_and_process_are_checked_too",
        file="replica/master/heartbeats/tablet_servers.py",
        function="GrpcTabletServers.identity",
        before=", ANSWER_CHANNEL_OPTIONS",
        after="",
    ),
    Mutant(
        name="answer of a process is not checked",
        rows="IN-82",
        test="tests/unit/master/test_master_answers.py::test_identity_and_process_are_checked_too",
        file="replica/master/heartbeats/tablet_servers.py",
        function="GrpcTabletServers.is_process",
        before="check_reply(reply, _SENDER).error",
        after="reply.error",
    ),
    Mutant(
        name="config that no replica can hold is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_catalog_can_hold_each_config_that_is_believed",
        file="replica/master/heartbeats/belief.py",
        function="reported_config",
        before="if any(config is c for c in held) or not unheld_reason(config) else None",
        after="",
    ),
    Mutant(
        name="config with an address without a host is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_config_that_no_replica_can_hold_is_not_believed",
        file="replica/raft/message_checks.py",
        function="unheld_reason",
        before="if not address.host or not address.port:",
        after="if not address.port:",
    ),
    Mutant(
        name="config with an address without a port is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_config_that_no_replica_can_hold_is_not_believed",
        file="replica/raft/message_checks.py",
        function="unheld_reason",
        before="if not address.host or not address.port:",
        after="if not address.host:",
    ),
    Mutant(
        name="config at an impossible position is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_config_that_no_replica_can_hold_is_not_believed",
        file="replica/raft/message_checks.py",
        function="unheld_reason",
        before="<= limits.RAFT_INDEX_MAX",
        after="<= 1 << 63",
    ),
    Mutant(
        name="config of an impossible decision is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_config_that_no_replica_can_hold_is_not_believed",
        file="replica/raft/message_checks.py",
        function="unheld_reason",
        before="max(config.decision) > limits.NUMBER_MAX",
        after="max(config.decision) < 0",
    ),
    Mutant(
        name="member with any number of addresses is believed",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_config_that_no_replica_can_hold_is_not_believed",
        file="replica/raft/message_checks.py",
        function="unheld_reason",
        before='if len(member.addresses) > limits.REPEATED["Member.addresses"]:',
        after="if False:",
    ),
    Mutant(
        name="record that cannot be kept is put among the others",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_record_that_cannot_be_kept_keeps_no_other_from_its_own",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler._can_mark",
        before="return not why",
        after="return True",
    ),
    Mutant(
        name="refused tick is not counted",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_tick_that_is_refused_is_counted_and_logged_once",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="state.ticks_refused += 1",
        after="pass",
    ),
    Mutant(
        name="refused tick is logged again and again",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_tick_that_is_refused_is_counted_and_logged_once",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="if before is None or before.why != why:",
        after="if True:",
    ),
    Mutant(
        name="follower warns of its ticks",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_tick_that_is_refused_is_counted_and_logged_once",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler.try_tick",
        before="if error.code in NOT_NOW:",
        after="if error.code is Code.NOT_LEADER:",
    ),
    Mutant(
        name="refused ticks are no metric",
        rows="IN-40",
        test="tests/unit/master/test_master_refused_ticks.py::test_refused_ticks_are_a_metric",
        file="replica/master/metrics.py",
        function="Metrics._of_master",
        before="value=state.ticks_refused",
        after="value=0",
    ),
    Mutant(
        name="operators word goes back",
        rows="IN-42",
        test="tests/unit/master/test_master_inquiries.py::test_operator_confirms_a_config_only_forward",
        file="replica/master/requests/confirming.py",
        function="confirm_config",
        before="if not newer(config.opid, known.opid) and tablet.config is not None:",
        after="if not config.members:",
    ),
    Mutant(
        name="config without a voter is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if why := unheld_reason(config):",
        after="if False:",
    ),
    Mutant(
        name="config at no position is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if not config.opid.index or not is_position(config.opid):",
        after="if not is_position(config.opid):",
    ),
    Mutant(
        name="config of a term that no group reaches is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if too_far(known.opid.term, config.opid.term):",
        after="if False:",
    ),
    Mutant(
        name="config of a decision to come is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if config.decision[0] > catalog_term:",
        after="if False:",
    ),
    Mutant(
        name="config of no server is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if not is_uuid(member.uuid):",
        after="if False:",
    ),
    Mutant(
        name="config of two servers at one place is confirmed",
        rows="IN-42",
        test="tests/unit/master/test_master_confirming.py::test_config_that_no_replica_can_hold_is_not_confirmed",
        file="replica/master/requests/confirming.py",
        function="impossible",
        before="if named.setdefault(address, member.uuid) != member.uuid:",
        after="if False:",
    ),
    Mutant(
        name="need said once only",
        rows="TC-67",
        test="tests/unit/master/test_master_sent_decisions.py::test_sent_decisions_a_need_is_said_once_and_again_with_back_off",
        file="replica/master/decisions/sent_decisions.py",
        function="SentDecisions.update",
        before="elif mono_us >= sent.next_us:",
        after="elif mono_us < 0:",
    ),
    Mutant(
        name="tablet without its own number counts as none",
        rows="TC-82",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_fewer_replicas_are_wanted_of_a_tablet_although_servers_are_missing"
        ),
        file="replica/master/requests/desired.py",
        function="set_replication",
        before="before = wanted_voters(catalog, tablet_id)",
        after="before = tablet.replication_factor",
    ),
    Mutant(
        name="even numbers are taken",
        rows="TC-82",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_replication_wanted_of_a_table_or_a_tablet_is_odd_and_fits_the_servers"
        ),
        file="replica/master/requests/desired.py",
        function="set_replication",
        before="check_replicas(wanted)",
        after="pass",
    ),
    Mutant(
        name="master takes late desired state",
        rows="TC-69",
        test="tests/unit/master/test_master_requests_table.py::test_overtaken_calls_leave_the_master_as_it_is",
        file="replica/master/requests/desired.py",
        function="counted",
        before="if seen not in (None, before):",
        after="if seen is not None and seen > before:",
    ),
    Mutant(
        name="empty before everybody reported",
        rows="TC-83",
        test="tests/unit/master/test_master_desired.py::test_retired_server_is_wanted_empty_by_every_later_master",
        file="replica/master/tablets/draining.py",
        function="Drain.done",
        before="return self.heard and self.left == 0 and self.unreported == 0",
        after="return self.left == 0",
    ),
    Mutant(
        name="server takes any number of decisions at a time",
        rows="none",
        test=(
            "tests/unit/decision_executor/test_schedule.py::test_targets_take_turns_and_a_full_one_holds_no_other_up"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule.take",
        before="if self._load[target] < self.bounds.per_target_max:",
        after="if True:",
    ),
    Mutant(
        name="target that was served comes first again",
        rows="none",
        test=(
            "tests/unit/decision_executor/test_schedule.py::test_targets_take_turns_and_a_full_one_holds_no_other_up"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule._begin",
        before="if rest:  # the target's next turn comes after those of the others",
        after="if False:",
    ),
    Mutant(
        name="two decisions of a tablet are under way",
        rows="TC-67",
        test=(
            "tests/unit/decision_executor/test_schedule.py::"
            "test_any_order_of_events_keeps_the_bounds_and_ends_every_decision"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule.take",
        before="for tablet_id, each in jobs.items() if tablet_id not in self._running)",
        after="for tablet_id, each in jobs.items())",
    ),
    Mutant(
        name="copy counts at the leader",
        rows="none",
        test=(
            "tests/unit/decision_executor/test_schedule.py::"
            "test_target_is_the_server_that_gets_a_copy_or_else_the_leader"
        ),
        file="replica/decision_executor/schedule.py",
        function="target_of",
        before="return added or decision.leader_uuid or",
        after="return decision.leader_uuid or added or",
    ),
    Mutant(
        name="failing decision is tried without an end",
        rows="TC-67",
        test=(
            "tests/unit/decision_executor/test_schedule.py::test_retries_wait_longer_each_time_and_end_after_their_time"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule.finish",
        before="or job.withdrawn or now_s >= job.retry_until_s:",
        after="or job.withdrawn:",
    ),
    Mutant(
        name="decision that waited too long is tried",
        rows="none",
        test=(
            "tests/unit/decision_executor/test_schedule.py::test_decision_that_waited_too_long_ends_without_an_attempt"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule._begin",
        before="job.late = now_s >= job.start_by_s",
        after="job.late = False",
    ),
    Mutant(
        name="withdrawn decision is tried again",
        rows="TC-65, TC-67",
        test=(
            "tests/unit/decision_executor/test_decision_executor.py::"
            "test_decision_that_is_withdrawn_while_it_is_tried_is_not_tried_again"
        ),
        file="replica/decision_executor/schedule.py",
        function="Schedule.finish",
        before="if job.late or not outcome.retryable or job.withdrawn or now_s >= job.retry_until_s:",
        after="if job.late or not outcome.retryable or now_s >= job.retry_until_s:",
    ),
    Mutant(
        name="catalog keeps no config",
        rows="IN-40",
        test="tests/unit/master/test_master_inquiries.py::test_masters_tick_keeps_what_changed_and_asks_only_then",
        file="replica/master/decisions/reconciler.py",
        function="Reconciler._mark_formed",
        before="if tablet.formed and not is_later(tablet, config):",
        after="if tablet.formed:",
    ),
    Mutant(
        name="what is kept is asked for again",
        rows="IN-40",
        test="tests/unit/master/test_master_inquiries.py::test_masters_tick_keeps_what_changed_and_asks_only_then",
        file="replica/master/tablets/kept_view.py",
        function="KeptView._is_unrecorded",
        before="later = config is not None and newer(config.opid, record.known_config.opid)",
        after="later = config is not None",
    ),
    Mutant(
        name="all tablets are asked for at once",
        rows="IN-41",
        test="tests/unit/master/test_master_inquiries.py::test_few_tablets_are_asked_for_at_once_and_each_once",
        file="replica/master/tablets/inquiries.py",
        function="Inquiries.__init__",
        before="self._slots = asyncio.Semaphore(limits.INQUIRIES_MAX)",
        after="self._slots = asyncio.Semaphore(limits.SERVERS_MAX)",
    ),
    Mutant(
        name="old answers justify a deletion",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_inquiries.py::"
            "test_members_are_asked_once_for_a_while_and_with_back_off_in_vain"
        ),
        file="replica/master/tablets/inquiries.py",
        function="Inquiries.proof",
        before="and self._clock.monotonic_us() - proof.at_us < FRESH_US else",
        after="else",
    ),
    Mutant(
        name="inquiries wait without a bound",
        rows="IN-41",
        test="tests/unit/master/test_master_inquiries.py::test_few_tablets_are_asked_for_at_once_and_each_once",
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._is_full",
        before="if len(self._tasks) >= limits.INQUIRIES_PENDING_MAX:",
        after="if False:",
    ),
    Mutant(
        name="one server starts thousands of inquiries",
        rows="IN-41",
        test="tests/unit/master/test_master_inquiries.py::test_one_server_keeps_few_inquiries_waiting",
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._is_full",
        before="return own >= limits.INQUIRIES_PENDING_PER_SERVER_MAX",
        after="return False",
    ),
    Mutant(
        name="former members are not asked",
        rows="IN-42",
        test="tests/unit/master/test_master_inquiries.py::test_members_of_every_config_that_is_told_of_are_asked",
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._whom",
        before="configs += sorted(state.told.values(), key=lambda c: c.opid, reverse=True)",
        after="configs += []",
    ),
    Mutant(
        name="renewal is ordered of a tombstone",
        rows="TC-63",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_damaged_replica_is_renewed_for_a_moment_and_not_soon_again"
        ),
        file="replica/master/tablets/orders.py",
        function="orders_for.change",
        before="tablet_id))) and is_damaged(soft, server_uuid, tablet_id):",
        after="tablet_id))):",
    ),
    Mutant(
        name="orders begin at the first tablet",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_orders_are_bounded_and_every_one_is_given_in_the_end",
        file="replica/master/tablets/orders.py",
        function="orders_for",
        before="server.creations_after = last or server.creations_after",
        after="",
    ),
    Mutant(
        name="copy goes before its driver adds it",
        rows="CC-10, X-12",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_copy_that_may_still_be_added_is_left_alone_for_the_grace"
        ),
        file="replica/master/tablets/orders.py",
        function="copy_is_abandoned",
        before="return was_member or (ready_us is not None and now_us - ready_us >= grace_us)",
        after="return was_member or ready_us is not None",
    ),
    Mutant(
        name="member of a replaced tablet stays",
        rows="CC-46",
        test=(
            "tests/unit/master/test_master_replacing.py::"
            "test_replica_of_a_replaced_tablet_that_returns_is_deleted_and_new_servers_create_the_new_one"
        ),
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="if tablet.dropped:",
        after="if tablet.dropped and not tablet.replaced_by:",
    ),
    Mutant(
        name="evicted replica is left behind",
        rows="CC-29",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_replica_goes_only_if_a_later_committed_config_leaves_it_out"
        ),
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="if state is None or state.config is None or state.config.member(server_uuid) is not None:",
        after="if state is not None:",
    ),
    Mutant(
        name="abandoned copy stays",
        rows="CC-10",
        test="tests/unit/master/test_master_soft_state.py::test_orders_an_abandoned_copy_goes_unless_somebody_added_it",
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="if newer(own, state.config.opid):",
        after="if not newer(state.config.opid, own):",
    ),
    Mutant(
        name="member of the past waits like a copy",
        rows="CC-10",
        test="tests/unit/master/test_master_soft_state.py::test_orders_who_was_left_out_by_a_config_goes_at_once",
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="server_uuid in state.left or tells",
        after="tells",
    ),
    Mutant(
        name="orders follow reports alone",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_liar_deletes_nothing_moves_nobody_and_keeps_nothing_from_its_end"
        ),
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="if proof is None or not proof.leaves_out(server_uuid, own):",
        after="if proof is None:",
    ),
    Mutant(
        name="config that one server reports moves another server",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_liar.py::test_config_that_a_liar_reports_gives_no_other_server_an_address"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler._mark_formed",
        before="config = at_known_places(config, state.places_of) if config is not None else None",
        after="",
    ),
    Mutant(
        name="member that no master knows has no address",
        rows="IN-43",
        test="tests/unit/master/test_master_liar.py::test_member_that_no_master_knows_keeps_the_address_of_the_config",
        file="replica/master/decisions/reconciler.py",
        function="at_known_places",
        before="at or m.addresses",
        after="at",
    ),
    Mutant(
        name="lies give a server another address",
        rows="IN-43",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_whole_master_that_hears_any_lie_orders_and_decides_nothing_by_it"
        ),
        file="replica/master/decisions/reconciler.py",
        function="Reconciler._mark_formed",
        before="config = at_known_places(config, state.places_of) if config is not None else None",
        after="",
    ),
    Mutant(
        name="voter that does not lead has another one replaced",
        rows="IN-41",
        test=("tests/unit/master/test_master_liar.py::test_voter_that_says_that_it_leads_has_no_healthy_one_replaced"),
        file="replica/master/tablets/view.py",
        function="_health_of",
        before="if health.failed and _follows_another(soft, tablet_id, replica, options, mono_us):",
        after="if False:",
    ),
    Mutant(
        name="leader that went silent keeps a replica from being lost",
        rows="CN-23",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_replica_that_follows_a_leader_of_the_past_is_lost_as_the_new_one_reports"
        ),
        file="replica/master/tablets/view.py",
        function="_follows_another",
        before=" and soft.silent_us(named, mono_us) <= options.server_dead_ms * 1000",
        after="",
    ),
    Mutant(
        name="deposed leader keeps a replica from being lost",
        rows="CN-23",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_view_replica_that_follows_a_leader_of_the_past_is_lost_as_the_new_one_reports"
        ),
        file="replica/master/tablets/view.py",
        function="_follows_another",
        before='other.role == "LEADER"',
        after="other.role",
    ),
    Mutant(
        name="order says nothing of the committed end",
        rows="CC-10",
        test=(
            "tests/unit/master/test_master_soft_state.py::"
            "test_orders_a_deletion_says_how_far_the_log_is_committed_with_its_config"
        ),
        file="replica/master/tablets/orders.py",
        function="_delete_order",
        before="""
            committed=opid_to_pb(proof.committed),
        """,
        after="",
    ),
    Mutant(
        name="one voter confirms",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_replica_goes_only_if_a_majority_of_the_config_without_it_confirms"
        ),
        file="replica/master/tablets/proof.py",
        function="Proof.leaves_out",
        before="self.confirmed and self.config.member",
        after="self.config.member",
    ),
    Mutant(
        name="renewal asks nobody",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_damaged_replica_is_renewed_only_if_enough_others_say_that_they_are_whole"
        ),
        file="replica/master/tablets/proof.py",
        function="Proof.can_spare",
        before="return self.confirmed and self.config.opid == config and len(others) >= self.config.majority",
        after="return self.confirmed and self.config.opid == config",
    ),
    Mutant(
        name="dead voter keeps all waiting",
        rows="IN-41",
        test="tests/unit/master/test_master_inquiries.py::test_dead_voter_does_not_keep_a_majority_from_confirming",
        file="replica/master/tablets/proof.py",
        function="prove",
        before="confirmed=_held(current, told, current.voters) >= current.majority,",
        after="confirmed=_held(current, told, current.voters) >= len(current.voters),",
    ),
    Mutant(
        name="forced config proves itself",
        rows="IN-42",
        test="tests/unit/master/test_master_proof.py::test_config_is_proven_by_those_who_must_have_agreed",
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="if forced or len(voters ^ set(config.voters)) > 1:",
        after="if len(voters ^ set(config.voters)) > 1:",
    ),
    Mutant(
        name="liar names a config of a position that others have passed",
        rows="IN-41",
        test="tests/unit/master/test_master_proof.py::test_config_is_proven_by_those_who_must_have_agreed",
        file="replica/master/tablets/proof.py",
        function="_is_reached",
        before="paths = [(end, _holders(end, told))]",
        after="paths = [(end, frozenset(u for u, held in told.items() if not newer(end.opid, held.opid)))]",
    ),
    Mutant(
        name="those that left say nothing of the configs between",
        rows="IN-41",
        test="tests/unit/master/test_master_proof.py::test_config_is_proven_by_those_who_must_have_agreed",
        file="replica/master/tablets/proof.py",
        function="_is_reached",
        before="(c, holders | _holders(c, told))",
        after="(c, _holders(c, told))",
    ),
    Mutant(
        name="holders of a later config beside the path vouch for it",
        rows="IN-41",
        test="tests/unit/master/test_master_proof.py::test_strangers_that_vouch_for_each_other_prove_nothing",
        file="replica/master/tablets/proof.py",
        function="_is_reached",
        before="(c, holders | _holders(c, told))",
        after="(c, holders | {u for u, held in told.items() if not newer(c.opid, held.opid)})",
    ),
    Mutant(
        name="own majority proves a far config",
        rows="IN-41",
        test="tests/unit/master/test_master_proof.py::test_config_is_proven_by_those_who_must_have_agreed",
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="if forced or len(voters ^ set(config.voters)) > 1:",
        after="if forced or len(voters ^ set(config.voters)) > 9:",
    ),
    Mutant(
        name="one of two and newcomers remove the other",
        rows="IN-41, IN-42",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="return len(confirming) > 1 or all(gave_way(u, config) for u in voters - confirming)",
        after="return True",
    ),
    Mutant(
        name="one of two and newcomers prove what was never committed",
        rows="IN-41",
        test=("tests/unit/master/test_master_proof.py::test_nothing_but_what_was_committed_is_ever_proven"),
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="return len(confirming) > 1 or all(gave_way(u, config) for u in voters - confirming)",
        after="return True",
    ),
    Mutant(
        name="member that lies deletes the other of two",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_liar.py::"
            "test_liar_deletes_nothing_moves_nobody_and_keeps_nothing_from_its_end"
        ),
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="return len(confirming) > 1 or all(gave_way(u, config) for u in voters - confirming)",
        after="return True",
    ),
    Mutant(
        name="two that agree wait for one that left",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_follows",
        before="return len(confirming) > 1 or all(",
        after="return all(",
    ),
    Mutant(
        name="silence of the other of two is consent",
        rows="IN-42",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_gave_way",
        before='if status is None or status.role == "LEADER":',
        after='if status is None:\n        return True\n    if status.role == "LEADER":',
    ),
    Mutant(
        name="leader of two gives way",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_gave_way",
        before='if status is None or status.role == "LEADER":',
        after="if status is None:",
    ),
    Mutant(
        name="tombstone of one of two has to agree",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_gave_way",
        before="if status.data_state == DataState.DELETED:",
        after="if status is None:",
    ),
    Mutant(
        name="one of two is alone though nobody wanted that",
        rows="IN-42",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_gave_way",
        before="if wanted != 1 or len(to.voters) != 1 or knows is None:",
        after="if len(to.voters) != 1 or knows is None:",
    ),
    Mutant(
        name="who follows another leader gives way",
        rows="IN-41",
        test=(
            "tests/unit/master/test_master_proof.py::"
            "test_one_of_two_voters_and_newcomers_do_not_prove_the_other_one_away"
        ),
        file="replica/master/tablets/proof.py",
        function="_gave_way",
        before='return knows.member(sole) is not None and status.leader_uuid in ("", sole)',
        after="return knows.member(sole) is not None",
    ),
    Mutant(
        name="masters forget how many voters are wanted",
        rows="IN-42",
        test=(
            "tests/unit/master/test_master_inquiries.py::test_one_of_two_voters_is_believed_by_an_operators_word_only"
        ),
        file="replica/master/tablets/inquiries.py",
        function="Inquiries._inquire",
        before="recorded=recorded, wanted=wanted)",
        after="recorded=recorded)",
    ),
    Mutant(
        name="config is adopted beside a leader of another",
        rows="IN-40, IN-42",
        test="tests/unit/master/test_master_proof.py::test_config_of_a_tablet_whose_configs_were_never_kept",
        file="replica/master/tablets/proof.py",
        function="_adopted",
        before='if answers[uuid].role == "LEADER" or (_is_whole(answers[uuid]) and (strange or no_step)):',
        after="if _is_whole(answers[uuid]) and (strange or no_step):",
    ),
    Mutant(
        name="config is adopted that no first member vouches for",
        rows="IN-40, IN-42",
        test="tests/unit/master/test_master_proof.py::test_config_of_a_tablet_whose_configs_were_never_kept",
        file="replica/master/tablets/proof.py",
        function="_adopted",
        before="if newest is None or len(_vouched(known, told) & set(newest.voters)) < newest.majority:",
        after="if newest is None:",
    ),
    Mutant(
        name="member that lies is adopted while nobody leads",
        rows="IN-40, IN-42",
        test="tests/unit/master/test_master_proof.py::test_config_of_a_tablet_whose_configs_were_never_kept",
        file="replica/master/tablets/proof.py",
        function="_adopted",
        before="(strange or no_step)",
        after="strange",
    ),
    Mutant(
        name="senders of heartbeats are counted by address",
        rows="IN-43",
        test="tests/unit/master/test_master_hostile_requests.py::test_senders_of_heartbeats_are_counted_by_host_as_callers_are",
        file="replica/rpc/checked_server.py",
        function="host_of_caller",
        before="host_of_peer(str(context.peer()))",
        after='str(context.peer()).rpartition(":")[0]',
    ),
    Mutant(
        name="order takes another configs committed end",
        rows="CC-29",
        test="tests/unit/master/test_master_proof.py::test_leaders_end_goes_along_only_with_its_own_config",
        file="replica/master/tablets/proof.py",
        function="_committed",
        before="same(told[u], config) and answers",
        after="answers",
    ),
    Mutant(
        name="defect in one proposal jams the thread",
        rows="IN-90",
        test=(
            "tests/unit/master/test_master_topics.py::"
            "test_proposal_that_meets_a_defect_is_refused_and_the_next_one_is_answered"
        ),
        file="replica/master/kafka/proposals.py",
        function="Proposals.outcome_of",
        before="Exception as error:  # noqa: BLE001 - one proposal that meets a defect must not stop the others",
        after="KeyError as error:",
    ),
    Mutant(
        name="undecided proposal blocks the topic",
        rows="IN-90",
        test=(
            "tests/unit/master/test_master_topics.py::test_proposal_that_stays_undecided_does_not_stop_those_behind_it"
        ),
        file="replica/master/kafka/proposals.py",
        function="Proposals.outcome_of",
        before="if self._undecided[1] < UNDECIDED_MAX:",
        after="if self._undecided[1] > 0:",
    ),
    Mutant(
        name="creations hold up deletions",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_orders_are_bounded_and_every_one_is_given_in_the_end",
        file="replica/master/tablets/order_batch.py",
        before="CREATIONS_MAX = 150",
        after="CREATIONS_MAX = ORDERS_MAX",
    ),
    Mutant(
        name="orders have no bound",
        rows="IN-80",
        test="tests/unit/master/test_master_rations.py::test_orders_are_bounded_and_every_one_is_given_in_the_end",
        file="replica/master/tablets/order_batch.py",
        function="OrderBatch.fill",
        before="if self.orders and self._used + size > bytes_max:",
        after="if self.orders and self._used + size > 1 << 40:",
    ),
    Mutant(
        name="table is encoded for each heartbeat",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_table_that_changed_is_encoded_anew_and_no_other_one",
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.get",
        before="if of is not table:",
        after="if of is not None:",
    ),
    Mutant(
        name="changed table is ordered as it was",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_table_that_changed_is_encoded_anew_and_no_other_one",
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.get",
        before="if of is not table:",
        after="if False:",
    ),
    Mutant(
        name="many tables are encoded in one step",
        rows="IN-60, IN-80",
        test=(
            "tests/unit/master/test_master_loop_steps.py::"
            "test_orders_for_hundreds_of_wide_tables_are_no_long_step_of_the_loop"
        ),
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.make_for",
        before="""
                await asyncio.sleep(0)  # the steps before and after this one may be long, too
                described = self.get(tablet.table_id, table) or self.make(tablet.table_id, table)
                await asyncio.sleep(0)
        """,
        after="""
                described = self.get(tablet.table_id, table) or self.make(tablet.table_id, table)
        """,
    ),
    Mutant(
        name="heartbeat encodes all tables",
        rows="IN-60, IN-80",
        test=(
            "tests/unit/master/test_master_loop_steps.py::"
            "test_orders_for_hundreds_of_wide_tables_are_no_long_step_of_the_loop"
        ),
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.make_for",
        before="if made >= limits.DESCRIPTIONS_PER_HEARTBEAT_MAX:",
        after="if made >= 10 * limits.DESCRIPTIONS_PER_HEARTBEAT_MAX:",
    ),
    Mutant(
        name="order encodes its table",
        rows="IN-60, IN-80",
        test=(
            "tests/unit/master/test_master_loop_steps.py::"
            "test_orders_for_hundreds_of_wide_tables_are_no_long_step_of_the_loop"
        ),
        file="replica/master/tablets/orders.py",
        function="orders_for.created",
        before="described = descriptions.get(tablet.table_id, table)",
        after="described = descriptions.get(tablet.table_id, table) or descriptions.make(tablet.table_id, table)",
    ),
    Mutant(
        name="encoded tables are kept without a bound",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_encoded_tables_that_a_master_keeps_are_bounded_in_bytes",
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.make",
        before="while self._bytes > limits.DESCRIPTIONS_BYTES_MAX:",
        after="while self._bytes > 2 * limits.DESCRIPTIONS_BYTES_MAX:",
    ),
    Mutant(
        name="table that is in use is dropped from memory first",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_encoded_tables_that_a_master_keeps_are_bounded_in_bytes",
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.get",
        before="known = self._kept.pop(table_id, None)",
        after="known = self._kept.get(table_id)",
    ),
    Mutant(
        name="table that was encoded twice counts twice",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_encoded_tables_that_a_master_keeps_are_bounded_in_bytes",
        file="replica/master/tablets/descriptions.py",
        function="Descriptions.make",
        before="self._bytes -= len(before)",
        after="self._bytes -= 0",
    ),
    Mutant(
        name="lost answer makes a second tablet",
        rows="CC-39",
        test=(
            "tests/unit/master/test_master_replacing.py::"
            "test_lost_tablet_is_replaced_by_an_empty_one_of_the_same_partition_once"
        ),
        file="replica/master/requests/replacing.py",
        function="replace_tablets",
        before="made = {t: r.replaced_by for t, r in records.items() if r.replaced_by}",
        after="made = {t: r.replaced_by for t, r in records.items() if r.gone_us}",
    ),
    Mutant(
        name="rows on a live server are replaced",
        rows="CC-38",
        test="tests/unit/master/test_master_replacing.py::test_tablet_is_replaced_by_no_accident",
        file="replica/master/requests/replacing.py",
        function="replace_tablets",
        before="if not despite_replicas:",
        after="if len(ids) > 1:",
    ),
    Mutant(
        name="replaced before all have reported",
        rows="CC-38",
        test="tests/unit/master/test_master_replacing.py::test_tablet_is_replaced_by_no_accident",
        file="replica/master/requests/replacing.py",
        function="_refuse_before_all_reported",
        before="if left_us > 0:",
        after="if left_us > state.options.server_dead_ms * 1000:",
    ),
    Mutant(
        name="kafka is read from where it has nothing",
        rows="CC-46",
        test=(
            "tests/unit/master/test_master_replacing.py::test_sources_of_a_replaced_tablet_go_back_as_far_as_kafka_goes"
        ),
        file="replica/master/requests/replacing.py",
        function="_lowered",
        before="found[SOURCE + name] = lowered_to(record, kept.get(name, 0))",
        after="found[SOURCE + name] = lowered_to(record, 0)",
    ),
    Mutant(
        name="sources of a replaced tablet stay",
        rows="CC-46",
        test=(
            "tests/unit/master/test_master_replacing.py::test_sources_of_a_replaced_tablet_go_back_as_far_as_kafka_goes"
        ),
        file="replica/master/requests/replacing.py",
        function="_lowered",
        before="found[SOURCE + name] = lowered_to(record, kept.get(name, 0))",
        after="found[SOURCE + name] = lowered_to(record, record.done)",
    ),
    Mutant(
        name="inherited promises count as none",
        rows="MF-08, MF-09",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_entry_that_the_lost_leader_and_one_survivor_have_is_copied_from_no_other"
        ),
        file="replica/master/group/startup_checks.py",
        function="has_taken_part",
        before="return instance.inherited or bool(instance.cluster_id)",
        after="return False",
    ),
    Mutant(
        name="lost catalog is begun anew",
        rows="MF-18, MF-20",
        test="tests/process/test_master_replacement_process.py::test_catalog_that_a_master_lost_is_not_begun_anew",
        file="replica/master/group/startup_checks.py",
        function="has_taken_part",
        before="return instance.inherited or bool(instance.cluster_id)",
        after="return instance.inherited",
    ),
    Mutant(
        name="unfinished copy is started",
        rows="MF-20",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_copy_of_the_catalog_that_dies_is_repeated_and_no_master_starts_before"
        ),
        file="replica/master/group/startup_checks.py",
        function="need_catalog",
        before="if not has_catalog(disk) and (has_taken_part(instance) or not joins):",
        after="if False:",
    ),
    Mutant(
        name="even masters start",
        rows="MF-22",
        test="tests/unit/master/test_master_startup_checks.py::test_one_three_or_five_masters_and_no_other_number",
        file="replica/master/group/startup_checks.py",
        function="check_peers",
        before="if len(listed) not in limits.MASTERS:",
        after="if False:",
    ),
    Mutant(
        name="seven masters start",
        rows="MF-22",
        test="tests/unit/master/test_master_startup_checks.py::test_one_three_or_five_masters_and_no_other_number",
        file="replica/master/group/startup_checks.py",
        function="check_peers",
        before="if len(listed) not in limits.MASTERS:",
        after="if len(listed) % 2 == 0:",
    ),
    Mutant(
        name="other peers are believed",
        rows="MF-05",
        test=(
            "tests/unit/master/test_master_members.py::"
            "test_changed_group_counts_more_than_the_options_of_its_first_start"
        ),
        file="replica/master/group/startup_checks.py",
        function="check_config",
        before="if len(config.members) > 1 and stored != set(peers) and not changed:",
        after="if False:",
    ),
    Mutant(
        name="former owner is heard",
        rows="MF-10",
        test="tests/process/test_master_replacement_process.py::test_replaced_master_that_comes_back_is_harmless",
        file="replica/master/group/takeovers.py",
        function="Takeovers.check",
        before="if shown < latest:",
        after="if False:",
    ),
    Mutant(
        name="late takeover counts",
        rows="TC-02",
        test="tests/unit/master/test_master_requests_table.py::test_overtaken_calls_leave_the_master_as_it_is",
        file="replica/master/group/takeovers.py",
        function="next_takeover",
        before="if seen != number:",
        after="if False:",
    ),
    Mutant(
        name="master that lives is taken over",
        rows="MF-10",
        test="tests/unit/master/test_master_takeovers.py::test_only_a_master_that_is_gone_is_taken_over",
        file="replica/master/group/takeovers.py",
        function="next_takeover",
        before="if uuid in in_touch:",
        after="if False:",
    ),
    Mutant(
        name="two forged requests end the followers",
        rows="MF-10",
        test="tests/unit/master/test_master_takeovers.py::test_only_a_master_that_is_gone_is_taken_over",
        file="replica/master/group/takeovers.py",
        function="next_takeover",
        before="if uuid in in_touch:",
        after="if False:",
    ),
    Mutant(
        name="leader counts all masters as gone",
        rows="MF-10",
        test="tests/unit/master/test_master_takeovers.py::test_leader_counts_a_master_as_alive_for_an_election_timeout",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.in_touch",
        before="if p.last_contact_ticks <= bound",
        after="if p.last_contact_ticks < 0",
    ),
    Mutant(
        name="takeover right after the death fails",
        rows="MF-13",
        test="tests/unit/tools/test_catalog_copy.py::test_takeover_waits_until_the_leader_counts_the_lost_one_as_gone",
        file="replica/tools/catalog_copy.py",
        function="_take_over",
        before="not in (Code.ILLEGAL_STATE, Code.CAS_FAILED)",
        after="not in (Code.CAS_FAILED,)",
    ),
    Mutant(
        name="takeover in the log is forgotten",
        rows="MF-10",
        test="tests/process/test_master_replacement_process.py::test_replaced_master_that_comes_back_is_harmless",
        file="replica/master/group/takeovers.py",
        function="takeovers_in_log",
        before="if not disk.exists(folder):",
        after="if True:",
    ),
    Mutant(
        name="master takes what was cancelled again",
        rows="TC-69",
        test="tests/unit/master/test_master_requests_table.py::test_overtaken_calls_leave_the_master_as_it_is",
        file="replica/master/requests/change_requests.py",
        function="_check_seen",
        before="if seen != (config.opid, wishes):",
        after="if seen.config != config.opid:",
    ),
    Mutant(
        name="master takes what was undone again",
        rows="TC-69",
        test="tests/unit/master/test_master_requests_table.py::test_overtaken_calls_leave_the_master_as_it_is",
        file="replica/master/requests/change_requests.py",
        function="_check_seen",
        before="if seen != (config.opid, wishes):",
        after="if seen.wishes != wishes:",
    ),
    Mutant(
        name="cancelled desired change answers again",
        rows="TC-79",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_desired_change_asked_again_is_the_same_one_only_while_it_still_holds_and_asks_for_the_same"
        ),
        file="replica/master/requests/change_requests.py",
        function="_grant",
        before="if other.cancelled or other.expired(state.clock.wall_us()):",
        after="if False:",
    ),
    Mutant(
        name="another role is the same desired",
        rows="TC-79",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_desired_change_asked_again_is_the_same_one_only_while_it_still_holds_and_asks_for_the_same"
        ),
        file="replica/master/requests/change_requests.py",
        function="_asks_for",
        before="return desired.kind, desired.from_uuid, desired.to_uuid, desired.votes, desired.witness",
        after="return desired.kind, desired.from_uuid, desired.to_uuid, True, desired.witness",
    ),
    Mutant(
        name="server nobody knows is added",
        rows="TC-03",
        test="tests/unit/master/test_master_desired.py::test_members_wanted_carelessly_are_refused_with_the_reason",
        file="replica/master/requests/change_requests.py",
        function="_may_join",
        before='raise Refused(Code.NOT_FOUND, "no such tablet server; see `nyala server list`", server=uuid)',
        after="return",
    ),
    Mutant(
        name="proposal to a silent server waits",
        rows="TC-03",
        test=(
            "tests/unit/master/test_master_desired.py::test_silent_server_is_refused_with_a_code_that_nobody_waits_for"
        ),
        file="replica/master/requests/change_requests.py",
        function="_may_join",
        before='raise Refused(Code.ILLEGAL_STATE, "this tablet server is not alive", server=uuid)',
        after='raise Refused(Code.UNAVAILABLE, "this tablet server is not alive", server=uuid)',
    ),
    Mutant(
        name="silent server is asked for again",
        rows="CC-47, TC-03",
        test=(
            "tests/unit/master/test_master_desired.py::test_silent_server_is_refused_with_a_code_that_nobody_waits_for"
        ),
        file="replica/master/requests/change_requests.py",
        function="_may_join",
        before='raise Refused(Code.ILLEGAL_STATE, "this tablet server is not alive", server=uuid)',
        after='raise Refused(Code.UNAVAILABLE, "this tablet server is not alive", server=uuid)',
    ),
    Mutant(
        name="full server is wanted",
        rows="CN-03",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_what_full_servers_could_not_hold_is_refused_with_the_room_there_is"
        ),
        file="replica/master/requests/change_requests.py",
        function="_may_join",
        before="if not view.has_room(held):",
        after="if view.alive is None:",
    ),
    Mutant(
        name="desired without an end",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_deadline_that_is_negative_or_far_is_refused",
        file="replica/master/requests/change_requests.py",
        function="_deadline",
        before="if deadline_us < 0 or deadline_us > now_us + limits.CHANGE_DEADLINE_US_MAX:",
        after="if deadline_us < 0 or deadline_us > 1 << 62:",
    ),
    Mutant(
        name="removal that nobody can replace is wanted",
        rows="TC-04",
        test="tests/unit/master/test_master_desired.py::test_members_wanted_carelessly_are_refused_with_the_reason",
        file="replica/master/requests/change_requests.py",
        function="remove",
        before="""
            if member.votes:
                _replaceable(state, request.tablet_id, config)
        """,
        after="",
    ),
    Mutant(
        name="proposal is not held to the config that it was made for",
        rows="TC-79",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_proposal_becomes_the_desired_change_that_a_request_for_the_same_becomes"
        ),
        file="replica/master/requests/change_requests.py",
        function="propose",
        before="if proposal.config_opid != config.opid:",
        after="if proposal.config_opid.term != config.opid.term:",
    ),
    Mutant(
        name="reason of a proposal is not bounded",
        rows="TC-79",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_proposal_becomes_the_desired_change_that_a_request_for_the_same_becomes"
        ),
        file="replica/master/requests/change_requests.py",
        function="propose",
        before="""
            check_text(proposal.reason, "reason")
        """,
        after="",
    ),
    Mutant(
        name="job that proposed is told no outcome",
        rows="TC-79",
        test=(
            "tests/unit/master/test_master_desired.py::"
            "test_proposal_becomes_the_desired_change_that_a_request_for_the_same_becomes"
        ),
        file="replica/master/requests/change_requests.py",
        function="propose",
        before="proposal=True)",
        after="proposal=False)",
    ),
    Mutant(
        name="cancel loses what a later build keeps",
        rows="TC-79",
        test="tests/unit/master/test_master_desired.py::test_cancelled_desired_change_is_taken_back_unless_the_new_replica_votes",
        file="replica/master/catalog/records.py",
        function="write",
        before="out = {**(before or {})}",
        after="out = {f.name: before[f.name] for f in fields(record) if before and f.name in before}",
    ),
    Mutant(
        name="late cancel ends another desired change",
        rows="TC-79",
        test=(
            "tests/unit/infra/test_change_commands.py::test_cancel_of_what_was_wanted_before_leaves_what_is_wanted_now"
        ),
        file="replica/master/requests/change_requests.py",
        function="cancel",
        before="if request.seen is not None and request.seen.wishes != _changes_so_far(state, tablet_id):",
        after="if False:",
    ),
    Mutant(
        name="decision holds in the config it was made for",
        rows="CC-28",
        test=(
            "tests/unit/decision_executor/test_executor_outcome.py::"
            "test_decision_holds_already_only_in_a_config_after_the_one_it_was_made_for"
        ),
        file="replica/decision_executor/execute.py",
        function="_holds",
        before="if committed.opid.index <= decision.config_opid.index:",
        after="if committed.opid.index < decision.config_opid.index:",
    ),
    Mutant(
        name="decision waits for a leader that cannot be reached",
        rows="CC-28",
        test=(
            "tests/unit/decision_executor/test_executor_outcome.py::"
            "test_decision_goes_to_the_leader_that_the_masters_name_if_the_believed_one_cannot_be_reached"
        ),
        file="replica/decision_executor/execute.py",
        function="_send_to_leader",
        before="Code.NOT_LEADER, Code.INVALID_NAME, Code.UNAVAILABLE, Code.TABLET_NOT_FOUND",
        after="Code.NOT_LEADER, Code.INVALID_NAME, Code.TABLET_NOT_FOUND",
    ),
    Mutant(
        name="stepping down is final",
        rows="CC-28",
        test="tests/unit/decision_executor/test_executor_outcome.py::test_outcome_of_each_refusal_is_stale_or_failed",
        file="replica/types/decisions.py",
        before="""
            Code.STEPPING_DOWN,
        """,
        after="",
    ),
    Mutant(
        name="null proposal jams the thread",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_record_that_is_no_proposal_is_refused_and_counted",
        file="replica/decision_executor/records.py",
        function="read_record",
        before="""
            if value is None:
                return Unusable(Fault.NO_VALUE, "the record has no value")
        """,
        after="",
    ),
    Mutant(
        name="record under another key is taken",
        rows="IN-90",
        test=(
            "tests/unit/decision_executor/test_topic_records.py::"
            "test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong"
        ),
        file="replica/decision_executor/records.py",
        function="_key_problem",
        before="== own.encode()",
        after="is not None",
    ),
    Mutant(
        name="record names a server twice",
        rows="IN-90",
        test=(
            "tests/unit/decision_executor/test_topic_records.py::"
            "test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong"
        ),
        file="replica/decision_executor/records.py",
        function="_value_problems",
        before="len(set(uuids)) != len(uuids)",
        after="len(set(uuids)) > len(uuids)",
    ),
    Mutant(
        name="members of a decision are not looked into",
        rows="IN-90",
        test=(
            "tests/unit/decision_executor/test_topic_records.py::"
            "test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong"
        ),
        file="replica/decision_executor/records.py",
        function="_value_problems",
        before="case _ if is_dataclass(value):",
        after="case _ if value is None:",
    ),
    Mutant(
        name="impossible member ends the reader",
        rows="IN-90",
        test=(
            "tests/unit/decision_executor/test_topic_records.py::"
            "test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong"
        ),
        file="replica/decision_executor/records.py",
        function="read_record",
        before="except InvariantViolation as error:",
        after="except KeyError as error:",
    ),
    Mutant(
        name="decision is sent without the config that it was made for",
        rows="CC-28",
        test="tests/unit/rpc/test_rpc_conversions.py::test_decision_is_sent_with_all_that_the_leader_compares",
        file="replica/rpc/values.py",
        function="decision_to_pb",
        before="""
            request.has_cas = True
        """,
        after="",
    ),
    Mutant(
        name="only the first edit is published",
        rows="none",
        test="tests/formats/test_topic_formats.py::test_records_of_version_1_are_what_the_jobs_write",
        file="schemas/records.py",
        function="to_avro",
        before="return [to_avro(each) for each in value]",
        after="return [to_avro(each) for each in value[:1]]",
    ),
    Mutant(
        name="words of a stranger are shown as they are",
        rows="IN-90",
        test="tests/unit/decision_executor/test_topic_records.py::test_words_of_a_stranger_move_no_cursor",
        file="replica/decision_executor/records.py",
        function="read_record",
        before="name: printable(read[name])",
        after="name: read[name]",
    ),
    Mutant(
        name="history does not wait for Kafka",
        test="tests/unit/master/test_master_history.py::test_loss_is_told_and_a_snapshot_follows",
        file="replica/master/decisions/history_writer.py",
        function="HistoryWriter.take",
        before="if self._waiting:",
        after="if False:",
    ),
    Mutant(
        name="lost events are followed by no snapshot",
        test="tests/unit/master/test_master_history.py::test_loss_is_told_and_a_snapshot_follows",
        file="replica/master/decisions/history_writer.py",
        function="HistoryWriter._gap",
        before="self._begin_snapshot(mono_us, wall_us)",
        after="pass",
    ),
    Mutant(
        name="lost decisions are not told",
        test="tests/unit/master/test_master_history.py::test_loss_is_told_and_a_snapshot_follows",
        file="replica/master/decisions/history_writer.py",
        function="HistoryWriter.decided",
        before="self._lost += 1",
        after="pass",
    ),
    Mutant(
        name="next leader does not append what a dead one did not",
        test="tests/unit/master/test_master_history.py::test_next_leader_appends_what_a_dead_one_did_not",
        file="replica/master/decisions/history_writer.py",
        function="HistoryWriter.take",
        before="self._term, self._position = term, self._catalog().config_changes_begin",
        after="self._term, self._position = term, self._catalog().config_changed",
    ),
    Mutant(
        name="entries name none before them",
        test="tests/unit/master/test_master_history.py::test_replay_has_the_configs_of_the_catalog_and_knows_what_is_missing",
        file="replica/master/catalog/config_changes.py",
        function="ConfigChanges.add",
        before="self.last = opid",
        after="pass",
    ),
    Mutant(
        name="a flush forgets the last changed config",
        test="tests/unit/master/test_master_history.py::test_next_leader_appends_what_a_dead_one_did_not",
        file="replica/master/catalog/catalog.py",
        function="Catalog.flush",
        before="if self.config_changed != ZERO_OPID:",
        after="if False:",
    ),
    Mutant(
        name="forgotten changes are not missed",
        test="tests/unit/master/test_master_history.py::test_loss_is_told_and_a_snapshot_follows",
        file="replica/master/catalog/config_changes.py",
        function="ConfigChanges.since",
        before="if position < self.begin:",
        after="if False:",
    ),
    Mutant(
        name="record is lost by an unforeseen error",
        test="tests/unit/master/test_master_kafka_link.py::test_unforeseen_error_of_the_client_loses_no_record",
        file="replica/master/kafka/kafka_link.py",
        function="KafkaLink._send",
        before="self._outbox.put_back(left)",
        after="self._outbox.put_back(left if error else [])",
    ),
)
