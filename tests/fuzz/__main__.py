"""Run fuzzers: `python -m tests.fuzz`, `python -m tests.fuzz server/ topic/reports --inputs 100000 --seed 7`.

Each target runs in a process of its own, so that even a crash of the interpreter is one input's failure. With --real
the inputs are sent to a master and tablet servers that are real processes. The inputs of a failure are made as few as
still fail, and saved beside the command that repeats them. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.campaign import input_of, shortest
from tests.fuzz.real_campaign import Campaign, Found, load_sent, replay, save_sent
from tests.fuzz.real_cluster import real_cluster
from tests.fuzz.real_targets import TOPICS, chosen_real, real_targets
from tests.fuzz.registry import all_targets, chosen
from tests.fuzz.target import Session, Target
from tests.fuzz.worker import save_inputs
from tests.harness import hand_runs

STUCK_S = 600.0
"""A process that is at one input for so long hangs, unless it computes for a part of that time only. Then the machine
is busy, and the process gets six times as long."""
WORKS_S = 1.0
"""A process with less processor time than this in STUCK_S does not compute."""
PROGRESS_S = 0.5
TURN_INPUTS = 20_000
"""The inputs of one process; then the next target has its turn, until all have had their inputs or the time is over."""


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="a part of targets' names; all of them without one"
    )
    parser.add_argument("--inputs", type=int, default=1000, help="inputs for each target (1000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many seconds")
    parser.add_argument("--seed", type=int, help="of the random numbers; drawn, and printed, if it is not given")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (0)")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="deliver the inputs of a saved failure again")
    parser.add_argument("--out", type=Path, default=Path(".nyala/fuzz"), help="where failures are saved (.nyala/fuzz)")
    parser.add_argument("--json", action="store_true", help="one JSON object a target, or one in all with --real")
    parser.add_argument("--real", action="store_true", help="send the inputs to real processes, to each target in turn")
    parser.add_argument("--check-every", type=int, default=1000, help="with --real, inputs between checks (1000)")
    parser.add_argument("--list", action="store_true", help="the names of all targets")
    hand_runs.add_option(parser)
    return parser.parse_args(words)


def _processor_s(pid: int) -> float:
    """Return the processor time that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _hangs(waited_s: float, used_s: float) -> bool:
    """Whether a process hangs that has been at one input for `waited_s` and has computed for `used_s` of it."""
    busy_machine = WORKS_S <= used_s <= STUCK_S / 2
    return waited_s > (6 * STUCK_S if busy_machine else STUCK_S)


def _worker(*words: str) -> tuple[dict[str, Any], int]:
    """Return (a worker's result, the number of the input that was under way at its end). It may have died, or hung."""
    with tempfile.NamedTemporaryFile(prefix="nyala-fuzz-") as progress, tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", "tests.fuzz.worker", *words, progress.name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        at, since_s, computed_s, died = "", time.monotonic(), 0.0, "it ended"
        while True:
            try:
                out, _ = process.communicate(timeout=PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                now = Path(progress.name).read_text()
                used_s = _processor_s(process.pid) - computed_s
                if now != at:
                    at, since_s, computed_s = now, time.monotonic(), computed_s + used_s
                elif _hangs(time.monotonic() - since_s, used_s):
                    process.kill()
                    died = f"it hung for {time.monotonic() - since_s:.0f} s, of which it computed {used_s:.0f} s"
        number = int(Path(progress.name).read_text().strip() or -1)
        if process.returncode == 0:
            said: dict[str, Any] = json.loads(out.splitlines()[-1])
            return said, number
        errors.seek(0)
        text = f"{died} with code {process.returncode}\n{errors.read()[-4000:]}"
        return {"error": text}, number


def _remade(target: Target, seed: int, first: int, last: int) -> list[bytes]:
    """Make inputs again by their numbers, for a process that died before it reported them."""
    found: list[bytes] = []

    async def scenario(session: Session) -> None:
        found.extend(input_of(session, target, seed, number) for number in range(first, last + 1))

    target.within(scenario)
    return found


def _failed(target: Target, said: dict[str, Any], seed: int, first: int, number: int, out: Path) -> dict[str, Any]:
    """Shorten the inputs of a failure and save them; returns its `failure` as it is reported."""
    failure = said.get("failure") or {"error": said.get("error", ""), "number": number, "inputs": []}
    inputs = [bytes.fromhex(data) for data in failure["inputs"]]
    if not inputs:
        begun = first + (max(first, number) - first) // target.slice_inputs * target.slice_inputs
        inputs = _remade(target, seed, begun, max(begun, number))
    with tempfile.TemporaryDirectory(prefix="nyala-fuzz-") as folder:
        attempt = Path(folder) / "attempt"

        def fails(some: Any) -> bool:
            save_inputs(attempt, target.name, list(some), "")
            return bool(_worker("repeat", str(attempt))[0]["error"])

        few = shortest(inputs, fails)
    digest = hashlib.sha256(b"".join(few)).hexdigest()[:12]
    path = out / f"{target.name.replace('/', '-')}-{digest}.hex"
    save_inputs(path, target.name, few, failure["error"])
    return {"number": failure["number"], "error": failure["error"], "inputs": len(few), "file": str(path)}


def _run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    targets, seed, until_s = chosen(arguments.targets), arguments.seed, time.monotonic() + arguments.seconds
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    totals = {
        d.name: {"target": d.name, "inputs": 0, "seconds": 0.0, "high_bytes": 0, "slowest_s": 0.0} for d in targets
    }
    waiting = [(target, arguments.first) for target in targets]
    end = arguments.first + arguments.inputs
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(targets) * arguments.inputs)
        while waiting and time.monotonic() < until_s:
            target, first = waiting.pop(0)
            count = min(TURN_INPUTS, end - first)
            bar.update(task, description=target.name)
            seconds = min(1e9, max(0.0, until_s - time.monotonic()))
            said, number = _worker("run", target.name, str(seed), str(first), str(count), str(seconds))
            total = totals[target.name]
            done = said.get("inputs", max(0, number - first))
            total["inputs"] += done
            total["seconds"] += said.get("seconds", 0.0)
            for most in ("high_bytes", "slowest_s"):
                total[most] = max(total[most], said.get(most, 0))
            bar.advance(task, done)
            if said.get("failure") or "error" in said:
                total["failure"] = _failed(target, said, seed, first, number, arguments.out)
                found = total["failure"]
                lines = found["error"].strip().splitlines() or ["?"]
                console.print(f"[red]{target.name}[/]: {lines[-1][:400]}", highlight=False, markup=True)
                again = f"{target.name} --seed {seed} --first {found['number']} --inputs 1"
                console.print(f"  python -m tests.fuzz --repeat {found['file']}", highlight=False)
                console.print(f"  or, if that finds nothing, python -m tests.fuzz {again}", highlight=False)
            elif first + count < end:
                waiting.append((target, first + count))
    return list(totals.values())


