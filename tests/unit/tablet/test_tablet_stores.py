"""Where a key's live version is: in the active memory store, in one that is being flushed, or in a block."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.rows import RowOp, TableSchema
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.block import Block
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    STRING_SCHEMA,
    Twin,
    colliding_key,
    rows_of,
    superblock,
    write_entry,
)

KEYS: dict[str, tuple[TableSchema, list[tuple[Any, ...]]]] = {
    "number": (INT_SCHEMA, [(k,) for k in range(12)]),
    "text-and-number": (STRING_SCHEMA, [(f"key {k // 5}", k % 5) for k in range(12)]),
    "one-hash": (PAIR_SCHEMA, [colliding_key(k) for k in range(8)]),
}
OPS = (RowOp.UPSERT, RowOp.UPSERT, RowOp.INSERT, RowOp.DELETE, RowOp.UPDATE, RowOp.INSERT_IGNORE)


def freeze(tablet: Tablet) -> None:
    """Begin a flush: what was written goes to a store of its own, which the next flush makes a block of."""
    with tablet._contents.maintenance:
        tablet._contents.freeze()


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", few_then_deep(6, 30))
def test_key_has_one_live_version_wherever_it_is(kind: str, seed: int) -> None:
    """Goal: each write ends the version before it, whether that is in memory, in a store that is being flushed or in
    any block, and the number of rows is known. Method: random writes of Kafka or of clients, which are combined, beside
    a slow twin; flushes begin, and end some writes later; blocks are merged. After each step the results of the rows,
    all rows now and at an earlier time, and their number."""
    schema, keys = KEYS[kind]
    rng = random.Random(f"{kind} {seed}")
    disk, twin = SimDisk(), Twin(schema)
    tablet = Tablet.create(disk, superblock(schema))
    names = list(schema.names)
    index = 0
    for _ in range(40):
        step = rng.choice(["write"] * 4 + ["freeze", "flush", "compact"])
        if step == "write":
            entries, errors = [], []
            for _ in range(rng.choice((1, 1, 3))):
                index += 1
                rows = [
                    {"op": rng.choice(OPS), "offset": 100 * index + n, "v": index, "s": "s", "r": n}
                    | dict(zip(schema.key, rng.choice(keys), strict=True))
                    for n in range(rng.choice((1, 1, 2, 7)))
                ]
                sender = {"source": None, "client_id": "c", "sequence": index} if seed % 2 else {}
                entries.append(write_entry(index, schema, names, rows, **sender))
                errors.append(twin.apply(names, rows, 1000 * index, None, 0)[1])
            assert [list(result.row_errors) for result in tablet.apply(entries)] == errors
        elif step == "freeze":
            freeze(tablet)
        elif step == "flush":
            tablet.flush()
        else:
            tablet.compact()
        time = rng.randint(0, index) * 1000
        assert rows_of(tablet.scan(snapshot_time=time), schema) == twin.at(time)
        assert rows_of(tablet.scan(), schema) == twin.at(1000 * index)
        assert tablet.rows_estimate == len(twin.at(1000 * index)), "after a scan, which resolves all upserts"
    tablet.flush()
    tablet.flush()  # the first one may have ended one that had begun earlier
    again = Tablet.open(disk, tablet.superblock)
    assert again.rows_estimate == len(twin.at(1000 * index))
    disk.close()


def write(tablet: Tablet, index: int, op: RowOp, *keys: int) -> None:
    """Write one row for each key."""
    rows = [{"op": op, "offset": 100 * index + n, "k": k, "v": 1, "s": "", "r": 1} for n, k in enumerate(keys)]
    tablet.apply([write_entry(index, INT_SCHEMA, list(INT_SCHEMA.names), rows)])


def test_memory_of_a_tablet_is_that_of_both_stores_and_of_what_ended_in_blocks() -> None:
    """Goal: what a flush frees, and what it does not, are told apart. Method: a block with a row that has ended since,
    a store that is being flushed, and the active one."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.UPSERT, 1, 2, 3)
    tablet.flush()
    empty = tablet.store_bytes
    assert tablet.row_bytes == empty
    write(tablet, 2, RowOp.UPSERT, 2)
    tablet.checksum()
    (block,) = tablet._contents.stores.blocks
    assert block.memory_bytes > 0
    one = tablet.store_bytes
    assert one > empty and tablet.row_bytes == one + block.memory_bytes
    freeze(tablet)
    write(tablet, 3, RowOp.UPSERT, 7, 8)
    stores = tablet._contents.stores
    assert stores.frozen is not None and stores.frozen.memory_bytes == one and stores.active.memory_bytes > empty
    assert tablet.store_bytes == one + stores.active.memory_bytes
    assert tablet.row_bytes == tablet.store_bytes + block.memory_bytes


