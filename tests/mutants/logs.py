"""Mutants: logs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="message of other characters begins another line",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_each_record_is_one_line_of_json",
        file="replica/types/logs.py",
        function="JsonFormatter.format",
        before="return json.dumps(found)",
        after="return json.dumps(found, ensure_ascii=False)",
    ),
    Mutant(
        name="record whose values do not fit is lost",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_each_record_is_one_line_of_json",
        file="replica/types/logs.py",
        function="_message_of",
        before="""
        return f"{record.msg} (its {len(record.args or ())} values cannot be shown)"
        """,
        after="""
        raise
        """,
    ),
    Mutant(
        name="long text makes a line of any length",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_each_record_is_one_line_of_json",
        file="replica/types/logs.py",
        function="cut",
        before="if len(text) <= chars_max:",
        after="if text:",
    ),
    Mutant(
        name="record about a tablet does not name it",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_record_names_the_process_and_only_what_it_is_about",
        file="replica/types/log_records.py",
        function="About.process",
        before="""
        kwargs["extra"] = self.extra
        """,
        after="",
    ),
    Mutant(
        name="log file has no bound",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_log_files_have_a_bound_and_whole_lines",
        file="replica/types/log_file.py",
        function="LogFile.shouldRollover",
        before="return int(length > 0 and length + line > self.maxBytes)",
        after="return 0",
    ),
    Mutant(
        name="log file is measured in characters",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_log_files_have_a_bound_and_whole_lines",
        file="replica/types/log_file.py",
        function="LogFile.shouldRollover",
        before='len((self.format(record) + self.terminator).encode(errors="backslashreplace"))',
        after="len(self.format(record))",
    ),
    Mutant(
        name="one log file more is kept",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_log_files_have_a_bound_and_whole_lines",
        file="replica/types/log_file.py",
        function="LogFile.__init__",
        before="backupCount=options.log_files - 1",
        after="backupCount=options.log_files",
    ),
    Mutant(
        name="half a line stays on a full disk",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_full_disk_costs_records_and_no_process",
        file="replica/types/log_file.py",
        function="_Lines.write",
        before="""
            os.ftruncate(self._fd, length)  # it takes no room, so it succeeds on a full disk
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="lost records are not counted",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_full_disk_costs_records_and_no_process",
        file="replica/types/log_file.py",
        function="LogFile.handleError",
        before="""
        self.lost += 1
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="full disk is reported for each record",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_full_disk_costs_records_and_no_process",
        file="replica/types/log_file.py",
        function="LogFile.handleError",
        before="if self._told_s is not None and now_s - self._told_s < TELL_EVERY_S:",
        after="if now_s < 0:",
        on_disk=True,
    ),
    Mutant(
        name="records fall into a removed file",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_removed_log_file_is_made_again",
        file="replica/types/log_file.py",
        function="LogFile.shouldRollover",
        before="if lines is not None and lines.removed:",
        after="if lines is None:",
    ),
    Mutant(
        name="device is taken for a log file",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_log_file_that_cannot_be_is_refused",
        file="replica/types/log_file.py",
        function="_Lines.__init__",
        before="if not stat.S_ISREG(os.fstat(self._fd).st_mode):",
        after="if stat.S_ISDIR(os.fstat(self._fd).st_mode):",
    ),
    Mutant(
        name="libraries log their configuration",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="begin_to_log",
        before="max(level, logging.INFO)",
        after="level",
        on_disk=True,
    ),
    Mutant(
        name="error that nobody catches is no record",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="begin_to_log",
        before="""
    sys.excepthook = _uncaught
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="error that ends a thread is no record",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="begin_to_log",
        before="""
    threading.excepthook = _uncaught_in_thread
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="reason of a refused start is no record",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="say_why_it_ends",
        before="if files or json_lines:",
        after="if files:",
        on_disk=True,
    ),
    Mutant(
        name="lines do not name their process",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="name_process",
        before="""
            handler.formatter.uuid = uuid
        """,
        after="""
            pass
        """,
        on_disk=True,
    ),
    Mutant(
        name="debug lines of Kafka's client show a password",
        rows="none",
        test="tests/process/test_logs_process.py::test_log_file_has_what_standard_error_had_and_no_password",
        file="replica/master/__main__.py",
        function="main",
        before="""
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # KafkaLink logs the important errors, once
        """,
        after="""
        logging.getLogger("kafka").setLevel(logging.DEBUG)
        """,
    ),
    Mutant(
        name="lines of a server do not name it",
        rows="none",
        test="tests/process/test_logs_process.py::test_every_line_of_real_processes_is_json",
        file="replica/server/process.py",
        function="main",
        before="name_process(instance.uuid)",
        after='name_process("f" * 32)',
    ),
    Mutant(
        name="error that cannot be raised is no record",
        rows="none",
        test="tests/unit/infra/test_logs.py::test_everything_on_standard_error_is_json",
        file="replica/types/logs.py",
        function="begin_to_log",
        before="""
    sys.unraisablehook = _unraisable
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="error of the page is no record",
        rows="none",
        test="tests/unit/transport/test_transport_metrics_page.py::test_defect_of_the_page_is_one_record",
        file="replica/transport/exporter.py",
        function="_Errors.flush",
        before="if text := self.getvalue():",
        after="if not (text := self.getvalue()):",
    ),
)
