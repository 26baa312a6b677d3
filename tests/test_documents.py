"""Every page for people names only what is there: commands, settings, files, links, programs."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_origin

import click
import pytest
from pydantic import BaseModel

import rag
import rag.evaluate
from rag.admin.main import commands
from rag.config.load import environment_name, load_settings, setting_keys
from rag.config.profiles import DEFAULT_PROFILE, SHIPPED, HitStage, QueryStage
from rag.config.settings import Settings
from rag.evaluate.ask_questions import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Scripts

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SECURITY = ROOT / ".github" / "SECURITY.md"
SEARCH = ROOT / "rag" / "search" / "README.md"
EXAMPLE = ROOT / "config.example.toml"
FOLDERS = ("rag", "server", "tests", ".github")
STAGES = {
    name
    for stage in get_args(QueryStage) + get_args(HitStage)
    for name in get_args(stage.model_fields["stage"].annotation)
}
OF_OTHER_TOOLS = {"--upgrade", "--hypothesis-profile=nightly", "--hypothesis-profile=thorough"}  # uv, pytest
OF_THE_PROTOCOL = {"server/discover"}  # a method of MCP, not a file

PAGES = [
    README,
    *sorted(
        page
        for folder in FOLDERS
        for page in (ROOT / folder).rglob("*.md")
        if not {"demo_corpus", "data"} & {*page.relative_to(ROOT).parts}  # documents to search, and of tests
    ),
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def blocks(page: Path, language: str) -> list[str]:
    code = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for name, text in code if name == language]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def quoted(page: Path) -> list[str]:
    """What stands between backticks outside of blocks, on one line."""
    return [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose(page))]


def calls(page: Path, program: str) -> Iterator[list[str]]:
    """Every call of a program in a shell block or between backticks, as its arguments."""
    for text in [*quoted(page), *"".join(blocks(page, "sh")).splitlines()]:
        for part in text.split("&&"):
            called = re.search(rf"(?:^|[\s/]){program}((?: .*)?)$", part.strip(), re.DOTALL)
            if called:
                yield shlex.split(called[1], comments=True)


def options_of(arguments: list[str]) -> set[str]:
    """The options of the command that the arguments call, or of its command run where they name none."""
    command: click.Command = commands
    for name in arguments:
        if isinstance(command, click.Group):
            here = click.Context(command)
            subcommand = command.get_command(here, name) or command.get_command(here, "run")
            assert subcommand, f"there is no command {name}"
            command = subcommand
    return {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}


def all_options(command: click.Command = commands) -> set[str]:
    options = {option for parameter in command.params for option in parameter.opts}
    if not isinstance(command, click.Group):
        return options
    here = click.Context(command)
    below = (command.get_command(here, name) for name in command.list_commands(here))
    return options.union(*(all_options(subcommand) for subcommand in below if subcommand))


@cache
def server_options(scripts: Scripts) -> set[str]:
    usage = subprocess.run([scripts.server, "--help"], capture_output=True, text=True, check=True).stdout
    return {*re.findall(r"--[a-z]+", usage)}


LISTS_OF_TABLES = {("search.", "stages"), ("server.", "tools")}


def sections(model: type[BaseModel] = Settings, above: str = "") -> Iterator[str]:
    """Every table of the settings: "search", "search.fusion", "search.stages", "oauth.tenants"."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield f"{above}{name}"
            yield from sections(info.annotation, f"{above}{name}.")
        elif get_origin(info.annotation) is dict or (above, name) in LISTS_OF_TABLES:
            yield f"{above}{name}"


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings: "What's new?" -> "whats-new"."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to within the project, and the anchors there."""
    targets = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", prose(page))]
    return [
        ((page.parent / path).resolve() if path else page, anchor)
        for path, _, anchor in targets
        if not re.match(r"https?:", path)
    ]


def package_of(page: Path) -> str:
    """The package that a page is about, with a dot: rag/search/README.md -> "rag.search."."""
    folders = page.parent.relative_to(ROOT).parts
    return "".join(f"{folder}." for folder in folders) if {"rag", "server"} & {*folders[:1]} else ""


def exists(name: str, package: str) -> bool:
    """Whether a dotted name is a setting, or of the code: search.limit, ingest.run, rag.search.Desk."""
    if tuple(name.split(".")) in setting_keys() or name in sections():
        return True
    return any(is_code(f"{above}{name}") for above in ("", "rag.", package))


