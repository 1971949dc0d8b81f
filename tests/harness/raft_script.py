"""Scenario scripts: commands, `----`, what they print, a blank line, and so on.

`python -m tests.harness.raft_script --rewrite FILE...` regenerates the printed parts; read the difference before
keeping it. Only state and messages are printed, never log text, so rewording a trace changes no script.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.types import ConfigEdit, EditKind, Member, OpId, Refused
from tests.harness.raft_net import OPTIONS, Net, config_of

MARK = "----"


def run_script(text: str) -> str:
    """Return the script with every printed part replaced by what the commands print now."""
    runner = Runner()
    out: list[str] = []
    lines = text.splitlines()
    pos = 0
    while pos < len(lines):
        line = lines[pos]
        pos += 1
        out.append(line)
        if line == MARK:
            out += runner.take_output()
            while pos < len(lines) and lines[pos].strip():
                pos += 1
        elif line.strip() and not line.startswith("#"):
            runner.do(line)
    runner.finish()
    return "\n".join(out).rstrip() + "\n"


class Runner:
    """Carries out commands on one Net and collects what they print."""

    def __init__(self) -> None:
        self.net = Net(config_of("a"))
        self.printed: list[str] = []
        self.seen = 0

    def take_output(self) -> list[str]:
        out, self.printed = self.printed, []
        return out or ["ok"]

    def finish(self) -> None:
        """Return the verifiers' final result."""
        self.net.at_end()

    def do(self, line: str) -> None:
        name, *args = line.split()
        words = [a for a in args if "=" not in a]
        options = dict(a.split("=", 1) for a in args if "=" in a)
        try:
            getattr(self, f"do_{name}")(*words, **options)
        except Refused as e:
            self.printed.append(f"{line}: {e.code.name}")
        for node in [self.net.nodes[u] for u in sorted(self.net.nodes)]:
            node.drain()

    # ---------------------------------------------------------------------------------------------- the group

    def do_cluster(self, voters: str, learners: str = "", quiet: str = "0") -> None:
        options = replace(OPTIONS, quiet_after_ticks=int(quiet))
        self.net = Net(config_of(voters.split(","), [name for name in learners.split(",") if name]), options=options)
        self.seen = 0

    def do_elect(self, uuid: str) -> None:
        self.net.elect(uuid)

    def do_campaign(self, uuid: str) -> None:
        self.net.nodes[uuid].core.campaign()

    def do_tick(self, count: str = "1", only: str = "") -> None:
        self.net.tick(int(count), only=only.split(",") if only else None)

    def do_ticks_unsettled(self, count: str, only: str = "") -> None:
        self.net.tick(int(count), only=only.split(",") if only else None, settle=False)

    def do_leases(self) -> None:
        """Pass the time to the cores from now on."""
        self.net.leases = True

    def do_sleep(self, uuid: str, ticks: str) -> None:
        """Stop a process: its clock goes on, its core is not called."""
        self.net.nodes[uuid].clock += int(ticks)

    def do_lost(self, way: str, ticks: str = "5", delay: str = "0") -> None:
        """Run `lost b<a`: b's server has heard nothing of a's for so many ticks."""
        uuid, other = way.split("<")
        self.net.nodes[uuid].core.server_silent(other, int(ticks), int(delay))

    def do_found(self, way: str) -> None:
        """Run `found b<a`: b's server hears a's again, or another process of it."""
        uuid, other = way.split("<")
        self.net.nodes[uuid].core.server_heard(other)

    def do_check(self, uuid: str) -> None:
        self.net.nodes[uuid].core.probe_quiet_group()

    def do_settle(self) -> None:
        self.net.settle()

    def do_cut(self, way: str) -> None:
        if ">" in way:
            self.net.cut(*way.split(">"), one_way=True)
        else:
            self.net.cut(*way.split("-"))

    def do_isolate(self, uuid: str) -> None:
        self.net.isolate(uuid)

    def do_heal(self) -> None:
        self.net.heal()

    def do_stall(self, uuid: str) -> None:
        self.net.stalled.add(uuid)

    def do_unstall(self, uuid: str) -> None:
        self.net.stalled.discard(uuid)

    def do_persist_vote(self, uuid: str) -> None:
        """Let the disk of a stalled node finish what is queued before and in its next hard state, and hang again."""
        node = self.net.nodes[uuid]
        count = next(pos for pos, ready in enumerate(node.pending) if ready.hard_state) + 1
        self.net.stalled.discard(uuid)
        node.persist(count)
        self.net.stalled.add(uuid)

    def do_crash(self, uuid: str, written: str = "0") -> None:
        self.net.crash(uuid, written=int(written))

    def do_restart(self, uuid: str) -> None:
        self.net.restart(uuid)

    def do_damage(self, uuid: str) -> None:
        self.net.damage(uuid)

    def do_compact(self, uuid: str, index: str) -> None:
        self.net.compact(uuid, int(index))

    def do_copy(self, source: str, target: str) -> None:
        self.printed.append(f"copy {source} to {target}: {'done' if self.net.copy(source, target) else 'refused'}")

    def do_drop_wire(self) -> None:
        self.net.wire.clear()

    # ---------------------------------------------------------------------------------------------- requests

    def do_write(self, uuid: str, *payloads: str) -> None:
        for payload in payloads:
            self.net.write(uuid, payload.encode())

    def do_read(self, uuid: str) -> None:
        self.net.read(uuid)

    def do_transfer(self, uuid: str, target: str = "") -> None:
        self.net.nodes[uuid].core.transfer_leadership(target or None)

    def do_change(self, uuid: str, *edits: str, cas: str = "", decision: str = "") -> None:
        """Run a config change: `change a +d` adds a learner that waits for promotion, `+d:voter`, `+d:learner`,
        `+d:witness`; `-b` removes; `b:voter`, `b:learner`, `b:promote`, `b:replace` change."""
        core = self.net.nodes[uuid].core
        parsed = [self._edit(edit) for edit in edits]
        opid = OpId(*map(int, cas.split("."))) if cas else None
        version = (int(decision.split(".")[0]), int(decision.split(".")[1])) if decision else (0, 0)
        core.propose_config(parsed, opid, version)

    def _edit(self, edit: str) -> ConfigEdit:
        kind = {"+": EditKind.ADD, "-": EditKind.REMOVE}.get(edit[0], EditKind.CHANGE)
        name, _, mark = edit.lstrip("+-").partition(":")
        mark = mark or ("promote" if kind is EditKind.ADD else "voter")
        return ConfigEdit(
            kind,
            Member(
                name,
                votes=mark in ("voter", "witness", "replace"),
                promote=mark == "promote",
                holds_data=mark != "witness",
                replace=mark == "replace",
            ),
        )

    # -------------------------------------------------------------------------------------------------- prints

    def do_status(self) -> None:
        self.printed += self.net.status()

    def do_config(self, uuid: str) -> None:
        core = self.net.nodes[uuid].core
        for name, config in (("committed", core.committed_config), ("pending", core.pending_config)):
            if config is not None:
                marks = [
                    m.uuid
                    + ("" if m.votes else ":promote" if m.promote else ":learner")
                    + (":replace" if m.replace else "")
                    for m in config.members
                ]
                self.printed.append(f"{uuid} {name} {config.opid} {' '.join(marks)}")

    def do_log(self, uuid: str) -> None:
        log = self.net.nodes[uuid].log
        runs = [f"{log.term_at(i)}.{i}" for i in range(log.first_index, log.last.index + 1)]
        self.printed.append(f"{uuid} log {' '.join(runs)}")

    def do_peers(self, uuid: str) -> None:
        for p in self.net.nodes[uuid].core.peer_status():
            self.printed.append(f"{uuid} peer {p.uuid} {p.state} match={p.match_index} next={p.next_index}")

    def do_copies(self) -> None:
        for source, target, state, last in self.net.copies:
            self.printed.append(f"{source} asks {target} to copy, was {state.name} at {last}")
        self.net.copies.clear()

    def do_reads(self) -> None:
        self.printed += [f"{uuid} read {token} at {index}" for uuid, token, index in self.net.reads_done]
        self.printed += [f"{uuid} read {token} {code.name}" for uuid, token, code in self.net.reads_failed]
        self.net.reads_done.clear()
        self.net.reads_failed.clear()

    def do_acked(self) -> None:
        acked = sorted((opid.index, payload.decode()) for payload, opid in self.net.verify.acked.items())
        self.printed.append(" ".join(["acked"] + [f"{payload}@{index}" for index, payload in acked]))

    def do_messages(self) -> None:
        """Print the messages sent since the last time, except heartbeats that agree."""
        sent = self.net.log_of_messages[self.seen :]
        self.seen = len(self.net.log_of_messages)
        self.printed += [describe(m) for m in sent]

    def do_skip_messages(self) -> None:
        self.seen = len(self.net.log_of_messages)


