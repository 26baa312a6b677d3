"""Programs that others wrote: SDKs, the Inspector and the conformance suite against the installed server, and
the packer of bundles with the library that hosts start them by.

What fails in the suite stands in a baseline with its reason: it asks for tools, resources and prompts of its
own, which only a server made for it has, and for features that the desk doesn't offer.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import release

from server.resources import SKILLS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.clients.conftest import Doors, Node
    from tests.server.conftest import Message, Remote

pytestmark = pytest.mark.slow


HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK, how it is told to negotiate, and the revision that it must end up with, where it tells."""

    script: str
    mode: str | dict[str, str] = "legacy"
    version: str | None = None


SDKS = {
    "v1": Sdk("v1.mjs"),
    "v2": Sdk("v2.mjs", "legacy", HANDSHAKE),
    "v2-auto": Sdk("v2.mjs", "auto", MODERN),
    "v2-pinned": Sdk("v2.mjs", {"pin": MODERN}, MODERN),
}


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_the_sdks_get_from_the_desk_what_it_says_to_everybody(
    node: Node, doors: Doors, expected: Message, sdk: Sdk, transport: str
) -> None:
    replies = node.printed(sdk.script, _wish(doors, sdk, transport, {"Authorization": f"Bearer {doors.key}"}))
    assert replies.pop("version", None) == sdk.version
    plain, _, held = expected["instructions"].rpartition("\n\n")
    assert held.startswith("You can search ")
    # Over stdio, the first reply doesn't wait until the desk is open and says what it holds.
    differing = {"instructions": plain} if transport == "stdio" else {}
    if sdk.version == MODERN:  # earlier protocols have no extensions
        differing["capabilities"] = expected["capabilities"] | {"extensions": {SKILLS: {}}}
    assert replies == expected | differing


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_an_sdk_without_a_key_gets_nothing_and_is_told_why(
    node: Node, doors: Doors, sdk: Sdk, transport: str
) -> None:
    run = node.run(sdk.script, _wish(doors, sdk, transport, {}))
    assert run.returncode != 0
    assert run.stdout == ""
    assert "401" in run.stderr


def _wish(doors: Doors, sdk: Sdk, transport: str, headers: dict[str, str]) -> str:
    """How a client is to connect, as the scripts read it."""
    local = {"command": doors.command, "args": ["--data", str(doors.data)]}
    remote = {"url": doors.url(transport), "headers": headers}
    return json.dumps({"transport": transport, "mode": sdk.mode, **local, **remote})


INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@pytest.mark.nightly  # it takes 7 s of CPU to install; by day the SDKs see the same over every transport
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_the_inspector_sees_what_everybody_sees_and_portable_schemas(
    node: Node, doors: Doors, expected: Message, transport: str, era: str
) -> None:
    local = ["--", doors.command, "--data", str(doors.data)]
    remote = ["--server-url", doors.url(transport), "--header", f"X-API-Key: {doors.key}"]
    target = local if transport == "stdio" else ["--transport", transport, *remote]

    def result(method: str, *arguments: str) -> Message:
        request = ["--cli", "--format", "json", "--protocol-era", era, "--method", method, *arguments]
        return dict(node.printed(INSPECTOR, *request, *target)["result"])

    assert result("tools/list", "--strict")["tools"] == expected["tools"]
    call = ("--tool-name", "search", "--tool-args-json", '{"query": "pendulum", "limit": 2}')
    assert expected["found"].items() <= result("tools/call", *call).items()
    uri = expected["contents"][0]["uri"]
    assert result("resources/read", "--uri", uri)["contents"] == expected["contents"]


SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
REVISIONS = ["2025-11-25", "2026-07-28"]
ENTRY = re.compile(r"  - (?P<check>[\w-]+:[\w-]+)  # (?P<reason>\w.{9,})")
OF_EVERY_SCENARIO = "wire-schema-valid"

PASSING = {
    "2025-11-25": {
        "completion-complete": 1,
        "dns-rebinding-protection": 2,
        "ping": 1,
        "prompts-list": 1,
        "resources-list": 1,
        "server-initialize": 1,
        "tools-list": 2,
    },
    "2026-07-28": {
        "caching": 7,
        "completion-complete": 1,
        "dns-rebinding-protection": 2,
        "http-header-validation": 13,
        "input-required-result-unsupported-methods": 1,
        "input-required-result-validate-input": 2,
        "prompts-list": 1,
        "resources-list": 1,
        "sep-2164-resource-not-found": 3,
        "server-sse-multiple-streams": 1,
        "server-stateless": 21,
        "tasks-dispatch-and-envelope": 2,
        "tasks-request-headers": 1,
        "tools-list": 3,
    },
}
"""How many checks of a scenario pass, besides the one that all have. Without them, a desk that answers every
request with an error would leave the suite content: it excuses a check of the baseline that is never made."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the suite says of a server: a status for each check, named as in the baseline."""

    revision: str
    exit_code: int
    output: str
    checks: list[tuple[str, str]]

    def with_status(self, *statuses: str) -> list[str]:
        return [check for check, status in self.checks if status in statuses]


def baseline(revision: str) -> Path:
    return Path(__file__).parent / f"expected-failures-{revision}.yml"


@pytest.fixture(scope="module")
def open_remote(lasting_listen: Callable[..., Remote], data: Path) -> Remote:
    """A server that asks for no key, for the suite can't send one."""
    return lasting_listen(data, http_authentication="[]")


