"""What is published of a release: the bundle, the registry's entry, locked versions, and adding extras."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib import metadata
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import release
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rag import runtime
from rag.admin.sync_command import sync_command
from rag.config.load import environment_name, setting_keys
from rag.config.settings import Settings
from rag.runtime import install_command
from server.main import _flags
from server.tool_listing import tool_pair

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = sorted(path for path in (ROOT / ".packaging").rglob("*") if path.suffix not in {"", ".pyc"})
VERSION = release.PROJECT["version"]


def test_a_tag_publishes_what_release_makes_once_everything_is_tested_and_with_no_stored_password() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    assert commands.index(".ci/run") < commands.index(".venv/bin/python .packaging/release.py")
    assert publish["needs"] == "build"
    for job in (build, publish):
        assert job["permissions"]["id-token"] == "write"
    assert "secrets." not in str(workflow)
    (index,) = (step for step in publish["steps"] if "pypi-publish" in step.get("uses", ""))
    assert "password" not in index["with"]


@pytest.mark.parametrize("path", PACKAGING, ids=lambda path: str(path.name))
def test_the_version_is_in_pyproject_toml_and_nowhere_else(path: Path) -> None:
    assert VERSION not in path.read_text()


def test_the_manifest_and_the_registry_s_entry_have_the_version_and_description_of_the_project() -> None:
    entry = release.server_json()
    for description in (release.manifest(), entry):
        assert (description["version"], description["description"]) == (
            VERSION,
            release.PROJECT["description"],
        )
    assert [package["version"] for package in entry["packages"]] == [VERSION]


def test_the_registry_s_entry_has_what_the_schema_asks_for() -> None:
    # The schema of 2025-12-11 and the registry's checks of packages.
    entry = release.server_json()
    assert entry["$schema"].endswith("/schemas/2025-12-11/server.schema.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 3 <= len(entry["name"]) <= 200
    assert 1 <= len(entry["title"]) <= 100
    assert 1 <= len(entry["description"]) <= 100
    assert not re.search(r"[\^~<>=*x]", entry["version"])
    assert entry.keys() <= {"$schema", "name", "title", "description", "version", "packages"}
    for package in entry["packages"]:
        assert package["registryType"] == "pypi"
        assert package["transport"] == {"type": "stdio"}
        assert package["identifier"] == release.PROJECT["name"]
        for argument in package["packageArguments"]:
            assert argument["type"] == "named"
            assert argument["name"].startswith("--")
        for option in (*package["packageArguments"], *package["environmentVariables"]):
            assert option["name"]
            assert option.get("format", "string") in {"string", "number", "boolean", "filepath"}
            assert isinstance(option["isRequired"], bool)


def test_the_readme_says_whose_package_it_is_in_the_form_that_the_registry_looks_for() -> None:
    names = re.findall(r"mcp-name: (\S+)(?:\s|<| -->)", (ROOT / release.PROJECT["readme"]).read_text())
    assert names == [release.server_json()["name"]]


def test_the_flags_and_settings_that_both_name_are_real() -> None:
    flags = {option for action in _flags()._actions for option in action.option_strings}  # noqa: SLF001
    variables = {environment_name(keys) for keys in setting_keys()}
    package = release.server_json()["packages"][0]
    config = release.manifest()["server"]["mcp_config"]
    assert {option["name"] for option in package["packageArguments"]} <= flags
    assert {word for word in config["args"][3:] if word.startswith("--")} <= flags
    assert {option["name"] for option in package["environmentVariables"]} | config["env"].keys() <= variables


def test_the_usual_name_is_a_title_that_the_settings_take() -> None:
    title = release.manifest()["user_config"]["name"]["default"]
    assert Settings().server.title == title


def test_the_tools_of_the_manifest_are_those_of_the_server() -> None:
    settings = Settings()
    from rag.corpus import Principal  # noqa: PLC0415 only here

    tools = tool_pair(settings, settings.server.tools[0], Principal("default"), ())
    assert [tool["name"] for tool in release.manifest()["tools"]] == [tool.name for tool in tools]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    wheel = tmp_path / f"refdesk-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"")
    release.write_bundle(tmp_path / "bundle", wheel)
    return tmp_path / "bundle"


def test_a_bundle_runs_with_the_versions_that_the_release_was_tested_with(bundle: Path) -> None:
    project: dict[str, Any] = tomllib.loads((bundle / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == [f"refdesk=={VERSION}"]
    assert (bundle / project["tool"]["uv"]["sources"]["refdesk"]["path"]).exists()
    pins = [Requirement(line) for line in project["tool"]["uv"]["constraint-dependencies"]]
    locked = re.findall(r"^[a-z0-9-]+==", release.LOCK.read_text(), re.MULTILINE)
    assert len(pins) == len(locked)
    pinned = {canonicalize_name(pin.name) for pin in pins}
    for line in release.PROJECT["dependencies"]:
        assert canonicalize_name(Requirement(line).name) in pinned


def test_a_bundle_takes_the_pythons_that_the_project_is_tested_with(bundle: Path) -> None:
    python = tomllib.loads((bundle / "pyproject.toml").read_text())["project"]["requires-python"]
    lowest, highest = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", python).groups()  # type: ignore[union-attr]
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(release.PROJECT["classifiers"]))
    assert named == [str(minor) for minor in range(int(lowest), int(highest))]


@pytest.mark.slow
def test_a_bundle_starts_by_a_file_that_it_has_and_that_starts_the_server(bundle: Path) -> None:
    written = json.loads((bundle / "manifest.json").read_text())
    start = bundle / written["server"]["entry_point"]
    assert start.name in written["server"]["mcp_config"]["args"]
    run = subprocess.run(
        [sys.executable, start, "--version"], cwd=bundle, capture_output=True, text=True, check=True
    )
    assert run.stdout == f"refdesk {VERSION}\n"


DOCKER, SYSTEMD = ROOT / ".packaging" / "docker", ROOT / ".packaging" / "systemd"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
UNITS = sorted(path.name for path in SYSTEMD.iterdir())
HIGHEST_EXPOSURE = 2.5  # of 10, by systemd's own count


def test_every_container_has_a_read_only_root_and_those_of_refdesk_no_rights_at_all() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
    for name in ("server", "admin"):
        service = COMPOSE["services"][name]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert COMPOSE["services"]["server"]["volumes"] == ["desk:/data:ro"]


def test_the_containers_are_made_of_files_that_are_there_and_know_each_other() -> None:
    server, nginx = COMPOSE["services"]["server"], COMPOSE["services"]["nginx"]
    assert (DOCKER / server["build"]["context"]).resolve() == release.DIST
    assert (release.DIST / server["build"]["dockerfile"]).resolve() == DOCKER / "Dockerfile"
    address = server["networks"]["front"]["ipv4_address"]
    (pool,) = COMPOSE["networks"]["front"]["ipam"]["config"]
    assert ip_address(address) in ip_network(pool["subnet"])
    assert ip_address(address) not in ip_network(pool["ip_range"])  # or another container could take it
    assert f"server {address}:8300 " in (DOCKER / "nginx.conf").read_text()
    assert server["environment"]["REFDESK_HTTP_TRUSTED_PROXIES"] == nginx["networks"]["front"]["ipv4_address"]
    variables = {environment_name(keys) for keys in setting_keys()}
    assert {name for name in server["environment"] if name.startswith("REFDESK_")} <= variables
    assert set(re.findall(r"REFDESK_\w+", (DOCKER / "Dockerfile").read_text())) <= variables


def test_the_image_says_whose_server_it_holds_and_runs_as_nobody_special() -> None:
    steps = (DOCKER / "Dockerfile").read_text().splitlines()
    assert f'LABEL io.modelcontextprotocol.server.name="{release.server_json()["name"]}"' in steps
    assert "USER 10001:10001" in steps


def test_the_proxy_of_the_containers_is_the_one_that_the_page_shows() -> None:
    page = (ROOT / "server/running.md").read_text()
    block, _cache = re.findall(r"^```nginx\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    documented = {line.strip() for line in block.splitlines()}
    ours = {line.strip() for line in (DOCKER / "nginx.conf").read_text().splitlines()}
    assert {line.split()[0] for line in ours - documented} == {
        "server",
        "ssl_certificate",
        "ssl_certificate_key",
    }
    assert len(ours & documented) > 15


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with a command that is on this machine."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze: install systemd")
    for name in UNITS:
        text = re.sub(r"/opt/refdesk/bin/[\w-]+", "/bin/true", (SYSTEMD / name).read_text())
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line_of_a_unit(units: Path, name: str) -> None:
    verified = subprocess.run(
        ["systemd-analyze", "verify", units / name], capture_output=True, text=True, check=False
    )
    assert name not in verified.stderr
    with (units / name).open("a") as unit:
        unit.write("[Service]\nProtectEverything=yes\n")
    wrong = subprocess.run(
        ["systemd-analyze", "verify", units / name], capture_output=True, text=True, check=False
    )
    assert name in wrong.stderr


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_a_service_is_exposed_little_by_systemd_s_own_count(units: Path, name: str) -> None:
    counted = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", units / name],
        capture_output=True,
        text=True,
        check=False,
    )
    if counted.returncode and "offline" in counted.stderr:
        pytest.skip("systemd-analyze can't count offline: it is older than 250")
    exposure = re.findall(r"Overall exposure level for .*: ([\d.]+)", counted.stdout)
    assert exposure
    assert float(exposure[0]) <= HIGHEST_EXPOSURE


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_a_service_starts_a_command_with_options_that_it_has(name: str) -> None:
    (line,) = re.findall(r"^ExecStart=/opt/refdesk/bin/(.*)$", (SYSTEMD / name).read_text(), re.MULTILINE)
    command, *words = line.split()
    options = (
        {option for action in _flags()._actions for option in action.option_strings}  # noqa: SLF001
        if command == "refdesk"
        else {option for parameter in sync_command.params for option in parameter.opts}
    )
    assert command == "refdesk" or words[0] == "sync"
    assert {word for word in words if word.startswith("--")} <= options


def test_the_commands_beside_the_services_have_their_settings_and_data_folder() -> None:
    _, _, section = (ROOT / "server" / "running.md").read_text().partition("\n## As a service of systemd\n")
    commands = re.findall(r"/refdesk-admin .*", section.partition("\n## ")[0])
    services = [(SYSTEMD / name).read_text() for name in UNITS if name.endswith(".service")]
    assert len(commands) > 1
    for option in ("--config", "--data"):
        (value,) = {place for text in services for place in re.findall(rf"{option} (\S+)", text)}
        assert [command for command in commands if f"{option} {value}" not in command] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.nightly
def test_the_image_and_the_proxy_serve_as_compose_starts_them(wheel: Path) -> None:
    tools = [tool for tool in ("mmdebstrap", "buildah", "nginx", "ip", "openssl") if not shutil.which(tool)]
    if tools or os.geteuid():
        pytest.skip(f"needs root, and apt-get install {' '.join(tools)}".strip())
    shutil.copy(release.LOCK, wheel.parent)
    proof = subprocess.run(
        [DOCKER / "prove.sh", wheel.parent],
        env=os.environ | {"PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert proof.returncode == 0, proof.stderr[-4_000:]
    assert "The image serves, as compose.yaml starts it." in proof.stdout


@pytest.mark.nightly
def test_a_bundle_that_a_host_installs_and_starts_finds_the_documents_of_the_folder(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("npx", "uv"):
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}: install npm, and pip install uv")
    monkeypatch.setattr(release, "DIST", tmp_path)
    assert "once a second" in anyio.run(release.asked, release.packed(wheel))


LOCK = (ROOT / ".github" / "requirements.lock").read_text()
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNS_WITH = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["otel"]]

PIN = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; [^\\\n]+?)?(?P<hashes>(?: \\\n +--hash=\S+)*)$",
    re.MULTILINE,
)


def pinned() -> dict[str, list[str]]:
    """The versions that are locked of each distribution; more than one where it depends on the platform."""
    versions = defaultdict(list)
    for pin in PIN.finditer(LOCK):
        versions[pin["name"]].append(pin["version"])
    return versions


@pytest.mark.parametrize("line", RUNS_WITH)
def test_what_the_project_asks_for_is_locked_within_its_bounds(line: str) -> None:
    requirement = Requirement(line)
    versions = pinned()[canonicalize_name(requirement.name)]
    assert versions, f"{line} is not locked; CONTRIBUTING.md says how, under Releasing"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_every_line_of_the_lock_is_a_version_with_its_hashes_and_where_it_is_from_is_not_said() -> None:
    lines = [line for line in PIN.sub("", LOCK).splitlines() if line.strip()]
    assert [line for line in lines if not line.lstrip().startswith("#")] == []
    hashes = [re.findall(r"--hash=(\S+)", pin["hashes"]) for pin in PIN.finditer(LOCK)]
    assert len(hashes) > len(RUNS_WITH)
    for of_one in hashes:
        assert of_one
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in of_one)
    assert "://" not in LOCK


def test_the_lock_holds_nothing_that_only_development_needs() -> None:
    assert pinned().keys() & {"mcp", "lancedb"}
    assert not pinned().keys() & {"pytest", "mypy", "ruff", "hatchling"}


def test_the_lock_was_made_by_the_command_that_is_documented() -> None:
    (command,) = re.findall(r"^# +(uv .*)$", LOCK, re.MULTILINE)
    (documented,) = re.findall(r"^ +(uv pip compile .*)$", CONTRIBUTING, re.MULTILINE)
    assert command.replace(" --upgrade", "") == documented.replace(" --upgrade", "")


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment that something else may have made."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/desk/bin/python")
    monkeypatch.setattr(runtime, "find_spec", lambda _name: object())
    return tmp_path


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (None, "'refdesk[ocr]'"),
        ({"url": "file:///home/my%20ann/desk", "dir_info": {}}, "'/home/my ann/desk[ocr]'"),
        ({"url": "file:///d", "dir_info": {"editable": True}}, "--editable '/d[ocr]'"),
        (
            {"url": "file:///d/refdesk-1-py3-none-any.whl", "archive_info": {}},
            "'refdesk[ocr] @ file:///d/refdesk-1-py3-none-any.whl'",
        ),
        (
            {"url": "https://git.example/r", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "'refdesk[ocr] @ git+https://git.example/r@ab12'",
        ),
    ],
    ids=["index", "folder", "editable", "wheel", "repository"],
)
def test_an_extra_comes_from_where_refdesk_came(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, noted: object, expected: str
) -> None:
    assert prefix
    text = json.dumps(noted) if noted else None
    monkeypatch.setattr(metadata, "distribution", lambda _name: SimpleNamespace(read_text=lambda _file: text))
    assert install_command("ocr") == f"/desk/bin/python -m pip install {expected}"


@pytest.mark.parametrize(
    ("receipt", "expected"),
    [("uv-receipt.toml", "uv tool install --force "), ("pipx_metadata.json", "pipx install --force ")],
)
def test_what_made_the_environment_adds_to_it(prefix: Path, receipt: str, expected: str) -> None:
    (prefix / receipt).touch()
    assert install_command("formats").startswith(expected)


def test_an_environment_without_pip_is_uv_s(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prefix
    monkeypatch.setattr(runtime, "find_spec", lambda _name: None)
    assert install_command("formats").startswith("uv pip install --python /desk/bin/python ")
