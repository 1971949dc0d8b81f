"""One process of a campaign: runs slices of one target, and reports how far it came, so that after its death the input
is known.

python -m tests.fuzz.worker run TARGET SEED FIRST COUNT SECONDS PROGRESS
python -m tests.fuzz.worker repeat FILE PROGRESS

`PROGRESS`: a file that always holds the number of the input under way. The result is JSON on its output.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Tally, replay, run
from tests.fuzz.registry import target_of

ERROR_CHARS_MAX = 20_000
"""What a saved file holds of an error, its end."""


def load_inputs(path: Path) -> tuple[str, list[bytes]]:
    """Read (target, inputs) of a saved failure: comments for people, the target's name, then one input a line in
    hex."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return lines[0], [bytes.fromhex(line) for line in lines[1:]]


def save_inputs(path: Path, target: str, inputs: list[bytes], error: str) -> None:
    """Write a file that `load_inputs` reads; the whole error stands at its head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = error.strip()[-ERROR_CHARS_MAX:].splitlines() or ["the process died"]
    lines.append(f"python -m tests.fuzz --repeat {path}")
    text = [*(f"# {line}" for line in lines), target, *(data.hex() for data in inputs)]
    path.write_text("\n".join(text) + "\n")


def _report(tally: Tally) -> str:
    found = dataclasses.asdict(tally)
    if tally.failure is not None:
        found["failure"]["inputs"] = [data.hex() for data in tally.failure.inputs]
    return json.dumps(found)


def main(words: list[str]) -> None:
    """Run what the words name."""
    faulthandler.enable()
    progress = os.open(words[-1], os.O_RDWR | os.O_CREAT)
    if words[0] == "repeat":
        name, inputs = load_inputs(Path(words[1]))
        print(json.dumps({"error": replay(target_of(name), inputs)}))
        return
    name, seed, first, count, seconds = words[1], int(words[2]), int(words[3]), int(words[4]), float(words[5])

    def before(number: int) -> None:
        os.pwrite(progress, b"%-20d" % number, 0)

    print(_report(run(target_of(name), seed, first, count, until_s=time.monotonic() + seconds, before=before)))


if __name__ == "__main__":
    main(sys.argv[1:])
