"""Planted bugs: each one replaces a line of production code, and the simulators must notice.

`python -m tests.sim.planted` catches each in the scenario tuned for it, as CI does; `--plain` searches with the seeds
that CI runs, untuned, up to the bound that is stated here, and prints after how many seeds each was found.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.harness.raft_script import run_script
from tests.sim.runs import NOTHING_ELSE, run

PLANTED_MIN = 25
SCRIPTS = Path(__file__).parents[1] / "raft_scripts"

Swap = tuple[str, str, str]
"""`module:function` below nyala.replica, a piece of its source that occurs once, and the text that replaces it."""


VERIFIED = r"Violation: [VI]\d|InvariantViolation: "
"""Matches a complaint of a verifier of the cores, or of one of the product's own checks."""
COMMITTED_HERE = rf"{VERIFIED}|AssertionError: an honest peer is refused: its log holds "
"""Matches the same, or what a follower reports of a leader that lacks what is committed, before its own invariants
would."""
STALE_READ = r"Violation: READ"
ROWLESS = r"Violation: ROWS"
STUCK = r"AssertionError: the healed (group|majority) does not converge"
STUCK_ALONE = r"AssertionError: the healed majority does not converge"
SCRIPT = r"AssertionError: the script prints something else"
TOLD = r"AssertionError"
"""Matches the failure of a scenario that is a test: its assertions are its own."""
FORGOT = r"AssertionError: \w+ (spoke in term|forgot its vote|voted twice|had applied)"
DAMAGED = r"Corruption: (a segment is damaged|entries do not follow)|AssertionError: \w+ had applied"
WITHHELD = r"AssertionError: \w+ withholds"
LOST = r"Corruption: entries (are missing|do not follow)|AssertionError: \w+ had applied"
FORKED = r"AssertionError: \w+ (applied .* where|had applied)"
LEAK = r"AssertionError: V8: "
DIFFER = r"AssertionError: level replicas differ"
KEPT_LESS = r"AssertionError: the tombstone of \w+ keeps"
DANGLING = r"AssertionError: at \d+, rows name"
CLIENT_TOLD = r"AssertionError: the client's write \d+ is answered"
HELD_UP = r"AssertionError: not within \d+ us: the healed majority: "
UNHELD = r"AssertionError: (\w+ applied .* where|level replicas differ|\w+ has .* on disk where)"
ROW_ERRORS = r"AssertionError: SourceKey.* (row errors .* were forgotten|errors )"


class Planted(NamedTuple):
    """One bug. `simulator` and `tuned`: the scenario in which it is caught within `within` seeds, from 0 on.

    `says`: a regular expression for the beginning of the complaint. Anything else, for example a NameError of the
    planted line, is no catch.
    """

    name: str
    swaps: tuple[Swap, ...]
    simulator: str = "core"
    within: int = 500
    tuned: dict[str, Any] | None = None
    story: str = ""
    """Instead of seeds: a script of tests/raft_scripts, or `module:function` of a scenario, that turns red."""
    says: str = VERIFIED
    plain: int = 0
    """Plain search finds the bug within this many seeds of the same simulator, from any first seed; 0: not stated."""
    plain_says: str = ""
    """How the complaint that plain search finds begins, if the story's is another one."""


def one(target: str, old: str, new: str) -> tuple[Swap, ...]:
    """Return a bug of one line."""
    return ((target, old, new),)


PROMISES = {"crash_period_us": 120_000, "power": True, "crash_point": ""}
OUTAGES = {"outage_period_us": 200_000, "padding": 2_000}
COPIES = {"strand_period_us": 400_000, "flush_period_us": 60_000}
JAMS = {
    **dict.fromkeys(("hang_period_us", "hang_meta_period_us", "crowd_period_us"), 0),
    **dict.fromkeys(("lose_period_us", "clog_period_us"), 0),
}
HANGS = NOTHING_ELSE | JAMS | {"hang_period_us": 400_000, "majority": 1.0}
META_HANGS = NOTHING_ELSE | JAMS | {"hang_meta_period_us": 200_000, "majority": 0.0}
CROWDS = JAMS | {"crowd_period_us": 300_000, "clog_period_us": 300_000}
FLUSHES = {"flush_period_us": 40_000, "crash_period_us": 150_000, "power": True, "crash_point": ""}

