"""Mutants: infra."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    *(
        Mutant(
            name=f"options: {what}",
            test=f"tests/unit/infra/test_process_options.py::{test}",
            file="replica/types/options.py",
            function=function,
            before=before,
            after=after,
        )
        for what, test, function, before, after in (
            (
                "file comes before the environment",
                "test_each_option_is_set_by_flag_variable_and_file",
                "read_options",
                "values |= _of_environment(known, prefix)",
                "values = _of_environment(known, prefix) | values",
            ),
            (
                "file comes before a flag",
                "test_each_option_is_set_by_flag_variable_and_file",
                "read_options",
                "{name: _of_text(known[name], value, known[name].flag) for name, value in given.items()}",
                "{name: values[name] for name in given}",
            ),
            (
                "printed file has the defaults alone",
                "test_values_in_force_are_printed",
                "read_options",
                "config_text(options, values)",
                "config_text(options)",
            ),
            (
                "printed file leaves marks out",
                "test_printed_file_is_a_file_of_the_defaults",
                "config_text",
                "if each.option.in_file:",
                "if each.option.in_file and each.kind is not bool:",
            ),
            (
                "unknown key of a file is passed over",
                "test_wrong_file_is_refused_in_one_line_that_says_what_to_write",
                "read_file",
                "if name not in known:",
                "if name not in known and name != 'zzz':",
            ),
            (
                "near key is not named",
                "test_wrong_file_is_refused_in_one_line_that_says_what_to_write",
                "_instead",
                "get_close_matches(name, known, 1)",
                "get_close_matches(name, known, 1, 1.0)",
            ),
            (
                "unit of a value is not converted",
                "test_wrong_file_is_refused_in_one_line_that_says_what_to_write",
                "_without_unit",
                "* factors[found[2].lower()]",
                "* 1",
            ),
            (
                "a mark is a number",
                "test_wrong_file_is_refused_in_one_line_that_says_what_to_write",
                "_checked",
                "type(value) is kind",
                "isinstance(value, kind)",
            ),
            (
                "NaN is a number",
                "test_wrong_file_is_refused_in_one_line_that_says_what_to_write",
                "_checked",
                "not math.isfinite(value)",
                "False",
            ),
            (
                "file of any length is read",
                "test_file_that_cannot_be_read_starts_nothing",
                "read_file",
                "if len(text) > CONFIG_BYTES_MAX:",
                "if False:",
            ),
            (
                "misspelt variable is passed over",
                "test_wrong_variable_or_flag_is_refused",
                "_of_environment",
                "known, 1, _NEAR)",
                "known, 1, 1.0)",
            ),
            (
                "variable of another program stops the start",
                "test_wrong_variable_or_flag_is_refused",
                "_of_environment",
                "known, 1, _NEAR)",
                "known, 1, 0.4)",
            ),
            (
                "bounds of moves stay the defaults",
                "test_values_of_all_types_are_read_from_each_place",
                "_made",
                "kinds[holder](**given)",
                "kinds[holder]()",
            ),
        )
    ),
    Mutant(
        name="server run: the working directory comes first",
        test="tests/unit/infra/test_process_options.py::test_command_becomes_the_process[server]",
        file="infra/cli/run.py",
        function="_become",
        before='"-P", ',
        after="",
        on_disk=True,
    ),
    Mutant(
        name="decisions: oldest steps are kept",
        test="tests/unit/infra/test_decisions_command.py::test_newest_events_are_kept_and_no_more",
        file="infra/cli/decisions.py",
        function="_newest",
        before="(event.at_us, total, event)",
        after="(-event.at_us, total, event)",
    ),
    Mutant(
        name="decisions: two tablets are explained as one",
        test="tests/unit/infra/test_decisions_command.py::test_explain_shows_one_tablet_or_says_why_not",
        file="infra/cli/decisions.py",
        function="explain",
        before="if len(found) > 1:",
        after="if False:",
    ),
    Mutant(
        name="decisions: empty table without a word",
        test="tests/unit/infra/test_decisions_command.py::test_empty_topics_are_no_empty_table_without_a_word",
        file="infra/cli/decisions.py",
        function="_notes",
        before="if not told and not log.absent and not tablet:",
        after="if False:",
    ),
    Mutant(
        name="decisions: tail prints a doubled record again",
        test="tests/unit/infra/test_decisions_command.py::test_tail_prints_what_comes_once",
        file="infra/cli/decisions.py",
        function="tail",
        before="new = set(events) - set(kept)",
        after="new = set(events)",
    ),
    Mutant(
        name="decisions: table chooses nothing",
        test="tests/unit/infra/test_decisions_command.py::test_table_chooses_its_tablets",
        file="infra/cli/decision_topics.py",
        function="log_of",
        before="wanted or (lambda tablet_id: True)",
        after="lambda tablet_id: True",
    ),
    Mutant(
        name="decisions: forged time ends the command",
        test="tests/unit/infra/test_decisions_command.py::test_time_that_no_calendar_has_is_shown_as_its_number",
        file="infra/cli/decision_topics.py",
        function="time_text",
        before="suppress(OverflowError)",
        after="suppress(KeyError)",
    ),
    Mutant(
        name="decisions: span is guessed",
        test="tests/unit/infra/test_decisions_command.py::test_since_of_another_form_is_refused",
        file="infra/cli/decision_topics.py",
        function="moment_us",
        before="if moment.tzinfo is None:",
        after="if False:",
    ),
    Mutant(
        name="replay: difference ends with status 0",
        test="tests/unit/infra/test_replay_command.py::test_each_difference_is_named_and_the_status_is_2",
        file="infra/cli/replay.py",
        function="replay",
        before="if differ:",
        after="if False:",
    ),
    Mutant(
        name="replay: changes during the comparison are differences",
        test="tests/unit/infra/test_replay_command.py::test_change_that_the_history_has_a_moment_later_is_no_difference",
        file="infra/cli/replay.py",
        function="_compared",
        before="left & now.keys()",
        after="now.keys()",
    ),
    Mutant(
        name="replay: no time for the masters to append",
        test="tests/unit/infra/test_replay_command.py::test_change_that_the_history_has_a_moment_later_is_no_difference",
        file="infra/cli/replay.py",
        function="_compared",
        before="if not told.differ or time.monotonic() > deadline:",
        after="if True:",
    ),
    Mutant(
        name="replay: needs masters",
        test="tests/unit/infra/test_replay_command.py::test_without_masters_nothing_is_compared",
        file="infra/cli/replay.py",
        function="_compared",
        before="except (Refused, typer.BadParameter)",
        after="except (ZeroDivisionError, typer.BadParameter)",
    ),
    Mutant(
        name="replay: a snapshot has configs of its future",
        test="tests/unit/infra/test_replay_command.py::test_configs_of_a_time_are_those_before_it",
        file="infra/cli/replay.py",
        function="History.read",
        before="max(event.at_us, written_us + 999)",
        after="event.at_us",
    ),
    Mutant(
        name="replay: --at is ignored",
        test="tests/unit/infra/test_replay_command.py::test_configs_of_a_time_are_those_before_it",
        file="infra/cli/replay.py",
        function="History.read",
        before="if self.at_us and known_us > self.at_us:",
        after="if False:",
    ),
    Mutant(
        name="replay: empty topic is an empty cluster",
        test="tests/unit/infra/test_replay_command.py::test_topic_without_a_history_is_an_error_that_says_why",
        file="infra/cli/replay.py",
        function="_need_events",
        before="if told.events:",
        after="if True:",
    ),
    Mutant(
        name="replay: half a snapshot is a proof",
        test="tests/unit/infra/test_replay_command.py::test_missing_events_are_told",
        file="infra/cli/replay.py",
        function="_tell",
        before="if found.begins is None:",
        after="if False:",
    ),
    Mutant(
        name="reports are whole before each tablet has one",
        test=(
            "tests/unit/infra/test_bench_scale.py::test_published_reports_are_whole_when_each_server_and_tablet_has_one"
        ),
        file="infra/bench/reports_watch.py",
        function="Published.add",
        before="len(self.last_s) >= self.servers + self.tablets",
        after="self.records >= self.servers + self.tablets",
    ),
    Mutant(
        name="slope of a curve is a ratio",
        test="tests/unit/infra/test_bench_scale.py::test_slopes_of_a_curve_are_powers_of_its_size",
        file="infra/bench/report.py",
        function="slopes_told",
        before="math.log(b / a) / math.log(m / n)",
        after="(b / a) / (m / n)",
    ),
    Mutant(
        name="bench of checksums has no bare limit",
        rows="IN-04",
        test="tests/unit/infra/test_bench_report.py::test_checksums_are_measured_beside_a_read_of_the_same_bytes",
        file="infra/bench/suite.py",
        function="_checksum",
        before="return sums.checksum_round, sums.read_round",
        after="return sums.checksum_round, None",
    ),
    Mutant(
        name="more idle tablets than a table can hold",
        rows="CN-03",
        test="tests/unit/infra/test_bench_report.py::test_idle_tablets_are_spread_over_tables_that_can_hold_them",
        file="infra/bench/idle.py",
        function="tables_of",
        before="tables = -(-tablets // TABLETS_PER_TABLE_MAX)",
        after="tables = 1",
    ),
    Mutant(
        name="vote counts as tolerance",
        rows="CC-56",
        test="tests/unit/infra/test_bench_witness.py::test_loss_is_tolerated_again_when_the_lost_one_has_no_vote",
        file="infra/bench/witness.py",
        function="reached",
        before="if lost in members and members[lost].votes:",
        after="if lost in members and members[lost].votes and members[new].holds_data:",
    ),
    Mutant(
        name="outage is the first pause",
        rows="MF-23",
        test=(
            "tests/unit/infra/test_bench_masters.py::test_longest_pause_is_the_one_that_an_operation_cost_and_none_before_it"
        ),
        file="infra/bench/masters.py",
        function="longest_pause",
        before="return max((b - a for a, b in pairwise(acknowledged) if b > since), default=0.0)",
        after="return max((b - a for a, b in pairwise(acknowledged) if a > since), default=0.0)",
    ),
    Mutant(
        name="played servers share all their tablets",
        test="tests/unit/infra/test_bench_scale.py::test_played_replicas_are_spread_and_each_tablet_has_one_leader",
        file="infra/bench/played_servers.py",
        function="members_of",
        before="step = 1 + tablet // servers % max(1, (servers - 1) // replicas)",
        after="step = 1",
    ),
    Mutant(
        name="nobody leads for a silent played server",
        test="tests/unit/infra/test_bench_scale.py::test_played_replicas_are_spread_and_each_tablet_has_one_leader",
        file="infra/bench/played_servers.py",
        function="Played._silence",
        before='own.role = "LEADER"',
        after='own.role = "FOLLOWER"',
    ),
    Mutant(
        name="interruption begins after the imports",
        test="tests/unit/infra/test_interrupted_commands.py::test_interrupt_during_imports_is_one_line",
        file="infra/toplevel/nyala_command.py",
        function="main",
        before="signal.signal(signal.SIGINT, end_at_once)",
        after="signal.getsignal(signal.SIGINT)",
        on_disk=True,
    ),
    Mutant(
        name="connecting counts as sent",
        test="tests/unit/infra/test_interrupted_commands.py::test_interrupt_during_imports_is_one_line",
        file="infra/cli/interrupted.py",
        function="before_sending",
        before="raise NothingSent from stop",
        after="raise KeyboardInterrupt from stop",
        on_disk=True,
    ),
    Mutant(
        name="interrupted change was not made",
        test="tests/unit/infra/test_interrupted_commands.py::test_interrupt_after_a_request_names_what_shows_it",
        file="infra/cli/interrupted.py",
        function="words",
        before="if not changes(command):",
        after="if changes(command):",
        on_disk=True,
    ),
    Mutant(
        name="interrupted question is a no",
        test="tests/unit/infra/test_interrupted_commands.py::test_interrupted_question_changes_nothing",
        file="infra/cli/context.py",
        function="_interrupt",
        before="if isinstance(abort.__context__, KeyboardInterrupt):",
        after="if isinstance(abort.__cause__, OSError):",
    ),
    Mutant(
        name="tables with an equals sign are not looked up",
        test="tests/unit/infra/test_interrupted_commands.py::test_job_with_an_unknown_table_is_refused_before_spark",
        file="infra/cli/job.py",
        function="_given",
        before="return apart + [",
        after="return apart and apart + [",
    ),
    Mutant(
        name="job needs masters",
        test="tests/unit/infra/test_interrupted_commands.py::test_job_without_an_answer_says_so_and_starts",
        file="infra/cli/job.py",
        function="_need_tables",
        before="nyala.Code.UNAVAILABLE, ",
        after="",
    ),
    Mutant(
        name="reads speak of changes",
        test="tests/unit/infra/test_interrupted_commands.py::test_error_of_a_read_does_not_speak_of_changes",
        file="infra/cli/arguments.py",
        function="_checked",
        before="error.only_read = not changes(path)",
        after="error.only_read = False",
    ),
    Mutant(
        name="dead letters of any table",
        test="tests/unit/infra/test_interrupted_commands.py::test_dead_letters_of_an_unknown_table_are_refused",
        file="infra/cli/letters.py",
        function="_need_table",
        before="if error.code is Code.NOT_FOUND:",
        after="if error.code is Code.LAGGING:",
    ),
    Mutant(
        name="kafka is a silent master",
        test="tests/unit/infra/test_interrupted_commands.py::test_address_of_no_master_is_told_before_the_cause",
        file="replica/client/masters.py",
        before='"Socket closed", "Connection reset", "End of TCP stream",',
        after="",
    ),
    Mutant(
        name="url is an address",
        test="tests/unit/infra/test_interrupted_commands.py::test_address_with_a_scheme_or_a_path_is_refused",
        file="replica/client/client.py",
        function="_address",
        before="""if "/" in text:""",
        after="""if "://" in text and "," in text:""",
    ),
    Mutant(
        name="server that does not count is alive",
        rows="IN-43",
        test="tests/unit/infra/test_true_displays.py::test_server_that_does_not_count_is_not_shown_as_alive",
        file="infra/cli/cluster.py",
        function="_state",
        before="if kind not in COUNTED:",
        after="if False:",
    ),
    Mutant(
        name="server that does not count is alive in json",
        rows="IN-43",
        test="tests/unit/infra/test_true_displays.py::test_server_that_does_not_count_is_not_shown_as_alive",
        file="infra/cli/cluster.py",
        function="_server_json",
        before="server.alive if counts else None",
        after="server.alive",
    ),
    Mutant(
        name="advice twice",
        test="tests/unit/infra/test_interrupted_commands.py::test_small_mistakes_get_their_advice_once",
        file="replica/api/argument_errors.py",
        function="valid",
        before="""advised = ";" in e.what""",
        after="advised = False",
    ),
    Mutant(
        name="text like an escape",
        test="tests/unit/infra/test_shown_text.py::test_shown_text_is_printable_and_gives_the_value",
        file="infra/printing.py",
        function="as_text",
        before="""value.replace("\\\\", "\\\\\\\\")""",
        after="value",
    ),
    Mutant(
        name="escape of five digits",
        test="tests/unit/infra/test_shown_text.py::test_shown_text_is_printable_and_gives_the_value",
        file="replica/types/errors.py",
        function="_escaped",
        before="if number <= 0xFFFF",
        after="if number <= 0xFFFFFF",
    ),
    Mutant(
        name="cells are sent as they are",
        test="tests/unit/infra/test_shown_text.py::test_table_shows_any_text_as_text",
        file="infra/printing.py",
        function="cell",
        before="Text(as_text(value), style)",
        after="Text(str(value), style)",
    ),
    Mutant(
        name="console interprets what it is given",
        test="tests/unit/infra/test_shown_text.py::test_strings_on_the_console_are_lines_of_text",
        file="infra/printing.py",
        function="TextConsole.render_str",
        before="Text(printable(text), style",
        after="Text.from_markup(printable(text), style",
    ),
    Mutant(
        name="title within its table",
        test="tests/unit/infra/test_shown_text.py::test_title_is_not_folded_to_a_narrow_table",
        file="infra/printing.py",
        function="titled",
        before="""
            return Group(Text(as_text(title), "table.title"), table)
        """,
        after="""
            table.title = Text(as_text(title))
            return Group(table)
        """,
    ),
    Mutant(
        name="help says other words",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_words_of_the_help_are_those_of_the_commands",
        file="infra/cli/app.py",
        before='"down": Place("stack:down", "Stop the stack."),',
        after='"down": Place("stack:down", "Stop all."),',
    ),
    Mutant(
        name="command without a row",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_every_command_has_a_row",
        file="infra/cli/app.py",
        before='set_replication"',
        after='set_replication", "replicas": "changes:set_replication"',
    ),
    Mutant(
        name="master imports what only tablets need",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_master_imports_no_library_that_only_tablets_need",
        file="replica/tablet/__init__.py",
        before="from .witness import Witness",
        after="from .witness import Witness; from .tablet import Tablet",
        on_disk=True,
    ),
    Mutant(
        name="completion loads every command",
        rows="IN-72",
        test="tests/unit/infra/test_completion.py::test_bash_completes_a_command_without_a_large_library",
        file="infra/cli/app.py",
        function="_OnDemand.get_command",
        before="return None if found is None else TyperCommand(cmd_name, help=found.help)",
        after="return None if found is None else _command(cmd_name)",
        on_disk=True,
    ),
    Mutant(
        name="command counts with nan",
        rows="IN-82",
        test="tests/unit/infra/test_hostile_arguments.py",
        file="infra/cli/arguments.py",
        function="problem_of",
        before="if isinstance(value, float) and not math.isfinite(value):",
        after="if isinstance(value, float) and math.isinf(value):",
    ),
    Mutant(
        name="wrong number is told without it",
        rows="IN-82",
        test="tests/unit/infra/test_hostile_arguments.py::test_option_that_is_no_number_is_told_with_its_value",
        file="infra/cli/arguments.py",
        function="named",
        before="if not words.startswith(_OF_LIBRARY):",
        after="if True:",
    ),
    Mutant(
        name="commands of a group are unchecked",
        rows="IN-82",
        test=(
            "tests/unit/infra/test_hostile_arguments.py::"
            "test_every_command_looks_at_its_arguments_before_it_does_anything"
        ),
        file="infra/cli/arguments.py",
        function="check_arguments",
        before="""
            for name, below in getattr(command, "commands", {}).items():
                check_arguments(below, f"{path} {name}")
        """,
        after="",
    ),
    Mutant(
        name="rows look exact",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_disk_of_a_replica_is_its_blocks_and_its_log",
        file="infra/cli/cluster.py",
        before='"lag", "~rows"',
        after='"lag", "rows"',
    ),
    Mutant(
        name="witness is listed as a follower",
        rows="CC-48",
        test=(
            "tests/process/test_membership_process.py::test_witness_is_added_by_command_shown_as_one_and_becomes_whole"
        ),
        file="infra/cli/cluster.py",
        function="_replica_rows",
        before='"WITNESS" if s.witness else s.role, phase,',
        after="s.role, phase,",
    ),
    Mutant(
        name="unknown numbers of masters are 0",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_list_of_servers_shows_no_number_that_nobody_told",
        file="infra/cli/cluster.py",
        function="list_servers",
        before="== HOLDER else",
        after="else",
    ),
    Mutant(
        name="names are not looked up",
        rows="MF-21",
        test="tests/process/test_master_migration_process.py::test_migration_is_refused_what_would_end_badly",
        file="infra/cli/cmeta_edit.py",
        function="rewrite",
        before="_need_names(members)",
        after="pass",
    ),
    Mutant(
        name="completion has all the time",
        rows="IN-72",
        test="tests/unit/infra/test_completion.py::test_names_are_offered_within_one_time_and_up_to_a_number",
        file="infra/cli/completion.py",
        function="offered",
        before="""
            left_s()
        """,
        after="",
    ),
    Mutant(
        name="completion knows no cluster",
        rows="IN-72",
        test="tests/process/test_api_process.py::test_look_ups_import_the_client_alone_and_tab_knows_the_names",
        file="infra/cli/completion.py",
        function="_names",
        before='masters = masters_of(str(context.params.get("masters") or ""))',
        after='masters = masters_of(str(""))',
    ),
    Mutant(
        name="completion tells its errors",
        rows="IN-72",
        test="tests/unit/infra/test_completion.py::test_shell_is_offered_what_may_stand_there",
        file="infra/cli/completion.py",
        function="_names",
        before="Exception",
        after="ValueError",
    ),
    Mutant(
        name="look up loads the kafka client",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_command_imports_what_it_uses",
        file="infra/cli/context.py",
        function="cluster",
        before="""
            login = {}
        """,
        after="""
            from nyala.pipeline import Topics  # noqa: F401

            login = {}
        """,
        on_disk=True,
    ),
    *(
        Mutant(
            name=name,
            rows=rows,
            test="tests/unit/infra/" + test,
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, rows, test, file, function, before, after in (
            (
                "command asks a master before it checks a table",
                "MF-24",
                "test_careless_commands.py::test_careless_command_line_gets_one_line_and_no_traceback",
                "infra/cli/tables.py",
                "create",
                "from nyala.definitions import definition_of",
                "definition_of = lambda *_, **__: None",
            ),
            (
                "command asks a master before it reads a condition",
                "MF-24",
                "test_careless_commands.py::test_careless_command_line_gets_one_line_and_no_traceback",
                "infra/cli/tables.py",
                "scan",
                "nyala.parse_condition(where) if where else None",
                "where or None",
            ),
            (
                "what gRPC says comes before what to do",
                "",
                "test_interrupted_commands.py::test_address_of_no_master_is_told_before_the_cause",
                "replica/client/masters.py",
                "Masters._give_up_if_nobody_listens",
                "told = Refused(error.code, what,",
                "told = Refused(error.code, f'{cause}; {what}',",
            ),
            (
                "web server is taken for a master that is away",
                "",
                "test_interrupted_commands.py::test_address_of_no_master_is_told_before_the_cause",
                "replica/client/masters.py",
                "",
                '"Failed parsing HTTP/2", ',
                "",
            ),
            (
                "dump of a file of another kind leaves the user alone",
                "",
                "test_dump_commands.py::test_dump_of_a_file_that_is_none_of_a_server_says_so_and_what_to_give",
                "infra/cli/dumps.py",
                "_or_what_to_do",
                "{error.what}; {_NEXT.format(folder)}",
                "{error.what}",
            ),
            (
                "beginning of a segment is read as a length",
                "",
                "test_dump_commands.py::test_dump_of_a_file_that_is_none_of_a_server_says_so_and_what_to_give",
                "replica/wal/format.py",
                "_raw_header",
                "if not data.startswith(MAGIC):",
                "if len(data) > len(data):",
            ),
        )
    ),
    Mutant(
        name="refused format leaves a lock",
        rows="MF-24",
        test="tests/unit/infra/test_careless_commands.py::test_careless_command_line_gets_one_line_and_no_traceback",
        file="infra/cli/fs.py",
        function="format_directory",
        before="if not (root / LOCK_NAME).exists():",
        after="if False:",
    ),
    Mutant(
        name="uuid needs a stopped master",
        rows="MF-25",
        test="tests/process/test_master_migration_process.py::test_migration_is_refused_what_would_end_badly",
        file="infra/cli/fs.py",
        function="print_uuid",
        before="""
            found = tools.identity(RealDisk(root))
        """,
        after="""
            with stopped(root):
                found = tools.identity(RealDisk(root))
        """,
    ),
    Mutant(
        name="repair in a fenced directory",
        rows="CC-43",
        test=(
            "tests/unit/infra/test_unsafe_commands.py::"
            "test_directory_in_the_midst_of_a_recovery_is_changed_by_no_other_command"
        ),
        file="infra/cli/fs.py",
        function="check",
        before="with changeable(root) if repair else stopped(root) as disk:",
        after="with stopped(root) as disk:",
    ),
    Mutant(
        name="config change before desired change",
        rows="TC-79",
        test="tests/unit/infra/test_cancel_command.py::test_desired_change_is_cancelled_first_and_whatever_the_leader_says",
        file="infra/cli/cancel_change.py",
        function="cancel_change",
        before="""
            desired = _tried(cancel_desired)
            return Cancelled(desired, _tried(take_back))
        """,
        after="""
            change = _tried(take_back)
            return Cancelled(_tried(cancel_desired), change)
        """,
    ),
    Mutant(
        name="offline tools take no lock",
        rows="CC-43",
        test=(
            "tests/unit/infra/test_unsafe_commands.py::"
            "test_occupied_directory_is_refused_in_one_line_by_every_command_that_needs_rest"
        ),
        file="infra/cli/offline.py",
        function="stopped",
        before="with lock_stopped(root):",
        after="if root.is_dir():",
    ),
    Mutant(
        name="other commands change a fenced directory",
        rows="CC-43",
        test=(
            "tests/unit/infra/test_unsafe_commands.py::"
            "test_directory_in_the_midst_of_a_recovery_is_changed_by_no_other_command"
        ),
        file="infra/cli/offline.py",
        function="changeable",
        before="""
            refuse_fenced(disk)
        """,
        after="",
    ),
    Mutant(
        name="unknown lag is none",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_list_of_sources_says_how_far_behind_each_is",
        file="infra/cli/sources.py",
        function="_lag_words",
        before='return "?", "?"',
        after='return "0", "0"',
    ),
    Mutant(
        name="lag of another topic",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_list_of_sources_says_how_far_behind_each_is",
        file="infra/cli/sources.py",
        function="_lags",
        before=":2] == (now.cluster_id, now.topic_id)",
        after="0] == now.cluster_id",
    ),
    Mutant(
        name="sources reset takes offsets of another topic",
        rows="none",
        test=(
            "tests/unit/infra/test_source_reset.py::"
            "test_source_reset_goes_on_in_another_kafka_cluster_only_by_the_topics_name"
        ),
        file="infra/cli/sources.py",
        function="_target",
        before="if not current and (now.cluster_id, now.topic_id) != old[:2]:",
        after="if not now.topic and (now.cluster_id, now.topic_id) != old[:2]:",
    ),
    Mutant(
        name="help loads every command",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_help_imports_no_large_library",
        file="infra/cli/tables.py",
        before="""
            import nyala
        """,
        after="""
            from nyala.pipeline import Topics  # noqa: F401
            import nyala
        """,
        on_disk=True,
    ),
    Mutant(
        name="topic that was not made is not told",
        rows="IN-70",
        test="tests/unit/api/test_api_topics.py::test_command_says_that_the_table_is_there_and_its_topic_is_not",
        file="infra/cli/tables.py",
        function="create",
        before="""
            raise typer.Exit(1)
        """,
        after="",
    ),
    Mutant(
        name="look up sorts with polars",
        rows="IN-72",
        test="tests/process/test_api_process.py::test_look_ups_import_the_client_alone_and_tab_knows_the_names",
        file="infra/cli/tables.py",
        function="list_tables",
        before="""
            handles = connected.client.list_tables()
        """,
        after="""
            import polars  # noqa: F401

            handles = connected.client.list_tables()
        """,
    ),
    Mutant(
        name="ranges are left out",
        rows="IN-71",
        test="tests/unit/infra/test_true_displays.py::test_description_of_a_table_has_its_decimals_and_its_ranges",
        file="infra/cli/tables.py",
        function="_cut",
        before="if not spec.range_splits:",
        after="if spec.range_splits != ():",
    ),
    Mutant(
        name="sources stay where the lost ones had them",
        rows="CC-46",
        test=(
            "tests/process/test_lost_majority_process.py::"
            "test_two_of_three_servers_lost_for_good_the_third_goes_on_and_returning_ones_are_harmless"
        ),
        file="infra/cli/unsafe.py",
        function="_carry_out.lower",
        before="if connected is not None:",
        after="if connected is not None and lowering.to < 0:",
    ),
    Mutant(
        name="demo ends well beside an error",
        rows="none",
        test="tests/unit/infra/test_demo_board.py::test_what_is_wrong_in_the_last_cluster_check_is_in_the_verdict",
        file="infra/demo/board.py",
        function="Demo._show_cluster",
        before="return not any(f.severity is tools.Severity.ERROR for f in findings)",
        after="return True",
    ),
    Mutant(
        name="extra is missed in a traceback",
        rows="IN-70",
        test="tests/unit/infra/test_installed.py::test_command_without_its_extra_says_so_and_starts_nothing",
        file="infra/jars.py",
        function="pyspark_folder",
        before="raise JarsMissing(",
        after="raise ValueError(",
        on_disk=True,
    ),
    Mutant(
        name="stack starts before it asks for jars",
        rows="IN-70",
        test="tests/unit/infra/test_stack_state.py::test_stack_with_kafka_asks_for_its_jars_before_anything_is_started",
        file="infra/local/control.py",
        function="start_detached",
        before="""
            prepare(options, progress)
        """,
        after="",
    ),
    Mutant(
        name="start waits for no count",
        rows="IN-43",
        test="tests/unit/infra/test_registered_servers.py::test_start_waits_until_every_server_counts",
        file="infra/local/registered.py",
        function="wait_until_registered",
        before="if not missing or time.monotonic() > deadline:",
        after="if not missing or wait_s:",
    ),
    Mutant(
        name="a brokers inner port is kept though lost",
        rows="none",
        test="tests/e2e/test_local_broker.py::test_broker_comes_back_where_its_clients_know_it",
        file="infra/local/kafka.py",
        function="KafkaBroker._lay_out",
        before='if not controller_port or not self._ports.reserve(f"{LOOPBACK}:{controller_port}"):',
        after="if not controller_port:",
    ),
    Mutant(
        name="a stack listens where connections sit",
        rows="none",
        test="tests/unit/infra/test_ports.py::test_free_port_is_none_that_the_system_gives_away",
        file="infra/local/ports.py",
        function="Ports.free",
        before="for port in (*random.sample(below, min(PORTS_TRIED, len(below))), 0):",
        after="for port in (0,):",
    ),
    Mutant(
        name="a port that is reserved is lost with its child",
        rows="none",
        test="tests/unit/infra/test_ports.py::test_earlier_address_is_reserved_or_said_to_be_taken",
        file="infra/local/ports.py",
        function="Ports.reserve",
        before="self._reserve(taken)",
        after="taken.close()",
    ),
    Mutant(
        name="a chosen port is not reserved",
        rows="none",
        test="tests/unit/infra/test_ports.py::test_free_port_goes_to_one_alone_before_anybody_listens_there",
        file="infra/local/ports.py",
        function="Ports._reserve",
        before="self._reserved[port] = taken",
        after="taken.close()",
    ),
    Mutant(
        name="a stack changes its number of masters",
        rows="none",
        test=(
            "tests/process/test_stack_masters.py::"
            "test_stack_of_three_masters_goes_on_without_the_leading_one_and_comes_back_where_it_was"
        ),
        file="infra/local/supervisor.py",
        function="Supervisor._choose_masters",
        before="if held and asked not in (None, len(held)):",
        after="if False:",
    ),
    Mutant(
        name="pip is told line by line",
        rows="IN-70",
        test="tests/unit/infra/test_preflight.py::test_pip_is_told_in_a_few_lines",
        file="infra/preflight.py",
        function="pip_progress",
        before="if name and found % TELL_EVERY == 0:",
        after="if name:",
    ),
    Mutant(
        name="setup is silent",
        rows="IN-70",
        test="tests/unit/infra/test_make.py::test_setup_says_what_it_does_and_nothing_when_all_is_done",
        file="infra/preflight.py",
        function="_tell",
        before='print(f"nyala: {text}", flush=True)',
        after="del text",
        on_disk=True,
    ),
    Mutant(
        name="check is silent about refused records",
        rows="IN-90",
        test=("tests/unit/pipeline/test_letters_pages.py::test_check_counts_the_records_that_did_not_become_rows"),
        file="infra/cli/cluster.py",
        function="_refused_records",
        before="if not tables or not bootstrap:",
        after="if tables or not bootstrap:",
    ),
    *(
        Mutant(
            name=name,
            rows="OP-04",
            test=f"tests/unit/infra/test_prepare_restart.py::{test}",
            file="infra/cli/prepare_restart.py",
            function=function,
            before=before,
            after=after,
        )
        for name, test, function, before, after in (
            (
                "preparation that is given up ends any maintenance",
                "test_preparation_that_is_given_up_leaves_the_maintenance_that_was_there",
                "_take_back",
                "left_s = _seconds_left(server)",
                "left_s = 0",
            ),
            (
                "preparation shortens a maintenance",
                "test_longer_maintenance_stays_as_it_is",
                "holds",
                "_seconds_left(server) >= minutes * 60",
                "False",
            ),
        )
    ),
)
