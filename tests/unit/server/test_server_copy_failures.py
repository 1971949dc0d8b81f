"""Which copies count as failed for the target's own reasons, and for how long they are reported."""

from __future__ import annotations

import pytest

from nyala.replica.server.tablets.copy_failures import FORGET_S, REASON_CHARS_MAX, REPORTED_MAX, CopyFailures
from nyala.replica.tablet_copy import INTACT, CopyFile, DamagedFile, FileKind
from nyala.replica.types import Applied, Code, Corruption, Refused, limits

FULL = Refused(Code.NO_SPACE, "the disk is full")
KEPT = Refused(Code.ILLEGAL_STATE, "an intact replica is not replaced", detail=INTACT)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def told(failures: CopyFailures, *under_way: str) -> list[tuple[str, int, str]]:
    return [(f.tablet_id, f.count, f.reason) for f in failures.lasting(under_way)]


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (FULL, True),
        (Corruption("a block's file cannot be written"), True),
        (NotADirectoryError(20, "data"), True),
        (DamagedFile(CopyFile(FileKind.BLOCK, "b", 1, 0), 1, 2), False),
        *(
            (Refused(code, "the source says so", applied=Applied.UNKNOWN), False)
            for code in Code
            if code not in (Code.OK, Code.NO_SPACE)
        ),
    ],
    ids=lambda value: getattr(value, "code", value).name if isinstance(value, Refused) else None,
)
def test_copy_failures_only_a_servers_own_ones_are_counted(error: BaseException, own: bool) -> None:
    """TC-12. Goal: a copy that fails because of its source does not count against the target. Method: every error."""
    failures = CopyFailures(Clock())
    failures.failed("t", FULL)
    failures.failed("t", error)
    assert told(failures) == [("t", 2 if own else 1, str(error if own else FULL))]


def test_copy_failures_end_with_a_copy_or_with_the_attempts() -> None:
    """TC-12. Goal: a server counts failures in a row, reports them while attempts go on, and the count is bounded.
    Method: a success; a minute without an attempt, with and without a job under way; more tablets than are told."""
    clock = Clock()
    failures = CopyFailures(clock)
    for _ in range(3):
        failures.failed("t", FULL)
    failures.failed("u", Corruption("x" * 10 * REASON_CHARS_MAX))
    assert told(failures) == [("t", 3, str(FULL)), ("u", 1, "x" * REASON_CHARS_MAX)]
    failures.succeeded("t")
    failures.failed("t", FULL)
    assert ("t", 1, str(FULL)) in told(failures)
    clock.now_s += FORGET_S + 1
    assert told(failures, "t") == [("t", 1, str(FULL))]
    assert told(failures) == []
    for n in range(2 * REPORTED_MAX):
        failures.failed(f"{n:04}", FULL)
    failures.failed("zzzz", FULL)
    failures.failed("zzzz", FULL)
    assert len(told(failures)) == REPORTED_MAX and told(failures)[0] == ("zzzz", 2, str(FULL))


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([KEPT], (1, KEPT)),
        ([KEPT] * 9, (limits.COPY_FAILURES_MAX - 1, KEPT)),
        ([FULL] * 4 + [KEPT] * 3, (4, FULL)),
        ([KEPT] * 9 + [FULL], (1, FULL)),
        ([KEPT, FULL, KEPT, FULL, FULL], (3, FULL)),
    ],
    ids=["once", "often", "after failures", "before a failure", "between failures"],
)
def test_refused_copies_over_an_intact_replica_are_told_and_replace_no_member(
    errors: list[Refused], expected: tuple[int, Refused]
) -> None:
    """Goal: a server reports that it refuses copies over an intact replica, and never so often that the masters
    replace the member, because any process can ask. Refusals neither hide its own failures nor count as such. Method: a
    table of refusals and failures in a row. Of more tablets than are told, those of its own failures come first."""
    failures = CopyFailures(Clock())
    for error in errors:
        failures.failed("t", error)
    assert told(failures) == [("t", expected[0], str(expected[1]))]
    for n in range(REPORTED_MAX):
        for _ in range(2):
            failures.failed(f"a{n:04}", KEPT)
    failures.failed("z", FULL)
    assert len(told(failures)) == REPORTED_MAX and ("z", 1, str(FULL)) in told(failures)