def is_code(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").exists():
            return has(importlib.import_module(".".join(parts[:end])), parts[end:])
    return False


def has(home: object, names: list[str]) -> bool:
    """Whether an object has an attribute or field of the first name, which has one of the next, and so on."""
    if not names:
        return True
    if isinstance(home, type) and issubclass(home, BaseModel) and names[0] in home.model_fields:
        return True
    return hasattr(home, names[0]) and has(getattr(home, names[0]), names[1:])


@pytest.mark.slow
@every_page
def test_commands_and_options_on_a_page_exist(page: Path, scripts: Scripts) -> None:
    for arguments in calls(page, "refdesk-admin"):
        flags = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")} - {"-"}
        assert not arguments or flags <= options_of(arguments), arguments
    for arguments in calls(page, "refdesk"):
        flags = {argument for argument in arguments if argument.startswith("-")}
        assert flags <= server_options(scripts), arguments
    alone = {text.split()[0] for text in quoted(page) if re.match(r"--\w", text)}
    assert alone <= all_options() | server_options(scripts) | OF_OTHER_TOOLS


@every_page
def test_settings_on_a_page_are_real(page: Path, tmp_path: Path) -> None:
    """A block that begins with the name of another file, as `# questions.toml`, has no settings."""
    for number, block in enumerate(blocks(page, "toml")):
        if re.match(r"# [\w.]+\.toml$", block.splitlines()[0]):
            assert tomllib.loads(block)
            continue
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        assert load_settings(file, {}) != Settings()


@pytest.mark.parametrize("page", [*PAGES, EXAMPLE], ids=name_of)
def test_the_environment_variables_and_sections_that_it_names_are_real(page: Path) -> None:
    tables = (tuple(section.split(".")) for section in sections())
    variables = {environment_name(keys) for keys in (*setting_keys(), *tables)} | {"REFDESK_CONFIG"}
    assert set(re.findall(r"REFDESK_[A-Z_]+", page.read_text())) <= variables
    named = {*re.findall(r"`\[+([a-z_.]+)\]+`", page.read_text())}
    assert {name for name in named if not name.startswith("tool.")} <= {*sections()}


@every_page
def test_a_setting_that_it_places_in_a_section_is_there(page: Path) -> None:
    keys = {*map(".".join, setting_keys()), *sections()}
    placed = re.findall(r"`(\w+)(?: = [^`]*)?`\s+in\s+`\[([a-z_.]+)\]`", prose(page))
    assert {f"{section}.{key}" for key, section in placed} <= keys


@every_page
def test_the_dotted_names_that_it_names_are_settings_or_code(page: Path) -> None:
    roots = {"rag", "server", *Settings.model_fields}
    roots |= {path.parent.name for path in (ROOT / "rag").glob("*/__init__.py")}
    roots |= {path.stem for path in page.parent.glob("*") if path.suffix == ".py" or path.is_dir()}
    dotted = {text.partition("(")[0] for text in quoted(page) if re.match(r"[a-z_]+(\.\w+)+(\(|$)", text)}
    dotted = {name for name in dotted if name.partition(".")[0] in roots}
    files = re.compile(r"\.(toml|py|md|json|jsonl|html)$")
    assert not [name for name in dotted if not files.search(name) and not exists(name, package_of(page))]


@every_page
def test_links_of_a_page_within_the_project_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), f"{target}#{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in PAGES and page not in reached:
            reached.add(page)
            waiting += [target / "README.md" if target.is_dir() else target for target, _ in links(page)]
    assert {*PAGES} <= reached


@every_page
def test_the_files_that_it_names_are_there(page: Path) -> None:
    named = {*re.findall(r"(?<![\w./-])((?:\.build|\.ci|\.github|rag|server|tests)/[\w./]*\w)", prose(page))}
    assert not [name for name in named - OF_THE_PROTOCOL if not (ROOT / name).exists()]


@every_page
def test_the_metrics_that_it_names_are_measured(page: Path) -> None:
    code = (ROOT / "server" / "metrics.py").read_text()
    named = {text.partition("{")[0] for text in quoted(page) if re.match(r"refdesk_[a-z_]+(\{|$)", text)}
    assert not [name for name in named if f'"{name.removesuffix("_total")}"' not in code]


@every_page
def test_programs_on_a_page_import_what_is_there(page: Path) -> None:
    for block in blocks(page, "python"):
        tree = compile(block, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(tree, ast.Module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("rag", "server")):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)


@pytest.mark.slow
def test_the_programs_of_the_page_on_searching_run_as_pasted(
    clock_room: Path, scripts: Scripts, tmp_path: Path
) -> None:
    (tmp_path / "refdesk").symlink_to(clock_room)
    environment = scripts.environment | {"XDG_DATA_HOME": str(tmp_path)}
    printed = [r"\[[a-z2-7]{16}/\d+\]\n", r"1\.00 \[[a-z2-7]{16}/\d+\] ", r"\['handbook_search', ", r"$"]
    for program, beginning in zip(blocks(SEARCH, "python"), printed, strict=True):
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert re.match(beginning, run.stdout), run.stderr


