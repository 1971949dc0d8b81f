"""Each room says what it is for: a DESIGN.md, which also says what was refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.test_layers import ALLOWED, ROOT

ROOMS = sorted(name.replace(".", "/") for name in ALLOWED if (ROOT / name.replace(".", "/")).is_dir())


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_a_design_page(room: str) -> None:
    """Goal: who enters a room reads why first. Method: the file, what it must speak of."""
    page = Path(ROOT / room / "DESIGN.md")
    text = page.read_text().lower()
    assert "refused" in text
