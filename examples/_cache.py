"""Folders of pretrained models, named after their settings: trained once, then read."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")


def cached(name: str, settings: dict[str, Any], cache: Path | None) -> tuple[Path, bool]:
    """Return the folder of these settings, and whether its model is finished.

    Raises:
        ValueError: If the folder holds a finished model of other settings.
    """
    mark = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    folder = ROOT / "runs" / name / mark if cache is None else cache
    if not (folder / "report.json").exists():
        return folder, False
    theirs = read_report(folder)["settings"]
    if theirs != settings:
        raise ValueError(f"cache must hold an encoder of these settings, got {theirs} in {folder}")
    return folder, True


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report that `write_report` wrote."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return report


def write_report(folder: Path, content: dict[str, Any]) -> None:
    """Write the report, whose presence marks a finished folder, in one step."""
    draft = folder / "report.draft"
    draft.write_text(json.dumps(content, indent=1), "utf-8")
    draft.replace(folder / "report.json")