@pytest.mark.parametrize(
    ("heading", "expected"), [("Stages", STAGES), ("Profiles", {DEFAULT_PROFILE, *SHIPPED})]
)
def test_the_tables_of_the_page_on_searching_are_complete(heading: str, expected: set[str]) -> None:
    section = SEARCH.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert {*re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)} == expected


def test_each_promise_of_security_names_the_tests_that_hold_it() -> None:
    section = SECURITY.read_text().partition("## What is promised")[2].partition("\n## ")[0]
    _, *promises = re.split(r"^\d+\. ", section, flags=re.MULTILINE)
    assert len(promises) > 8
    assert not [promise for promise in promises if not re.search(r"\n +`tests/[\w/]+\.py`", promise)]


def test_the_map_of_the_packages_is_the_one_that_the_contracts_hold() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "Data moves one way")
    packages = str(rag.__doc__).partition("The packages.")[2]
    lines = re.findall(r"^- (.*?)(?=\n- |\Z)", packages, re.MULTILINE | re.DOTALL)
    named = [[f"rag.{name}" for name in re.findall(r"`(\w+)`(?=[,:])", line)] for line in lines]
    assert [sorted(names) for names in named] == [sorted(layer.split(" | ")) for layer in layers]


GUIDE = (Path(rag.evaluate.__file__).parent / "README.md").read_text(encoding="utf-8")
CALLS = re.findall(r"refdesk-admin ((?:eval|bench)[^`\n]*)", GUIDE)


@pytest.mark.parametrize("call", CALLS)
def test_every_command_has_its_options(call: str) -> None:
    words = shlex.split(call.partition(">")[0])
    command: click.Command = commands
    for word in words:
        if isinstance(command, click.Group):
            context = click.Context(command)
            command = command.get_command(context, word) or command.get_command(context, "run") or command
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_every_metric_exists() -> None:
    assert len(CALLS) > 6
    named = set(
        re.findall(
            r"\b(?:nDCG|MRR|recall|token_\w+)@\d+|\b(?:citations_readable|quotes_verbatim|grounded)\b", GUIDE
        )
    )
    assert len(named) > 6
    assert named <= set(METRICS)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("rag.evaluate.judged_sets", "read_set"),
        ("rag.evaluate.evaluation", "evaluate"),
        ("rag.evaluate.judgements", "resolve_question"),
        ("rag.evaluate.ask_questions", "ask_all"),
        ("rag.evaluate.ranking_metrics", "ndcg"),
        ("rag.evaluate.compare_runs", "randomisation_p"),
        ("tests.bench.run", "PARTS"),
    ],
)
def test_what_it_names_in_the_code_exists(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


WAY = (ROOT / "server" / "README.md").read_text().partition("```")[0]
"""How a request travels through the server."""
HOSTS = re.compile(r"^## Hosts$.*?(?=^## )", re.DOTALL | re.MULTILINE)
"""The table of the hosts' own files, which are not ours."""
NAMES = set(re.findall(r"`([^`\n]+)`", HOSTS.sub("", WAY)))


def test_every_file_on_the_way_of_a_request_exists() -> None:
    files = {name for name in NAMES if name.endswith((".py", ".toml", "/"))}
    assert len(files) > 15
    assert not [name for name in files if not any((top / name).exists() for top in (ROOT, ROOT / "server"))]


def test_every_setting_on_the_way_of_a_request_exists() -> None:
    settings = {name for name in NAMES if name.startswith(("limits.", "server.max"))}
    assert len(settings) > 5
    for name in settings:
        section, _, field = name.partition(".")
        annotation = Settings.model_fields[section].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        assert field in annotation.model_fields


def test_every_limit_is_on_the_way_of_a_request() -> None:
    annotation = Settings.model_fields["limits"].annotation
    assert isinstance(annotation, type)
    assert issubclass(annotation, BaseModel)
    assert {f"limits.{field}" for field in annotation.model_fields} <= NAMES


def test_every_class_function_and_constant_on_the_way_of_a_request_exists() -> None:
    named = {part for name in NAMES if re.fullmatch(r"\w+(\.\w+)?", name) for part in name.split(".")}
    code = {part for part in named if re.search(r"[A-Z_]", part)}
    assert len(code) > 30
    files = [path for top in ("server", "rag") for path in (ROOT / top).rglob("*.py")]
    source = {*re.findall(r"\w+", "\n".join(path.read_text() for path in files))}
    assert not code - source
