"""The door to one replica's consensus: inputs are dispatched here, rules live in the modules beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nyala.replica.base import EntryKind, OpId, RaftConfig, Rng

from .log_view import LogView
from .messages import Message
from .options import RaftOptions
from .ready import ConfigEdit, PeerStatus, Ready, Role


class RaftCore:
    """One replica of one group, without I/O: messages, ticks and completions in, `Ready` out.

    `encode_config`/`decode_config` turn a RaftConfig into the `meta` of a CONFIG entry and back. `hybrid_now` issues
    the hybrid time of entries that the core itself makes (NOOP, promotion) and of `safe_time`; without it, times just
    above the last entry's are used. `withheld` is the OpId of a damaged tail that may have been acknowledged: the
    replica neither votes nor campaigns until its durable log has reached it. `may_campaign=False` does the same until
    `allow_campaign()`. `commit_index` is what the host has applied or knows committed: `Ready.committed` starts above.
    """

    applied_index: int
    """Set by the host; travels in replies."""

    def __init__(
        self,
        *,
        uuid: str,
        term: int,
        voted_for: str | None,
        committed_config: RaftConfig,
        pending_config: RaftConfig | None,
        log: LogView,
        commit_index: int,
        options: RaftOptions,
        rng: Rng,
        encode_config: Callable[[RaftConfig], bytes],
        decode_config: Callable[[bytes], RaftConfig],
        hybrid_now: Callable[[], int] | None = None,
        withhold_votes: bool = False,
        may_campaign: bool = True,
        withheld: OpId | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def uuid(self) -> str:
        raise NotImplementedError

    @property
    def role(self) -> Role:
        raise NotImplementedError

    @property
    def term(self) -> int:
        raise NotImplementedError

    @property
    def voted_for(self) -> str | None:
        raise NotImplementedError

    @property
    def leader_uuid(self) -> str | None:
        raise NotImplementedError

    @property
    def commit_index(self) -> int:
        raise NotImplementedError

    @property
    def persisted_index(self) -> int:
        raise NotImplementedError

    @property
    def active_config(self) -> RaftConfig:
        raise NotImplementedError

    @property
    def committed_config(self) -> RaftConfig:
        raise NotImplementedError

    @property
    def pending_config(self) -> RaftConfig | None:
        raise NotImplementedError

    @property
    def term_committed(self) -> bool:
        """Leader: whether an entry of its own term is committed (writes and config changes are welcome)."""
        raise NotImplementedError

    @property
    def transfer_target(self) -> str | None:
        raise NotImplementedError

    @property
    def leader_contact_ticks(self) -> int:
        """Ticks since a leader was last heard (0 on a leader)."""
        raise NotImplementedError

    @property
    def may_campaign(self) -> bool:
        raise NotImplementedError

    def allow_campaign(self) -> None:
        """The host says the replica is whole again."""

    def tick(self) -> None:
        """One tick of the host's monotonic clock."""

    def step(self, msg: Message) -> None:
        """One message of a peer."""

    def campaign(self) -> None:
        """Start an election (with pre-vote) now instead of at the timeout: the hinted leader of a new group."""

    def propose(
        self, kind: EntryKind, hybrid_time: int, schema_id: int, meta: bytes, payload: bytes, payload_crc: int
    ) -> OpId:
        """Append one entry. Refused NOT_LEADER (detail: leader uuid), NOT_READY, STEPPING_DOWN; never outcome unknown."""
        raise NotImplementedError

    def propose_config(self, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int] = (0, 0)) -> OpId:
        """Append one config. Refused NOT_LEADER, NOT_READY, STEPPING_DOWN, CHANGE_PENDING, CAS_FAILED, STALE_DECISION,
        INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS."""
        raise NotImplementedError

    def transfer_leadership(self, target: str | None) -> None:
        """Hand over to target, or to the most up-to-date voter. A leader that is the target already: nothing to do.

        Refused NOT_LEADER, ALREADY_INPROGRESS, NOT_FOUND, INVALID_ARGUMENT, ILLEGAL_STATE (needs a copy), NOT_READY.
        """

    def read_index(self, token: int) -> None:
        """Answered in `Ready.read_states` or `Ready.read_failures`."""

    def persisted(self, opid: OpId) -> None:
        """The WAL is durable through opid."""

    def advance(self, ready: Ready) -> None:
        """This bundle and all before it are durable and its after-persist messages are sent. In order, once each."""

    def entries_loaded(self) -> None:
        """Evicted entries are back in the LogView: retry what waited for them."""

    def peer_status(self) -> list[PeerStatus]:
        """Leader: how each peer stands, sorted by uuid; otherwise empty."""
        raise NotImplementedError

    def has_ready(self) -> bool:
        """Whether `ready()` would return a bundle."""
        raise NotImplementedError

    def ready(self) -> Ready | None:
        """The next bundle, or None."""
        raise NotImplementedError
