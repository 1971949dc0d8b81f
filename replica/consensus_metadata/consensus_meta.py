"""The file consensus-meta/<tablet id>, and the rules by which its content may change."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from nyala.replica.types import Code, Corruption, Disk, DiskFailure, LaterFormat, RaftConfig, Refused, check
from nyala.schemas import config_to_avro, frame

from .view import SCHEMA, read_cmeta

FOLDER = "consensus-meta"
_PRESENT = "consensus metadata are here already and may hold a vote: nothing was written; open that file instead"
_ABSENT = "no consensus metadata of this tablet here: check the tablet's id and the server's directory"


def path_of(tablet_id: str) -> str:
    """Return the path of a tablet's consensus metadata, relative to the server's root."""
    return f"{FOLDER}/{tablet_id}"


def term_of(tablet_id: str, data: bytes) -> int:
    """Return the term in a file of consensus metadata; Corruption if it does not read back."""
    return _parse(tablet_id, data)[1].term


@dataclass(frozen=True)
class _Content:
    """The content of one version of the file, except whose it is."""

    term: int
    voted_for: str | None
    config: RaftConfig
    vote_floor_term: int = 0


class ConsensusMeta:
    """Durable term, vote and committed config of one replica [raft figure 2, "Persistent state"].

    Invariants: the term never falls; within one term a vote once given stays; the vote floor never falls; the committed
    config never goes back to an earlier index, except for one marked `unsafe` and by `merge`, which takes the source's.
    Durability: each change is on disk before the call returns; if it fails, what is read here is the old content.
    Concurrency: any thread; one lock covers votes and merges.
    """

    def __init__(self, disk: Disk, tablet_id: str, uuid: str, content: _Content) -> None:
        self._disk = disk
        self._tablet_id = tablet_id
        self._uuid = uuid
        self._content = content
        self._lock = threading.RLock()

    @classmethod
    def create(cls, disk: Disk, tablet_id: str, uuid: str, config: RaftConfig, term: int = 0) -> ConsensusMeta:
        """Write the first version; Refused(ALREADY_EXISTS) if there is a file, which may hold a vote."""
        if cls.exists(disk, tablet_id):
            raise Refused(Code.ALREADY_EXISTS, _PRESENT, tablet_id=tablet_id, path=path_of(tablet_id))
        return cls._begin(disk, tablet_id, uuid, _Content(term, None, config))

    @classmethod
    def _begin(cls, disk: Disk, tablet_id: str, uuid: str, content: _Content) -> ConsensusMeta:
        disk.mkdir(FOLDER)
        meta = cls(disk, tablet_id, uuid, content)
        meta._flush(meta._content)
        return meta

    @classmethod
    def load(cls, disk: Disk, tablet_id: str) -> ConsensusMeta:
        """Read the file; Refused(NOT_FOUND) if there is none, Corruption if its bytes are not what was written.

        The returned content is durable, so answers to other servers may depend on it.
        """
        try:
            data = disk.read(path_of(tablet_id))
        except FileNotFoundError:
            raise Refused(Code.NOT_FOUND, _ABSENT, tablet_id=tablet_id, path=path_of(tablet_id)) from None
        uuid, content = _parse(tablet_id, data)
        # A process that was killed between the rename and its sync left a file that a power cut may still take back.
        disk.sync_dir(FOLDER)
        return cls(disk, tablet_id, uuid, content)

    @classmethod
    def exists(cls, disk: Disk, tablet_id: str) -> bool:
        """Return whether the file exists. A server that took part in the group may have lost it; see `adopt`."""
        return disk.exists(path_of(tablet_id))

    @classmethod
    def adopt(
        cls, disk: Disk, tablet_id: str, uuid: str, remote: bytes | ConsensusMeta, *, lost: bool = False
    ) -> ConsensusMeta:
        """Merge the copy source's metadata into the local one, or begin with it if there is none.

        `remote` is the source's file as bytes, or its object. The source's vote is never adopted. `lost`: this server
        took part in the group before. If its file is missing or damaged then, it may have held a vote in any term up to
        the source's. So the vote floor becomes the source's term.
        """
        meta = cls.load_if_present(disk, tablet_id, or_lost=lost)
        if meta is not None:
            check(meta.uuid == uuid, "consensus metadata belongs to another server", uuid=uuid, found=meta.uuid)
            meta.merge(remote)
            return meta
        source = _content_of(tablet_id, remote)
        floor = source.term if lost else 0
        return cls._begin(disk, tablet_id, uuid, _Content(source.term, None, source.config, floor))

    @classmethod
    def load_if_present(cls, disk: Disk, tablet_id: str, *, or_lost: bool) -> ConsensusMeta | None:
        """Return the metadata in the file; None if there is no file, and with `or_lost` also if it is damaged.

        A later build's file is not damaged: LaterFormat, as `load`.
        """
        if not cls.exists(disk, tablet_id):
            return None
        try:
            return cls.load(disk, tablet_id)
        except Corruption as error:
            if not or_lost or isinstance(error, LaterFormat):
                raise
            return None

    @property
    def tablet_id(self) -> str:
        return self._tablet_id

    @property
    def uuid(self) -> str:
        """Return the server whose term and vote the file has."""
        return self._uuid

    @property
    def term(self) -> int:
        return self._content.term

    @property
    def voted_for(self) -> str | None:
        """Return the uuid of the candidate that has this replica's vote in `term`; None if no candidate has it."""
        return self._content.voted_for

    @property
    def committed_config(self) -> RaftConfig:
        return self._content.config

    @property
    def vote_floor_term(self) -> int:
        """Return the term up to which this replica abstains: an earlier vote may have been lost."""
        return self._content.vote_floor_term

    def save_hard_state(self, term: int, voted_for: str | None) -> None:
        """Make a term and a vote durable; InvariantViolation if the term would fall or a vote would change."""
        with self._lock:
            old = self._content
            check(term >= old.term, "a term never falls", tablet_id=self._tablet_id, old=old.term, new=term)
            if term == old.term:
                check(
                    old.voted_for in (None, voted_for),
                    "a vote once given stays for its term",
                    tablet_id=self._tablet_id,
                    term=term,
                    old=old.voted_for,
                    new=voted_for,
                )
            self._save(replace(old, term=term, voted_for=voted_for))

    def save_config(self, config: RaftConfig) -> None:
        """Make a committed config durable; InvariantViolation if it lies before the one in force."""
        with self._lock:
            old = self._content.config
            check(
                config.unsafe or config.opid.index >= old.opid.index,
                "a committed config never goes back",
                tablet_id=self._tablet_id,
                old=old.opid,
                new=config.opid,
            )
            self._save(replace(self._content, config=config))

    def raise_vote_floor(self, term: int) -> None:
        """Abstain from votes in all terms up to `term` for good; a lower floor than the present one changes nothing."""
        with self._lock:
            self._save(replace(self._content, vote_floor_term=max(term, self._content.vote_floor_term)))

    def force(self, config: RaftConfig, term: int) -> None:
        """Put an operator's config and its term in force, without an election, for a tablet whose majority is lost.

        One write; in the new term no vote is given yet. Repeating it changes nothing."""
        with self._lock:
            own = self._content
            check(config.unsafe, "a forced config is marked as such", tablet_id=self._tablet_id, config=config.opid)
            check(config.opid.term == term, "a forced config begins its term", term=term, config=config.opid)
            check(term >= own.term, "a term never falls", tablet_id=self._tablet_id, old=own.term, new=term)
            if own.config != config:
                check(term > own.term, "a forced config begins a new term", old=own.term, new=term)
                self._save(replace(own, term=term, voted_for=None, config=config))

    def merge(self, remote: bytes | ConsensusMeta) -> None:
        """Adopt a copy source's metadata [kudu raft-tablet-copy, "Consensus metadata merge"].

        The term is the higher one, the config always the source's. The local vote stays if the term stays. In
        a higher term there is none, because the source's vote is another server's.
        """
        source = _content_of(self._tablet_id, remote)
        with self._lock:
            own = self._content
            vote = own.voted_for if source.term <= own.term else None
            term = max(own.term, source.term)
            self._save(replace(own, term=term, voted_for=vote, config=source.config))

    def repair(self) -> bool:
        """Write the file again if it is missing, damaged or different from memory. Returns whether it was written.

        Memory is right, because nothing is announced before it is durable. A later build's file is left alone, and a
        folder that is gone is not made: the next start must see that it is lost.
        """
        with self._lock:
            if not self._disk.exists(FOLDER):
                return False
            try:
                if _parse(self._tablet_id, self._disk.read(path_of(self._tablet_id))) == (self._uuid, self._content):
                    return False
            except LaterFormat:
                return False
            except (FileNotFoundError, Corruption, DiskFailure):
                pass
            self._flush(self._content)
            return True

    def encode(self) -> bytes:
        """Return the file's bytes, as a copy session serves them."""
        return self._encode(self._content)

    def _save(self, content: _Content) -> None:
        if content != self._content:
            self._flush(content)
            self._content = content

    def _flush(self, content: _Content) -> None:
        self._disk.crash_point("cmeta.before_flush")
        self._disk.replace(path_of(self._tablet_id), self._encode(content), keep_room=True)
        self._disk.crash_point("cmeta.after_flush")

    def _encode(self, content: _Content) -> bytes:
        record = {
            "version": 1,
            "tablet_id": self._tablet_id,
            "uuid": self._uuid,
            "current_term": content.term,
            "voted_for": content.voted_for or "",
            "vote_floor_term": content.vote_floor_term,
            "committed_config": config_to_avro(content.config),
            "reserved": b"",
        }
        return frame(SCHEMA, record)


def _content_of(tablet_id: str, remote: bytes | ConsensusMeta) -> _Content:
    if isinstance(remote, ConsensusMeta):
        return remote._content
    return _parse(tablet_id, remote)[1]


def _parse(tablet_id: str, data: bytes) -> tuple[str, _Content]:
    """Return (uuid, content) of a file's bytes; Corruption describes what is wrong with them."""
    view = read_cmeta(data, path_of(tablet_id))
    if view.tablet_id != tablet_id:
        raise Corruption("consensus metadata of another tablet", path=path_of(tablet_id), found=view.tablet_id)
    return view.uuid, _Content(view.term, view.voted_for, view.config, view.vote_floor_term)
