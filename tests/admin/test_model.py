"""`refdesk-admin model`: models come whole, right and on command, and servers only read them."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from rag.admin.progress_bar import download_progress
from rag.models import known_models
from rag.models.text_encoder import BUILTIN_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.admin.conftest import Desk
    from tests.hub import Hub

pytestmark = pytest.mark.slow

ALTERED = "has not the bytes that it must have, so it was deleted"
UNVERIFIED = "Nobody has verified all files of {} for refdesk."
NAME = "acme/small"
GRAPH = "onnx/model.onnx"
CONFIG = json.dumps({"max_position_embeddings": 512}).encode()
LISTED = """
[[model]]
name = "stand-in"
kind = "embedder"
repository = "{name}"
revision = "{commit}"
licence = "{licence}"
parameters = "22 M"
megabytes = 23
languages = "English"
good_for = "tests"
graph = "onnx/model.onnx"
pooling = "graph"
dimension = {dimension}
window = 256
multilingual = false
files = [{files}]
"""


@pytest.fixture(scope="module")
def weights() -> dict[str, bytes]:
    """The built-in model as a repository."""
    graph = onnx.load(BUILTIN_MODEL / "model.onnx").SerializeToString()
    tokenizer = (BUILTIN_MODEL / "tokenizer.json").read_bytes()
    return {GRAPH: graph, "tokenizer.json": tokenizer, "config.json": CONFIG, "training.bin": b"?" * 9}


@pytest.fixture
def hub(hubs: ModuleType, weights: dict[str, bytes]) -> Iterator[Hub]:
    for running in hubs.running():
        running.files[NAME] = dict(weights)
        running.licences[NAME] = "mit"
        yield running


@pytest.fixture
def admin(inside: Desk, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The commands, which know of this hub alone."""
    for name, value in hub.environment().items():
        monkeypatch.setenv(name, value)
    return inside


def know(
    hub: Hub,
    hubs: ModuleType,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    unverified: str = "",
    dimension: int = 384,
) -> None:
    """Put the hub's model into the list of known ones, with all checksums but one."""
    checksums = {path: hashlib.sha256(content).hexdigest() for path, content in hub.files[NAME].items()}
    checksums |= {unverified: ""}
    files = ", ".join(
        f'{{ path = "{path}", sha256 = "{checksums[path]}" }}'
        for path in ("config.json", GRAPH, "tokenizer.json")
    )
    listed = LISTED.format(name=NAME, commit=hubs.COMMIT, licence="Gemma", dimension=dimension, files=files)
    (folder / "known.toml").write_text(listed)
    monkeypatch.setattr(known_models, "LIST", folder / "known.toml")
    known_models.known_models.cache_clear()


@pytest.fixture(autouse=True)
def _own_list() -> Iterator[None]:
    yield
    known_models.known_models.cache_clear()


def files_below(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "locks"
    )


WHOLE = ["config.json", GRAPH, "refdesk-model.json", "tokenizer.json"]