SOUND = {"eio_period_us": 0, "stray_period_us": 0, "wipe_period_us": 0}
EIO = PROMISES | SOUND | {"eio_period_us": 60_000, "crash_period_us": 150_000, "padding": 2_000}
STRAYS = SOUND | {
    "stray_period_us": 100_000,
    "crash_period_us": 250_000,
    "cut_period_us": 300_000,
    "crash_point": "",
}

QUIET = {"config": 0, "compact": 0, "evict": 0, "witness": 0}
WITNESSES = {
    "odds": {"witness": 0.3, "config": 0, "crash": 0.03, "cut": 0.05, "compact": 0, "campaign": 0.04},
    "joining": 0.05,
    "delay": 0,
    "loss": 0,
    "double": 0,
    "disk": 0.7,
}
"""Settings with witnesses for a long time, and with disks that are behind what was sent when the power is lost."""
TORN = {"odds": QUIET | {"crash": 0.12, "cut": 0.05, "transfer": 0, "pause": 0}, "disk": 0.7}
LEASES = {
    "odds": QUIET | {"crash": 0, "cut": 0.03, "pause": 0.04, "transfer": 0.03, "campaign": 0},
    "delay": 0,
    "loss": 0,
    "double": 0,
    "disk": 1.0,
    "leases": True,
}

