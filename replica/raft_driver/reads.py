"""Strong reads, and callers that wait until an index or a time is applied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from nyala.replica.types import Code, Refused

from .pending import Done, Waiters


class Reads:
    """The callers that wait for state to be applied.

    Invariants: a read barrier answers only after the core confirmed the leader, by its lease at the call or by a quorum
    *after* the call, and after everything committed by then is applied; each `done` is called once. Concurrency:
    owner's thread.
    """

    def __init__(self, *, waiters_max: int, wait_ticks_max: int) -> None:
        self._wait_ticks_max = wait_ticks_max
        self._tokens: dict[int, tuple[int, Done]] = {}
        """Barriers that the core has not answered yet, by token: (deadline in ticks, caller), in the order of the
        calls."""
        self._next_token = 0
        self.by_index = Waiters(waiters_max)
        self.by_time = Waiters(waiters_max)

    @property
    def waiting(self) -> int:
        """Callers that are not answered yet."""
        return len(self._tokens) + len(self.by_index) + len(self.by_time)

    def barrier(self, read_index: Callable[[int], None], tick: int, done: Done) -> None:
        """Ask the core, through `read_index(token)`, to confirm leadership; `done(index | Refused)`."""
        self._next_token += 1
        token = self._next_token
        self._tokens[token] = tick + self._wait_ticks_max, done
        read_index(token)

    def confirmed(self, token: int, index: int, tick: int, applied_index: int) -> None:
        """Note that leadership was confirmed at commit index `index`."""
        _, done = self._tokens.pop(token, (0, None))
        if done is None:
            return
        if applied_index >= index:
            done(index)
        else:
            self.by_index.add(index, tick + self._wait_ticks_max, done)

    def refused(self, token: int, code: Code, leader_hint: str) -> None:
        """Answer the caller that leadership could not be confirmed."""
        _, done = self._tokens.pop(token, (0, None))
        if done is not None:
            done(Refused(code, "leadership was not confirmed", detail=leader_hint))

    def wait_index(self, index: int, tick: int, applied_index: int, done: Done) -> None:
        """Call `done(index)` when `index` is applied, or `done(Refused)`."""
        if applied_index >= index:
            done(index)
        else:
            self.by_index.add(index, tick + self._wait_ticks_max, done)

    def wait_time(self, hybrid_time: int, tick: int, applied_time: int, done: Done) -> None:
        """Call `done(hybrid_time)` when an entry of that time or later is applied, or `done(Refused)`."""
        if applied_time >= hybrid_time:
            done(hybrid_time)
        else:
            self.by_time.add(hybrid_time, tick + self._wait_ticks_max, done)

    def applied(self, index: int, hybrid_time: int) -> None:
        """Note that everything up to that index and that time is applied."""
        self.by_index.reached(index)
        self.by_time.reached(hybrid_time)

    def expire(self, tick: int) -> list[int]:
        """Answer the callers that waited too long; returns the tokens that the core need not confirm any more."""
        late = list(takewhile(lambda token: self._tokens[token][0] <= tick, self._tokens))
        for token in late:
            _, done = self._tokens.pop(token)
            done(Refused(Code.TIMED_OUT, "leadership was not confirmed in time", waited_ticks=self._wait_ticks_max))
        self.by_index.expire(tick)
        self.by_time.expire(tick)
        return late

    def fail_all(self, code: Code, what: str) -> None:
        """Answer all callers with a refusal."""
        tokens, self._tokens = self._tokens, {}
        for token in sorted(tokens):
            tokens[token][1](Refused(code, what))
        self.by_index.fail_all(code, what)
        self.by_time.fail_all(code, what)