def describe(m: Message) -> str:
    """Return one message in one line."""
    head = f"{m.from_uuid}->{m.to_uuid} term={m.term}"
    match m:
        case AppendEntries():
            span = f" {m.entries[0].opid}..{m.entries[-1].opid}" if m.entries else ""
            return f"{head} append after {m.prev}{span} commit={m.commit_index}{' quiet?' if m.quiet else ''}"
        case AppendReply():
            how = f"mismatch conflict={m.conflict_index}" if m.mismatch else m.code.name
            return f"{head} reply {how} last={m.last}{' quiet' if m.quiet else ''}"
        case VoteRequest():
            kind = ("pre-vote" if m.pre_vote else "vote") + (" transfer" if m.transfer else "")
            return f"{head} {kind}? last={m.last}"
        case VoteReply():
            return f"{head} {'pre-vote' if m.pre_vote else 'vote'} {'granted' if m.granted else 'denied'}"
        case TimeoutNow():
            return f"{head} timeout-now last={m.last}"


def main(argv: list[str]) -> int:
    """Compare, or with --rewrite regenerate, the files given (all scripts by default)."""
    rewrite = "--rewrite" in argv
    folder = Path(__file__).resolve().parents[1] / "raft_scripts"
    paths = [Path(a) for a in argv if not a.startswith("--")] or sorted(folder.glob("*.txt"))
    wrong = 0
    for path in paths:
        now = run_script(path.read_text())
        if now != path.read_text():
            wrong += 1
            print(f"{'rewrote' if rewrite else 'differs'}: {path}")
            if rewrite:
                path.write_text(now)
    return 0 if rewrite else min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
