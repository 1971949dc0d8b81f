"""What a process may use, as control groups and the machine say, and the sizes that a server derives of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.server.options import DERIVED, ServerOptions
from nyala.replica.server.runtime.machine import UNKNOWN, Bound, Machine, bytes_of, cpus_of_max, found_machine
from nyala.replica.server.runtime.memory import ANONYMOUS_MARGIN_BYTES
from nyala.replica.server.runtime.sizing import SOFT_BYTES_MIN, Sizes, derived, memory_problem, sized, sizes_text
from nyala.replica.types import limits
from nyala.replica.types.options import config_text

GIB, MIB = 1 << 30, 1 << 20
MEMINFO = "MemTotal:       25165824 kB\nMemFree:        1 kB\n"
V2 = "34 25 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
V1_GROUPS = "4:memory:/a/b\n2:cpu,cpuacct:/a\n1:pids:/\n0::/\n"
NONE = str((1 << 63) - 4096)
ROOT = "/sys/fs/cgroup"


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def machine_of(folder: Path, groups: str, mounts: str, files: dict[str, str], processors: int = 2) -> Machine:
    proc = {"/proc/self/cgroup": groups, "/proc/self/mountinfo": mounts, "/proc/meminfo": MEMINFO}
    return found_machine(tree(folder, proc | files), processors)


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "cpus", "memory", "found_in"),
    [
        ("0::/a/b\n", V2, {}, 2, 24 * GIB, "the machine"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "max\n", "a/b/cpu.max": "max 100000\n"}, 2, 24 * GIB, "the machine"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "536870912\n", "a/b/cpu.max": "50000 100000\n"}, 0.5, 512 * MIB,
         f"{ROOT}/a/b/memory.max"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "max\n", "a/memory.max": "1073741824\n", "a/cpu.max": "150000 100000\n"},
         1.5, GIB, f"{ROOT}/a/memory.max"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "2147483648\n", "a/memory.max": "1073741824\n"}, 2, GIB,
         f"{ROOT}/a/memory.max"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "1073741824\n", "a/memory.max": "2147483648\n"}, 2, GIB,
         f"{ROOT}/a/b/memory.max"),
        ("0::/a/b\n", V2, {"a/b/memory.high": "1073741824\n", "a/b/memory.max": "2147483648\n"}, 2, GIB,
         f"{ROOT}/a/b/memory.high"),
        ("0::/a/b\n", V2, {"a/b/memory.max": "99999999999999\n", "a/b/cpu.max": "800000 100000\n"}, 2, 24 * GIB,
         "the machine"),
        # A container with a namespace of control groups: its group is the root.
        ("0::/\n", V2, {"memory.max": "1073741824\n", "cpu.max": "100000 100000\n"}, 1, GIB, f"{ROOT}/memory.max"),
        # One without: the mount shows the container's group alone.
        ("0::/docker/x\n", V2.replace("0:30 /", "0:30 /docker/x"), {"memory.max": "1073741824\n"}, 2, GIB,
         f"{ROOT}/memory.max"),
        ("0::/docker/x/y\n", V2.replace("0:30 /", "0:30 /docker/x"), {"y/memory.max": "1073741824\n"}, 2, GIB,
         f"{ROOT}/y/memory.max"),
        # A process that was moved out of what the mount shows.
        ("0::/../other\n", V2, {"memory.max": "1073741824\n", "other/memory.max": "1\n"}, 2, GIB, f"{ROOT}/memory.max"),
        # A name with a blank.
        ("0::/a b\n", V2.replace("/sys/fs/cgroup", "/my\\040groups"), {"/my groups/a b/memory.max": "1073741824"}, 2,
         GIB, "/my groups/a b/memory.max"),
        (V1_GROUPS, V1, {"memory/a/b/memory.limit_in_bytes": NONE, "memory/a/memory.limit_in_bytes": "1073741824\n",
                         "cpu,cpuacct/a/cpu.cfs_quota_us": "50000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
         0.5, GIB, f"{ROOT}/memory/a/memory.limit_in_bytes"),
        (V1_GROUPS, V1, {"memory/a/b/memory.limit_in_bytes": NONE, "cpu,cpuacct/a/cpu.cfs_quota_us": "-1",
                         "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 2, 24 * GIB, "the machine"),
        (V1_GROUPS, V1, {"pids/memory.limit_in_bytes": "1", "memory/memory.max": "1", "memory/cpu.cfs_quota_us": "1",
                         "memory/cpu.cfs_period_us": "9", "cpu,cpuacct/memory.limit_in_bytes": "1"}, 2, 24 * GIB,
         "the machine"),
        ("garbage\n:::\n0:\n4:memory\n", "x - cgroup2\n - \n", {"memory.max": "1"}, 2, 24 * GIB, "the machine"),
        ("0::/a\n", V2, {"a/memory.max": "-5", "a/cpu.max": "x y z"}, 2, 24 * GIB, "the machine"),
        ("0::/a\n", V2, {"a/memory.max": "0", "a/cpu.max": "100000 0"}, 2, 24 * GIB, "the machine"),
        ("0::/a\n", V2, {"a/memory.max": "9" * 5000, "a/cpu.max": ""}, 2, 24 * GIB, "the machine"),
        ("0::/a\n", V2, {"a/memory.max": "\u0661\u0662", "a/cpu.max": "1e5 1e5"}, 2, 24 * GIB, "the machine"),
        ("0::/a\0b\n", V2, {}, 2, 24 * GIB, "the machine"),
    ],
)  # fmt: skip
def test_smallest_limit_of_all_groups_counts(
    groups: str, mounts: str, files: dict[str, str], cpus: float, memory: int, found_in: str, tmp_path: Path
) -> None:
    """Goal: a server in a container knows what it may use, in both versions of control groups, and garbage is no limit.
    Method: trees of files as a kernel shows them, and as none does."""
    files = {name if name.startswith("/") else f"{ROOT}/{name}": text for name, text in files.items()}
    found = machine_of(tmp_path, groups, mounts, files)
    assert (found.cpus.value, found.memory) == (cpus, Bound(memory, found_in))


def test_what_cannot_be_read_is_no_limit(tmp_path: Path) -> None:
    """Goal: a server starts where the kernel shows nothing. Method: an empty root; a folder and a broken link in the
    places of files; bytes that are no text; the running machine."""
    assert found_machine(tmp_path, 0) == UNKNOWN
    files = {f"{ROOT}/a/memory.max/x": "", f"{ROOT}/memory.max": "1073741824"}  # the first one is a folder
    (tmp_path / "sys/fs/cgroup/a").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/a/cpu.max").symlink_to("nowhere")
    found = machine_of(tmp_path, "0::/a\n", V2, files)
    assert (found.cpus.value, found.memory.value) == (2, GIB)
    (tmp_path / "proc/meminfo").write_bytes(b"MemTotal: \xff kB\nMemTotal: 5 MB")
    (tmp_path / "sys/fs/cgroup/memory.max").write_bytes(b"\xff\xfe")
    assert found_machine(tmp_path, 2).memory.value == 0
    assert bytes_of(NONE) == 0
    here = found_machine()
    assert here.cpus.value > 0 and here.memory.value > 256 * MIB


DEPTH = 4
LIMIT = st.one_of(st.just("max"), st.integers(1, 64 * GIB).map(str), st.text(max_size=8))


@pytest.mark.deep
@given(
    st.lists(LIMIT, min_size=DEPTH, max_size=DEPTH),
    st.lists(st.tuples(LIMIT, LIMIT), min_size=DEPTH, max_size=DEPTH),
)
def test_figure_is_the_least_of_the_levels(memory: list[str], cpus: list[tuple[str, str]]) -> None:
    """Goal: no level is left out, and none raises the figure. Method: four levels with drawn limits and texts, against
    the least of all that are numbers."""
    with TemporaryDirectory() as folder:
        files = {}
        for depth in range(DEPTH):
            at = ROOT + "/g" * depth
            files[f"{at}/memory.max"] = memory[depth]
            files[f"{at}/cpu.max"] = " ".join(cpus[depth])
        found = machine_of(Path(folder), "0::" + "/g" * (DEPTH - 1) + "\n", V2, files)
    numbers = [int(text) for text in memory if text.strip().isascii() and text.strip().isdecimal() and int(text) > 0]
    assert found.memory.value == min([24 * GIB, *numbers])
    shares = [share for quota, period in cpus if (share := cpus_of_max(f"{quota} {period}")) > 0]
    assert found.cpus.value == min([2, *shares])


@given(st.text(max_size=30))
def test_texts_are_limits_or_none(text: str) -> None:
    """Goal: no text of a limit raises or gives a figure below 0. Method: drawn texts."""
    assert bytes_of(text) >= 0 and cpus_of_max(text) >= 0


def machine(cpus: float, memory: int) -> Machine:
    return Machine(Bound(cpus, "a"), Bound(memory, "b"))


@pytest.mark.parametrize(
    ("cpus", "memory", "sizes"),
    [
        (2, 24 * GIB, Sizes(6, 4, 4, 340 * MIB)),
        (64, 512 * GIB, Sizes(6, 4, 4, 340 * MIB)),
        (0, 0, Sizes(6, 4, 4, 340 * MIB)),
        (1.5, GIB, Sizes(5, 3, 3, 340 * MIB)),
        (1, 840 * MIB, Sizes(3, 2, 2, 340 * MIB)),
        (1, 838 * MIB, Sizes(3, 2, 2, 339 * MIB)),
        (0.5, 512 * MIB, Sizes(2, 1, 1, 176 * MIB)),
        (0.1, 256 * MIB, Sizes(2, 1, 1, 48 * MIB)),
        (0.1, 64 * MIB, Sizes(2, 1, 1, 32 * MIB)),
    ],
)
def test_sizes_follow_from_the_machine(cpus: float, memory: int, sizes: Sizes) -> None:
    """Goal: the measured figures hold where they were measured and above, and smaller limits lower them. Method: a
    table, with the edges."""
    assert derived(machine(cpus, memory)) == sizes


@given(st.floats(0.01, 128), st.integers(1, 1 << 40))
def test_sizes_are_bounded_and_never_fall_with_more(cpus: float, memory: int) -> None:
    """Goal: more processors or memory lower nothing; a soft limit leaves an idle process its memory, and as much again,
    wherever the limit allows the least. Method: drawn machines, compared with larger ones."""
    sizes = derived(machine(cpus, memory))
    larger = derived(machine(cpus * 1.5, memory * 2))
    assert all(a <= b for a, b in zip(sizes, larger, strict=True))
    assert SOFT_BYTES_MIN <= sizes.memory_soft_bytes <= limits.SERVER_MEMORY_SOFT_BYTES
    if memory >= ANONYMOUS_MARGIN_BYTES + 2 * SOFT_BYTES_MIN:
        assert ANONYMOUS_MARGIN_BYTES + 2 * sizes.memory_soft_bytes <= memory
        assert not memory_problem(sized(ServerOptions(root="/r"), machine(cpus, memory)), machine(cpus, memory))


def test_given_values_are_kept_and_the_log_says_which() -> None:
    """Goal: an operator's value is never replaced, and the log names what was found, where, and what follows. Method:
    one given value beside three derived ones; one that is more than the limit."""
    options, small = ServerOptions(root="/r", memory_soft_bytes=GIB), machine(0.5, 512 * MIB)
    used = sized(options, small)
    assert used == replace(options, heavy_threads=2, scan_threads=1, open_threads=1) and used.memory_soft_bytes == GIB
    assert sizes_text(options, small) == (
        "may use 0.5 processors (a) and 512 MiB of memory (b): heavy_threads 2 (derived), scan_threads 1 (derived), "
        "open_threads 1 (derived), memory_soft_bytes 1073741824 (given)"
    )
    assert "an unknown memory" in sizes_text(options, machine(2, 0))
    assert memory_problem(used, small).endswith("Raise that limit, or lower memory_soft_bytes")
    assert not memory_problem(used, machine(2, 0))
    assert not memory_problem(used, machine(2, GIB + ANONYMOUS_MARGIN_BYTES))
    assert all(getattr(ServerOptions(root="/r"), name) == DERIVED for name in Sizes._fields)
    printed = config_text(ServerOptions)
    text = " ".join(printed.replace("\n# ", " ").split())
    assert "0: half of what the memory limit of this process leaves above 160 MiB, 32 to 340 MiB" in text
    assert all(f"\n{name} = 0\n" in printed for name in Sizes._fields)
