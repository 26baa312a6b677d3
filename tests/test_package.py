"""What is installed: the wheel's content, its dependencies, and what an import costs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from model_hook import MODELS

import rag

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()
METADATA = tomllib.loads(PROJECT)["project"]
UNWANTED = {"torch", "sentence-transformers", "transformers", "tensorflow"}
HEAVY = {"huggingface_hub", "obstore", "torch", "lancedb", "onnxruntime", "pyarrow", "tokenizers", "openai"}


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[ZipFile]:
    with ZipFile(wheel_file) as wheel:
        yield wheel


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment in which only the wheel is installed; what it depends on comes from this one."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(
        self, command: str, *arguments: str | Path, cwd: Path, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "bin" / command, *arguments],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd)} | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    here = Installed(tmp_path_factory.mktemp("installed"))
    venv.create(here.folder)
    pip = [sys.executable, "-m", "pip", "--python", str(here.python), "install", "--quiet"]
    pip += ["--no-index", "--no-deps", str(wheel_file)]
    subprocess.run(pip, check=True, capture_output=True)
    (packages,) = (here.folder / "lib").glob("python*/site-packages")
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(ours))  # .pth files there, such as ours, don't count
    return here


def test_the_wheel_holds_the_two_packages_and_their_scripts_and_nothing_else_at_the_top(
    wheel: ZipFile,
) -> None:
    assert {name.partition("/")[0] for name in wheel.namelist()} == {
        "rag",
        "server",
        "refdesk_scripts.py",
        f"refdesk-{METADATA['version']}.dist-info",
    }


def test_the_wheel_holds_every_module_and_the_lists_that_they_read(wheel: ZipFile) -> None:
    modules = {
        path.relative_to(ROOT).as_posix() for top in ("rag", "server") for path in (ROOT / top).rglob("*.py")
    }
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules | {"refdesk_scripts.py"}
    assert {
        "rag/text/months.txt",
        "rag/text/simplified.txt",
        "rag/text/flags.toml",
        "rag/text/number_forms.toml",
        "rag/text/languages.toml",
        "rag/ingest/parse/latex.toml",
        "rag/ingest/parse/latex_macros.toml",
        "rag/ingest/parse/mail/calendars.toml",
        "rag/ingest/parse/office/number_formats.toml",
        "rag/ingest/parse/pdf/stop_words.txt",
        "rag/ingest/parse/source_code.toml",
        "rag/ingest/parse/xml_text.toml",
        "rag/store/read/query_words.toml",
        "rag/search/skill.txt",
    } <= {*wheel.namelist()}


def test_the_source_archive_holds_what_builds_the_wheel_but_not_the_model(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(tmp_path / f"refdesk-{METADATA['version']}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names > {
        ".build/model_hook.py",
        ".build/convert.py",
        ".build/e5.py",
        "pyproject.toml",
        "rag/models/embed/NOTICE",
    }
    assert not [name for name in names if name.startswith("rag/models/embed/model/")]


def test_the_wheel_holds_no_tests_and_nothing_that_a_file_of_the_workspace_could_replace(
    wheel: ZipFile,
) -> None:
    assert not [name for name in wheel.namelist() if "test" in name or "__pycache__" in name]
    assert not [name for name in wheel.namelist() if name.endswith("__main__.py")]


def test_the_wheel_holds_the_models_and_the_demo_s_documents(wheel: ZipFile, corpus: Path) -> None:
    sizes = {info.filename: info.file_size for info in wheel.infolist()}
    for model in MODELS:
        for name in model.files:
            assert sizes[f"rag/models/embed/model/{model.folder}/{name}"] > 400_000
    assert Path(wheel.filename or "").stat().st_size < 100_000_000
    documents = [name for name in sizes if name.startswith("rag/admin/demo_corpus/")]
    assert len(documents) == 17
    for name in documents:
        assert wheel.read(name) == (corpus / Path(name).name).read_bytes()


def test_the_wheel_holds_no_pages_that_are_not_the_demo_s_documents(wheel: ZipFile) -> None:
    pages = [name for name in wheel.namelist() if name.endswith(".md")]
    assert pages
    assert {Path(name).parent.name for name in pages} == {"demo_corpus"}


def test_the_wheel_holds_the_licence_and_the_notice_of_the_model(wheel: ZipFile) -> None:
    folder = f"refdesk-{METADATA['version']}.dist-info"
    metadata = message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "rag/models/embed/NOTICE"]
    for name in ("LICENSE", "rag/models/embed/NOTICE"):
        assert wheel.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()


def test_the_wheel_brings_the_two_commands(wheel: ZipFile) -> None:
    entries = wheel.read(f"refdesk-{METADATA['version']}.dist-info/entry_points.txt").decode()
    assert entries.split() == [
        "[console_scripts]",
        "refdesk",
        "=",
        "refdesk_scripts:refdesk",
        "refdesk-admin",
        "=",
        "refdesk_scripts:refdesk_admin",
    ]


INTERRUPTED = """
import signal, sys
class Ctrl_C:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.path.insert(0, sys.argv[2])
import refdesk_scripts
sys.meta_path.insert(0, Ctrl_C())
signal.signal(signal.SIGINT, signal.default_int_handler)
getattr(refdesk_scripts, sys.argv[3])()
"""


@pytest.mark.parametrize(
    ("script", "module"), [("refdesk_admin", "rag.admin.terminal"), ("refdesk", "server.handlers")]
)
def test_an_interruption_while_modules_are_imported_ends_a_command_silently(script: str, module: str) -> None:
    program = [sys.executable, "-c", INTERRUPTED, module, str(ROOT / ".build"), script]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


WORKSPACE_FILE = "raise SystemExit('this is not refdesk')\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder of somebody who works on a server of their own, and keeps a page of HTML in it."""
    for name in ("server.py", "rag.py", "json.py"):
        (tmp_path / name).write_text(WORKSPACE_FILE)
    (tmp_path / "page.html").write_text("<h1>Pendulum</h1><p>It swings.</p>")
    return tmp_path