class Asked:
    """A tablet's blocks, of which one tells which keys were looked for in it."""

    def __init__(self, tablet: Tablet, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = tablet._contents.stores.blocks
        self.by_block: dict[str, list[int]] = {}
        locate = Block.locate

        def counted(block: Block, needles: Any, bits: Any, pending: Any, keys: Any) -> Any:
            self.by_block.setdefault(block.info.name, []).append(int(pending.sum()))
            return locate(block, needles, bits, pending, keys)

        monkeypatch.setattr(Block, "locate", counted)

    def numbers(self) -> list[list[int]]:
        """For each block, oldest first, how many keys were looked for, each time; from now on anew."""
        found = [self.by_block.get(block.info.name, []) for block in self.blocks]
        self.by_block.clear()
        return found


def test_block_is_searched_only_for_keys_that_may_still_be_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the cost of a write follows the keys that no newer place has. Method: three blocks with a key of their own
    each; what is looked for in each of them when keys are updated that are in memory, in a store that is being flushed,
    in one of the blocks, or nowhere."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    for index in (1, 2, 3):
        write(tablet, index, RowOp.UPSERT, index)
        tablet.flush()
    asked = Asked(tablet, monkeypatch)

    def update(index: int, *keys: int) -> list[list[int]]:
        rows = [
            {"op": RowOp.UPDATE, "offset": 100 * index + n, "k": k, "v": 2, "s": "", "r": 1} for n, k in enumerate(keys)
        ]
        tablet.apply([write_entry(index, INT_SCHEMA, list(INT_SCHEMA.names), rows)])
        return asked.numbers()

    assert update(4, 3) == [[], [], [1]], "the newest block first, and no other then"
    assert update(5, 3) == [[], [], []], "in memory"
    assert update(6, 1, 2, 3) == [[1], [2], [2]], "one of them is in memory"
    freeze(tablet)
    assert update(7, 1, 2, 3) == [[], [], []], "all are in the store that is being flushed"
    assert update(8, 77) == [[], [], []], "the Bloom filters say that it is nowhere"
    assert update(9, 77, 78) == [[2], [2], [2]]


def test_upsert_is_looked_for_once_after_it_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an upsert costs no look-up when it is written, and one before the next read. Method: two of three upserts
    are of keys of a block; two reads."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.UPSERT, 1, 2, 3)
    assert tablet._contents.stores.active.unresolved == [], "there is no block to look in"
    tablet.flush()
    asked = Asked(tablet, monkeypatch)
    write(tablet, 2, RowOp.UPSERT, 1, 3, 9)
    assert asked.numbers() == [[]] and tablet.rows_estimate == 6
    assert len(rows_of(tablet.scan(), INT_SCHEMA)) == 4
    assert asked.numbers() == [[3]] and tablet.rows_estimate == 4
    assert len(rows_of(tablet.scan(), INT_SCHEMA)) == 4
    assert asked.numbers() == [[]]


def test_longest_values_are_those_of_each_part_of_the_stores() -> None:
    """Goal: how long a row can become is known from every place that a value may be in. Method: texts of 3, 5 and 4
    bytes in a block, in a store that is being flushed and in the active one; then without the middle one."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    text = INT_SCHEMA.column("s").id

    def write_text(index: int, length: int) -> None:
        rows = [{"op": RowOp.UPSERT, "offset": index, "k": index, "v": 1, "s": "x" * length, "r": 1}]
        tablet.apply([write_entry(index, INT_SCHEMA, list(INT_SCHEMA.names), rows)])

    def lengths() -> list[int]:
        contents = tablet._contents
        return sorted(part[text] for part in contents.stores.longest(contents.lock))

    write_text(1, 3)
    tablet.flush()
    write_text(2, 5)
    assert lengths() == [3, 5]
    freeze(tablet)
    write_text(3, 4)
    assert lengths() == [3, 4, 5]
