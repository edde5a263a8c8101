"""How this copy of Odradek was installed, and the command that adds an extra to it.

pip and uv record the origin of an installation that came from no package index in `direct_url.json` (PEP 610).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

PACKAGE: Final = "odradek"


def install_hint(extra: str) -> str:
    """The command that installs the packages of an extra: for a clone it names the clone, otherwise the release."""
    return f"{_installer()} {requirement(extra, _origin())}"


def requirement(extra: str, origin: Mapping[str, Any] | None) -> str:
    """pip's arguments for Odradek with an extra; `origin` is the content of direct_url.json, None for a release.

    An origin that no longer exists counts as a release.
    """
    released = f"'{PACKAGE}[{extra}]'"
    url = str((origin or {}).get("url", ""))
    if origin is None or not url:
        return released
    if vcs := origin.get("vcs_info"):
        revision = f"@{vcs['requested_revision']}" if vcs.get("requested_revision") else ""
        return f"'{PACKAGE}[{extra}] @ {vcs.get('vcs', 'git')}+{url}{revision}'"
    parts = urlsplit(url)
    if parts.scheme != "file":
        return f"'{PACKAGE}[{extra}] @ {url}'"
    path = Path(unquote(parts.path))
    if not path.exists():
        return released
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"{editable}'{path}[{extra}]'"


def _origin() -> Mapping[str, Any] | None:
    try:
        text = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # The modules are on sys.path without an installation, as in an unpacked archive.
        root = Path(__file__).resolve().parents[3]
        return {"url": root.as_uri()} if (root / "pyproject.toml").is_file() else None
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _installer() -> str:
    """pip, or uv where the environment was made by uv and has no pip."""
    return "uv pip install" if find_spec("pip") is None and shutil.which("uv") else "pip install"
