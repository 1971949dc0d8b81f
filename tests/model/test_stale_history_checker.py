"""The checker of stale reads against an obvious twin, and against histories that are known to be right or wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

import pytest

from tests.harness.history import ABSENT, History, NotLinearizable, Operation, WentBack

KEY = "k"


def wrote(value: int, began: float, ended: float = math.inf, client: str = "w", key: str = KEY) -> Operation:
    return Operation(client, key, True, value, began, ended)


def read(
    value: int | None, began: float, ended: float, staleness: float = 0.0, client: str = "r", key: str = KEY
) -> Operation:
    return Operation(client, key, False, value, began, ended, staleness)


def verified(operations: Sequence[Operation]) -> None:
    history = History(lambda: 0.0)
    history.operations = list(operations)
    history.verify()


def accepted(operations: Sequence[Operation]) -> bool:
    try:
        verified(operations)
    except NotLinearizable:
        return False
    return True


def explained(operations: Sequence[Operation]) -> bool:
    """Return whether some order explains the history, by trying every order of all operations that keeps what came
    after what, and each client's own order: the twin."""

    def before(a: Operation, b: Operation) -> bool:
        same = a.client == b.client and b.staleness < math.inf
        return a.ended < (b.began if same else b.began - b.staleness)

    for order in itertools.permutations(operations):
        if any(before(later, earlier) for earlier, later in itertools.combinations(order, 2)):
            continue
        state: dict[str, int | None] = {}
        for o in order:
            if o.write:
                state[o.key] = o.value
            elif o.value != state.get(o.key, ABSENT):
                break
        else:
            return True
    return False


WRITES = [wrote(1, 0, 1), wrote(2, 4, 5)]
GOOD = {
    "as old as it may be": [*WRITES, read(1, 8, 9, staleness=4)],
    "old, then new, then new": [*WRITES, read(1, 6, 7, 3), read(2, 8, 9, 9), read(2, 10, 11)],
    "two that overlap": [*WRITES, read(2, 6, 8, 9), read(1, 7, 9, 9)],
    "another client's is older": [*WRITES, read(2, 6, 7, client="q"), read(1, 8, 9, 9)],
    "a time that was chosen is old": [*WRITES, read(2, 6, 7), read(1, 8, 9, math.inf)],
    "other keys, each as old": [*WRITES, read(2, 6, 7, 9), wrote(7, 2, 3, key="o"), read(7, 8, 9, 9, key="o")],
}
TOO_OLD: dict[str, list[Operation]] = {
    "older than it may be": [*WRITES, read(1, 8, 9, staleness=2)],
    "never was there": [*WRITES, read(3, 8, 9, staleness=9)],
    "of the future": [wrote(1, 5, 6), read(1, 2, 3, 9)],
    "older than a strong read": [*WRITES, read(2, 6, 7), read(1, 8, 9, 9)],
    "another key told of a later time": [
        *(wrote(1, 0, 1), wrote(2, 2, 3), wrote(7, 4, 5, key="o")),
        *(read(7, 6, 7, 9, key="o"), read(1, 8, 9, 9)),
    ],
}
BACK: dict[str, list[Operation]] = {
    "after a stale read": [*WRITES, read(2, 6, 7, 9), read(1, 8, 9, 9)],
    "after a time that was chosen": [*WRITES, read(2, 6, 7, math.inf), read(1, 8, 9, 9)],
    "after an own write": [wrote(1, 0, 1), wrote(2, 4, 5, client="r"), read(1, 6, 7, 9)],
    "beside the write": [wrote(1, 0, 1), wrote(2, 2, 20), read(2, 3, 4, 1), read(1, 5, 6, 5)],
    "what nobody had written": [wrote(1, 0, 1), read(1, 2, 3, 9), read(None, 4, 5, 9)],
}


@pytest.mark.parametrize("name", GOOD)
def test_stale_reads_that_an_order_explains_are_accepted(name: str) -> None:
    """Goal: no false alarm. Method: hand-made histories, judged by the twin too."""
    verified(GOOD[name])
    assert explained(GOOD[name])


@pytest.mark.parametrize("name", [*TOO_OLD, *BACK])
def test_stale_read_that_is_too_old_or_goes_back_is_told(name: str) -> None:
    """IN-10. Goal: each way to be too old is found, and named. Method: hand-made histories, judged by the twin too."""
    operations = TOO_OLD.get(name) or BACK[name]
    with pytest.raises(NotLinearizable) as caught:
        verified(operations)
    assert not explained(operations)
    assert name in TOO_OLD or isinstance(caught.value, WentBack)
    assert "may be" in str(caught.value)


def drawn_history(rng: Random) -> list[Operation]:
    """Return a few calls of two clients to two keys at random times, with values that were written; right or wrong."""
    written = {key: rng.randint(1, 2) for key in ("k", "o")}
    found = []
    for key, count in written.items():
        for value in range(1, count + 1):
            began = rng.randint(0, 12)
            found.append(wrote(value, began, began + rng.randint(1, 4), rng.choice("ab"), key))
    for _ in range(rng.randint(2, 3)):
        key, began = rng.choice(list(written)), rng.randint(2, 16)
        value = rng.choice([None, *range(1, written[key] + 1)])
        staleness = rng.choice([0, 3, 9, math.inf])
        found.append(read(value, began, began + rng.randint(1, 4), staleness, rng.choice("ab"), key))
    return found


@pytest.mark.deep
def test_stale_history_checker_agrees_with_the_twin() -> None:
    """Goal: a history that an order explains is never reported; most of those that none explains are. Method: random
    small histories."""
    rng = Random(7)
    right = wrong = missed = 0
    for _ in range(300):
        operations = drawn_history(rng)
        if explained(operations):
            right += 1
            verified(operations)
        else:
            wrong += 1
            missed += accepted(operations)
    assert right > 50 and wrong > 50 and missed < wrong // 20, (right, wrong, missed)
