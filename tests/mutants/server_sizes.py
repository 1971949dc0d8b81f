"""Mutants: what a server derives from its machine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="limits of groups above are left out",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="folders_of",
        before="for n in range(len(below), -1, -1)]",
        after="for n in range(len(below), len(below) - 1, -1)]",
    ),
    Mutant(
        name="group that the mount does not show is sought below it",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="folders_of",
        before='below = parts[len(top) :] if parts[: len(top)] == top and ".." not in parts else []',
        after="below = parts",
    ),
    Mutant(
        name="name of a group is read as it is escaped",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="_unescaped",
        before="return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)",
        after="return path",
    ),
    Mutant(
        name="highest number of the kernel is a limit",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_what_cannot_be_read_is_no_limit",
        file="replica/server/runtime/machine.py",
        function="bytes_of",
        before="return value if 0 < value < _BYTES_MAX else 0",
        after="return value",
    ),
    Mutant(
        name="groups of version 1 are left out",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="groups_of",
        before='elif known := frozenset(controllers.split(",")) & _V1_CONTROLLERS:',
        after="elif known := frozenset[str]():",
    ),
    Mutant(
        name="memory is read in a hierarchy of another controller",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="_memory",
        before="""
        if not controllers or "memory" in controllers:
        """,
        after="""
        if True:
        """,
    ),
    Mutant(
        name="limit above which a group is slowed down is left out",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_smallest_limit_of_all_groups_counts",
        file="replica/server/runtime/machine.py",
        function="_memory",
        before='("memory.max", "memory.high")',
        after='("memory.max",)',
    ),
    Mutant(
        name="largest limit counts",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_figure_is_the_least_of_the_levels",
        file="replica/server/runtime/machine.py",
        function="smallest",
        before="return min(known,",
        after="return max(known,",
    ),
    Mutant(
        name="unreadable limit ends the start",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_what_cannot_be_read_is_no_limit",
        file="replica/server/runtime/machine.py",
        function="_text",
        before="suppress(OSError, ValueError)",
        after="suppress(PermissionError)",
    ),
    Mutant(
        name="soft limit ignores the memory",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_sizes_follow_from_the_machine",
        file="replica/server/runtime/sizing.py",
        function="derived",
        before="""
    if machine.memory.value:
        """,
        after="""
    if machine.memory.value < 0:
        """,
    ),
    Mutant(
        name="soft limit leaves an idle process no memory",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_sizes_are_bounded_and_never_fall_with_more",
        file="replica/server/runtime/sizing.py",
        function="derived",
        before="(int(machine.memory.value) - ANONYMOUS_MARGIN_BYTES) // 2",
        after="int(machine.memory.value) // 2",
    ),
    Mutant(
        name="more processors raise what was not measured",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_sizes_follow_from_the_machine",
        file="replica/server/runtime/sizing.py",
        function="derived",
        before="share = min(1.0, machine.cpus.value / MEASURED_CPUS)",
        after="share = (machine.cpus.value / MEASURED_CPUS)",
    ),
    Mutant(
        name="one heavy thread is left",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_sizes_follow_from_the_machine",
        file="replica/server/runtime/sizing.py",
        function="derived",
        before="max(HEAVY_THREADS_MIN,",
        after="max(1,",
    ),
    Mutant(
        name="given value is replaced",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_given_values_are_kept_and_the_log_says_which",
        file="replica/server/runtime/sizing.py",
        function="sized",
        before=" if getattr(options, name) == DERIVED",
        after="",
    ),
    Mutant(
        name="soft limit above the memory is not told",
        rows="none",
        test="tests/unit/server/test_server_machine.py::test_given_values_are_kept_and_the_log_says_which",
        file="replica/server/runtime/sizing.py",
        function="memory_problem",
        before="if not memory or needed <= memory:",
        after="if needed:",
    ),
    Mutant(
        name="server does not use what it derives",
        rows="none",
        test="tests/process/test_sizes_process.py::test_server_on_one_processor_has_half_the_threads_and_says_so",
        file="replica/server/process.py",
        function="TabletServer.__init__",
        before="self._options = sized(options, machine)",
        after="self._options = options",
    ),
    Mutant(
        name="server does not say what it derives",
        rows="none",
        test="tests/process/test_sizes_process.py::test_server_on_one_processor_has_half_the_threads_and_says_so",
        file="replica/server/process.py",
        function="TabletServer.__init__",
        before='log.info("%s", sizes_text(options, machine))',
        after='log.debug("%s", sizes_text(options, machine))',
    ),
)