def _command(arguments: argparse.Namespace) -> str:
    """Return the command that makes the same inputs again: with the seed, also if it was drawn."""
    line = hand_runs.command_line("tests.fuzz")
    return line if "--seed" in line else f"{line} --seed {arguments.seed}"


def _run_real(arguments: argparse.Namespace, console: Console) -> int:
    """Send inputs to real processes, report, and return the exit code."""
    names = chosen_real(arguments.targets)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting processes", total=len(names) * arguments.inputs)

        def found(failure: Found) -> None:
            digest = hashlib.sha256(b"".join(sent.data for sent in failure.inputs)).hexdigest()[:12]
            path = arguments.out / f"real-{digest}.hex"
            save_sent(path, failure)
            again = "fails again" if failure.repeated else "did not fail again"
            console.print(f"after {failure.after}; with {len(failure.inputs)} inputs it {again}", highlight=False)
            console.print(f"  python -m tests.fuzz --repeat {path}", highlight=False)

        kafka = any(name in TOPICS for name in names)
        campaign = Campaign(
            names,
            arguments.seed,
            first=arguments.first,
            inputs=arguments.inputs,
            check_every=arguments.check_every,
            until_s=time.monotonic() + arguments.seconds,
            clusters=partial(real_cluster, kafka=kafka),
            retries=partial(real_cluster, own_processes=False, kafka=kafka),
            progress=lambda name, inputs: bar.update(task, advance=inputs, description=name),
            on_failed=lambda error: console.print(f"FAILED: {error}", highlight=False, markup=False),
            on_found=found,
        )
        campaign.run()
    result = campaign.json()
    if arguments.record:
        said = (
            f"{result['inputs']:,} inputs to {len(names)} targets, {result['checks']} checks, {result['seconds']:.0f} s"
        )
        hand_runs.record(_command(arguments), f"{said}, {len(campaign.found)} failures")
    if arguments.json:
        print(json.dumps(result))
        return 1 if campaign.found else 0
    for name, total in result["targets"].items():
        outcomes = ", ".join(f"{count} {what}" for what, count in total["outcomes"].items())
        print(f"{name:<42} {total['inputs']:>8} inputs {total['inputs_per_s']:>7.0f}/s  {outcomes}")
    grown = ", ".join(f"{name} {mb:+.0f} MB" for name, mb in result["grown_mb"].items())
    print(f"{result['inputs']} inputs and {result['checks']} checks in {result['seconds']:.0f} s")
    print(f"slowest honest request {result['slowest_honest_s']} s, logs {result['logged_mb']} MB")
    print(f"memory above the level after the first check, at most: {grown}")
    return 1 if campaign.found else 0


def main(words: list[str] | None = None) -> int:
    """Run the targets that the words name; returns the exit code."""
    arguments, console = _arguments(words), Console(stderr=True, soft_wrap=True)
    if arguments.list:
        print("\n".join(real_targets() if arguments.real else all_targets()))
        return 0
    if arguments.repeat is not None and (sent := load_sent(arguments.repeat)) is not None:
        error = replay(sent, partial(real_cluster, kafka=any(each.target in TOPICS for each in sent)))
        print(error or "nothing failed")
        return 1 if error else 0
    if arguments.repeat is not None:
        error = _worker("repeat", str(arguments.repeat))[0]["error"]
        print(error or "nothing failed")
        return 1 if error else 0
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    console.print(f"seed {arguments.seed}", highlight=False)
    if arguments.real:
        return _run_real(arguments, console)
    totals = _run(arguments, console)
    if arguments.record:
        said = f"{sum(total['inputs'] for total in totals):,} inputs to {len(totals)} targets"
        hand_runs.record(_command(arguments), f"{said}, {sum('failure' in total for total in totals)} failures")
    for total in totals:
        if arguments.json:
            print(json.dumps(total))
            continue
        rate = total["inputs"] / total["seconds"] if total["seconds"] else 0.0
        figures = f"{total['inputs']:>9} inputs {rate:>7.0f}/s {total['high_bytes'] >> 20:>5} MiB"
        print(f"{total['target']:<42} {figures} {total['slowest_s']:>6.3f} s {'FAILED' if 'failure' in total else ''}")
    return 1 if any("failure" in total for total in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
