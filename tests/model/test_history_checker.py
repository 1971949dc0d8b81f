"""The history checker against an obvious twin, and against histories that are known to be right or wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

import pytest

from tests.harness.history import (
    ABSENT,
    History,
    NotLinearizable,
    Operation,
    contradiction,
    drawn,
    linearizable,
)


def wrote(value: int, began: float, ended: float = math.inf, client: str = "a") -> Operation:
    return Operation(client, "k", True, value, began, ended)


def read(value: int | None, began: float, ended: float, client: str = "b") -> Operation:
    return Operation(client, "k", False, value, began, ended)


def explained(operations: Sequence[Operation]) -> bool:
    """Return whether some order explains the history, by trying every order of every choice of open writes: the
    twin."""
    certain = [o for o in operations if o.ended < math.inf]
    open_writes = [o for o in operations if o.ended == math.inf]
    for number in range(len(open_writes) + 1):
        for chosen in itertools.combinations(open_writes, number):
            for order in itertools.permutations([*certain, *chosen]):
                if any(later.ended < earlier.began for earlier, later in itertools.combinations(order, 2)):
                    continue
                state: int | None = ABSENT
                for o in order:
                    if o.write:
                        state = o.value
                    elif o.value != state:
                        break
                else:
                    return True
    return False


GOOD = {
    "nothing at all": [],
    "one after the other": [wrote(1, 0, 1), read(1, 2, 3), wrote(2, 4, 5), read(2, 6, 7)],
    "a key that nobody wrote": [read(None, 0, 1)],
    "a read beside a write sees the old": [wrote(1, 0, 1), wrote(2, 2, 9), read(1, 3, 4), read(2, 5, 6)],
    "an open write is never seen": [wrote(1, 0, 1), wrote(2, 2), read(1, 8, 9)],
    "an open write is seen late": [wrote(1, 0, 1), wrote(2, 2), read(1, 3, 4), read(2, 8, 9)],
    "two writes at once, either first": [wrote(1, 0, 9), wrote(2, 0, 9, "c"), read(2, 10, 11), read(2, 12, 13)],
    "at one instant all overlap": [wrote(1, 0, 1), wrote(2, 1, 2), read(1, 2, 2)],
}
BAD = {
    "a stale read": [wrote(1, 0, 1), wrote(2, 2, 3), read(1, 4, 5)],
    "a lost write": [wrote(1, 0, 1), read(None, 2, 3)],
    "a value from nowhere": [wrote(1, 0, 1), read(7, 2, 3)],
    "a read from the future": [read(1, 0, 1), wrote(1, 2, 3)],
    "time goes back between two reads": [wrote(1, 0, 1), wrote(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
    "an open write comes, goes and comes": [wrote(1, 0, 1), wrote(2, 2), read(2, 3, 4), read(1, 5, 6), read(2, 7, 8)],
    "readers disagree about two writes": [
        *(wrote(1, 0, 9), wrote(2, 0, 9, "c")),
        *(read(1, 10, 11), read(2, 12, 13)),
    ],
    "a write between two equal reads": [wrote(1, 0, 1), read(1, 2, 3), wrote(2, 4, 5), read(1, 6, 7)],
}


@pytest.mark.parametrize("name", GOOD)
def test_history_that_an_order_explains_is_accepted(name: str) -> None:
    """Goal: no false alarm. Method: hand-made histories, judged by the twin too."""
    assert linearizable(GOOD[name]) and explained(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_history_that_no_order_explains_is_refused(name: str) -> None:
    """Goal: a checker that stops comparing turns this red. Method: hand-made violations, judged by the twin too."""
    assert not linearizable(BAD[name]) and not explained(BAD[name])


def random_history(rng: Random) -> list[Operation]:
    """Return up to seven operations; each read saw a value at random, mostly one written before it ended."""
    operations: list[Operation] = []
    for number in range(rng.randint(1, 7)):
        began = rng.randint(0, 12)
        ended = began + rng.randint(0, 6)
        if rng.random() < 0.5:
            operations.append(wrote(number, began, math.inf if rng.random() < 0.3 else ended, f"w{number}"))
        else:
            begun = [o.value for o in operations if o.write and o.began <= ended]
            operations.append(read(rng.choice([ABSENT, *begun]), began, ended, f"r{number}"))
    return operations


@pytest.mark.deep
def test_checker_agrees_with_the_obvious_twin_on_random_histories() -> None:
    """CN-24: the checker's verdict is right, and the part of a bad history that it reports is itself a contradiction.
    Method: 1,000 small histories, ties and open writes among them, against every permutation."""
    verdicts = {True: 0, False: 0}
    for seed in range(1000):
        operations = random_history(Random(seed))
        verdict = linearizable(operations)
        assert verdict == explained(operations), f"seed {seed}:\n{drawn(operations)}"
        verdicts[verdict] += 1
        if not verdict:
            few = contradiction(operations)
            assert few and set(few) <= set(operations), f"seed {seed}:\n{drawn(few)}"
            assert not explained(few), f"seed {seed}:\n{drawn(few)}"
    assert min(verdicts.values()) > 200, verdicts


def long_history(operations: int) -> list[Operation]:
    """Return a correct history of twelve clients on one register, a tenth of the writes with an unknown outcome."""
    rng, state, found = Random(7), ABSENT, []
    free = {f"c{n}": 0.0 for n in range(12)}
    now = 0.0
    for number in range(operations):
        client = min(free, key=lambda name: free[name])
        began = max(now, free[client])
        takes_effect = now = began + rng.random() * 0.01
        ended = takes_effect + rng.random() * 0.1
        free[client] = ended
        if rng.random() < 0.5:
            state = number
            found.append(wrote(number, began, math.inf if rng.random() < 0.1 else ended, client))
        else:
            found.append(read(state, began, ended, client))
    return found


def test_long_history_with_open_writes_is_decided_and_one_stale_read_in_it_is_told_in_a_few_lines() -> None:
    """Goal: real histories are decided, and the report shows a reader what is wrong. Method: 3,000 operations of twelve
    clients on one key; then one of the reads is changed to see a value of long before."""
    operations = long_history(3000)
    assert linearizable(operations)
    victim = next(n for n, o in enumerate(operations) if n > 2000 and not o.write)
    was = next(o for o in operations if not o.write and o.value is not ABSENT)
    late = operations[victim]
    operations[victim] = Operation("late", "k", False, was.value, late.began, late.ended)
    assert not linearizable(operations)
    few = contradiction(operations)
    assert len(few) <= 6 and operations[victim] in few
    assert "late read" in drawn(few) and len(drawn(few).splitlines()) == len(few)


def test_value_written_twice_is_no_history_to_judge() -> None:
    """Goal: a workload that repeats values is refused. Method: one value, two writes."""
    with pytest.raises(ValueError, match="written twice"):
        linearizable([wrote(1, 0, 1), wrote(1, 2, 3)])


def test_recorded_calls_are_judged_key_by_key_and_the_wrong_key_is_told() -> None:
    """Goal: the text of `verify` names the key, the operations and a refused write that was read after all. Method: a
    good key, a key with lost calls and one under way, and a key whose refused write is read."""
    clock = iter(range(100))
    history = History(lambda: float(next(clock)))
    history.write("a", "good", 1).returned()
    history.read("b", "good").returned(1)
    history.write("a", "open", 1).unknown()
    history.read("b", "open").unknown()
    history.write("c", "open", 2)  # still under way
    history.read("b", "open").returned(2)
    assert history.verify() == 5 and history.lost == 2
    history.write("a", "wrong", 5).refused()
    history.read("b", "wrong").returned(5)
    with pytest.raises(NotLinearizable, match=r"(?s)key 'wrong': no order explains these 1:.*b read 5.*refused"):
        history.verify()
