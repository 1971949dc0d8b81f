"""Mutants: peers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="pulses are not sent",
        rows="CN-28",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_pulse_is_an_empty_batch_that_names_the_process_and_only_where_nothing_else_went"
        ),
        file="replica/transport/peer.py",
        function="Peer.pulse",
        before="""
            if self._pulse_due:
                self._send_soon()
        """,
        after="",
    ),
    Mutant(
        name="batch of any number of entries",
        rows="IN-60",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_batch_of_more_entries_than_one_iteration_takes_is_split"
        ),
        file="replica/transport/peer.py",
        function="Peer._take",
        before="over = total + size > bound or entries > limits.PEER_BATCH_ENTRIES_SENT",
        after="over = total + size > bound",
    ),
    Mutant(
        name="closed connection waits for the collector",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_closed_link_is_free_at_once",
        file="replica/transport/frame_reader.py",
        function="FrameReader.__init__",
        before="""
            self.frame_bytes_max = frame_bytes_max
        """,
        after="""
            self._hand = self._hand_over
            self.frame_bytes_max = frame_bytes_max
        """,
    ),
    Mutant(
        name="buffer as long as was announced",
        rows="IN-51",
        test=(
            "tests/unit/transport/test_transport_connections.py::"
            "test_idle_link_holds_no_buffer_and_a_long_frame_only_what_has_come"
        ),
        file="replica/transport/frame_reader.py",
        function="FrameReader._keep",
        before="self._begun = bytearray(min(needed, max(_BEGUN_BYTES, 2 * rest)))",
        after="self._begun = bytearray(needed)",
    ),
    Mutant(
        name="name is looked up once",
        rows="MF-11, MF-12",
        test="tests/process/test_names_process.py::test_master_is_replaced_by_its_name_and_nobody_is_told",
        file="replica/transport/link.py",
        function="open_link",
        before="""
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
        """,
        after="""
            import socket

            known = globals().setdefault("_PLACES", {})
            target = Address(known.setdefault(target.host, socket.gethostbyname(target.host)), target.port)
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
        """,
    ),
    Mutant(
        name="lost for a watch that ended",
        rows="CN-28",
        test="tests/unit/transport/test_transport_liveness.py::test_servers_that_are_not_watched_any_more_are_forgotten",
        file="replica/transport/liveness.py",
        function="PeerLiveness.watch",
        before="self._now, reported=False",
        after="self._now",
    ),
    Mutant(
        name="another process is no news",
        rows="CN-28",
        test="tests/unit/transport/test_transport_liveness.py::test_another_process_of_a_server_is_told_without_any_silence",
        file="replica/transport/liveness.py",
        function="PeerLiveness.heard",
        before="""
            peer.reported = peer.reported and peer.process == 0
        """,
        after="",
    ),
    Mutant(
        name="tickets of all hosts make room for one",
        rows="IN-51",
        test=(
            "tests/unit/transport/test_transport_connections.py::test_host_that_asks_for_too_many_tickets_loses_its_own"
        ),
        file="replica/transport/listener.py",
        function="Listener.ticket",
        before="most = max(self._of_hosts.values(), key=len)",
        after="most = self._tickets",
    ),
    Mutant(
        name="hosts that ask are remembered for ever",
        rows="IN-51",
        test=(
            "tests/unit/transport/test_transport_connections.py::test_host_that_asks_for_too_many_tickets_loses_its_own"
        ),
        file="replica/transport/listener.py",
        function="Listener._take_back",
        before="if not of_host:",
        after="if False:",
    ),
    Mutant(
        name="silent connection stays",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_connection_that_shows_no_ticket_in_time_ends",
        file="replica/transport/listener.py",
        function="Listener._look",
        before="for incoming in [i for i, until_s in self._ticket_deadlines.items() if until_s <= now_s]:",
        after="for incoming in list[_Incoming]():",
    ),
    Mutant(
        name="unproven connections without bound",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_flood_of_silent_connections_keeps_no_server_out",
        file="replica/transport/listener.py",
        function="Listener.accepted",
        before="self.without_ticket.add(incoming, address)",
        after="incoming.quota = None",
    ),
    Mutant(
        name="a ticket is good twice",
        rows="TC-73",
        test="tests/unit/server/test_server_fetch.py::test_connection_is_given_to_who_names_this_server_and_a_session",
        file="replica/transport/listener.py",
        function="Listener.use_ticket",
        before="found = self._take_back(ticket)",
        after="found = self._tickets.get(ticket)",
    ),
    Mutant(
        name="strangers take the servers share",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_flood_of_silent_connections_keeps_no_server_out",
        file="replica/transport/listener.py",
        function="Listener.use_ticket",
        before="incoming.proven, incoming.quota = found.proven, self.servers if found.proven else self.strangers",
        after="incoming.proven, incoming.quota = found.proven, self.servers",
    ),
    Mutant(
        name="listed addresses are not tried",
        rows="CN-34",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_server_that_is_nowhere_where_it_is_known_is_found_where_the_masters_say"
        ),
        file="replica/transport/network.py",
        function="PeerNetwork.addresses",
        before="maps = (self._given, self._listed, self._configured)",
        after="maps = (self._given, self._configured)",
    ),
    Mutant(
        name="made up servers pile up",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_made_up_servers_leave_bounded_addresses_and_links",
        file="replica/transport/network.py",
        function="PeerNetwork._open",
        before="if not self.knows(uuid):",
        after="if False:",
    ),
    Mutant(
        name="refusals fill the log",
        rows="IN-50",
        test="tests/unit/transport/test_transport_forged_messages.py::test_peer_that_goes_on_forging_fills_no_log",
        file="replica/transport/refusals.py",
        function="Refusals.note",
        before="if logged_s is not None and now - logged_s < TELL_AGAIN_S:",
        after="if logged_s is not None and now - logged_s < 0:",
    ),
    Mutant(
        name="link for another uuid is granted",
        rows="TC-22",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_stream_meant_for_another_uuid_delivers_nothing_and_tells_the_sender"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer.OpenLink",
        before="check_name(request.dest_uuid, self._uuid)",
        after="check_name(request.dest_uuid or self._uuid, request.dest_uuid or self._uuid)",
    ),
    Mutant(
        name="new links are not judged",
        rows="MF-10",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_whoever_must_not_be_heard_any_more_is_not_heard_on_a_link_that_stands"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer.OpenLink",
        before="self._check_caller(request.from_uuid, request.takeover)",
        after="pass",
    ),
    Mutant(
        name="names of a batch go into the log as they are",
        rows="IN-50, IN-82",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_names_of_a_batch_forge_no_line_of_the_log_and_fill_no_log"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="{batch.from_uuid[:64]!r}",
        after="{batch.from_uuid}",
    ),
    Mutant(
        name="parts are counted after they are made",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_batch_that_no_sender_makes_ends_its_link_and_delivers_nothing"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="if why := too_many_parts(body):",
        after="if why := too_many_parts(body[:0]):",
    ),
    Mutant(
        name="peer batch without a name is taken",
        rows="TC-73",
        test="tests/process/test_server_hostile.py::test_link_for_another_uuid_is_refused_before_anything_is_read",
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="if batch.dest_uuid != self._uuid or batch.from_uuid != sender:",
        after="if batch.dest_uuid and batch.dest_uuid != self._uuid or batch.from_uuid != sender:",
    ),
    Mutant(
        name="batches are not judged",
        rows="MF-10",
        test=(
            "tests/unit/transport/test_transport_messages.py::"
            "test_whoever_must_not_be_heard_any_more_is_not_heard_on_a_link_that_stands"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="self._check_caller(sender, batch.takeover)",
        after="pass",
    ),
    Mutant(
        name="batch of any length",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_forged_messages.py::"
            "test_batch_that_no_sender_makes_ends_its_link_and_delivers_nothing"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="if len(batch.messages) > limits.PEER_BATCH_MESSAGES_MAX:",
        after="if False:",
    ),
    Mutant(
        name="batch speaks for its first tablet",
        rows="CN-03, CN-24",
        test="tests/unit/transport/test_transport_messages.py::test_messages_of_two_tablets_arrive_in_order_as_they_were",
        file="replica/transport/servicer.py",
        function="PeerServicer._take",
        before="""
            if why := self._deliver_one(sender, wire, proven):
        """,
        after="""
            wire.tablet_id = batch.messages[0].tablet_id
            if why := self._deliver_one(sender, wire, proven):
        """,
    ),
    Mutant(
        name="one address takes all",
        rows="IN-51",
        test=(
            "tests/unit/transport/test_transport_connections.py::test_one_connection_too_many_ends_the_one_that_was_idle_longest"
        ),
        file="replica/transport/connection_quota.py",
        function="ConnectionQuota.add",
        before="if len(of_address.connections) > self._bounds.connections_per_address_max:",
        after="if False:",
    ),
    Mutant(
        name="bytes of one address without bound",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_begun_frames_are_bounded_in_bytes_and_in_time",
        file="replica/transport/connection_quota.py",
        function="ConnectionQuota.hold",
        before="if more > 0 and of_address.bytes + more > self._bounds.bytes_per_address_max:",
        after="if False:",
    ),
    Mutant(
        name="sums forget what a closed one held",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_share_is_never_over_its_bounds_whatever_happens",
        file="replica/transport/connection_quota.py",
        function="ConnectionQuota.remove",
        before="self.bytes -= held.bytes",
        after="self.bytes -= 0",
    ),
    Mutant(
        name="half frames wait for ever",
        rows="IN-51",
        test="tests/unit/transport/test_transport_connections.py::test_begun_frames_are_bounded_in_bytes_and_in_time",
        file="replica/transport/connection_quota.py",
        function="ConnectionQuota.end_overdue",
        before="for connection in [c for c in self._begun if self._held[c].due_s <= now_s]:",
        after="for connection in []:",
    ),
    Mutant(
        name="busy links go first",
        rows="IN-51",
        test=(
            "tests/unit/transport/test_transport_connections.py::test_one_connection_too_many_ends_the_one_that_was_idle_longest"
        ),
        file="replica/transport/connection_quota.py",
        function="_oldest",
        before="return next((c for c in others if c.idle), others[0] if others else newest)",
        after="return others[0] if others else newest",
    ),
    Mutant(
        name="a sender is believed without an answer",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_sender_counts_only_if_its_process_answers_where_it_is_known"
        ),
        file="replica/transport/sender_check.py",
        function="SenderCheck.is_member",
        before="if not is_proven(answers):",
        after="if not answers:",
    ),
    Mutant(
        name="one host makes all the calls about senders",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_senders_of_one_host_cause_few_calls_at_once_and_others_are_still_proven"
        ),
        file="replica/transport/sender_check.py",
        function="SenderCheck.__init__",
        before="CallBounds(limits.LINK_CALLS_MAX, limits.LINK_CALLS_PER_HOST_MAX)",
        after="CallBounds(limits.LINK_CALLS_MAX, limits.LINK_CALLS_MAX)",
    ),
    Mutant(
        name="another process of the uuid proves its sender",
        rows="IN-50",
        test=("tests/unit/transport/test_transport_senders.py::test_first_source_at_which_the_uuid_answers_decides"),
        file="replica/transport/sender_check.py",
        function="is_proven",
        before="return Answer.OTHER not in found",
        after="return Answer.SAME in found",
    ),
    Mutant(
        name="an address counts because its sender gives it",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_sender_counts_only_if_its_process_answers_where_it_is_known"
        ),
        file="replica/transport/sender_check.py",
        function="SenderCheck.is_member",
        before="address in known or await ask(self._uuid, uuid, address, link_number) is Answer.SAME",
        after="address in known or await ask(self._uuid, uuid, address, link_number) is not None",
    ),
    Mutant(
        name="a former build may have any number",
        rows="IN-50",
        test=("tests/unit/transport/test_transport_senders.py::test_server_of_the_former_build_is_proven_by_its_uuid"),
        file="replica/transport/sender_check.py",
        function="ask",
        before="return Answer.OTHER if link_number else Answer.SAME",
        after="return Answer.SAME",
    ),
    Mutant(
        name="a number is good for each receiver",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_numbers_are_of_one_receiver_and_none_for_a_server_that_is_not_known"
        ),
        file="replica/transport/network.py",
        function="PeerNetwork.link_number_for",
        before="blake2b(uuid.encode(), key",
        after="blake2b(b'', key",
    ),
    Mutant(
        name="an unknown server gets a number",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_numbers_are_of_one_receiver_and_none_for_a_server_that_is_not_known"
        ),
        file="replica/transport/network.py",
        function="PeerNetwork.link_number_for",
        before="if not self.knows(uuid):",
        after="if False:",
    ),
    Mutant(
        name="an unproven address is used for a known server",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_address_that_only_its_sender_gives_is_used_for_no_known_server"
        ),
        file="replica/transport/network.py",
        function="PeerNetwork.addresses",
        before="return found or self._hinted.get(uuid, ())",
        after="return (*self._hinted.get(uuid, ()), *found)",
    ),
    Mutant(
        name="a forged link ends an honest one",
        rows="IN-50, IN-51",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_unproven_link_ends_no_other_and_ends_itself_once_its_sender_is_known"
        ),
        file="replica/transport/listener.py",
        function="Listener.use_ticket",
        before="if found.proven:",
        after="if True:",
    ),
    Mutant(
        name="a link stays a stranger's",
        rows="IN-50, IN-51",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_unproven_link_ends_no_other_and_ends_itself_once_its_sender_is_known"
        ),
        file="replica/transport/listener.py",
        function="Listener._look",
        before="self.end_unproven(uuid)",
        after="pass",
    ),
    Mutant(
        name="strangers are heard as members",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::test_strangers_link_changes_no_log_no_commit_and_no_clock"
        ),
        file="replica/transport/servicer.py",
        function="PeerServicer._deliver_one",
        before="if not proven and needs_proof(message)",
        after="if False and needs_proof(message)",
    ),
    Mutant(
        name="an append needs no proof",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_each_kind_of_message_that_a_leader_or_voter_alone_sends_needs_proof"
        ),
        file="replica/raft/message_checks.py",
        function="needs_proof",
        before="isinstance(m, AppendEntries | TimeoutNow)",
        after="isinstance(m, TimeoutNow)",
    ),
    Mutant(
        name="an acknowledgement needs no proof",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_each_kind_of_message_that_a_leader_or_voter_alone_sends_needs_proof"
        ),
        file="replica/raft/message_checks.py",
        function="needs_proof",
        before="return m.code is Code.OK",
        after="return False",
    ),
    Mutant(
        name="members in tombstones are not known",
        rows="IN-50, TC-77",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_server_with_a_tombstone_alone_knows_the_members_that_may_ask_for_its_vote"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.start",
        before="self.learn_config(cmeta.committed_config)",
        after="pass",
    ),
    Mutant(
        name="the latest config is believed against another one",
        rows="IN-50",
        test=(
            "tests/unit/transport/test_transport_senders.py::"
            "test_sender_counts_only_if_its_process_answers_where_it_is_known"
        ),
        file="replica/transport/network.py",
        function="PeerNetwork.learn_config",
        before="places.update(dict.fromkeys(new))",
        after="self._all_configured[member.uuid] = dict.fromkeys(member.addresses)",
    ),
    Mutant(
        name="metrics page takes any number of connections",
        rows="IN-51",
        test="tests/unit/transport/test_transport_metrics_page.py::test_connections_of_the_metrics_page_are_bounded_and_silent_ones_end",
        file="replica/transport/exporter.py",
        function="_Page.process_request",
        before="if not self._free.acquire(blocking=False):",
        after="if self._free is None:",
    ),
    Mutant(
        name="thread of the metrics page is not given back",
        rows="IN-51",
        test="tests/unit/transport/test_transport_metrics_page.py::test_connections_of_the_metrics_page_are_bounded_and_silent_ones_end",
        file="replica/transport/exporter.py",
        function="_Page.process_request_thread",
        before="self._forget(request)",
        after="pass",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-51",
            test="tests/unit/transport/test_transport_metrics_page.py::test_callers_that_send_a_byte_now_and_then_do_not_keep_prometheus_away",
            file="replica/transport/exporter.py",
            function="_Page.process_request",
            before=before,
            after=after,
        )
        for name, before, after in (
            ("slow callers of the metrics page stay", "oldest.shutdown(SHUT_RDWR)", "pass"),
            (
                "newest caller of the metrics page is ended",
                "iter(self._held.values())",
                "reversed(self._held.values())",
            ),
            (
                "new caller of the metrics page does not wait",
                "if not self._free.acquire(timeout=_END_S):",
                "if not self._free.acquire(blocking=False):",
            ),
        )
    ),
    Mutant(
        name="silent connection of the metrics page stays",
        rows="IN-51",
        test="tests/unit/transport/test_transport_metrics_page.py::test_connections_of_the_metrics_page_are_bounded_and_silent_ones_end",
        file="replica/transport/exporter.py",
        function="_Handler",
        before="timeout = _IDLE_S",
        after="seconds = _IDLE_S",
    ),
    Mutant(
        name="readyz answers 200 with reasons",
        test=("tests/unit/transport/test_transport_health.py::test_page_tells_whether_the_process_lives_and_can_serve"),
        file="replica/transport/exporter.py",
        function="answers.application",
        before='"503 Service Unavailable" if reasons else "200 OK"',
        after='"200 OK"',
    ),
    Mutant(
        name="page acts on any method",
        test="tests/unit/transport/test_transport_health.py::test_page_answers_other_methods_without_acting",
        file="replica/transport/exporter.py",
        function="answers.application",
        before='if environ.get("REQUEST_METHOD") not in _ASKING:',
        after="if False:",
    ),
    Mutant(
        name="hung loop counts as live",
        test="tests/unit/transport/test_transport_health.py::test_only_a_hung_event_loop_ends_a_process",
        file="replica/transport/health.py",
        function="Liveness.problem",
        before="if silent_s < LOOP_SILENT_S_MAX or self._waits_for_disk(self._thread):",
        after="if silent_s < 10 * LOOP_SILENT_S_MAX:",
    ),
    Mutant(
        name="loop that waits for the disk counts as hung",
        test=(
            "tests/unit/transport/test_transport_health.py::"
            "test_loop_that_waits_for_the_disk_is_no_reason_for_a_restart"
        ),
        file="replica/transport/health.py",
        function="Liveness.problem",
        before="if silent_s < LOOP_SILENT_S_MAX or self._waits_for_disk(self._thread):",
        after="if silent_s < LOOP_SILENT_S_MAX:",
    ),
    Mutant(
        name="each probe of a hung loop posts to it",
        test=(
            "tests/unit/transport/test_transport_health.py::"
            "test_loop_that_does_not_run_has_one_question_however_many_ask"
        ),
        file="replica/transport/health.py",
        function="Liveness.silent_s",
        before="if question is None or question.ran.is_set():",
        after="if True:",
    ),
    Mutant(
        name="health service is ready with reasons",
        test="tests/unit/transport/test_transport_health.py::test_health_service_answers_for_each_name",
        file="replica/transport/health.py",
        function="HealthServicer._status",
        before="return _Status.NOT_SERVING if self._health.reasons() else _Status.SERVING",
        after="return _Status.SERVING",
    ),
    Mutant(
        name="watchers without a bound",
        test="tests/unit/transport/test_transport_health.py::test_watch_tells_each_change_and_is_bounded",
        file="replica/transport/health.py",
        function="HealthServicer.Watch",
        before="if self._watchers >= WATCHERS_MAX:",
        after="if False:",
    ),
    Mutant(
        name="master is unready during an election",
        test=(
            "tests/unit/master/test_master_readiness.py::"
            "test_master_without_a_leader_is_ready_for_as_long_as_elections_take"
        ),
        file="replica/master/readiness.py",
        function="Readiness.reasons",
        before="if silent_s <= LEADERLESS_S_MAX:",
        after="if silent_s <= 0:",
    ),
    Mutant(
        name="server is ready before it is registered",
        test=(
            "tests/process/test_ready_process.py::test_server_is_ready_once_registered_and_stays_so_without_its_master"
        ),
        file="replica/server/readiness.py",
        function="Readiness.reasons",
        before="if manager.options.masters and not beats.registered:",
        after="if False:",
    ),
    Mutant(
        name="quiescing server is ready",
        test=(
            "tests/process/test_ready_process.py::test_server_is_ready_once_registered_and_stays_so_without_its_master"
        ),
        file="replica/server/readiness.py",
        function="Readiness.reasons",
        before="if manager.quiescing:",
        after="if False:",
    ),
    Mutant(
        name="page listens on loopback whatever it is told",
        rows="none",
        test="tests/process/test_ready_process.py::test_page_is_at_the_address_that_is_asked_for",
        file="replica/transport/health.py",
        function="serve_health",
        before="page.serve(options.metrics_port, options.metrics_host, health)",
        after='page.serve(options.metrics_port, "127.0.0.1", health)',
    ),
    Mutant(
        name="page has no address of IPv6",
        rows="none",
        test=(
            "tests/process/test_ready_process.py::test_page_is_at_the_address_that_is_asked_for "
            "tests/process/test_ready_process.py::test_page_at_an_address_of_another_machine_starts_nothing"
        ),
        file="replica/transport/exporter.py",
        function="Exporter.serve",
        before='_PageOfIPv6 if ":" in host else _Page',
        after="_Page",
    ),
    Mutant(
        name="page takes no address in brackets",
        rows="none",
        test="tests/process/test_ready_process.py::test_page_is_at_the_address_that_is_asked_for",
        file="replica/transport/exporter.py",
        function="Exporter.serve",
        before='host = host.strip("[]")',
        after="host = host.strip()",
    ),
    Mutant(
        name="probes are not served by gRPC",
        rows="none",
        test="tests/process/test_ready_process.py::test_probes_of_a_cluster_with_tls",
        file="replica/transport/health.py",
        function="serve_health",
        before="""
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(health, services), server)
        """,
        after="",
    ),
)
