"""Say how to install an extra of gemmtune the way that this gemmtune was installed."""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gemmtune.engine.records.errors import ToolchainMissing


def install_command(extra: str = "") -> str:
    """Return the command that adds an extra to this gemmtune: from its checkout or archive, else from an index.

    An archive that is gone, as of a container's build, stands for the version that it had.
    """
    extras = f"[{extra}]" if extra else ""
    whole = f"gemmtune{extras}"
    pinned, direct = whole, {}
    try:
        installed = distribution("gemmtune")
        pinned = f"{whole}=={installed.version}"
        direct = json.loads(installed.read_text("direct_url.json") or "{}")  # as PEP 610 has it
    except (PackageNotFoundError, ValueError):
        pass
    url = str(direct.get("url", ""))
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        editable = "--editable " if direct.get("dir_info", {}).get("editable") else ""
        there = f"{editable}{shlex.quote(f'{path}{extras}')}"
        return f"pip install {there if path.exists() else shlex.quote(pinned)}"
    if "vcs_info" in direct:
        vcs = direct["vcs_info"]
        url = f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    return f"pip install {shlex.quote(f'{whole} @ {url}' if url else pinned)}"


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Check that the modules of an extra are installed, without importing them.

    Args:
        extra: gemmtune's extra that installs the modules.
        purpose: subject of the message, which needs the modules.
        modules: top-level names to import.

    Raises:
        ToolchainMissing: one is not installed; the message is one line and says how to install the extra.
    """
    lacking = [module for module in modules if find_spec(module) is None]
    if lacking:
        raise ToolchainMissing(f"{purpose} needs {' and '.join(lacking)}: {install_command(extra)}")
