"""What is missing on a machine is said in one line with what to do."""

from __future__ import annotations

import pytest

from nyala.infra.preflight import java_problem, python_problem, space_problem


def test_python_too_old_is_named_with_a_remedy() -> None:
    """Goal: an old Python is refused with the way out. Method: a version pair below the bound, and one at it."""
    assert "make PYTHON=" in (python_problem((3, 10)) or "")
    assert python_problem((3, 11)) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no `java`"),
        ('openjdk version "11.0.2" 2019-01-15', "Java 11 is too old"),
        ('java version "1.8.0_201"', "Java 1 is too old"),
        ("garbage", "no version that can be read"),
    ],
)
def test_java_unusable_is_named_with_a_remedy(text: str | None, says: str) -> None:
    """Goal: a missing, old or strange Java gives one clear line. Method: what `java -version` prints in each case."""
    assert says in (java_problem(text) or "")


def test_java_new_enough_is_accepted() -> None:
    """Goal: Java 17 and later pass. Method: their version texts."""
    assert java_problem('openjdk version "17.0.15" 2025-04-15') is None
    assert java_problem('openjdk version "21" 2023-09-19') is None


def test_disk_nearly_full_is_refused_with_both_numbers() -> None:
    """Goal: too little space is said before anything is written. Method: a free figure below and above the bound."""
    assert "10 MiB free" in (space_problem(10 << 20) or "")
    assert space_problem(100 << 30) is None