@pytest.fixture(scope="module", params=REVISIONS)
def report(
    request: pytest.FixtureRequest, node: Node, open_remote: Remote, tmp_path_factory: pytest.TempPathFactory
) -> Report:
    folder, revision = tmp_path_factory.mktemp("conformance"), request.param
    options = ("--requirements", revision, "--expected-failures", baseline(revision), "-o", folder)
    run = node.run(SUITE, "server", "--url", open_remote.url, *options)
    return Report(revision, run.returncode, run.stdout + run.stderr, _checks(folder))


def _checks(folder: Path) -> list[tuple[str, str]]:
    """Each check that the suite wrote down, with its status."""
    return [
        (f"{_scenario(file)}:{check['id']}", check["status"])
        for file in folder.glob("*/checks.json")
        for check in json.loads(file.read_text())
    ]


def _scenario(file: Path) -> str:
    """…/server-tools-list-2026-11-22T03-06-59-019Z/checks.json -> tools-list"""
    named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.+", file.parent.name)
    assert named
    return named[1]


def test_the_suite_finds_what_the_baseline_says_and_nothing_else(report: Report) -> None:
    assert report.exit_code == 0, report.output


def test_each_failure_of_the_baseline_is_there_to_be_seen(report: Report) -> None:
    listed = [entry["check"] for entry in ENTRY.finditer(baseline(report.revision).read_text())]
    assert sorted(report.with_status("FAILURE", "WARNING")) == sorted(listed)


def test_what_needs_nothing_of_the_suites_own_passes(report: Report) -> None:
    passed = [check.split(":") for check in report.with_status("SUCCESS")]
    assert (
        Counter(scenario for scenario, id_ in passed if id_ != OF_EVERY_SCENARIO) == PASSING[report.revision]
    )


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_line_of_a_baseline_has_its_reason(revision: str) -> None:
    first, *lines = baseline(revision).read_text().splitlines()
    assert first == "server:"
    assert [line for line in lines if not ENTRY.fullmatch(line)] == []


UNLISTED = {"sep-2640-skillmd-metadata-name", "sep-2640-skillmd-metadata-description"}
"""The suite looks for them in resources/list, where the skill isn't: nothing changes for other clients."""


@pytest.mark.parametrize(("scenario", "passing"), [("enumeration", 31), ("manifest", 3)])
def test_the_skill_passes_the_suites_scenarios_of_its_extension(
    node: Node, open_remote: Remote, tmp_path: Path, scenario: str, passing: int
) -> None:
    name = f"sep-2640-skills-{scenario}"
    run = node.run(SUITE, "server", "--url", open_remote.url, "--scenario", name, "-o", tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    report = Report(MODERN, run.returncode, run.stdout, _checks(tmp_path))
    passed = [check for check in report.with_status("SUCCESS") if not check.endswith(OF_EVERY_SCENARIO)]
    assert len(passed) == passing
    assert {check.partition(":")[2] for check in report.with_status("FAILURE", "WARNING")} == (
        UNLISTED if scenario == "manifest" else set()
    )


PACKER = "node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a bundle holds, with a wheel that is none."""
    temporary = tmp_path_factory.mktemp("bundle")
    wheel = temporary / "refdesk-0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    release.write_bundle(temporary / "refdesk", wheel)
    return temporary / "refdesk"


def packer(node: Node, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return node.run(PACKER, *arguments)


def test_the_packer_accepts_the_bundle_and_finds_all_that_it_needs(
    node: Node, bundle: Path, tmp_path: Path
) -> None:
    valid = packer(node, "validate", bundle / "manifest.json")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    packed = packer(node, "pack", bundle, tmp_path / "refdesk.mcpb")
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with zipfile.ZipFile(tmp_path / "refdesk.mcpb") as archive:
        assert sorted(archive.namelist()) == [
            "LICENSE",
            "manifest.json",
            "pyproject.toml",
            "refdesk-0-py3-none-any.whl",
            "start.py",
        ]
    assert packer(node, "info", tmp_path / "refdesk.mcpb").returncode == 0


def test_the_packer_refuses_a_wrong_manifest(node: Node, bundle: Path, tmp_path: Path) -> None:
    written = json.loads((bundle / "manifest.json").read_text())
    written["server"]["type"] = "snake"
    (tmp_path / "manifest.json").write_text(json.dumps(written))
    assert packer(node, "validate", tmp_path / "manifest.json").returncode != 0


@pytest.mark.parametrize(
    "folder", ["/home/ann/Meine Dokumente", "C:\\Users\\Ann\\$HOME & Co", "/srv/${HOME}"]
)
def test_hosts_start_the_bundle_with_the_users_folder_and_name(node: Node, bundle: Path, folder: str) -> None:
    settings = {"folder": folder, "name": "Ann's handbook"}
    config = node.printed("launch.mjs", bundle, json.dumps(settings))
    assert config["args"][-2:] == ["--documents", folder]
    assert config["env"] == {"REFDESK_SERVER_TITLE": "Ann's handbook"}
    ours = release.launched(release.manifest(), bundle, settings, Path("/home/ann"))
    assert (config["command"], config["args"]) == (ours.command, ours.args)


def test_hosts_don_t_start_the_bundle_before_a_folder_is_chosen_and_give_it_the_chosen_name(
    node: Node, bundle: Path
) -> None:
    assert node.printed("launch.mjs", bundle, json.dumps({})) is None
    config = node.printed("launch.mjs", bundle, json.dumps({"folder": "/srv/docs", "name": "x"}))
    assert config["env"] == {"REFDESK_SERVER_TITLE": "x"}
