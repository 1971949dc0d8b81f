"""Mutants: client."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    *(
        Mutant(
            name=f"pandas: {name}",
            rows="IN-82",
            test="tests/unit/api/test_api_definitions.py::" + test,
            file="replica/api/writing.py",
            function=function,
            before=before,
            after=after,
        )
        for name, test, function, before, after in (
            (
                "NaN is null",
                "test_values_of_pandas_are_stored_as_given_or_refused_with_their_row",
                "_table_of_pandas",
                "from_pandas=not real",
                "from_pandas=True",
            ),
            (
                "NaN of an object is null",
                "test_values_of_pandas_are_stored_as_given_or_refused_with_their_row",
                "_table_of_pandas",
                "(float,) if real else ()",
                "()",
            ),
            (
                "Arrow guesses objects",
                "test_values_of_pandas_are_stored_as_given_or_refused_with_their_row",
                "_table_of_pandas",
                "series.dtype == object",
                "series.dtype == complex",
            ),
            (
                "complex numbers raise",
                "test_values_of_pandas_are_stored_as_given_or_refused_with_their_row",
                "_table_of_pandas",
                "(pa.ArrowException, TypeError, ValueError)",
                "ZeroDivisionError",
            ),
            (
                "one column is rows",
                "test_frame_that_is_no_rows_is_refused",
                "as_table",
                "except pa.ArrowException:",
                "except ZeroDivisionError:",
            ),
        )
    ),
    *(
        Mutant(
            name=f"value that Python cannot hold {where}",
            rows="IN-82",
            test=(
                "tests/process/test_api_process.py::"
                "test_extreme_values_of_every_type_are_shown_returned_and_named_in_errors"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for where, file, function, before, after in (
            ("ends a get", "replica/api/table.py", "Table.get", "python_rows(rows)[0]", "rows.to_pylist()[0]"),
            ("ends a JSON", "infra/cli/row_output.py", "print_json_rows", "python_rows(batch)", "batch.to_pylist()"),
            (
                "hides row errors",
                "replica/api/writing.py",
                "write",
                "python_rows(failed.select(list(handle.schema.key)))",
                "failed.select(list(handle.schema.key)).to_pylist()",
            ),
        )
    ),
    Mutant(
        name="time of a strong read is that of a former leader",
        rows="IN-12",
        test=(
            "tests/unit/client/test_client_scans.py::"
            "test_time_of_a_strong_read_is_that_of_the_servers_that_lead_now[this]"
        ),
        file="replica/client/scans.py",
        function="Scans._time_of_leader",
        before="return int(reply.hybrid_time), {first, *reply.led}",
        after="return int(reply.hybrid_time), {first, *same}",
    ),
    Mutant(
        name="older build is believed to lead",
        rows="IN-12",
        test=(
            "tests/unit/client/test_client_scans.py::"
            "test_time_of_a_strong_read_is_that_of_the_servers_that_lead_now[version-0.2]"
        ),
        file="replica/client/scans.py",
        function="Scans._time_of_leader",
        before="if first not in reply.led:",
        after="if False:",
    ),
    Mutant(
        name="change whose answer is too long was not applied",
        rows="IN-11",
        test="tests/unit/client/test_client_retry.py::test_change_whose_answer_is_too_long_may_have_been_applied",
        file="replica/client/retry.py",
        function="refusal_of_rpc_error",
        before=" or kind is TooLong.ANSWER",
        after="",
    ),
    Mutant(
        name="batch that is too large is not halved",
        rows="IN-60",
        test="tests/unit/client/test_client_halves.py::test_batch_whose_rows_keep_too_much_goes_in_halves",
        file="replica/client/writes.py",
        function="WriteWindow._may_be_halved",
        before="error.code is Code.TOO_LARGE",
        after="error.code is Code.GAP",
    ),
    Mutant(
        name="session halves what may yet be applied",
        rows="CN-24",
        test="tests/unit/client/test_client_halves.py::test_batch_that_may_yet_be_applied_is_halved_by_a_source_alone",
        file="replica/client/writes.py",
        function="WriteWindow._may_be_halved",
        before='known = not item.attempts.unknown or item.request.HasField("source")',
        after="known = True",
    ),
    Mutant(
        name="source does not halve after a lost reply",
        rows="IN-60",
        test="tests/unit/client/test_client_halves.py::test_rows_are_applied_once_and_in_order_when_batches_are_halved",
        file="replica/client/writes.py",
        function="WriteWindow._may_be_halved",
        before='or item.request.HasField("source")',
        after="or False",
    ),
    Mutant(
        name="second half of a source does not wait for the first",
        rows="CN-24",
        test="tests/unit/client/test_client_halves.py::test_halves_of_a_source_are_a_chain",
        file="replica/client/writes.py",
        function="_split_of_source",
        before="two.has_after, two.after = True, max(first.last_offset, whole.after if whole.has_after else -1)",
        after="pass",
    ),
    Mutant(
        name="both halves have one number",
        rows="IN-60",
        test="tests/unit/client/test_client_halves.py::test_batch_whose_rows_keep_too_much_goes_in_halves",
        file="replica/client/writes.py",
        function="SessionWriter._split",
        before="two.sequence = identity.next_sequence()",
        after="identity.next_sequence()",
    ),
    Mutant(
        name="second half comes first",
        rows="IN-60",
        test="tests/unit/client/test_client_halves.py::test_batch_whose_rows_keep_too_much_goes_in_halves",
        file="replica/client/writes.py",
        function="WriteWindow._halve",
        before="extendleft(reversed(parts))",
        after="extendleft(parts)",
    ),
    Mutant(
        name="later half that is refused left nothing behind",
        rows="CN-24",
        test=(
            "tests/unit/client/test_client_halves.py::"
            "test_half_that_is_refused_behind_an_applied_one_is_no_write_without_effect"
        ),
        file="replica/client/writes.py",
        function="WriteWindow._halve",
        before="whole.behind_part, True",
        after="whole.behind_part, False",
    ),
    Mutant(
        name="batch of one row is halved for ever",
        rows="IN-60",
        test="tests/unit/client/test_client_halves.py::test_batch_of_one_row_that_is_too_large_is_refused",
        file="replica/client/writes.py",
        function="WriteWindow._may_be_halved",
        before="item.request.rows > 1",
        after="item.request.rows > 0",
    ),
    Mutant(
        name="pipeline is no part of the package",
        rows="IN-70",
        test="tests/unit/api/test_api_connect.py::test_pipeline_is_there_without_an_import_of_its_own",
        file="replica/api/__init__.py",
        function="__getattr__",
        before='if name == "pipeline" else',
        after='if name == "" else',
        on_disk=True,
    ),
    Mutant(
        name="kafka of the masters is not asked for",
        rows="IN-70",
        test="tests/unit/api/test_api_topics.py::test_table_is_created_with_its_topic_where_a_kafka_is_known",
        file="replica/api/cluster.py",
        function="Cluster.kafka",
        before="return self._kafka or self._client.kafka_of_masters()",
        after="return self._kafka",
    ),
    Mutant(
        name="python asks a master first",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_table_that_cannot_be_is_told_before_a_master_is_asked",
        file="replica/api/definitions.py",
        function="definition_of",
        before='valid_text(check_source_topic, topic, what="topic=")',
        after="pass",
    ),
    Mutant(
        name="python makes no topic",
        rows="IN-70",
        test="tests/unit/api/test_api_topics.py::test_table_is_created_with_its_topic_where_a_kafka_is_known",
        file="replica/api/cluster.py",
        function="Cluster.create_table",
        before="table.topic_partitions = maker.make(made.source.topic, partitions)",
        after="table.topic_partitions = None",
    ),
    Mutant(
        name="kafka that is away leaves a table without topic",
        rows="IN-70",
        test="tests/unit/api/test_api_topics.py::test_table_is_not_created_if_its_kafka_does_not_answer",
        file="replica/api/cluster.py",
        function="Cluster._topic_maker",
        before="""
            if kafka:
        """,
        after="""
            import contextlib

            with contextlib.suppress(Refused):
        """,
    ),
    Mutant(
        name="connect needs an address",
        rows="IN-70",
        test="tests/unit/api/test_api_connect.py::test_connect_without_an_address_says_where_it_looks",
        file="replica/api/cluster.py",
        function="connect",
        before='if address is None and not (address := os.environ.get("NYALA_MASTERS")):',
        after='if address is None and (address := os.environ["NYALA_MASTERS"]) is None:',
    ),
    Mutant(
        name="word without end is shown as a whole",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_refusal_of_a_long_condition_shows_its_beginning",
        file="replica/api/expressions.py",
        function="_Reader.value",
        before="{shown(value)}",
        after="{value}",
    ),
    Mutant(
        name="nan in python",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_nan_is_nothing_to_compare_with",
        file="replica/api/expressions.py",
        function="_is_nan",
        before="isinstance(value, float) and value != value",
        after="isinstance(value, complex) and value != value",
    ),
    Mutant(
        name="python sends any number of values",
        rows="IN-61",
        test="tests/unit/api/test_api_conditions.py::test_conditions_beyond_what_a_scan_may_have_are_refused_at_once",
        file="replica/api/expressions.py",
        function="_checked",
        before="_check_size(conditions_size(given))",
        after="pass",
    ),
    Mutant(
        name="conditions are joined without end",
        rows="IN-61",
        test="tests/unit/api/test_api_conditions.py::test_conditions_that_are_joined_are_refused_at_the_bound",
        file="replica/api/expressions.py",
        function="Condition.__init__",
        before="_check_size(ConditionsSize(len(self.predicates), 0, 0))",
        after="pass",
    ),
    Mutant(
        name="all conditions are read before they are counted",
        rows="IN-61",
        test="tests/unit/api/test_api_conditions.py::test_conditions_that_are_joined_are_refused_at_the_bound",
        file="replica/api/expressions.py",
        function="Condition.__init__",
        before="limits.SCAN_PREDICATES_MAX + 1",
        after="20 * limits.SCAN_PREDICATES_MAX",
    ),
    Mutant(
        name="row errors are always raised",
        rows="IN-11",
        test="tests/unit/client/test_client_row_errors.py::test_write_returns_row_errors_to_those_who_ask",
        file="replica/api/table.py",
        function="Table._write",
        before='return result if how == "return" else result.raise_for_errors()',
        after="return result.raise_for_errors()",
    ),
    Mutant(
        name="row errors are only returned",
        rows="IN-11",
        test="tests/unit/client/test_client_row_errors.py::test_write_raises_with_the_rows_that_were_not_applied",
        file="replica/api/table.py",
        function="Table._write",
        before='return result if how == "return" else result.raise_for_errors()',
        after="return result",
    ),
    Mutant(
        name="misspelt on error is taken",
        rows="IN-11",
        test=(
            "tests/unit/client/test_client_row_errors.py::"
            "test_on_error_that_means_nothing_is_refused_before_anything_is_sent"
        ),
        file="replica/api/writing.py",
        function="checked_on_error",
        before='raise invalid_argument(wrong, \'on_error= is "raise" or "return"\', on_error=as_given(on_error))',
        after='return "return"',
    ),
    Mutant(
        name="client takes any definition",
        rows="IN-04",
        test="tests/unit/client/test_client_checksum.py::test_sum_of_another_definition_is_refused_and_named",
        file="replica/client/admin.py",
        function="row_sum_from_pb",
        before="if given != definition:",
        after="if given > definition + 100:",
    ),
    Mutant(
        name="connect lists all tables",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_connect_needs_no_list",
        file="replica/client/admin.py",
        function="Admin.check_masters",
        before='self._masters.call("ListTables", pb.TableRequest(brief=True, limit_bytes=1))',
        after='self._masters.call("ListTables", pb.TableRequest())',
    ),
    Mutant(
        name="command does not say what it saw",
        rows="TC-68",
        test="tests/unit/infra/test_change_commands.py::test_command_is_good_for_what_its_caller_saw_only",
        file="replica/client/admin.py",
        function="_seen",
        before="None if info is None else pb.TabletSeen(committed_config_id=info.config.opid, wishes=info.wishes)",
        after="None",
    ),
    Mutant(
        name="old handle never finds the new tablet",
        rows="CC-46",
        test=(
            "tests/process/test_lost_majority_process.py::"
            "test_every_replica_lost_an_empty_tablet_takes_the_place_and_returning_members_are_emptied"
        ),
        file="replica/client/client.py",
        function="Client.current",
        before="handle = replace(handle, tablets=tablets)",
        after="handle = replace(handle, tablets=handle.tablets)",
    ),
    Mutant(
        name="pages of two tables are one",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_client_puts_the_pages_of_one_table_together",
        file="replica/client/masters.py",
        function="_whole_table.of_same_table",
        before="asked.table_id = pages[0].table.table_id",
        after="pass",
    ),
    Mutant(
        name="client stays with a dead master",
        rows="MF-02",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_masters_outlive_one_that_is_away_and_say_so_and_not_two"
        ),
        file="replica/client/masters.py",
        function="Masters._choose_next_master",
        before="elif self._known",
        after="elif error.code is Code.NOT_LEADER and self._known",
    ),
    *(
        Mutant(
            name=f"argument: {name}",
            rows="IN-82",
            test=f"tests/unit/api/test_api_every_argument.py::test_argument_has_a_meaning_or_is_refused[{argument}]",
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, argument, file, function, before, after in (
            (
                "zone without an offset",
                "Table.scan.at",
                "replica/api/table.py",
                "hybrid_time_of",
                "at.utcoffset() is None",
                "at.tzinfo is None",
            ),
            (
                "decimal of 5,000 digits",
                "Cluster.create_table.columns",
                "replica/api/definitions.py",
                "",
                r"\(\s*(\d{1,3})\s*(?:,",
                r"\(\s*(\d+)\s*(?:,",
            ),
            (
                "flag that is none",
                "Table.upsert.ignore_null",
                "replica/api/table.py",
                "Table._write",
                'valid(check_flag, ignore_null, "ignore_null=")',
                "pass",
            ),
            (
                "any truth is a flag",
                "Cluster.drop_table.if_exists",
                "replica/types/arguments.py",
                "check_flag",
                "if not isinstance(value, bool):",
                "if value is None:",
            ),
            (
                "one and a half replicas",
                "Cluster.create_table.replication_factor",
                "replica/types/arguments.py",
                "check_whole",
                "or not isinstance(number, Integral)",
                "or not isinstance(number, int | float)",
            ),
            (
                "true is a number",
                "Cluster.create_table.hash_buckets",
                "replica/types/arguments.py",
                "check_whole",
                "isinstance(number, bool) or",
                "",
            ),
            (
                "buckets of any kind",
                "Cluster.create_table.hash_buckets",
                "replica/api/definitions.py",
                "partition_of",
                'valid(check_whole, hash_buckets, "hash_buckets=", 1, limits.TABLETS_PER_TABLE_MAX)',
                "hash_buckets",
            ),
            (
                "measure that is text",
                "ClientOptions.timeout_s",
                "replica/types/arguments.py",
                "real_of",
                "or not isinstance(number, Real)",
                "",
            ),
            (
                "text is a list",
                "Table.scan.columns",
                "replica/types/arguments.py",
                "check_list",
                "(str, bytes, bytearray, Mapping, set, frozenset)",
                "(bytes, bytearray, Mapping)",
            ),
            (
                "value without a text",
                "connect.address",
                "replica/types/errors.py",
                "text_of",
                "except Exception:",
                "except KeyError:",
            ),
            (
                "any condition is parsed",
                "parse_condition.text",
                "replica/api/expressions.py",
                "parse_condition",
                'valid(check_kind, text, str, "a condition\'s text")',
                "text",
            ),
            (
                "lists of conditions without end",
                "Table.scan.where",
                "replica/api/expressions.py",
                "as_condition",
                "if nested := [part for part in where if isinstance(part, list | tuple)]:",
                "if nested := [part for part in where if not part]:",
            ),
            (
                "framing that is none",
                "Cluster.create_table.framing",
                "replica/api/cluster.py",
                "_check_format",
                "if not isinstance(framing, str) or framing not in kafka_topics.FRAMINGS:",
                "if framing is None:",
            ),
            (
                "properties that are none",
                "connect.kafka_properties",
                "replica/api/cluster.py",
                "connect",
                "if any(not isinstance(text, str) for pair in properties.items() for text in pair):",
                "if False:",
            ),
            (
                "host of no characters",
                "connect.address",
                "replica/types/ids.py",
                "place_to_listen",
                "not host.isprintable() or not host.strip()",
                "not host",
            ),
            (
                "false topic is the default one",
                "Cluster.create_table.topic",
                "replica/api/definitions.py",
                "definition_of",
                'if topic == "" else topic',
                "if not topic else topic",
            ),
            (
                "publisher's framing by another type",
                "RowPublisher.framing",
                "pipeline/publish.py",
                "RowPublisher.__init__",
                "_framing(framing)",
                "framing",
            ),
            (
                "publisher's columns that the table lacks",
                "RowPublisher.columns",
                "pipeline/publish.py",
                "_known_columns",
                "if unknown := [name for name in names if not schema.has(name)]:",
                "if unknown := []:",
            ),
            (
                "publisher's row is no dict",
                "RowPublisher.key_of.row",
                "pipeline/publish.py",
                "RowEncoder.key",
                "_check_row(row)",
                "pass",
            ),
            (
                "publisher's raw text",
                "RowPublisher.publish_raw.value",
                "pipeline/publish.py",
                "RowPublisher.publish_raw",
                "if part is not None:",
                'if name == "key=" and part is not None:',
            ),
        )
    ),
    Mutant(
        name="durations that are none",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_duration_that_cannot_be_is_refused",
        file="replica/client/options.py",
        function="ClientOptions.__post_init__",
        before='if field.name.endswith("_s"):',
        after='if field.name.endswith("_s") and field.name < "b":',
    ),
    Mutant(
        name="write outlives the memory of it",
        rows="CN-24",
        test="tests/unit/client/test_client_retry.py::test_client_options_that_contradict_each_other_are_refused",
        file="replica/client/options.py",
        function="ClientOptions.__post_init__",
        before="limits.LEDGER_CLIENT_TTL_US / 2e6",
        after="limits.LEDGER_CLIENT_TTL_US / 1e6",
    ),
    Mutant(
        name="stopped leader is asked after each round",
        test=(
            "tests/unit/client/test_client_locator.py::"
            "test_locator_leaves_a_silent_leader_alone_while_the_others_know_no_leader"
        ),
        file="replica/client/locator.py",
        function="Locator._next_member",
        before="ROUNDS_WITHOUT_LEADER if again else 1",
        after="1",
    ),
    Mutant(
        name="server that refuses counts as silent for ever",
        test=(
            "tests/unit/client/test_client_locator.py::"
            "test_locator_leaves_a_silent_leader_alone_while_the_others_know_no_leader"
        ),
        file="replica/client/locator.py",
        function="Locator.leader_failed",
        before="""
            elif search.silent_uuid == uuid:
                search.silent_uuid = ""
        """,
        after="",
    ),
    Mutant(
        name="suspect is asked once",
        test=(
            "tests/unit/client/test_client_locator.py::"
            "test_locator_leaves_a_silent_leader_alone_while_the_others_know_no_leader"
        ),
        file="replica/client/locator.py",
        function="Locator.leader_failed",
        before="or search.suspect_asked",
        after="",
    ),
    Mutant(
        name="hint to a former address begins the round anew",
        rows="CN-34",
        test=(
            "tests/unit/client/test_client_locator.py::"
            "test_locator_asks_a_leader_where_the_master_has_it_though_hints_name_its_former_address"
        ),
        file="replica/client/locator.py",
        function="Locator.leader_failed",
        before="or search.suspect_asked",
        after="or search.suspect == uuid",
    ),
    Mutant(
        name="stopped leader is waited for longer and longer",
        test=(
            "tests/unit/client/test_client_retry.py::"
            "test_attempts_give_a_silent_server_no_more_time_when_its_group_has_no_leader"
        ),
        file="replica/client/retry.py",
        function="Attempts.failed",
        before="self._attempt_timeout_s = self._options.attempt_timeout_s",
        after="pass",
    ),
    Mutant(
        name="reader is told of rot and left alone",
        rows="TC-51",
        test="tests/process/test_disk_trouble_process.py::test_scan_that_meets_a_block_gone_bad_is_right_all_the_same",
        file="replica/client/retry.py",
        before="""
            Code.CORRUPTION: Reaction.REFRESH,
        """,
        after="",
    ),
    Mutant(
        name="client gives up at a leader that steps down",
        rows="CC-28",
        test=(
            "tests/process/test_membership_process.py::"
            "test_leader_is_removed_by_command_and_by_a_driver_without_a_failed_write"
        ),
        file="replica/client/retry.py",
        before="""
            Code.STEPPING_DOWN: Reaction.REFRESH,
        """,
        after="",
    ),
    Mutant(
        name="lagging replica ends the read",
        rows="CN-24",
        test=(
            "tests/unit/client/test_client_calls.py::"
            "test_read_that_any_replica_may_answer_goes_on_to_the_next_and_to_the_leader_last"
        ),
        file="replica/client/retry.py",
        before="""
            Code.LAGGING: Reaction.REFRESH,
        """,
        after="",
    ),
    Mutant(
        name="others count as not applied",
        rows="IN-11",
        test="tests/unit/client/test_client_row_errors.py::test_write_that_applied_no_row_says_so",
        file="replica/client/row_errors.py",
        function="RowErrors.__init__",
        before="applied=Applied.UNKNOWN if rows_applied else Applied.NOT_APPLIED,",
        after="applied=Applied.NOT_APPLIED,",
    ),
    Mutant(
        name="scan is no read",
        rows="IN-10",
        test="tests/unit/client/test_client_stale_reads.py::test_histories_with_stale_reads_are_explained",
        file="replica/client/scans.py",
        function="Scans.table",
        before="yield self._seen(part)",
        after="yield part",
    ),
    Mutant(
        name="count is no read",
        rows="IN-10",
        test="tests/unit/client/test_client_stale_reads.py::test_stale_read_after_a_read_of_a_chosen_time_is_not_older",
        file="replica/client/scans.py",
        function="Scans.count_table",
        before="total = sum(self._seen(part).rows for part in parts)",
        after="total = sum(part.rows for part in parts)",
    ),
    Mutant(
        name="pinned time is not remembered",
        rows="IN-10",
        test="tests/unit/client/test_client_stale_reads.py::test_stale_read_after_a_fresher_read_is_not_older",
        file="replica/client/scans.py",
        function="Scans._seen",
        before="""
            self._calls.observe(part.snapshot_time)
        """,
        after="",
    ),
    Mutant(
        name="stale scan of several tablets forgets own writes",
        rows="CN-24",
        test=(
            "tests/process/test_api_process.py::"
            "test_scans_that_may_be_stale_hold_what_this_client_wrote_and_are_of_one_time"
        ),
        file="replica/client/scans.py",
        function="Scans.time_of_staleness",
        before="return max(self._calls.time_seen, now - hybrid_from_us(max(0, allowed_us)))",
        after="return now - hybrid_from_us(max(0, allowed_us))",
    ),
    Mutant(
        name="stale scan asks a tablet that it does not read",
        rows="IN-10",
        test=("tests/unit/client/test_client_stale_reads.py::test_stale_scan_needs_no_tablet_that_it_does_not_read"),
        file="replica/client/scans.py",
        function="Scans.time_of_staleness",
        before="asked = (tablets or handle.tablets)[0]",
        after="asked = handle.tablets[0]",
    ),
    Mutant(
        name="scan repeated keeps what came before",
        rows="none",
        test=(
            "tests/unit/client/test_client_scans.py::"
            "test_scan_whose_stream_ends_early_is_read_again_and_has_every_row_once"
        ),
        file="replica/client/scans.py",
        function="Scans._whole",
        before="""
            deadline = Deadline(self._calls.options.scan_timeout_s)
        """,
        after="""
            deadline = Deadline(self._calls.options.scan_timeout_s)
            batches: list[Any] = []
        """,
        more=(
            Edit(
                file="replica/client/scans.py",
                function="Scans._whole.ask",
                before="_RowsLink(port, uuid, deadline, stop))",
                after="_RowsLink(port, uuid, deadline, stop), batches)",
            ),
            Edit(
                file="replica/client/scans.py",
                function="Scans._collect",
                before='''
             def _collect(
                 self, tablet: TabletHandle, stream: Any, spec: ScanSpec, stop: threading.Event, rows_link: _RowsLink
             ) -> TabletPart:
                 """Read a stream to its end, or until `stop`. Refused if it breaks off, or lacks rows."""
                 batches, rows, time_of, last, schema = [], 0, spec.snapshot_time, False, None
                ''',
                after='''
             def _collect(
                 self,
                 tablet: TabletHandle,
                 stream: Any,
                 spec: ScanSpec,
                 stop: threading.Event,
                 rows_link: _RowsLink,
                 batches: list[Any],
             ) -> TabletPart:
                 """Read a stream to its end, or until `stop`. Refused if it breaks off, or lacks rows."""
                 rows, time_of, last, schema = 0, spec.snapshot_time, False, None
                ''',
            ),
        ),
    ),
    Mutant(
        name="every slice is the first one",
        rows="none",
        test="tests/unit/client/test_client_scans.py::test_slices_of_a_tablet_are_each_asked_for_once",
        file="replica/client/scans.py",
        function="Scans.table",
        before="replace(spec, slice_pos=pos)",
        after="replace(spec, slice_pos=0)",
    ),
    Mutant(
        name="scan cut off is taken for whole",
        rows="none",
        test=(
            "tests/unit/client/test_client_scans.py::"
            "test_scan_whose_stream_ends_early_is_read_again_and_has_every_row_once"
        ),
        file="replica/client/scans.py",
        function="Scans._collect",
        before="""
