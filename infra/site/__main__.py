"""`python -m nyala.infra.site`: build the documentation site of this clone."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .pages import navigation, project_pages, public_names, reference_pages

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


class _Warnings(logging.Handler):
    """Keeps what the builder warns of, such as a link to a page or a heading that is not there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


def build(pages: Mapping[str, str], out: Path) -> list[str]:
    """Build a site of these pages, by their places, into the folder `out`; return the warnings. None: all is well."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    warnings = _Warnings()
    logger = logging.getLogger("mkdocs")
    logger.setLevel(logging.WARNING)
    logger.addHandler(warnings)
    try:
        with tempfile.TemporaryDirectory(prefix="nyala-site-") as folder:
            for place, text in pages.items():
                file = Path(folder, place)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            config = load_config(
                str(HERE / "mkdocs.yml"), docs_dir=folder, site_dir=str(out), nav=navigation(pages), strict=False
            )
            config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [str(ROOT / ".package")]
            build_site(config)
    finally:
        logger.removeHandler(warnings)
    return warnings.told


def main() -> int:
    """Exit status 1 if the builder warns of anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "site", help="folder of the site; it is replaced")
    arguments = parser.parse_args()
    warnings = build(project_pages(ROOT) | reference_pages(public_names()), arguments.out.resolve())
    for text in warnings:
        print(f"nyala: {text}", file=sys.stderr)
    if warnings:
        told = f"{len(warnings)} faults: mend what is named above, and build again; the site is there with them"
        print(f"nyala: {told}", file=sys.stderr)
        return 1
    print(f"{arguments.out.resolve()}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