PLANTED = (
    # What is promised before it is durable, or forgotten.
    Planted(
        "vote not synced",
        one("raft.state:State.send_after_sync", "self.out.after.append(msg)", "self.out.now.append(msg)"),
        plain=600,
    ),
    Planted(
        "append acknowledged before durable",
        one("raft.following:_acknowledge", "send_after_sync", "send"),
        tuned=None,
        within=200,
        plain=1_000,
    ),
    Planted(
        "group commit not synced",
        one("wal.appender:Appender.write", "segment.sync()", "pass"),
        "driver",
        tuned=PROMISES,
        says=DAMAGED,
        plain=50,
    ),
    Planted(
        "promises leave before the metadata is written",
        one("raft_driver.persister:Persister._complete", "not self._items[0].hard_state_left and ", ""),
        "driver",
        tuned=PROMISES,
        says=FORGOT,
        plain=50,
    ),
    Planted(
        "metadata loaded unsynced",
        one("consensus_metadata.consensus_meta:ConsensusMeta.load", "disk.sync_dir", "(lambda folder: None)"),
        "driver",
        tuned={"crash_period_us": 60_000, "crash_point": "disk.before_rename_sync"},
        says=FORGOT,
        plain=1_500,
    ),
    Planted(
        "a block whose sync failed is trusted",
        one(
            "wal.recovery:_settle",
            "rewrite_last_block(file, out.headers[info.number], info.length_bytes)",
            "pass",
        ),
        "driver",
        within=60,
        tuned=EIO,
        says=LOST,
        plain=800,
    ),
    # Elections.
    Planted(
        "second vote in a term",
        one("raft.election:_why_not_in_this_term", "(None, m.from_uuid)", "(s.hard.voted_for,)"),
        plain=60,
    ),
    Planted(
        "vote for a shorter log",
        (
            ("raft.election:_why_not_in_this_term", "if m.last < s.last", "if False"),
            ("raft.election:_why_not", "m.pre_vote and m.last < s.last", "False"),
        ),
        says=COMMITTED_HERE,
        within=100,
        plain=100,
    ),
    Planted(
        "majority of four is two",
        one("raft.quorum:majority", "count // 2 + 1", "(count + 1) // 2 if count else 1"),
        plain=60,
    ),
    Planted(
        "damaged tail votes",
        one("raft.election:_why_not", "if s.hard.withheld is not None:", "if False:"),
        within=400,
        tuned=TORN,
        plain=1_500,
    ),
    # Commitment.
    Planted(
        "commit by counting an old term",
        one("raft.commitment:advance_commit", "s.log.term_at(index) == s.hard.term", "True"),
        story="tests.paper.test_raft_paper_section_5:test_section_5_4_2_leader_commits_older_entries_only_under_its_own",
        says=TOLD,
        plain_says=VERIFIED,
        plain=1_500,
    ),
    Planted(
        "learner counted",
        one("raft.commitment:advance_commit", "reached(s.voters, marks)", "reached(sorted(marks), marks)"),
        story="learner_ack_is_not_a_quorum",
        says=SCRIPT,
        plain_says=VERIFIED,
        plain=6_000,
    ),
    Planted(
        "log truncated below commit",
        (
            (
                "raft.following:_take",
                "e.opid.index <= s.commit_index or _holds(s, e.opid)",
                "e.opid.index != s.commit_index",
            ),
            ("raft.state:State.truncate_after", "index >= self.commit_index", "True"),
        ),
        plain=60,
    ),
    Planted(
        "tail entry lost silently",
        one("raft.following:_take", "_holds(s, e.opid), m.entries))", "_holds(s, e.opid), m.entries))[:2]"),
        plain=800,
    ),
    Planted(
        "commit beyond what was sent",
        one(
            "raft.following:on_append",
            "min(m.commit_index, end.index)",
            "min(m.commit_index, s.last.index)",
        ),
        plain=60,
    ),
    Planted(
        "commit waits for every voter",
        one(
            "raft.commitment:advance_commit",
            "reached(s.voters, marks)",
            "min((marks.get(uuid, 0) for uuid in s.voters), default=0)",
        ),
        within=10,
        tuned={"majority": 1.0},
        says=STUCK_ALONE,
        plain=60,
    ),
    # Leases and reads.
    Planted(
        "lease kept after a pause",
        one("raft.lease:observe_clock", "now if s.clock is None else max(s.clock, now)", "s.ticks"),
        tuned=LEASES,
        within=60,
        says=STALE_READ,
        plain=800,
    ),
    Planted(
        "lease kept during a transfer",
        one("raft.transfer:continue_transfer", "lease.give_up(s.lead)", "pass"),
        story="lease_ends_with_a_pause_a_cut_and_a_transfer",
        says=SCRIPT,
        plain_says=STALE_READ,
        plain=1_500,
    ),
    Planted(
        "coalesced acknowledgement without a term extends a lease",
        one(
            "raft.core:RaftCore.step",
            "if msg.term < s.hard.term:",
            "if msg.term < s.hard.term and not isinstance(msg, AppendReply):",
        ),
        story="tests.unit.raft.test_raft_lease:test_lease_is_not_extended_by_an_acknowledgement_of_another_term",
        says=TOLD,
        plain_says=VERIFIED,
        plain=500,
    ),
    Planted(
        "restarted voter votes at once",
        one("raft.election:_why_not", "s.ticks < s.election.withhold_until", "False"),
        story="restarted_voter_withholds_its_vote",
        says=SCRIPT,
        plain_says=STALE_READ,
        plain=1_500,
    ),
    Planted(
        "lease counts from the echo",
        one("raft.lease:holds", "confirmed_round(s)", "s.lead.round"),
        tuned=LEASES,
        within=60,
        says=STALE_READ,
        plain=1_500,
    ),
    Planted(
        "lease before the term's first commit",
        one("raft.lease:holds", "s.commit_index < s.lead.term_start or ", ""),
        tuned=LEASES,
        within=60,
        says=STALE_READ,
        plain=500,
    ),
    Planted(
        "learners extend a lease",
        one("raft.lease:confirmed_round", "reached(s.voters, rounds)", "reached(sorted(rounds), rounds)"),
        story="tests.unit.raft.test_raft_lease:test_lease_is_not_extended_by_learners",
        says=TOLD,
        plain_says=STALE_READ,
        plain=4_000,
    ),
    Planted(
        "live leader is deposed",
        one(
            "raft.election:_why_not",
            "s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min",
            "False",
        ),
        story="live_leader_is_not_deposed",
        says=SCRIPT,
        plain_says=STALE_READ,
        plain=2_000,
    ),
    # Membership.
    Planted(
        "two changes at once",
        one("raft.membership:propose_config", "if s.hard.pending_config is not None:", "if False:"),
        story="one_change_at_a_time",
        says=SCRIPT,
        plain_says=VERIFIED,
        plain=100,
    ),
    Planted(
        "witness leads",
        one(
            "raft.roles:config_in_force",
            "member is not None and member.holds_data and not s.hard.no_data",
            "member is not None",
        ),
        within=60,
        tuned=WITNESSES,
        says=ROWLESS,
        plain=6_000,
    ),
    Planted(
        "witness ahead of every disk with rows",
        one("raft.replication:_sent_through", "max([s.persisted, *(q.match for q in whole)])", "s.last.index"),
        within=150,
        tuned=WITNESSES,
        says=STUCK,
        plain=8_000,
    ),
    Planted(
        "truncated config stays in force",
        one("raft.following:_take", "roll_back_configs(s, keep)", "pass"),
        story="pending_config_rolls_back",
        says=f"{SCRIPT}|{VERIFIED}",
        plain_says=VERIFIED,
        plain=300,
    ),
    Planted(
        "removed voter still counts",
        one("raft.roles:config_in_force", "s.hard.active_config.voters", "s.hard.configs[0].voters"),
        story="tests.unit.raft.test_raft_membership_rules:test_removed_voter_counts_no_more_from_the_entry_on",
        says=TOLD,
        plain_says=STUCK,
        plain=200,
    ),
    # Whole replicas.
    Planted(
        "CRC not checked",
        (
            ("wal.format:decode_entry", '!= value["identity_crc"]', "== -1"),
            ("wal.format:decode_entry", "!= entry.payload_crc", "== -1"),
        ),
        "driver",
        tuned=PROMISES | {"padding": 2_000},
        says=DAMAGED,
        plain=60,
    ),
    Planted(
        "tear taken for damage",
        one("wal.scan:judge", "if unwritten or not full_length", "if not full_length"),
        "driver",
        tuned=OUTAGES,
        says=WITHHELD,
        plain=60,
    ),
    Planted(
        "a read of the log holds its segments for ever",
        one("wal.log:Log.read", "self._release(numbers)", "pass"),
        "driver",
        within=40,
        tuned={"flush_period_us": 60_000},
        says=LEAK,
        plain=20,
    ),
    # What gets stuck.
    Planted(
        "leader whose log hangs leads on",
        one(
            "raft_driver.ready_executor:ReadyExecutor._handle_stalled_disk",
            "self.persister.full or core.commit_index > core.persisted_index",
            "self.persister.full",
        ),
        "jam",
        tuned=HANGS,
        within=60,
        says=HELD_UP,
        plain=160,
    ),
    Planted(
        "a vote that waits counts as written with the one before it",
        one(
            "raft_driver.persister:Persister._hard_state_saved",
            "self._unsaved.popleft().hard_state_left = False",
            "[setattr(self._unsaved.popleft(), 'hard_state_left', False) for _ in range(len(self._unsaved))]",
        ),
        "jam",
        tuned=META_HANGS,
        within=60,
        says=FORGOT,
        plain=160,
    ),
    Planted(
        "an append is acknowledged that found no room",
        one(
            "raft_driver.ready_executor:ReadyExecutor.step",
            'return ""  # the leader sends it again; blocking here would stop every tablet of this server',
            "from nyala.replica.raft import AppendReply as Reply; "
            "to, last = message.from_uuid, message.entries[-1].opid; "
            "reply = Reply(to_uuid=to, from_uuid=self.core.uuid, term=message.term, last=last, round=message.round); "
            "self._send([reply]); return ''",
        ),
        "jam",
        tuned=CROWDS,
        within=60,
        says=UNHELD,
        plain=160,
    ),
    # Tablets, copies, the ledger.
    Planted(
        "a tombstone of an unread log votes",
        one("server.tablets.tombstone:vote_reply", "elif not last_known:", "elif False:"),
        "tablet",
        within=80,
        tuned=STRAYS,
        says=FORKED,
        plain=400,
    ),
    Planted(
        "superblock takes the live ledger",
        one("tablet.maintenance:Maintenance.flush", "frozen.ledger.to_avro()", "self._contents.ledger.to_avro()"),
        "tablet",
        tuned=FLUSHES,
        says=ROW_ERRORS,
        plain_says=f"{ROW_ERRORS}|{DIFFER}|{DANGLING}",
        plain=20,
    ),
    Planted(
        "replay starts before the flush index",
        (
            ("tablet.maintenance:Maintenance.flush", "flush_opid=frozen.opid", "flush_opid=superblock.flush_opid"),
            ("tablet.maintenance:Maintenance.flush", "ledger=frozen.ledger.to_avro()", "ledger=superblock.ledger"),
        ),
        "tablet",
        tuned=FLUSHES,
        says=DIFFER,
        plain=100,
    ),
    Planted(
        "a copy mixes two superblocks",
        one(
            "tablet_copy.target:TargetCopy._copy",
            "ready.save(disk, over=copying)",
            "replace(ready, ledger=copying.ledger).save(disk, over=copying)",
        ),
        "tablet",
        tuned=COPIES,
        says=DIFFER,
        plain=60,
    ),
    Planted(
        "`after` not checked",
        one("tablet.ledger:Ledger.admit_source", "meta.after is not None and meta.after > state.last_offset", "False"),
        "tablet",
        story="tests.unit.tablet.test_tablet_ledger:test_ledger_batch_above_a_hole_is_refused_whole",
        says=TOLD,
        plain_says=ROW_ERRORS,
        plain=60,
    ),
    Planted(
        "row errors forgotten",
        one("tablet.tablet:Tablet._apply_rows", "state.errors.of(rows.offsets[:replayed])", "[]"),
        "tablet",
        says=ROW_ERRORS,
        plain=30,
    ),
    Planted(
        "replayed rows applied again",
        one(
            "tablet.tablet:Tablet._apply_rows",
            'int(np.searchsorted(rows.offsets, state.last_offset, side="right"))',
            "0",
        ),
        "tablet",
        says=ROW_ERRORS,
        plain=20,
    ),
    Planted(
        "a client's row errors are not saved",
        one("tablet.ledger:Ledger.to_avro", "r.errors.to_avro()", "[]"),
        "tablet",
        tuned=FLUSHES,
        says=CLIENT_TOLD,
        plain=400,
    ),
    Planted(
        "tombstone forgets its last OpId",
        one("tablet_copy.deletion:as_tombstone", "last_logged=last_opid", "last_logged=ZERO_OPID"),
        "tablet",
        story="tests.unit.tablet_copy.test_copy_promises:test_deletion_keeps_term_vote_and_last_opid_over_restarts",
        says=TOLD,
        plain_says=KEPT_LESS,
        plain=40,
    ),
)