@pytest.mark.parametrize("python_path", ["{0}", "", ".", os.pathsep, "{0}/.." + os.pathsep + "{0}/"])
def test_the_installed_scripts_start_where_the_workspace_or_pythonpath_holds_files_of_the_same_names(
    installed: Installed, workspace: Path, python_path: str
) -> None:
    environment = {"PYTHONPATH": python_path.format(workspace)} if python_path else {}
    for command in ("refdesk", "refdesk-admin"):
        run = installed.run(command, "--version", cwd=workspace, **environment)
        assert run.stdout == f"refdesk {METADATA['version']}\n", run.stderr


def test_the_process_that_parses_starts_there_too(installed: Installed, workspace: Path) -> None:
    run = installed.run(
        "refdesk-admin", "ingest", "page.html", "--json", cwd=workspace, PYTHONPATH=str(workspace)
    )
    assert run.returncode == 0, run.stderr


PROGRAM = """
import anyio
from rag import Desk, Principal, SearchRequest, Settings

async def main() -> None:
    async with Desk.open(Settings()) as desk:
        answer = await desk.search(Principal("default", user="ann"), SearchRequest("pendulum", limit=3))
        titles: list[str] = [hit.source.title for hit in answer.hits]
        print(desk.as_context(answer).text, titles)

anyio.run(main)
"""


MISTAKES = {
    "misspelt.py": ("from rag import Dsk", "attr-defined"),
    "mistyped.py": ("from rag import Principal\nPrincipal(tenant=1)", "arg-type"),
    "called.py": ("from server.main import main\nmain('flags')", "call-arg"),
}


def test_the_wheel_says_that_both_packages_are_typed(wheel: ZipFile) -> None:
    assert {"rag/py.typed", "server/py.typed"} <= set(wheel.namelist())