if not last or linked != said:
        """,
        after="""
if linked != said:
        """,
    ),
    Mutant(
        name="rows that a connection lost are not missed",
        rows="none",
        test=(
            "tests/unit/client/test_client_scans.py::"
            "test_scan_whose_stream_ends_early_is_read_again_and_has_every_row_once"
        ),
        file="replica/client/scans.py",
        function="Scans._collect",
        before="if not last or linked != said:",
        after="if not last:",
    ),
    Mutant(
        name="port that cannot be reached is tried by each scan",
        rows="none",
        test="tests/unit/client/test_client_scans.py::test_rows_come_on_the_call_from_a_server_whose_port_is_closed",
        file="replica/client/scans.py",
        function="Scans._link_port",
        before="if port is not None and port.reachable",
        after="if port is not None",
    ),
    Mutant(
        name="frame of rows of any length",
        rows="none",
        test="tests/unit/server/test_server_scan_links.py::test_what_is_no_batch_is_refused_by_the_client",
        file="replica/client/scan_links.py",
        function="batches_on",
        before="if not 0 < length <= limits.SCAN_CHUNK_BYTES_MAX:",
        after="if not length:",
    ),
    Mutant(
        name="small writes wait for one another",
        rows="none",
        test="tests/unit/client/test_client_write_links.py::test_one_thread_has_several_writes_under_way",
        file="replica/client/write_links.py",
        function="_Link.begin",
        before="send = self._sender is None",
        after="send = False",
    ),
    Mutant(
        name="interrupted thread leaves its link",
        rows="CN-25",
        test="tests/unit/client/test_client_write_links.py::test_interrupted_thread_leaves_a_client_that_works",
        file="replica/client/write_links.py",
        function="_Link.finish",
        before="except BaseException:",
        after="except Exception:",
    ),
    Mutant(
        name="late write is sent all the same",
        rows="CN-25",
        test="tests/unit/client/test_client_write_links.py::test_write_that_never_left_is_known_not_to_be_applied",
        file="replica/client/write_links.py",
        function="_Link._leave",
        before="if not waiting.settled:",
        after="if waiting.settled:",
    ),
    Mutant(
        name="reader is asked to send",
        rows="CN-25",
        test="tests/unit/client/test_client_write_links.py::test_sender_that_leaves_leaves_nothing_unsent",
        file="replica/client/write_links.py",
        function="_Link._pass_on",
        before="if waiting.present and waiting is not self._reader and waiting is not self._sender:",
        after="if waiting.present and waiting is not self._sender:",
    ),
    Mutant(
        name="thread that is away is asked to read",
        rows="none",
        test="tests/unit/client/test_client_write_links.py::test_thread_that_is_away_is_not_asked_to_read",
        file="replica/client/write_links.py",
        function="_Link._pass_on",
        before="if waiting.present and waiting is not self._reader and waiting is not self._sender:",
        after="if waiting is not self._reader and waiting is not self._sender:",
    ),
    Mutant(
        name="what only the reader wants stays queued",
        rows="CN-25",
        test="tests/unit/client/test_client_write_links.py::test_sender_that_leaves_leaves_nothing_unsent",
        file="replica/client/write_links.py",
        function="_Link._pass_on",
        before="return send",
        after="return False",
    ),
    Mutant(
        name="writes under way have no bound",
        rows="none",
        test=(
            "tests/process/test_client_process.py::"
            "test_small_writes_under_way_are_bounded_and_each_counts_once_over_a_kill"
        ),
        file="replica/client/writes.py",
        function="WriteWindow.put",
        before="while self._writes >= options.writes_inflight_max:",
        after="while False:",
    ),
    Mutant(
        name="small write overtakes a large one",
        rows="none",
        test="tests/unit/client/test_client_write_links.py::test_small_write_does_not_overtake_a_call_before_it",
        file="replica/client/writes.py",
        function="WriteWindow._begin",
        before="if item.is_oldest or item.behind_linked:",
        after="if True:",
    ),
    Mutant(
        name="idle tablet is taken for as far as its source",
        rows="none",
        test=(
            "tests/unit/pipeline/test_idle_tablets.py::"
            "test_tablet_idle_for_a_million_offsets_survives_a_lost_and_an_old_checkpoint"
        ),
        file="replica/client/writes.py",
        function="SourceWriter.send",
        before="after = self._after.get(tablet_id)",
        after="after = self._after.get(tablet_id, self._done - 1 if self._done else None)",
    ),
    Mutant(
        name="session writer says nothing",
        rows="IN-11",
        test="tests/unit/client/test_client_row_errors.py::test_session_writer_raises_each_row_error_once",
        file="replica/client/writes.py",
        function="SessionWriter.flush",
        before='if errors and self._on_error == "raise":',
        after='if errors and self._on_error == "raise" and not self._open and False:',
    ),
    Mutant(
        name="session writer raises again",
        rows="IN-11",
        test="tests/unit/client/test_client_row_errors.py::test_session_writer_raises_each_row_error_once",
        file="replica/client/writes.py",
        function="SessionWriter.flush",
        before="""
            self._raised, self._raised_applied = len(self.row_errors), self.rows_applied
        """,
        after="",
    ),
    Mutant(
        name="mistakes do not say what to do",
        rows="IN-82",
        test="tests/unit/api/test_api_refusals.py::test_refusal_has_its_four_parts",
        file="replica/api/argument_errors.py",
        function="invalid_argument",
        before="what}; {todo}",
        after="what}",
    ),
    Mutant(
        name="closed client is a raw error",
        rows="IN-82",
        test="tests/unit/api/test_api_refusals.py::test_closed_client_is_refused_as_any_call_is",
        file="replica/client/channels.py",
        function="Channels._stub",
        before='raise Refused(Code.ILLEGAL_STATE, "this client is closed; connect anew", server=address)',
        after='raise RuntimeError("this client is closed")',
    ),
    Mutant(
        name="list of values that is none is a raw error",
        rows="IN-82",
        test="tests/unit/api/test_api_refusals.py::test_refusal_has_its_four_parts",
        file="replica/api/expressions.py",
        function="Col.isin",
        before="if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):",
        after="if isinstance(values, str | bytes | Mapping):",
    ),
    Mutant(
        name="refusal of a writer says no way on",
        rows="IN-82",
        test="tests/unit/api/test_api_refusals.py::test_each_mistake_says_what_to_do",
        file="replica/client/writes.py",
        before="the writer is closed; open another one",
        after="the writer is closed",
        on_disk=True,
    ),
    Mutant(
        name="parentheses without end",
        rows="IN-60",
        test="tests/unit/api/test_api_conditions.py::test_condition_text_that_cannot_be_read_says_where",
        file="replica/api/expressions.py",
        function="_one",
        before="inside = _one(reader, depth + 1)",
        after="inside = _one(reader, depth)",
    ),
    Mutant(
        name="numbers of any length",
        rows="IN-60",
        test="tests/unit/api/test_api_conditions.py::test_condition_text_that_cannot_be_read_says_where",
        file="replica/api/expressions.py",
        function="_Reader.value",
        before="if len(value) > _NUMBER_CHARS_MAX:",
        after="if len(value) > 1 << 30:",
    ),
    Mutant(
        name="exponent beyond a decimal is an exception",
        test="tests/unit/api/test_api_conditions.py::test_condition_text_that_cannot_be_read_says_where",
        file="replica/api/expressions.py",
        function="_Reader.value",
        before="except decimal.InvalidOperation:",
        after="except ZeroDivisionError:",
    ),
    Mutant(
        name="whole number beyond a double is an exception",
        rows="IN-82",
        test="tests/unit/api/test_api_conditions.py::test_number_that_no_column_holds_is_bound_or_refused",
        file="replica/rows/exact_conditions.py",
        function="_floats_around",
        before="except OverflowError:",
        after="except ZeroDivisionError:",
    ),
    Mutant(
        name="rows of several tablets come in the tablets order",
        rows="RD-02",
        test="tests/unit/client/test_client_gets.py::test_rows_of_several_tablets_are_in_the_order_of_the_keys",
        file="replica/client/gets.py",
        function="Gets.rows",
        before="return table.take(pa.array(order)), positions[order]",
        after="return table, positions",
    ),
    Mutant(
        name="keys that were not answered are left out",
        rows="RD-02",
        test="tests/unit/client/test_client_gets.py::test_keys_that_one_call_cannot_answer_are_asked_for_again",
        file="replica/client/gets.py",
        function="Gets._at_one_moment",
        before="at += reply.answered",
        after="at += some.num_rows",
    ),
    *(
        Mutant(
            name=name,
            rows="RD-02",
            test=(
                "tests/unit/client/test_client_gets.py::test_tablet_whose_history_is_dropped_meanwhile_is_read_anew[0]"
            ),
            file="replica/client/gets.py",
            function="Gets._of_tablet",
            before=before,
            after=after,
        )
        for name, before, after in (
            ("get ends when the history is dropped", "if error.code is not Code.HISTORY_GONE:", "if True:"),
            ("get begins anew for ever", "for _ in range(MOMENTS_MAX):", "while True:"),
            ("get begins anew after any refusal", "if error.code is not Code.HISTORY_GONE:", "if False:"),
        )
    ),
    Mutant(
        name="read by key is forgotten",
        rows="RD-02",
        test="tests/unit/client/test_client_gets.py::test_rows_of_several_tablets_are_in_the_order_of_the_keys",
        file="replica/client/gets.py",
        function="Gets._call",
        before="self._calls.observe(reply.snapshot_time)",
        after="pass",
    ),
    *(
        Mutant(
            name=name,
            rows="RD-02",
            test=(
                "tests/unit/client/test_client_gets.py::test_rows_of_one_tablet_are_of_one_moment_in_several_calls[0]"
            ),
            file="replica/client/gets.py",
            function=function,
            before=before,
            after=after,
        )
        for name, function, before, after in (
            ("later calls for keys are of another time", "Gets._at_one_moment", "time = reply.snapshot_time", "pass"),
            (
                "time of the first call for keys is not sent",
                "Gets._call",
                "snapshot_time=time,",
                "snapshot_time=0,",
            ),
            (
                "server that does not know the time of a read by key is believed",
                "Gets._call",
                "if time and reply.snapshot_time != time:",
                "if False:",
            ),
        )
    ),
    *(
        Mutant(
            name=name,
            rows="none",
            test=f"tests/unit/api/test_api_numbers.py::{test}",
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, test, file, function, before, after in (
            (
                "number of NumPy is none",
                "test_number_of_any_type_is_taken_and_becomes_pythons_own[int64-5]",
                "replica/types/arguments.py",
                "real_of",
                "not isinstance(number, Real)",
                "not isinstance(number, int | float)",
            ),
            (
                "flag is a number",
                "test_what_is_no_number_is_refused[bool-True0]",
                "replica/types/arguments.py",
                "real_of",
                "isinstance(number, bool) or",
                "",
            ),
            (
                "narrow number is compared in its own type",
                "test_number_of_any_type_is_taken_and_becomes_pythons_own[float16-5.0]",
                "replica/types/arguments.py",
                "check_measure",
                "(measure := real_of(number)) <= high",
                "(measure := number) <= high",
            ),
            (
                "option stays a number of NumPy",
                "test_number_of_any_type_is_taken_and_becomes_pythons_own[int64-5]",
                "replica/client/options.py",
                "ClientOptions.__post_init__",
                "object.__setattr__(self, field.name, value)",
                "pass",
            ),
            (
                "hybrid time of NumPy is none",
                "test_hybrid_time_out_of_a_column_is_one",
                "replica/api/table.py",
                "hybrid_time_of",
                "isinstance(at, Integral)",
                "isinstance(at, int)",
            ),
            (
                "view of a dict is a set",
                "test_views_of_a_dict_are_lists_and_sets_are_not",
                "replica/types/arguments.py",
                "check_list",
                "Mapping, set, frozenset)",
                "Mapping, set, frozenset, type({}.items()), type({}.keys()))",
            ),
            (
                "frozenset has an order",
                "test_views_of_a_dict_are_lists_and_sets_are_not",
                "replica/types/arguments.py",
                "check_list",
                "Mapping, set, frozenset)",
                "Mapping, set)",
            ),
        )
    ),
)
