"""A hook of the documentation build: lists docs/adr/*.md in the navigation, the index first, then by their
numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Appends a section with every decision record, titled by its first heading."""
    docs = Path(config["docs_dir"])
    records = sorted((docs / "adr").glob("*.md"), key=lambda path: (path.name != "index.md", path.name))
    if records:
        config["nav"].append({"Decisions": [{_title(path): str(path.relative_to(docs))} for path in records]})
    return config


def _title(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    return path.stem
