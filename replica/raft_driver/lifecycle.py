"""The phases of one replica, and how it ends: stopped, failed, or with the process."""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.fs import exhausted
from nyala.replica.types import Code, Corruption, DiskFailure, InvariantViolation, Refused, check

from .status import PHASE_CHANGES, Phase


class Lifecycle:
    """The phase of a replica, and why it ended.

    Invariant: a replica that has failed or stopped never serves again. Concurrency: the owner's thread.
    """

    def __init__(self, on_change: Callable[[], None], on_fatal: Callable[[BaseException], None]) -> None:
        self._on_change = on_change
        self._on_fatal = on_fatal
        self.end_serving: Callable[[Phase, bool, Code, str], None] | None = None
        """Ends the executor; set when the replica starts. Its arguments: the last phase, whether the replica served
        until now, and the code and the text for its callers."""
        self.phase = Phase.BOOTSTRAPPING
        self.error = ""
        self.why_failed = ""
        """The text of the error that was raised, without advice."""
        self.damaged = False
        """Whether it failed because its files are damaged."""
        self.failed_index = 0
        """The first entry that could not be applied, if the replica failed because of that; its files are whole."""
        self.starved = False
        """Whether it stopped because a resource was exhausted. Its files are whole, and its owner opens it again."""

    @property
    def serving(self) -> bool:
        return self.phase is Phase.CONFIGURING or self.phase is Phase.RUNNING

    def enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            check(phase in PHASE_CHANGES[self.phase], "a legal change of phase", old=self.phase, new=phase)
            self.phase = phase

    def refusal(self) -> Refused:
        """The refusal for callers while the replica does not serve."""
        code = Code.TABLET_FAILED if self.phase is Phase.FAILED else Code.NOT_READY
        return Refused(code, self.error or "the replica does not run", phase=self.phase.value)

    def fail(self, error: BaseException) -> None:
        """End this replica because of an error, or the process if the error is a bug of ours or a failing disk.

        If a resource ran out in the middle of work, the replica stops: its files are whole, and its owner opens it
        again (`starved`).
        """
        if self.phase is Phase.STOPPED or self.phase is Phase.FAILED:
            return
        wanted = None if _is_fatal(error) else exhausted(error)
        if wanted is not None:
            self.error, self.starved = str(wanted), True
            self.end(Phase.STOPPED, Code.NOT_READY, self.error)
            self._on_change()
        elif not _is_fatal(error):
            self.why_failed = self.error = f"{type(error).__name__}: {error}"
            if self.failed_index:
                self.error = (
                    f"entry {self.failed_index} of the log could not be applied: {self.error}. Every acknowledged row "
                    "is kept. Start a build without the defect: it applies the entry again"
                )
            self.damaged = isinstance(error, Corruption) and error.copy_heals
            self.end(Phase.FAILED, Code.TABLET_FAILED, self.error)
            self._on_change()
        else:
            self.end(Phase.STOPPED, Code.UNAVAILABLE, "the server is stopping")
            self._on_fatal(error)

    def fail_at_entry(self, index: int, error: BaseException) -> None:
        """End this replica because an entry raised while it was applied. Every replica will meet that defect, unless
        the error is a corruption, a fatal one or an exhausted resource."""
        other = isinstance(error, Corruption) or _is_fatal(error) or exhausted(error) is not None
        if self.phase is not Phase.STOPPED and not other:
            self.failed_index = index
        self.fail(error)

    def end(self, phase: Phase, code: Code, what: str) -> None:
        """Enter `phase`; nothing is sent or answered after that."""
        served = self.serving
        self.enter(phase)
        if self.end_serving is not None:
            self.end_serving(phase, served, code, what)


def _is_fatal(error: BaseException) -> bool:
    return isinstance(error, InvariantViolation | DiskFailure) or not isinstance(error, Exception)