@pytest.mark.nightly  # it takes 15 s of CPU; by day mypy is strict with the same code, and the wheel says so
def test_a_program_that_uses_the_installed_library_is_type_checked(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for name, (text, _) in MISTAKES.items():
        (tmp_path / name).write_text(f"{text}\n")
    options = ["--strict", "--no-incremental", "--python-executable", str(installed.python)]
    checker = [sys.executable, "-m", "mypy", *options, "program.py", *MISTAKES]
    run = subprocess.run(checker, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = re.findall(r"^(\w+\.py):\d+: error: .*\[([\w-]+)\]$", run.stdout, re.MULTILINE)
    assert sorted(errors) == sorted((name, code) for name, (_, code) in MISTAKES.items()), run.stdout


@pytest.mark.parametrize("name", rag.__all__)
def test_what_programs_need_most_is_imported_from_the_top(name: str) -> None:
    assert getattr(rag, name).__name__ == name


def test_a_name_that_the_library_lacks_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="Dsk"):
        from rag import Dsk  # type: ignore[attr-defined]  # noqa: F401, PLC0415 what is tested


@pytest.mark.parametrize("package", ["rag", "server"])
def test_no_other_distribution_provides_our_packages(package: str) -> None:
    assert set(packages_distributions().get(package, [])) <= {"refdesk"}


UNEXPLAINED = pytest.mark.xfail(reason="pyproject.toml doesn't say why there is no upper bound", strict=True)


@pytest.mark.parametrize(
    "dependency",
    [
        pytest.param(line, marks=[UNEXPLAINED] if line == "pyarrow>=20" else [])
        for line in METADATA["dependencies"]
    ],
)
def test_a_dependency_has_bounds_or_a_reason_for_having_none(dependency: str) -> None:
    (line,) = (line for line in PROJECT.splitlines() if line.startswith(f'  "{dependency}",'))
    assert ">=" in dependency
    assert "<" in dependency or "  # no upper bound: " in line


def test_nothing_that_is_installed_for_us_brings_a_machine_learning_framework() -> None:
    assert installed_for("refdesk") >= {"mcp", "lancedb", "onnxruntime", "tokenizers"}
    assert not installed_for("refdesk") & UNWANTED


def test_the_project_asks_for_none_either(wheel: ZipFile) -> None:
    metadata = message_from_bytes(wheel.read(f"refdesk-{METADATA['version']}.dist-info/METADATA"))
    required = {name_of(line) for line in metadata.get_all("Requires-Dist") or []}
    assert required > {"mcp", "pytest"}
    assert not required & UNWANTED


def test_what_the_server_imports_before_its_first_answer_brings_no_engine_and_no_model() -> None:
    modules = ["rag", "refdesk_scripts", "rag.corpus", "rag.errors", "rag.config.settings"]
    modules += ["rag.search.reply.search_reply", "server.start"]
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(run.stdout.split())
    assert {*modules} <= imported
    assert not HEAVY & imported


def test_only_opening_a_model_imports_what_it_needs() -> None:
    """Each module is imported after those that need less."""
    program = """
import sys, rag.models.rerank
assert not {"openai", "onnxruntime", "tokenizers", "huggingface_hub"} & sys.modules.keys()
import rag.models.chat, rag.search.stages.query_stages
assert "openai" not in sys.modules
import rag.models.embed.remote_embedder
assert "openai" in sys.modules
assert "onnxruntime" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_search_imports_of_the_engine_only_what_it_uses() -> None:
    program = """
import sys, rag.search.desk
print(*sys.modules)
from lancedb.embeddings import EmbeddingFunctionRegistry as real
from lancedb.table import EmbeddingFunctionRegistry as stand_in
assert stand_in is not real and stand_in.get_instance() is real.get_instance()
import overrides
assert overrides.__file__
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = run.stdout.split()
    assert {"lancedb.table", "rag.search.desk"} <= {*imported}
    unused = ("lancedb.remote", "lancedb.embeddings", "lance_namespace_urllib3_client", "overrides")
    assert not [name for name in imported if name.startswith(unused)]


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("refdesk", "--version"),
        ("refdesk", "--help"),
        ("refdesk-admin", "--version"),
        ("refdesk-admin", "--help"),
    ],
)
def test_neither_the_version_nor_the_help_imports_the_settings_or_the_protocol(
    command: str, forbidden: str
) -> None:
    door = command.replace("-", "_")
    program = f"""
import atexit, sys, refdesk_scripts
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = [{command!r}, {forbidden!r}]
refdesk_scripts.{door}()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(run.stderr.split())
    assert "refdesk" in run.stdout
    assert "rag.errors" in imported
    assert not imported & {"mcp", "pydantic", "anyio", "asyncio", "rag.config", *HEAVY}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_file_names_a_place_on_a_machine_of_its_authors() -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    assert ROOT / "README.md" in paths
    private = re.compile(rb"(?<![\w$}])/(?:work|tmp/dev)/")
    assert not [path for path in paths if private.search(path.read_bytes())]


def installed_for(distribution: str) -> set[str]:
    """What is installed because a distribution needs it, directly or not, extras left out."""
    names: set[str] = set()
    waiting = [distribution]
    while waiting:
        needed = {name_of(line) for line in _required(waiting.pop()) if "extra ==" not in line} - names
        names |= needed
        waiting += needed
    return names


def _required(distribution: str) -> list[str]:
    try:
        return requires(distribution) or []
    except PackageNotFoundError:  # for another platform
        return []


def name_of(requirement: str) -> str:
    """The distribution that a requirement names: "Foo_bar[x]>=1; y" -> "foo-bar"."""
    (name,) = re.findall(r"^[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_contract_breaks_where_the_server_or_a_reader_imports_what_writes(tmp_path: Path) -> None:
    for name in ("rag", "server"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "model"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert _broken_contracts(tmp_path) == {}
    folders = [tmp_path / "rag/store" / name for name in ("write", "care", "bucket")]
    writing = {
        ".".join(path.relative_to(tmp_path).with_suffix("").parts)
        for folder in folders
        for path in folder.glob("[a-z]*.py")
    }
    assert len(writing) > len(folders)
    _append_imports(tmp_path / "server/tools.py", writing)
    _append_imports(tmp_path / "rag/store/read/catalog.py", {"rag.store.write.locks"})
    _append_imports(tmp_path / "rag/errors.py", {"rag.uris"}, only_types=True)
    broken = _broken_contracts(tmp_path)
    assert "rag.store.read.catalog -> rag.store.write.locks" in broken[READERS]
    assert CIRCLES in broken
    assert writing <= set(re.findall(r"server\.tools -> (\S+)", broken[SERVER]))


SERVER = "The server can't write"
READERS = "What reads tables imports nothing that writes them"
CIRCLES = "No circles between modules"


def _append_imports(file: Path, modules: set[str], *, only_types: bool = False) -> None:
    lines = [f"import {module}" for module in sorted(modules)]
    if only_types:
        lines = ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", *(f"    {line}" for line in lines)]
    file.write_text("\n".join([file.read_text(), *lines, ""]))


def _broken_contracts(checkout: Path) -> dict[str, str]:
    """What lint-imports says of each contract that is broken, by its name."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    run = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    _, _, broken = run.stdout.partition("Broken contracts\n")
    assert (run.returncode == 0) == (not broken), run.stdout + run.stderr
    parts = re.split(r"^(.+)\n-{4,}\n", broken, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
