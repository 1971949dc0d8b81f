"""The unit files of systemd that are shipped."""

from __future__ import annotations

from pathlib import Path


def settings_of(file: Path, instance: str = "") -> dict[str, list[str]]:
    """Return the settings of a unit file, with the instance's name in place of %i."""
    settings: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        key, equal, value = line.partition("=")
        if equal and not line.startswith("#"):
            settings.setdefault(key, []).append(value.replace("%i", instance))
    return settings
