"""Links that a host opens to install a server with one click."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

WITH_LINKS = ("vscode", "cursor", "lm-studio")


def link(host: str, name: str, entry: Mapping[str, Any], inputs: list[Any]) -> str:
    """The link of a host in `WITH_LINKS` for an entry of this name. `inputs` is what VS Code asks for."""
    if host == "vscode":
        whole = {"name": name, **entry} | ({"inputs": inputs} if inputs else {})
        return f"vscode:mcp/install?{quote(_compact(whole), safe='')}"
    config = base64.b64encode(_compact(entry).encode()).decode()
    beginning = {
        "cursor": "cursor://anysphere.cursor-deeplink/mcp/install",
        "lm-studio": "lmstudio://add_mcp",
    }
    return f"{beginning[host]}?{urlencode({'name': name, 'config': config})}"


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
