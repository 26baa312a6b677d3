"""Makes all that a release publishes, in dist/, and checks it.

    .venv/bin/python .packaging/release.py

The version is the one in pyproject.toml, and is nowhere else. Needs npm and uv, and the registries of both:
the bundle is started here as a host starts it, which installs all that it runs with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

HERE = Path(__file__).parent
ROOT = HERE.parent
DIST = ROOT / "dist"
LOCK = ROOT / ".github" / "requirements.lock"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKER = "@anthropic-ai/mcpb@2.1.2"
CYCLONEDX = "cyclonedx-bom>=7,<8"
START_SECONDS = 600  # the first start installs everything
PINNED = re.compile(r"^(?P<pin>[a-z0-9-]+==[^\s;]+(?: ; [^\\\n]+?)?)(?: \\)?$", re.MULTILINE)
BUNDLE_PROJECT = """\
[project]
name = "refdesk-bundle"
version = "{version}"
requires-python = "{python}"
dependencies = ["refdesk=={version}"]

[tool.uv]
package = false
constraint-dependencies = {pins}

[tool.uv.sources]
refdesk = {{ path = "{wheel}" }}
"""


def main() -> None:
    """Build, check, and name what was made."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    (wheel,) = DIST.glob("*.whl")
    shutil.copy(LOCK, DIST)
    (DIST / "server.json").write_text(_json(server_json()))
    write_components(wheel)
    bundle = packed(wheel)
    began = time.monotonic()
    title = anyio.run(asked, bundle)
    print(f"The bundle, started as a host starts it, found {title!r} after {time.monotonic() - began:.0f} s.")
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file.name}")


def server_json() -> dict[str, Any]:
    """What the MCP registry publishes: .packaging/server.json with the description and the version."""
    entry: dict[str, Any] = json.loads((HERE / "server.json").read_text())
    described = {"description": PROJECT["description"], "version": PROJECT["version"]}
    packages = [one | {"version": PROJECT["version"]} for one in entry["packages"]]
    return entry | described | {"packages": packages}


def manifest() -> dict[str, Any]:
    """The manifest of the bundle: .packaging/manifest.json with the description and the version."""
    written: dict[str, Any] = json.loads((HERE / "manifest.json").read_text())
    return written | {"description": PROJECT["description"], "version": PROJECT["version"]}


def write_bundle(folder: Path, wheel: Path) -> None:
    """Write what a bundle holds: this wheel, and the versions that it was tested with."""
    written = manifest()
    pins = [pin["pin"].replace('"', "'") for pin in PINNED.finditer(LOCK.read_text())]
    project = BUNDLE_PROJECT.format(
        version=PROJECT["version"],
        python=written["compatibility"]["runtimes"]["python"],
        pins=json.dumps(pins, indent=2),
        wheel=wheel.name,
    )
    folder.mkdir()
    (folder / "manifest.json").write_text(_json(written))
    (folder / "pyproject.toml").write_text(project)
    for file in (HERE / "start.py", wheel, ROOT / "LICENSE"):
        shutil.copy(file, folder)


def packed(wheel: Path) -> Path:
    """The bundle, packed and checked by the official tool."""
    bundle = DIST / f"refdesk-{PROJECT['version']}.mcpb"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "refdesk")
        write_bundle(folder, wheel)
        _run("npx", "--yes", PACKER, "validate", folder / "manifest.json")
        _run("npx", "--yes", PACKER, "pack", folder, bundle)
    _run("npx", "--yes", PACKER, "info", bundle)
    return bundle


def write_components(wheel: Path) -> None:
    """Write what the wheel runs with on this platform: an SBOM in CycloneDX."""
    with tempfile.TemporaryDirectory() as temporary:
        python = Path(temporary, "bin", "python")
        _run("uv", "venv", "--quiet", temporary)
        install = ("uv", "pip", "install", "--quiet", "--python", python, "--no-deps")
        _run(*install, "--require-hashes", "--requirement", LOCK)
        _run(*install, wheel)
        described = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible")
        file = DIST / "refdesk.cdx.json"
        _run("uvx", "--from", CYCLONEDX, "cyclonedx-py", "environment", python, *described, "-o", file)


async def asked(bundle: Path) -> str:
    """The text of what a search finds by a bundle that a host has just installed, in a home of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        documents = home / "My documents"
        documents.mkdir()
        (documents / "clock.md").write_text("# Wall clock\n\nThe pendulum swings once a second.\n")
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(home / "extension")
        given = {"folder": str(documents), "name": "Clocks"}
        server = launched(manifest(), home / "extension", given, home)
        with anyio.fail_after(START_SECONDS):
            async with Client(stdio_client(server)) as client:
                while True:
                    result = await client.call_tool("search", {"query": "pendulum"})
                    if found := (result.structured_content or {}).get("results"):
                        return str(found[0]["text"])
                    await anyio.sleep(1)


def launched(
    written: dict[str, Any], folder: Path, given: dict[str, str], home: Path
) -> StdioServerParameters:
    """How a host starts a bundle that is unpacked in `folder`, with what its user has given."""
    values = {"__dirname": str(folder)} | {f"user_config.{key}": value for key, value in given.items()}

    def filled(text: str) -> str:
        return re.sub(r"\$\{([^}]+)\}", lambda found: values[found[1]], text)

    config = written["server"]["mcp_config"]
    environment = {key: filled(value) for key, value in config["env"].items()}
    places = {key: str(home) for key in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("REFDESK_", "VIRTUAL_ENV"))
    }
    args = [filled(one) for one in config["args"]]
    return StdioServerParameters(command=config["command"], args=args, env=kept | places | environment)


def _json(value: object) -> str:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
