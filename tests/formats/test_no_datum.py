"""Bytes that are no datum of a schema: whoever reads what others wrote meets them."""

from __future__ import annotations

import random

import pytest

from nyala import schemas

STARTS = (b"", b"\x00", b"\x0a1234\x78", b"\x78" + b"a" * 60, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff" * 12)


@pytest.mark.parametrize(
    "name", ["proposal", "decision", "outcome", "report", "dead_letter", "write_meta", "config_change"]
)
def test_bytes_that_are_no_datum_raise_one_kind_of_error(name: str) -> None:
    """Goal: nobody has to know what the reader of Avro raises over which bytes. Method: random bytes behind beginnings
    that lead into different fields; each is read, or it is a ValueError that names the schema."""
    rng, refused = random.Random(name), 0
    for _ in range(2000):
        data = rng.choice(STARTS) + rng.randbytes(rng.choice((0, 1, 7, 40)))
        try:
            assert isinstance(schemas.decode(name, data), dict)
        except ValueError as error:
            assert str(error).startswith(f"{name}: ")
            refused += 1
    assert refused > 100


def test_schema_that_is_not_there_is_no_matter_of_the_bytes() -> None:
    """Goal: a mistake of ours is not taken for somebody's bytes. Method: a name that no schema has."""
    with pytest.raises(KeyError):
        schemas.decode("no such schema", b"")
