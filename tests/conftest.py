"""What a terminal, a build service or somebody's shell says of itself is nothing that a test may depend on.

Done before anything is imported: widths and colours are settled at imports, and children inherit the rest.
"""

from __future__ import annotations

import os

WIDTHS_AND_COLOURS = (
    "COLUMNS", "LINES", "TERMINAL_WIDTH", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS",
    "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS",
)  # fmt: skip
CLUSTERS = ("NYALA_MASTERS", "NYALA_KAFKA", "NYALA_DIR", "NYALA_CRASH_POINT", "NYALA_PAUSE_POINT")

for name in (*WIDTHS_AND_COLOURS, *CLUSTERS):
    os.environ.pop(name, None)
