"""Opens a tablet: makes the objects that run it from its files. Also creates the files of a new tablet."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import RaftOptions
from nyala.replica.raft_driver import DriverOptions, Environment, Files, Replica
from nyala.replica.tablet import Superblock, Tablet, Witness, data_trouble, superblock_path, sweep_orphans, unfit_entry
from nyala.replica.tablet_copy import lost_tablets, named_blocks, settle_at_startup, spared_blocks, wal_folder, was_here
from nyala.replica.types import Code, Corruption, Disk, RaftConfig, Refused, is_transient
from nyala.replica.types.log_records import about
from nyala.replica.wal import Log, LogThreads, WalOptions

from ..options import ServerOptions
from ..startup.replay_watch import ReplayWatch
from .hosted import HostedTablet

_log = logging.getLogger("nyala.server")


class Opened(NamedTuple):
    """The objects that run one replica. A witness has no tablet."""

    superblock: Superblock
    cmeta: ConsensusMeta
    tablet: Tablet | None
    log: Log
    replica: Replica


@dataclass(frozen=True, kw_only=True)
class Opener:
    """Bootstraps tablets, with the environment that every replica of this server gets.

    Concurrency: `bootstrap` runs in threads, one at a time per tablet.
    """

    disk: Disk
    uuid: str
    options: ServerOptions
    raft_options: RaftOptions
    environment: Callable[..., Environment]
    """The environment of a replica, given its `rng` and its lanes `run_heavy` and `run_meta`."""
    rng: random.Random
    log_threads: LogThreads
    replays: ReplayWatch
    replayed: Callable[[str], None]
    """`replayed(tablet id)`: called, on any thread, when every entry that the start found is applied."""

    def bootstrap(self, hosted: HostedTablet, *, checked: bool = False) -> Opened:
        """Load everything and read the log. In a thread; no other code uses the tablet meanwhile.

        `checked`: the blocks were checked already, and need not be read again.
        """
        tablet_id, options = hosted.tablet_id, self.options
        # The files may have been damaged, or replaced by earlier ones, since this process read them.
        hosted.repair_superblock(self.disk)
        with hosted.cmeta_lock:
            if hosted.cmeta is not None:
                hosted.cmeta.repair()
        superblock = Superblock.load(self.disk, tablet_id)
        try:
            cmeta = ConsensusMeta.load(self.disk, tablet_id)
        except Refused as error:
            if error.code is not Code.NOT_FOUND:
                raise
            raise Corruption("a READY tablet has no consensus metadata", tablet=tablet_id) from error
        if not self.disk.exists(wal_folder(tablet_id)):
            raise Corruption("a READY tablet has no log folder", tablet=tablet_id)
        tablet = None
        if not superblock.witness:
            tablet = Tablet.open(self.disk, superblock, verify=not checked, new=hosted.copied)
        log: Log | None = None
        try:
            wal = WalOptions(sync=options.wal_sync, segment_size_bytes_max=options.wal_segment_size_bytes_max)
            log, replay = Log.open(self.disk, wal_folder(tablet_id), tablet_id, wal, threads=self.log_threads)
            replica = Replica(
                tablet_id=tablet_id,
                uuid=self.uuid,
                files=Files(
                    cmeta=cmeta,
                    log=log,
                    state_machine=Witness(superblock)
                    if tablet is None
                    else self.replays.watch(
                        tablet,
                        tablet_id,
                        wal_generation=superblock.wal_generation,
                        last=log.last,
                        passed=lambda: self.replayed(tablet_id),
                    ),
                    no_data=superblock.witness,
                    unfit=unfit_entry,
                ),
                replay=replay,
                environment=self.environment(
                    rng=random.Random(self.rng.getrandbits(64)),
                    run_heavy=hosted.lane.run,
                    run_meta=hosted.meta_lane.run,
                ),
                raft_options=self.raft_options,
                options=DriverOptions(
                    log_cache_bytes_max=options.log_cache_bytes,
                    log_retain_entries=options.log_retain_entries,
                    log_retain_bytes_max=options.log_retain_bytes,
                    apply_inline_bytes_max=options.apply_inline_bytes,
                ),
            )
            replica.bootstrap()
        except BaseException:
            if log is not None:
                log.close()
            if tablet is not None:
                tablet.close()
            raise
        return Opened(superblock, cmeta, tablet, log, replica)


def create_files(disk: Disk, uuid: str, superblock: Superblock, config: RaftConfig) -> None:
    """Write the metadata and the log folder, and last the superblock: from then on the tablet exists. Refused
    ILLEGAL_STATE, and nothing changes, if a replica of it was here."""
    tablet_id = superblock.tablet_id
    if Superblock.exists(disk, tablet_id) or was_here(disk, tablet_id):
        what = (
            "files of a replica of this tablet are here, which may have votes and rows, and this server did not "
            "find its superblock when it started: let the tablet be copied here, or restart the server if "
            f"{superblock_path(tablet_id)} was put back"
        )
        raise Refused(Code.ILLEGAL_STATE, what, tablet=tablet_id)
    if ConsensusMeta.exists(disk, tablet_id):  # an earlier creation that was cut off left it
        ConsensusMeta.load(disk, tablet_id).save_config(config)
    else:
        ConsensusMeta.create(disk, tablet_id, uuid, config)
    disk.mkdir(wal_folder(tablet_id))
    Tablet.create(disk, superblock).close()


def load_cmeta(disk: Disk, tablet_id: str) -> ConsensusMeta | None:
    """A tablet's consensus metadata; None if they are missing or damaged. Temporary errors are raised."""
    try:
        return ConsensusMeta.load(disk, tablet_id)
    except (Refused, Corruption) as error:
        if is_transient(error):
            raise
        return None


def find_lost(disk: Disk, uuid: str) -> dict[str, ConsensusMeta]:
    """Return the consensus metadata of each tablet whose superblock is lost, and log what an operator can do.

    In a thread. Refused if a resource is exhausted.
    """
    found: dict[str, ConsensusMeta] = {}
    for tablet_id in lost_tablets(disk):
        about(_log, tablet_id, uuid).error(
            "its superblock is missing beside its log and its metadata: the tablet counts as not here, and "
            "its leader copies it again. Term and vote are kept, and it does not vote until the copy is complete. If "
            "no other server has it, put back tablet-meta/%s from a backup, or give up what was lost with `nyala "
            "unsafe recover`",
            tablet_id,
        )  # fmt: skip
        if (cmeta := load_cmeta(disk, tablet_id)) is not None:
            found[tablet_id] = cmeta
    return found


def settle_all(disk: Disk, uuid: str) -> dict[str, Superblock | Exception]:
    """Each tablet's superblock after the startup rules, or the reason why that tablet cannot start. In a thread."""
    found: dict[str, Superblock | Exception] = {}
    for tablet_id in Superblock.list_tablets(disk):
        try:
            found[tablet_id] = settle_at_startup(disk, Superblock.load(disk, tablet_id))
        except (Corruption, Refused) as error:
            found[tablet_id] = error
    try:
        named = named_blocks(disk)
        with data_trouble("data"):  # a bad folder of blocks fails the replicas that have blocks, when they open
            swept = sweep_orphans(disk, named | spared_blocks(disk, disk.listdir("data")))
    except (Corruption, Refused) as error:
        _log.warning("P %s blocks that no superblock names are kept: %s", uuid, error)
    else:
        if swept:
            _log.info("P %s removed %d files that no superblock names", uuid, len(swept))
    return found
