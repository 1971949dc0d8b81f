"""The callers of a leadership transfer."""

from __future__ import annotations

from nyala.replica.raft import RaftCore, Role
from nyala.replica.types import Applied, Code, Refused

from .pending import Done


class Transfer:
    """Callers that asked for a transfer. All get the next known leader, or an error at the deadline.

    Invariant: each `done` is called exactly once.
    """

    def __init__(self, *, wait_ticks_max: int) -> None:
        self._wait_ticks_max = wait_ticks_max
        self._waiting: list[tuple[str | None, Done]] = []
        self._deadline_tick = self._term = 0

    @property
    def waiting(self) -> int:
        """Callers that are not answered yet."""
        return len(self._waiting)

    def begin(self, tick: int, term: int, target: str | None, done: Done) -> None:
        """Let `done(uuid of the new leader | Refused)` wait: the core accepted the request in `term`."""
        self._waiting.append((target, done))
        self._term = term
        self._deadline_tick = tick + self._wait_ticks_max

    def answer_if_known(self, core: RaftCore, tick: int) -> None:
        """Answer if the outcome is known."""
        if not self._waiting:
            return
        if core.role is not Role.LEADER and core.leader_uuid is not None:
            self._answer(core.leader_uuid)
        elif core.role is Role.LEADER and core.transfer_target is None:
            gave_up = Refused(Code.TIMED_OUT, "the target did not take over in time; the leader leads on")
            waiting, self._waiting = self._waiting, []
            for target, done in waiting:
                done(core.uuid if target == core.uuid else gave_up)
        elif core.role is not Role.LEADER and core.term == self._term:
            # It stepped down without an election, because it heard no majority. The target may have got TimeoutNow all
            # the same.
            what = "the leader lost its majority before the target took over, and nobody is known to lead"
            self._answer(Refused(Code.TIMED_OUT, what, applied=Applied.UNKNOWN))
        elif tick >= self._deadline_tick:
            self._answer(Refused(Code.TIMED_OUT, "no new leader showed itself in time", applied=Applied.UNKNOWN))

    def fail(self, code: Code, what: str) -> None:
        """Answer all callers with a refusal."""
        self._answer(Refused(code, what, applied=Applied.UNKNOWN))

    def _answer(self, result: object) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(result)
