"""Mutants: rpc."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="value of a newer build is a raw exception",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py",
        file="replica/types/errors.py",
        function="known_value",
        before="except ValueError:",
        after="except KeyError:",
    ),
    Mutant(
        name="code of a vote is converted where it is read",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_no_value_of_a_message_is_read_in_another_way",
        on_disk=True,
        file="replica/rpc/messages.py",
        function="_vote_reply",
        before='known_value(Code, body.code, "the code of a consensus message")',
        after="Code(body.code)",
    ),
    Mutant(
        name="waiting for a copy in an unknown phase goes on",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_waiting_for_a_copy_in_an_unknown_phase_ends",
        file="replica/tools/moves.py",
        function="is_copy_over",
        before="if job.phase not in COPY_OVER | COPY_UNDER_WAY:",
        after="if False:",
    ),
    Mutant(
        name="phase of a copy that waiters do not know",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_every_phase_of_a_copy_is_known_to_who_waits_for_its_end",
        on_disk=True,
        file="replica/tablet_copy/target.py",
        before='self._progress.phase = "COPY.5"',
        after='self._progress.phase = "COPY.8"',
    ),
    Mutant(
        name="client gives up on a busy host",
        rows="IN-43",
        test="tests/unit/rpc/test_rpc_once.py::test_who_asks_waits_for_a_busy_host",
        file="replica/rpc/connection_options.py",
        before='("grpc.min_reconnect_backoff_ms", 1_000),',
        after='("grpc.min_reconnect_backoff_ms", 50),',
    ),
    Mutant(
        name="who asks once gives up on a busy host",
        rows="IN-43, MF-10",
        test="tests/unit/rpc/test_rpc_once.py::test_who_asks_waits_for_a_busy_host",
        file="replica/rpc/connection_options.py",
        before='("grpc.min_reconnect_backoff_ms", 5_000),',
        after='("grpc.min_reconnect_backoff_ms", 50),',
    ),
    Mutant(
        name="bounds of all calls are not asked",
        rows="IN-51",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.charge",
        before="if self._all.bytes + size_bytes > bounds.bytes_max:",
        after="if False:",
    ),
    Mutant(
        name="number of all calls is not asked",
        rows="IN-51",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.begin",
        before="if self._all.calls >= bounds.calls_max:",
        after="if False:",
    ),
    Mutant(
        name="one host may have all memory",
        rows="IN-51, IN-60",
        test=(
            "tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds "
            "tests/unit/rpc/test_rpc_call_costs.py::test_another_hosts_calls_find_room_beside_those_of_a_greedy_one"
        ),
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.charge",
        before="if of_host.bytes + size_bytes > bounds.bytes_per_host_max:",
        after="if of_host.bytes + size_bytes > bounds.bytes_max:",
    ),
    Mutant(
        name="ended calls are counted on",
        rows="IN-51",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.forget",
        before="each.calls -= 1",
        after="each.calls -= 0",
    ),
    Mutant(
        name="ended calls are charged on",
        rows="IN-51, IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_charge_ends_with_the_call_however_it_ends",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.forget",
        before="each.bytes -= call.bytes",
        after="each.bytes -= 0",
    ),
    Mutant(
        name="refused call stays charged",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.begin",
        before="call.end()",
        after="pass",
    ),
    Mutant(
        name="call ends twice",
        rows="IN-51",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="Call.end",
        before="self._ended = True",
        after="self._ended = False",
    ),
    Mutant(
        name="call that never fits is told to wait",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="CallsInFlight.charge",
        before="if call.bytes + size_bytes > bounds.bytes_per_host_max:",
        after="if False:",
    ),
    Mutant(
        name="ended call is charged again",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_calls_under_way_never_exceed_their_bounds",
        file="replica/rpc/calls_in_flight.py",
        function="Call.add",
        before="if not self._ended:",
        after="if True:",
    ),
    Mutant(
        name="small replies wait for one another",
        rows="none",
        test="tests/unit/transport/test_transport_messages.py::test_small_answers_on_a_connection_do_not_wait_for_one_another",
        file="replica/rpc/connection_options.py",
        function="set_keep_alive",
        before="""
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        """,
        after="",
    ),
    Mutant(
        name="compressed requests are expanded",
        rows="IN-60",
        test="tests/process/test_call_memory_process.py::test_compressed_requests_take_no_memory_and_fill_no_log",
        file="replica/rpc/connection_options.py",
        function="",
        before="""
            _UNCOMPRESSED,
            # Two servers on one port would share its connections; the second must fail to bind.
        """,
        after="""
            # Two servers on one port would share its connections; the second must fail to bind.
        """,
    ),
    Mutant(
        name="compressed requests reach a handler",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_compression.py::"
            "test_server_refuses_a_compressed_request_and_takes_others_beside_it"
        ),
        file="replica/rpc/connection_options.py",
        function="",
        before="""
            _UNCOMPRESSED,
            # Two servers on one port would share its connections; the second must fail to bind.
        """,
        after="""
            # Two servers on one port would share its connections; the second must fail to bind.
        """,
    ),
    Mutant(
        name="compressed replies are expanded",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_compression.py::test_caller_refuses_a_compressed_reply",
        file="replica/rpc/connection_options.py",
        function="",
        before="""
            *_SIZES,
            _UNCOMPRESSED,
        """,
        after="""
            *_SIZES,
        """,
    ),
    Mutant(
        name="gRPC writes a line for each refused call",
        rows="IN-60",
        test="tests/process/test_call_memory_process.py::test_compressed_requests_take_no_memory_and_fill_no_log",
        file="replica/types/quiet_grpc.py",
        function="",
        before="""
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        """,
        after="",
    ),
    Mutant(
        name="each item is looked at a hundred times",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_tablet_servers_cost_no_more_than_is_stated",
        file="replica/rpc/request_fields.py",
        function="_each",
        before="for item in items:",
        after="for item in (each for each in items for _ in range(100)):",
    ),
    Mutant(
        name="servers take requests unchecked",
        rows="IN-60, IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/rpc/checked_server.py",
        function="new_server",
        before="return grpc.aio.server(options=SERVER_OPTIONS, interceptors=[checks or RequestChecks()])",
        after="return grpc.aio.server(options=SERVER_OPTIONS)",
    ),
    Mutant(
        name="thread of large requests starts late",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_large_request_needs_no_thread_that_is_not_there",
        file="replica/rpc/checked_server.py",
        function="RequestChecks.__init__",
        before="""
            self._pool = started_pool(1, "read-request")
        """,
        after="""
            from concurrent.futures import ThreadPoolExecutor
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-request")
        """,
    ),
    Mutant(
        name="thread of large requests stays",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_large_request_needs_no_thread_that_is_not_there",
        file="replica/rpc/checked_server.py",
        function="RequestChecks.close",
        before="self._pool.shutdown(wait=False, cancel_futures=True)",
        after="self._pool.submit(int)",
    ),
    Mutant(
        name="call stays counted when it has ended",
        rows="IN-51, IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_charge_ends_with_the_call_however_it_ends",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._begin",
        before="""
            context.add_done_callback(lambda _: call.end())
        """,
        after="",
    ),
    Mutant(
        name="calls are charged for their bytes alone",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_every_call_is_charged_what_its_row_says",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._request",
        before="""
            call.add(request_cost(method, request, len(data)))
        """,
        after="",
    ),
    Mutant(
        name="fields of a long request are not charged",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_parts_of_a_long_request_are_charged_before_it_is_parsed",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._request",
        before="call.add(fields_cost(",
        after="(lambda n: None)(fields_cost(",
    ),
    Mutant(
        name="reply is not charged once it is there",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_long_page_and_late_reply_are_charged_once_they_are_there",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._behind_checks.answer",
        before="""
            call.become(limits.REQUESTS[method].fixed_bytes + reply_cost(len(sent)), Applied.UNKNOWN)
        """,
        after="",
    ),
    Mutant(
        name="reply on its way says that nothing was done",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_long_page_and_late_reply_are_charged_once_they_are_there",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._behind_checks.answer",
        before="reply_cost(len(sent)), Applied.UNKNOWN)",
        after="reply_cost(len(sent)), Applied.NOT_APPLIED)",
    ),
    Mutant(
        name="reply of any length is sent",
        rows="IN-60, IN-80",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_reply_is_no_longer_than_its_row_says",
        file="replica/rpc/checked_server.py",
        function="_sendable",
        before="if len(reply) > most:",
        after="if len(reply) > 2 * most:",
    ),
    Mutant(
        name="reply that nobody takes is kept",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_reply_is_charged_until_its_caller_has_taken_it",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._give_up_untaken",
        before="late_s = self._reply_s + size_bytes / limits.FRAME_BYTES_PER_S_MIN",
        after="late_s = 1000.0",
    ),
    Mutant(
        name="call without a deadline waits for ever",
        rows="IN-60, IN-62",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_call_without_a_deadline_ends_after_what_is_stated",
        file="replica/rpc/checked_server.py",
        function="RequestChecks._in_time",
        before="async with asyncio.timeout(wait_s) as limit:",
        after="async with asyncio.timeout(1000 * wait_s + 200) as limit:",
    ),
    Mutant(
        name="reply is not foreseen",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_reply_is_foreseen_by_what_the_request_asks_for",
        file="replica/rpc/call_costs.py",
        function="request_cost",
        before="return cost if bound.reply_late else cost + reply_cost(reply_bytes(method, request, size_bytes))",
        after="return cost",
    ),
    Mutant(
        name="page is charged as a whole list",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_reply_is_foreseen_by_what_the_request_asks_for",
        file="replica/rpc/call_costs.py",
        function="reply_bytes",
        before="if _is_paged(request.DESCRIPTOR):",
        after="if False:",
    ),
    Mutant(
        name="rows are as many as a request says",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_call_costs.py::test_reply_is_foreseen_by_what_the_request_asks_for",
        file="replica/rpc/call_costs.py",
        function="_items",
        before="min(said, size_bytes // _ROW_BYTES_MIN)",
        after="said",
    ),
    Mutant(
        name="rows cost nothing",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_tablet_servers_cost_no_more_than_is_stated",
        file="replica/rpc/call_costs.py",
        function="request_cost",
        before="cost = _items(bound, request, size_bytes) * bound.item_bytes",
        after="cost = 0",
    ),
    Mutant(
        name="small request has few fields",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_masters_cost_no_more_than_is_stated",
        file="replica/rpc/call_costs.py",
        function="arrival_cost",
        before="(size_bytes // 2 * bound.field_bytes if may_repeat(message_type) else 0)",
        after="0",
    ),
    Mutant(
        name="call costs only its bytes",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_a_call_of_few_bytes_costs_no_more_than_it_is_charged",
        file="replica/rpc/call_costs.py",
        function="arrival_cost",
        before="cost = bound.fixed_bytes + size_bytes",
        after="cost = size_bytes",
    ),
    Mutant(
        name="each address of a network is a host",
        rows="IN-51",
        test="tests/unit/rpc/test_rpc_checked_server.py::test_host_has_one_name_however_many_addresses_it_has",
        file="replica/rpc/hosts.py",
        before="_NETWORK_BITS = 64",
        after="_NETWORK_BITS = 128",
    ),
    Mutant(
        name="append without its previous position",
        rows="TC-21",
        test=(
            "tests/unit/rpc/test_rpc_conversions.py::"
            "test_append_entries_on_the_wire_names_both_ends_the_term_the_previous_position_and_the_entries"
        ),
        file="replica/rpc/messages.py",
        function="fill_message",
        before="body.prev.term, body.prev.index = message.prev",
        after="body.SetInParent()",
    ),
    Mutant(
        name="page has no end",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_every_tablet_of_a_table_is_listed_in_pages",
        file="replica/rpc/page_writer.py",
        function="page_of",
        before="if taken and left < 0:",
        after="if taken and left < -(1 << 40):",
    ),
    Mutant(
        name="page holds the loop",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_work_on_a_page_gives_way_to_heartbeats",
        file="replica/rpc/page_writer.py",
        function="page_of",
        before="""
            await asyncio.sleep(0)
        """,
        after="",
    ),
    Mutant(
        name="call that names nobody is carried out",
        rows="TC-73",
        test=(
            "tests/unit/server/test_server_requests_table.py::"
            "test_misaddressed_stale_and_repeated_calls_leave_everything_as_it_was[CopyService.EndCopy]"
        ),
        file="replica/rpc/request_errors.py",
        function="check_name",
        before="if dest_uuid != own_uuid:",
        after="if dest_uuid and dest_uuid != own_uuid:",
    ),
    Mutant(
        name="fetch ignores the name",
        rows="TC-73",
        test="tests/process/test_server_identity.py::test_every_call_for_another_server_is_refused_by_name",
        file="replica/rpc/request_errors.py",
        function="check_name",
        before="if dest_uuid != own_uuid:",
        after="if dest_uuid and dest_uuid != own_uuid:",
    ),
    Mutant(
        name="method without a row is served",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_bounds.py::test_method_without_a_row_is_refused",
        file="replica/rpc/request_bounds.py",
        function="check_size",
        before="""
            raise Refused(Code.ILLEGAL_STATE, "this server states no bound for such requests", method=method)
        """,
        after="""
            return False
            raise Refused(Code.ILLEGAL_STATE, "this server states no bound for such requests", method=method)
        """,
    ),
    Mutant(
        name="request of any size is read",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_bounds.py::test_request_that_is_too_large_is_refused_unread",
        file="replica/rpc/request_bounds.py",
        function="check_size",
        before="if len(data) > bound.bytes_max:",
        after="if len(data) > limits.GRPC_MESSAGE_BYTES_MAX:",
    ),
    Mutant(
        name="parts are counted after parsing",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_bounds.py::test_request_of_too_many_parts_is_refused_unparsed",
        file="replica/rpc/request_bounds.py",
        function="count_fields",
        before="if found > most:",
        after="if found > 100 * most:",
    ),
    Mutant(
        name="inner parts are not counted",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_bounds.py::test_fields_are_counted_at_every_depth_where_they_may_repeat",
        file="replica/rpc/request_bounds.py",
        function="count_fields",
        before="if below is not None:",
        after="if below is not None and len(parts) > 1:",
    ),
    Mutant(
        name="nan is a measure",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/rpc/request_fields.py",
        function="_measure",
        before="if not (math.isfinite(value) and value >= 0):",
        after="if value < 0:",
    ),
    Mutant(
        name="field without a rule",
        rows="IN-82",
        test="tests/tidy/test_request_bounds.py::test_every_field_of_a_request_says_what_it_may_be",
        file="replica/rpc/request_fields.py",
        before='**_of(check_text, "reason location version owner"),',
        after='**_of(check_text, "reason version"),',
    ),
    Mutant(
        name="numbers below zero",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/rpc/request_fields.py",
        function="check_fields",
        before="if not 0 <= getattr(part, name) <= high:",
        after="if getattr(part, name) > high:",
    ),
    Mutant(
        name="lists of any length",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_bounds.py::test_repeated_field_has_its_bound_and_not_one_more",
        file="replica/rpc/request_fields.py",
        function="check_fields",
        before="if len(items) > most:",
        after="if len(items) > most + 1:",
    ),
    Mutant(
        name="parts are not looked into",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/rpc/request_fields.py",
        function="check_fields",
        before="for name in many:",
        after="for name in many[1:]:",
    ),
    Mutant(
        name="long list becomes objects",
        rows="IN-60",
        test="tests/unit/rows/test_rows_value_list.py::test_long_list_is_made_ready_in_steps_that_end_with_the_caller",
        file="replica/rpc/tables.py",
        function="predicate_from_pb",
        before="values: Sequence[object] = ConditionValues(array) if len(array) > 1 else tuple(array.to_pylist())",
        after="values: Sequence[object] = tuple(array.to_pylist())",
    ),
    Mutant(
        name="nan in a condition",
        rows="IN-82",
        test="tests/unit/rows/test_rows_value_list.py::test_nan_in_a_condition_is_refused",
        file="replica/rpc/tables.py",
        function="predicate_from_pb",
        before="if pa.types.is_floating(array.type) and np.isnan(array.to_numpy()).any():",
        after="if False:",
    ),
    Mutant(
        name="conditions are read for nobody",
        rows="IN-62",
        test="tests/unit/rows/test_rows_value_list.py::test_conditions_are_read_in_steps_that_end_with_the_caller",
        file="replica/rpc/tables.py",
        function="predicates_from_pb",
        before="""
            stop()
        """,
        after="",
    ),
    Mutant(
        name="each list has the whole bound",
        rows="IN-61",
        test="tests/unit/rows/test_rows_value_list.py::test_conditions_of_a_scan_are_bounded_together",
        file="replica/rpc/tables.py",
        function="predicates_from_pb",
        before="size = size._replace(values=size.values + len(found[-1].values))",
        after="size = size._replace(values=len(found[-1].values))",
    ),
    Mutant(
        name="row code of a newer server is a raw error",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_unknown_number_of_a_newer_server_is_told",
        file="replica/rpc/tables.py",
        function="row_errors_from_pb",
        before="read_number(RowCode, m.code)",
        after="RowCode(m.code)",
    ),
    Mutant(
        name="unknown number is taken for the first known one",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_unknown_number_equals_nothing_that_is_known",
        file="replica/types/errors.py",
        function="read_number",
        before="newer = int.__new__(kind, number)",
        after="newer = next(iter(kind))",
    ),
    Mutant(
        name="advice on a reason that nobody can name",
        rows="IN-82",
        test="tests/unit/tools/test_newer_servers.py::test_advice_on_an_unknown_reason_is_to_update",
        file="replica/api/writing.py",
        function="advice",
        before="elif code.name not in RowCode.__members__:",
        after="elif code not in range(1000):",
    ),
    Mutant(
        name="error of a peer is as long as it likes",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_conversions.py::test_error_of_a_peer_is_one_bounded_line",
        file="replica/rpc/errors.py",
        function="_bounded",
        before="if len(cut) <= MESSAGE_LENGTH_MAX",
        after="if len(cut) >= 0",
    ),
    Mutant(
        name="error of a peer writes lines of its own",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_conversions.py::test_error_of_a_peer_is_one_bounded_line",
        file="replica/rpc/errors.py",
        function="_bounded",
        before="cut = printable(text[: MESSAGE_LENGTH_MAX + 1])",
        after="cut = text[: MESSAGE_LENGTH_MAX + 1]",
    ),
    Mutant(
        name="copied file lies anywhere",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_reply_fields.py::test_reply_with_one_hostile_field_is_refused_and_says_which",
        file="replica/rpc/reply_fields.py",
        before='"CopyFile.name": "FetchRequest.name",',
        after='"CopyFile.name": "error",',
    ),
    Mutant(
        name="lists of replies have no bound of their own",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_reply_fields.py::test_list_of_a_reply_has_its_bound_and_not_one_more",
        file="replica/rpc/request_fields.py",
        function="plan_of",
        before='most[f"{descriptor.name}.{field.name}"]',
        after='most[f"{descriptor.name}.{field.name}"] + 1',
    ),
    Mutant(
        name="reply is no reason to doubt its sender",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_reply_fields.py::test_reply_with_one_hostile_field_is_refused_and_says_which",
        file="replica/rpc/reply_fields.py",
        function="check_reply",
        before='values = {"reply": type(reply).__name__, "why": error.what, **error.values}',
        after="values: dict[str, object] = {}",
    ),
)