def _function(target: str) -> Any:
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(f"nyala.replica.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


@contextmanager
def swapped(target: str, old: str, new: str) -> Iterator[None]:
    """Run the function with `old` replaced by `new`; a test build of one line. AssertionError if the code no longer has
    `old`."""
    function = _function(target)
    source = _SOURCES.get(target) or textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{target} has {source.count(old)} times {old!r}: the planted bug is stale"
    changed = source.replace(old, new)
    space: dict[str, Any] = {}
    exec(compile(changed, f"<planted in {target}>", "exec"), function.__globals__, space)
    made = next(iter(space.values()))
    made = made.__func__ if isinstance(made, staticmethod | classmethod) else made
    _SOURCES[target], right = changed, function.__code__
    function.__code__ = made.__code__
    try:
        yield
    finally:
        function.__code__, _SOURCES[target] = right, source


def stale(bug: Planted) -> str:
    """Return what is wrong with the place where a bug is planted, or with the name of its story; empty if nothing is.
    Nothing is run."""
    module, _, function = bug.story.partition(":")
    try:
        with ExitStack() as swaps:
            for swap in bug.swaps:
                swaps.enter_context(swapped(*swap))
        if function:
            getattr(importlib.import_module(module), function)
        elif module:
            assert (SCRIPTS / f"{module}.txt").is_file(), f"there is no script {module}"
    except (AssertionError, AttributeError, ImportError, SyntaxError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


_SOURCES: dict[str, str] = {}
"""The source of each function as it is now: several replacements in one function add up."""


def caught(bug: Planted, *, seeds: int, tuned: dict[str, Any] | None = None, first: int = 0) -> tuple[int, str] | None:
    """Return (seeds needed, the complaint), or None if none of `seeds` from `first` on complains as it should; plain
    search if nothing is tuned."""
    says = bug.plain_says if tuned is None and bug.plain_says else bug.says
    with ExitStack() as swaps:
        for swap in bug.swaps:
            swaps.enter_context(swapped(*swap))
        if bug.story and tuned is not None:
            said = told(bug.story)
            return (1, said) if re.match(bug.says, said) else None
        for count in range(seeds):
            outcome = run(bug.simulator, first + count, **(tuned or {}))
            if re.match(says, outcome.failure):
                return count + 1, outcome.failure
    return None


def false_alarm(simulator: str, seeds: int, tuned: dict[str, Any]) -> str:
    """Return the complaint of the first `seeds` without any bug. It must be empty, because a verifier that complains
    without a bug has caught nothing with one."""
    for seed in range(seeds):
        scene = f"{simulator}:{seed} {tuned}"
        if scene not in _SILENCE:
            _SILENCE[scene] = run(simulator, seed, **tuned).failure
        if _SILENCE[scene]:
            return f"{scene}: {_SILENCE[scene]}"
    return ""


_SILENCE: dict[str, str] = {}
"""The complaint without a bug, by scene: several bugs share one."""


def told(story: str) -> str:
    """Return what is wrong when the story is run; empty if it ends as it should."""
    module, _, function = story.partition(":")
    try:
        if function:
            getattr(importlib.import_module(module), function)()
        else:
            text = (SCRIPTS / f"{story}.txt").read_text()
            assert run_script(text) == text, "the script prints something else"
    except Exception as error:  # noqa: BLE001 - however it ends, it does not end well
        return f"{type(error).__name__}: {error}"
    return ""


def scenario(bug: Planted) -> str:
    """Return how the scenario appears in the table."""
    if bug.story:
        return bug.story.rpartition(":")[2]
    tuned = ", ".join(f"{name}={value}" for name, value in (bug.tuned or {}).items() if value != "")
    return f"{bug.simulator}:0-{bug.within - 1}" + (f" with {tuned}" if tuned else "")


def main() -> int:
    """Run the planted bugs; returns exit status 1 if one is not caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="search without tuning, up to the stated bound")
    parser.add_argument("--first", type=int, default=0, help="first seed of --plain")
    parser.add_argument("--only", default="", help="only bugs whose name contains this")
    parser.add_argument("--tenth", type=int, help="only every tenth bug, from this one modulo ten on")
    options = parser.parse_args()
    console = Console(width=200 if not sys.stdout.isatty() else None)
    table = Table("planted bug", "scenario", "caught after", "CPU s", "by", title="planted bugs", title_justify="left")
    missed = 0
    chosen = PLANTED if options.tenth is None else PLANTED[options.tenth % 10 :: 10]
    for bug in (b for b in chosen if options.only in b.name and (b.plain or not options.plain)):
        begun = time.process_time()
        seeds, tuned = (bug.plain, None) if options.plain else (bug.within, bug.tuned or {})
        found = caught(bug, seeds=seeds, tuned=tuned, first=options.first if options.plain else 0)
        missed += found is None
        where = f"{bug.simulator}, plain, at most {bug.plain}" if options.plain else scenario(bug)
        said = found[1].splitlines()[0][:70] if found else ""
        count = str(found[0]) if found else "not caught"
        table.add_row(bug.name, escape(where), count, f"{time.process_time() - begun:.1f}", escape(said))
    console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
