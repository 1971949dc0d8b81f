"""Mutants: base."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="host of IPv6 needs no brackets",
        test="tests/unit/server/test_server_instance.py::test_command_line_becomes_options",
        file="replica/types/ids.py",
        function="place_to_listen",
        before="""if ":" in host and not""",
        after="if not host and not",
    ),
    Mutant(
        name="loopback of IPv6 is not near",
        test=(
            "tests/unit/client/test_client_locator.py"
            "::test_locator_names_replicas_for_any_read_near_ones_first_and_the_leader_last"
        ),
        file="replica/client/locator.py",
        function="Locator.replicas",
        before='"[::1]", ',
        after="",
    ),
    *(
        Mutant(
            name=f"refusal of a {what} speaks of changes",
            rows="IN-82",
            test=(
                "tests/unit/api/test_api_errors.py"
                f"::test_only_the_error_of_a_change_says_that_nothing_was_applied[{test}]"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for what, test, file, function, before, after in (
            ("read", "count", "replica/types/errors.py", "only_reads", "error.only_read = True", "pass"),
            (
                "scan",
                "scan",
                "replica/client/client.py",
                "Client.scan",
                "with only_reads():",
                "if True:",
            ),
        )
    ),
    Mutant(
        name="fields of an error stay behind",
        rows="IN-11",
        test="tests/unit/api/test_api_errors.py::test_errors_are_the_same_in_another_process",
        file="replica/types/errors.py",
        function="ReplicaError.__reduce__",
        before="return _made_again, (type(self), self.args), self.__dict__",
        after="return _made_again, (type(self), self.args)",
    ),
    Mutant(
        name="error is made of its text",
        rows="IN-11",
        test="tests/unit/api/test_api_errors.py::test_errors_are_the_same_in_another_process",
        file="replica/types/errors.py",
        function="_made_again",
        before="return kind.__new__(kind, *args)",
        after="return kind(*args)",
    ),
    Mutant(
        name="what a later build wrote is copied over",
        rows="TC-63",
        test="tests/unit/server/test_server_renewal.py::test_only_damage_that_a_copy_heals_is_told",
        file="replica/types/errors.py",
        function="LaterFormat",
        before="copy_heals = False",
        after="copy_heals = True",
    ),
    Mutant(
        name="numbers without an end",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/types/limits.py",
        before="NUMBER_MAX = 1 << 62",
        after="NUMBER_MAX = 1 << 63",
    ),
    Mutant(
        name="call without a row",
        rows="IN-60",
        test="tests/tidy/test_request_bounds.py::test_every_call_states_what_a_request_may_cost",
        file="replica/types/limits.py",
        before="""
            "TabletService.Lateness": RequestBound(1 * _KIB),
        """,
        after="",
    ),
    Mutant(
        name="writer schemas request is ten times as large",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_names.py::test_writer_schema_has_a_request_that_is_little_larger_than_itself",
        file="replica/types/limits.py",
        before="WRITER_SCHEMA_BYTES_MAX + 64 * _KIB",
        after="2 * _MIB",
    ),
    Mutant(
        name="cost of a write is understated",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_tablet_servers_cost_no_more_than_is_stated",
        file="replica/types/limits.py",
        before="item_bytes=400,",
        after="item_bytes=40,",
    ),
    Mutant(
        name="table is filled from a topic of Kafka's own",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_name_or_number_that_cannot_be_is_refused_and_shown",
        file="replica/types/names.py",
        function="check_source_topic",
        before='if topic.startswith("__"):',
        after='if topic == "__":',
    ),
    Mutant(
        name="cost of a position is understated",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_requests_of_masters_cost_no_more_than_is_stated",
        file="replica/types/limits.py",
        before="4 * _MIB, 10_100, field_bytes=4096,",
        after="4 * _MIB, 10_100, field_bytes=512,",
    ),
    Mutant(
        name="call so costly that it never fits",
        rows="IN-60",
        test="tests/tidy/test_request_bounds.py::test_every_call_states_what_its_reply_may_be",
        file="replica/types/limits.py",
        before="CALLS_MEMORY_PER_HOST_BYTES_MAX = 512 << 20",
        after="CALLS_MEMORY_PER_HOST_BYTES_MAX = 256 << 20",
    ),
    Mutant(
        name="large call is not measured",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_request_costs.py::test_every_call_that_takes_many_bytes_has_a_row",
        file="replica/types/limits.py",
        before='"CopyService.OpenFetch": RequestBound(1 * _KIB)',
        after='"CopyService.OpenFetch": RequestBound(1 * _MIB)',
    ),
    Mutant(
        name="list without a bound",
        rows="IN-60",
        test="tests/tidy/test_request_bounds.py::test_every_repeated_field_of_a_request_states_how_often",
        file="replica/types/limits.py",
        before="""
            "RaftConfig.members": CONFIG_MEMBERS_MAX,
        """,
        after="",
    ),
    Mutant(
        name="logs without day",
        rows="IN-71",
        test="tests/unit/rows/test_log_lines.py::test_log_lines_have_day_and_time_in_utc",
        file="replica/types/logs.py",
        before='DAY_AND_TIME = "%Y-%m-%dT%H:%M:%S"',
        after='DAY_AND_TIME = "%H:%M:%S"',
        on_disk=True,
    ),
    Mutant(
        name="logs in local time",
        rows="IN-71",
        test="tests/unit/rows/test_log_lines.py::test_log_lines_have_day_and_time_in_utc",
        file="replica/types/logs.py",
        function="TextFormatter",
        before="converter = staticmethod(time.gmtime)",
        after="converter = staticmethod(time.localtime)",
        on_disk=True,
    ),
    Mutant(
        name="escapes end texts",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_depth_of_a_json_text_is_that_of_its_value",
        file="replica/types/names.py",
        before="_JSON_PART = re.compile(r'\\\\.|[\"\\[{\\]}]', re.DOTALL)",
        after="_JSON_PART = re.compile(r'[\"\\[{\\]}]', re.DOTALL)",
    ),
    Mutant(
        name="whole texts are parts",
        rows="IN-82",
        test=(
            "tests/unit/rpc/test_rpc_names.py::"
            "test_no_part_that_the_depth_of_a_json_text_is_told_from_has_more_than_two_characters"
        ),
        file="replica/types/names.py",
        before="_JSON_PART = re.compile(r'\\\\.|[\"\\[{\\]}]', re.DOTALL)",
        after='_JSON_PART = re.compile(r\'"(?:[^"\\\\]|\\\\.)*"|\\\\.|["\\[{\\]}]\', re.DOTALL)',
    ),
    Mutant(
        name="value is shown as it is",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_what_is_shown_is_short_printable_and_says_how_long_it_was",
        file="replica/types/names.py",
        function="shown",
        before="cut = printable(text[: _SHOWN_CHARS + 1])",
        after="cut = text[: _SHOWN_CHARS + 1]",
    ),
    Mutant(
        name="ids of any alphabet",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/types/names.py",
        function="check_id",
        before="if not _ID.fullmatch(text) or len(text) > length_max:",
        after="if not text or len(text) > length_max:",
    ),
    Mutant(
        name="ids of any length",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::"
            "test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was"
        ),
        file="replica/types/names.py",
        function="check_id",
        before="if not _ID.fullmatch(text) or len(text) > length_max:",
        after="if not _ID.fullmatch(text) or len(text) > 4096:",
    ),
    Mutant(
        name="brackets in texts count",
        rows="IN-82",
        test=(
            "tests/unit/rpc/test_rpc_names.py::"
            "test_json_may_nest_as_deep_as_is_stated_and_brackets_in_texts_do_not_count"
        ),
        file="replica/types/names.py",
        function="nests_deeper",
        before=r'elif not quoted and first != "\\":',
        after=r'elif first != "\\":',
    ),
    Mutant(
        name="json without depth",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_name_or_number_that_cannot_be_is_refused_and_shown",
        file="replica/types/names.py",
        function="nests_deeper",
        before="if depth > depth_max:",
        after="if depth > 10 * depth_max:",
    ),
    Mutant(
        name="time follows its wall back",
        rows="CN-24",
        test="tests/unit/raft_driver/test_driver_times.py::test_time_does_not_go_back_within_a_process_whose_clock_jumps_back",
        file="replica/types/time.py",
        function="HybridClock.now",
        before="self._last = max(self._last + 1, hybrid_from_us(self._clock.wall_us()))",
        after="self._last = hybrid_from_us(self._clock.wall_us())",
    ),
    Mutant(
        name="pool starts its threads late",
        rows="IN-30",
        test=(
            "tests/unit/fs/test_fs_exhausted.py::test_pool_has_all_its_threads_before_it_is_given_work_or_does_not_begin"
        ),
        file="replica/types/process.py",
        function="started_pool",
        before="""
            for _ in range(threads):
                pool.submit(together.wait)
        """,
        after="""
            together = threading.Barrier(1)
        """,
    ),
    Mutant(
        name="signal that ends a process leaves no word",
        rows="IN-21",
        test=(
            "tests/process/test_in_place_process.py::"
            "test_block_that_is_cut_short_while_it_is_mapped_costs_a_restart_and_no_row"
        ),
        file="replica/types/logs.py",
        function="_begin",
        before="    faulthandler.enable(sys.__stderr__ or sys.stderr)\n",
        after="",
    ),
    Mutant(
        name="values of errors are shown as they are",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_values_in_the_text_of_an_error_are_printable_and_bounded",
        file="replica/types/errors.py",
        function="ReplicaError.__str__",
        before="_shortened(printable(text_of(v)))",
        after="_shortened(text_of(v))",
    ),
    Mutant(
        name="values of errors have no bound",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_values_in_the_text_of_an_error_are_printable_and_bounded",
        file="replica/types/errors.py",
        function="ReplicaError.__str__",
        before="_shortened(printable(text_of(v)))",
        after="printable(text_of(v))",
    ),
    Mutant(
        name="work on a thread has no row",
        rows="IN-60",
        test="tests/tidy/test_request_bounds.py::test_work_on_a_thread_states_what_it_costs",
        file="replica/types/limits.py",
        before='"checksum": ThreadBound({"pieces": 100, "columns_of_pieces": 80}),',
        after="",
    ),
)