def test_a_known_model_is_pulled_and_says_its_licence_first(
    admin: Desk, hub: Hub, hubs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(hub, hubs, tmp_path, monkeypatch)
    run = admin.run("model", "pull", "stand-in")
    assert (
        "Its licence is Gemma, which is not permissive. Read https://huggingface.co/acme/small" in run.stderr
    )
    assert run.stdout.startswith("Installed stand-in: 23 MB, 384 dimensions, pooling graph")
    assert "cosine of unrelated texts 0.0" in run.stdout
    assert 'model = "stand-in" into [embedder]' in run.stdout
    assert files_below(admin.data / "models") == [f"stand-in/{name}" for name in WHOLE]
    (model,) = admin.json("model", "list")["models"]
    assert (model["installed"], model["pinned"], model["revision"]) == (True, True, hubs.COMMIT)
    assert not [
        path for path in hub.paths("home") if path.startswith("/api")
    ]  # nothing is asked of what is known
    assert admin.run("model", "verify").stdout == "ok     stand-in: 3 files\n"


def test_a_known_model_comes_from_a_folder_with_the_same_checks(
    admin: Desk, hub: Hub, hubs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(hub, hubs, tmp_path, monkeypatch)
    copied = tmp_path / "copied"
    copied.mkdir()
    for path, content in hub.files[NAME].items():
        (copied / path.removeprefix("onnx/")).write_bytes(content)
    (copied / "config.json").write_text("{}")
    error = admin.failure("model", "pull", "stand-in", "--from", copied)
    assert f"{copied / 'config.json'} has other bytes than it must have" in error
    assert not (admin.data / "models" / "stand-in").exists()
    (copied / "config.json").write_bytes(CONFIG)
    admin.run("model", "pull", "stand-in", "--from", copied)
    assert files_below(admin.data / "models") == [f"stand-in/{name}" for name in WHOLE]
    assert not hub.asked


def test_wrong_bytes_make_no_model_and_replace_none(
    admin: Desk, hub: Hub, hubs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(hub, hubs, tmp_path, monkeypatch)
    right, hub.files[NAME][GRAPH] = hub.files[NAME][GRAPH], hub.files[NAME][GRAPH][:-1] + b"?"
    error = admin.failure("model", "pull", "stand-in")
    assert f"{GRAPH} {ALTERED}" in error
    assert files_below(admin.data / "models") == [f".partial/stand-in@{hubs.COMMIT[:12]}/config.json"]
    hub.files[NAME][GRAPH] = right
    admin.run("model", "pull", "stand-in")
    (admin.data / "models" / "stand-in" / "config.json").write_text("damaged")
    hub.files[NAME]["config.json"] = b"{}"
    admin.run("model", "pull", "stand-in", code=1)
    assert "wrong  stand-in: 3 files" in admin.run("model", "verify", code=1).stdout
    hub.files[NAME]["config.json"] = CONFIG
    hub.asked.clear()
    admin.run("model", "pull", "stand-in")
    assert [path.rpartition("/")[2] for path in hub.paths("home")] == ["config.json"]
    assert admin.run("model", "verify").stdout == "ok     stand-in: 3 files\n"


def test_files_that_make_another_model_are_refused(
    admin: Desk, hub: Hub, hubs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(hub, hubs, tmp_path, monkeypatch, dimension=768)
    error = admin.misuse("model", "pull", "stand-in")
    assert "384" in error
    assert "768" in error
    assert "Unfinished: stand-in, 23 MB" in admin.run("model", "list").stdout
    admin.run("model", "remove", "stand-in")
    assert not files_below(admin.data / "models")


def test_what_nobody_verified_needs_trust_and_is_held_to_what_the_hub_states(
    admin: Desk, hub: Hub, hubs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(hub, hubs, tmp_path, monkeypatch, unverified=GRAPH)
    run = admin.run("model", "pull", "stand-in", code=2)
    assert f"{NAME}, revision {hubs.COMMIT}, licence mit" in run.stderr
    assert hashlib.sha256(hub.files[NAME][GRAPH]).hexdigest() in run.stderr
    assert UNVERIFIED.format("stand-in") in run.stderr
    assert not [path for path in hub.paths() if "resolve" in path]
    hub.stated[GRAPH] = "0" * 64
    assert ALTERED in admin.failure("model", "pull", "stand-in", "--trust")
    del hub.stated[GRAPH]
    hub.stated["tokenizer.json"] = "0" * 64
    error = admin.misuse("model", "pull", "stand-in", "--trust")
    assert f"the hub states the SHA-256 {'0' * 64}. Nothing was fetched." in error
    hub.stated.clear()
    admin.run("model", "pull", "stand-in", "--trust")
    (model,) = admin.json("model", "list")["models"]
    assert (model["installed"], model["pinned"]) == (True, False)
    hub.asked.clear()
    admin.run("model", "pull", "stand-in", "--trust")
    assert not hub.paths()  # what is here is not fetched again


def test_any_model_of_the_hub_is_described_before_it_is_trusted(
    admin: Desk, hub: Hub, hubs: ModuleType
) -> None:
    hub.licences[NAME] = "cc-by-nc-4.0"
    run = admin.run("model", "pull", NAME, code=2)
    assert (
        f"licence cc-by-nc-4.0\nIts licence is cc-by-nc-4.0, which is not permissive. Read {hub.url}/{NAME}"
        in (run.stderr)
    )
    assert f"Nobody has verified {NAME} for refdesk" in run.stderr
    assert len(hub.asked) == 1
    admin.run("model", "pull", NAME, "--trust", "--as", "other")
    assert files_below(admin.data / "models") == [f"other/{name}" for name in WHOLE]
    facts = json.loads((admin.data / "models" / "other" / "refdesk-model.json").read_bytes())
    assert (facts["repository"], facts["revision"], facts["licence"]) == (NAME, hubs.COMMIT, "cc-by-nc-4.0")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("pull", "leaf"), 2, "refdesk knows no model 'leaf'. Known: mdbr-leaf-ir, "),
        (
            ("pull", "mdbr-leaf-ir", "--pooling", "mean"),
            2,
            "--pooling is for models that refdesk doesn't know",
        ),
        (("pull", "acme/none"), 2, "has no model acme/none, or it is private"),
        (
            ("pull", NAME, "--graph", "model_q4.onnx"),
            2,
            "Choose the graph with --graph. There are: onnx/model.onnx",
        ),
        (("pull", NAME, "--as", "My Model"), 2, "like my-model"),
        (("pull", NAME, "--as", "mdbr-leaf-ir"), 2, "mdbr-leaf-ir is the name of another model"),
        (("pull", "ettin-reranker-32m", "--from", "."), 2, UNVERIFIED.format("ettin-reranker-32m")),
        (("pull", NAME, "--from", "."), 2, "nothing to hold the files in"),
        (("verify", "mine"), 1, "There is no model 'mine'"),
        (("remove", "mine"), 1, "Installed: none."),
        (("add", "."), 2, "There is no ONNX graph (a file .onnx)"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(
    admin: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert message in admin.run("model", *arguments, code=code).stderr


def test_a_full_disk_is_seen_before_the_first_byte(
    admin: Desk, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage("/")._replace(free=20_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    error = admin.failure("model", "pull", NAME, "--trust")
    assert "has 20 MB free, and the model needs 23 MB more. Make room, or set models in the settings" in error
    assert not hub.paths()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_pull_goes_on_where_it_was_and_nothing_uses_its_half(
    admin: Desk, hub: Hub, hubs: ModuleType, end: signal.Signals
) -> None:
    """An interruption ends it although the line hangs: the hub sends nothing more while the test waits."""
    hub.troubles[GRAPH] = [hubs.Trouble(cut=5_000_000, hang=True)]
    pulling = ("model", "pull", NAME, "--trust")
    command = [str(admin.scripts.folder / "refdesk-admin"), *pulling, "--data", str(admin.data)]
    environment = admin.scripts.environment | hub.environment()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as pull:
        assert hub.sent.wait(60)
        staged = admin.data / "models" / ".partial" / f"small@{hubs.COMMIT[:12]}" / f"{GRAPH}.part"
        while not staged.exists() or staged.stat().st_size < 1_000_000:
            time.sleep(0.05)
        busy = admin.run(*pulling, code=4).stderr
        assert f"refdesk-admin model (process {pull.pid}, since " in busy
        pull.send_signal(end)
        assert pull.wait(timeout=60) in {-signal.SIGKILL, 130}
    came = staged.stat().st_size
    assert not (admin.data / "models" / "small").exists()
    assert "Unfinished: small, " in admin.run("model", "list").stdout
    assert admin.run(*pulling).stdout.startswith("Installed small: 23 MB")
    ranges = [range_ for host, path, range_, _ in hub.asked if host == "cdn" and path.endswith(GRAPH)]
    assert ranges == ["", f"bytes={came}-"]
    assert files_below(admin.data / "models") == [f"small/{name}" for name in WHOLE]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", screen)
        for size in (40_000_000, 0):
            with download_progress("small", size) as came:
                came(10_000_000)
                time.sleep(0.15)  # the bar is drawn ten times a second at most
                came(10_000_000)
        drawn = screen.getvalue()
        if screen.isatty():
            assert "small   50%|" in drawn
            assert "20.0MB of 40.0MB" in drawn
            assert "small  20.0MB, " in drawn
        else:
            assert not drawn


def test_a_models_folder_that_can_t_be_made_is_said(admin: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    wanting = settings(admin, f'models = "{tmp_path / "file" / "models"}"\n')
    assert f"The folder {tmp_path / 'file' / 'models' / 'locks'} can't be written: Not a directory." in (
        admin.misuse("model", "pull", NAME, "--trust", "--config", wanting)
    )


def settings(desk: Desk, text: str) -> Path:
    file = desk.data.parent / "config.toml"
    file.write_text(text)
    return file


def test_a_model_serves_by_its_name_and_stays_while_something_uses_it(
    admin: Desk, hub: Hub, tmp_path: Path
) -> None:
    by_name = settings(
        admin, f'models = "{tmp_path / "shared"}"\n[embedder]\nprovider = "onnx"\nmodel = "{NAME}"\n'
    )
    (tmp_path / "doc.md").write_text("# Clocks\n\nA pendulum clock keeps time.\n")
    wanting = ("--config", by_name)
    error = admin.misuse("ingest", tmp_path / "doc.md", *wanting)
    missing = f"The model {NAME} is not on this machine"
    assert missing in error
    assert f"refdesk-admin model pull {NAME}, or" in error
    checked = admin.run("config", "check", *wanting, code=1).stdout
    assert f"wrong  embedder: {missing}" in checked
    assert "Missing: small, used by embedder. Run refdesk-admin model pull small" in (
        admin.run("model", "list", *wanting).stdout
    )
    admin.run("model", "pull", NAME, "--trust", *wanting)
    requests = len(hub.asked)
    assert not (admin.data / "models").exists()
    admin.run("ingest", tmp_path / "doc.md", *wanting)
    assert "ok     embedder: onnx small-" in admin.run("config", "check", *wanting).stdout
    (hit,) = admin.hits("pendulum", *wanting)
    assert "pendulum" in hit["text"]
    assert len(hub.asked) == requests
    error = admin.misuse("model", "remove", "small", *wanting)
    assert "The model small is in use: embedder, collection documents." in error
    without = settings(admin, f'models = "{tmp_path / "shared"}"\n')
    assert "in use: collection documents." in admin.misuse("model", "remove", "small", "--config", without)
    admin.run("collection", "remove", "documents", "--yes", "--config", without)
    assert admin.run("model", "remove", "small", "--config", without).stdout == "Removed the model small.\n"
    assert not files_below(tmp_path / "shared")


def test_an_own_model_is_copied_and_damage_is_found(
    admin: Desk, weights: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "My Model v1.0"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(weights[GRAPH])
    (folder / "tokenizer.json").write_bytes(weights["tokenizer.json"])
    run = admin.run(
        "model", "add", folder, "--licence", "ours", "--window", "256", "--query-prefix", "find: "
    )
    assert run.stdout.startswith("Installed my-model-v1-0: 23 MB, 384 dimensions")
    assert "query prefix 'find: '" in run.stdout
    shutil.rmtree(folder)
    installed = admin.data / "models" / "my-model-v1-0"
    assert admin.run("model", "verify").stdout == "ok     my-model-v1-0: 2 files\n"
    with (installed / "model.onnx").open("r+b") as opened:
        opened.seek(9_000_000)
        opened.write(b"damage")
    (installed / "tokenizer.json").unlink()
    (model,) = admin.json("model", "verify", code=1)["models"]
    assert model["wrong"] == [
        f"{installed / 'model.onnx'} has changed: its SHA-256 is another one than when it came.",
        f"{installed / 'tokenizer.json'} is missing.",
    ]


def test_a_folder_without_a_model_is_not_installed(
    admin: Desk, weights: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"no graph")
    assert "There is no tokenizer.json" in admin.misuse("model", "add", folder)
    (folder / "tokenizer.json").write_bytes(weights["tokenizer.json"])
    assert "is not a valid ONNX model" in admin.misuse("model", "add", folder)
    assert not files_below(admin.data / "models")


def test_the_known_models_are_complete(inside: Desk) -> None:
    listed: list[dict[str, Any]] = inside.json("model", "list")["models"]
    assert {model["kind"] for model in listed} == {"embedder", "reranker"}
    for entry in known_models.known_models().values():
        paths = [file.path for file in entry.files]
        assert {entry.graph, "tokenizer.json"} <= {*paths}
        assert all(f"{step}/model.safetensors" in paths for step in entry.dense)
        assert (entry.dimension is None) == (entry.kind == "reranker")
    assert [model["name"] for model in listed if not model["pinned"]] == ["ettin-reranker-32m"]
