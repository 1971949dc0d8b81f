"""A leadership transfer as its caller sees it."""

from __future__ import annotations

from nyala.replica.raft import RaftCore, Role
from nyala.replica.types import Applied, Code, Refused

from .pending import Done


class Transfer:
    """Callers that asked to hand leadership over. All get the next leader that is known, or an error at the deadline.

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
        """The core took the request in `term`; `done(uuid of the new leader | Refused)`."""
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
            # It gave its term up without an election: no majority was heard. The target may yet have been told.
            what = "the leader lost its majority before the target took over, and nobody is known to lead"
            self._answer(Refused(Code.TIMED_OUT, what, applied=Applied.UNKNOWN))
        elif tick >= self._deadline_tick:
            self._answer(Refused(Code.TIMED_OUT, "no new leader showed itself in time", applied=Applied.UNKNOWN))

    def fail(self, code: Code, what: str) -> None:
        """Answer everyone with a refusal."""
        self._answer(Refused(code, what, applied=Applied.UNKNOWN))

    def _answer(self, result: object) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(result)
