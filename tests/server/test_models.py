"""Models: one that was pulled, one that is missing, and remote ones that fail."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from rag.models.endpoint import UNAVAILABLE
from rag.models.text_encoder import BUILTIN_MODEL
from rag.search.query_vectors import WORDS_ALONE
from tests.server.conftest import call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from rag.answers import Mode
    from tests.conftest import Scripts
    from tests.endpoint import Behaviour, Endpoint
    from tests.server.conftest import Admin, Message, Remote, Start

pytestmark = pytest.mark.slow


SETTINGS = "[embedder]\nprovider = 'onnx'\nmodel = 'acme/Stand-In'\n"
WATCH = """
import os, sys

def note(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], str):
        return  # to the desk that hosts of this machine share
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}:
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{event} {arguments[1:]}\\n")

sys.addaudithook(note)
"""


@pytest.fixture(scope="module")
def data(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document whose vectors a model of its own has made; the settings are in the folder above."""
    above = tmp_path_factory.mktemp("models")
    folder, model, document = above / "data", above / "stand-in", above / "doc.md"
    model.mkdir()
    for file in BUILTIN_MODEL.iterdir():
        shutil.copy(file, model)
    (above / "config.toml").write_text(SETTINGS)
    document.write_text("# Clocks\n\nA pendulum keeps time.\n")
    for command in (("model", "add", model), ("ingest", document, "--visibility", "tenant")):
        admin(*command, "--data", folder, "--config", above / "config.toml")
    return folder


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that notes every connection that it tries to make."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    return {"PYTHONPATH": str(tmp_path / "watch"), "CONNECTIONS": str(tmp_path / "connections")}


def test_a_search_with_a_pulled_model_opens_no_connection(
    cold_start: Start, data: Path, watched: dict[str, str], tmp_path: Path
) -> None:
    wire = cold_start(data, env=watched, flags=["--config", str(data.parent / "config.toml")]).begun()
    result = wire.tool("search", {"query": "How do I know how late it is?", "mode": "dense"})
    assert [hit["cite_as"] for hit in result["structuredContent"]["results"]] == ["Clocks"]
    assert not (tmp_path / "connections").exists()


def test_a_missing_model_is_named_with_its_command_and_nothing_is_fetched(
    cold_start: Start, data: Path, watched: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = {"REFDESK_MODELS": str(tmp_path / "none"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    wire = cold_start(
        data, env=watched | elsewhere, flags=["--config", str(data.parent / "config.toml")]
    ).begun()
    words = wire.tool_error("search", {"query": "pendulum"})
    assert "acme/Stand-In" in words
    assert "refdesk-admin model pull acme/Stand-In" in words
    assert not (tmp_path / "connections").exists()


def test_the_watch_sees_a_connection(watched: dict[str, str], tmp_path: Path) -> None:
    program = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", program], env=os.environ | watched, check=True)
    assert "socket.connect" in (tmp_path / "connections").read_text()


MODEL = "tiny-secret-model"
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")  # those that need a model, at least for similarities
RECOVERY_SECONDS = 60
PAUSE_SECONDS = 0.05  # of a client between two searches
SECRETS = ("127.0.0.1", "http:", MODEL, "refdesk-admin", "attempts", "OPENAI_API_KEY", "base_url")
QUERY = "Who built a pendulum clock?"


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder that was ingested with a remote embedder, a key to read it, and a passage's id."""

    data: Path
    key: str
    id: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a caller got."""

    result: Message
    request: str

    @property
    def content(self) -> Message:
        assert not self.result.get("isError"), self.result
        content: Message = self.result["structuredContent"]
        return content

    @property
    def titles(self) -> list[str]:
        return [hit["cite_as"] for hit in self.content["results"]]

    @property
    def error(self) -> str:
        assert self.result["isError"] is True, self.result
        return str(self.result["content"][0]["text"])

    @property
    def words(self) -> str:
        return json.dumps(self.result)


def reply_to(
    remote: Remote, key: str, mode: Mode = "hybrid", tool: str = "search", **arguments: object
) -> Reply:
    arguments = {"query": QUERY, "mode": mode, **arguments} if tool == "search" else arguments
    answer = remote.post(key, call(tool, **arguments))
    assert answer.status_code == 200, answer.text
    return Reply(answer.json()["result"], answer.headers["X-Request-ID"])


def of_endpoint(remote: Remote, kind: str = "embedding") -> tuple[float, float, float]:
    """Whether it fails, how often it failed, and how many calls were held back."""
    values = remote.metrics()
    names = ("failing", "failures_total", "held_back_total")
    failing, failures, held_back = (values[f'refdesk_endpoint_{name}{{endpoint="{kind}"}}'] for name in names)
    return failing, failures, held_back


def under(remote: Remote, request: str) -> str:
    """What the log holds under a request's id."""
    return "\n".join(line["message"] for line in remote.log() if line.get("request") == request)


def settings(server: Endpoint) -> dict[str, str]:
    return {
        "embedder_provider": "openai",
        "embedder_model": MODEL,
        "embedder_base_url": server.url,
        "limits_request_seconds": "6",
        "limits_concurrent_per_tenant": "33",
        "limits_concurrent": "33",
        "limits_requests_per_minute": "100000",
        "server_explain": "true",
    }


@pytest.fixture(scope="module")
def lasting_provider(endpoints: ModuleType) -> Iterator[Endpoint]:
    with endpoints.running() as server:
        server.script = [server.embedding]
        yield server


@pytest.fixture(scope="module")
def shelf(scripts: Scripts, lasting_provider: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    folder = tmp_path_factory.mktemp("remote")
    papers = folder / "papers"
    papers.mkdir()
    (papers / "clock.md").write_text("# Clock\n\nHuygens built a pendulum clock in 1656.\n")
    (papers / "pasta.md").write_text("# Pasta\n\nBoil the pasta in salted water for nine minutes.\n")
    env = {f"REFDESK_{name.upper()}": value for name, value in settings(lasting_provider).items()}
    env["REFDESK_DATA"] = str(folder / "data")
    run = scripts.admin("ingest", papers, "--json", env=env)
    assert run.returncode == 0, run.stderr
    (id_,) = [file["source_id"] for file in json.loads(run.stdout)["files"] if "clock" in file["path"]]
    key = json.loads(scripts.admin("key", "create", "--json", env=env).stdout)["key"]
    return Shelf(folder / "data", key, f"{id_}/0")


@pytest.fixture
def provider(lasting_provider: Endpoint) -> Endpoint:
    """The embedding model, honest at first."""
    lasting_provider.script = [lasting_provider.embedding]
    return lasting_provider


@pytest.fixture(scope="module")
def lasting_remote(lasting_listen: Callable[..., Remote], shelf: Shelf, lasting_provider: Endpoint) -> Remote:
    return lasting_listen(shelf.data, **settings(lasting_provider))


@pytest.fixture
def remote(lasting_remote: Remote, shelf: Shelf, provider: Endpoint) -> Remote:
    """A server that many tests share, to which the model is honest at first."""
    assert provider.script == [provider.embedding]
    recovered(lasting_remote, shelf.key)
    return lasting_remote


def recovered(remote: Remote, key: str) -> Reply:
    """The first whole answer in mode hybrid, which must come within `RECOVERY_SECONDS`."""
    ends = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < ends:
        reply = reply_to(remote, key)
        if "degraded" not in reply.content:
            return reply
        Event().wait(0.1)
    raise TimeoutError


def test_a_server_started_while_its_model_is_down_does_what_needs_no_vector_and_says_what_is_missing(
    listen: Callable[..., Remote], shelf: Shelf, provider: Endpoint
) -> None:
    provider.script = [provider.failing(503)]
    remote = listen(shelf.data, **settings(provider))
    first = reply_to(remote, shelf.key)
    assert first.titles == ["Clock"]
    assert first.content["degraded"] == ["dense"]
    assert first.content["notes"][0] == WORDS_ALONE
    assert "similarity" not in first.content["results"][0]
    held_back = of_endpoint(remote)[2]

    again, by_words = reply_to(remote, shelf.key), reply_to(remote, shelf.key, "sparse")
    opened = reply_to(remote, shelf.key, tool="get_source", id=shelf.id)
    assert again.titles == by_words.titles == ["Clock"]
    assert by_words.content["degraded"] == ["similarity"]
    assert "no similarities" in by_words.content["notes"][0]
    assert "1656" in opened.content["text"]

    dense = reply_to(remote, shelf.key, "dense")
    assert f"embedding model {UNAVAILABLE}" in dense.error
    assert "search in mode sparse" in dense.error
    assert f"request {dense.request}" in dense.error
    assert f"{provider.url} (model {MODEL})" in under(remote, dense.request)
    assert "HTTP 503" in under(remote, first.request)
    for reply in (first, again, by_words, dense):
        assert not [word for word in SECRETS if word in reply.words.replace(dense.request, "")]
    assert of_endpoint(remote)[0] == 1
    assert of_endpoint(remote)[2] > held_back  # which waited for nothing
    lines = [line for line in remote.log() if line.get("request") == first.request and "call" in line]
    assert [line["degraded"] for line in lines] == [["dense"]]
    assert remote.metrics()['refdesk_degraded_searches_total{lacks="dense"}'] == 2

    provider.script = [provider.embedding]
    whole = recovered(remote, shelf.key)
    assert whole.titles[0] == "Clock"
    assert whole.content["results"][0]["similarity"] > 0
    assert reply_to(remote, shelf.key, "dense").titles == ["Clock", "Pasta"]
    assert of_endpoint(remote)[0] == 0


def test_the_trace_and_the_step_tell_that_the_embedding_failed(
    remote: Remote, shelf: Shelf, provider: Endpoint
) -> None:
    honest = reply_to(remote, shelf.key, explain=True).content
    provider.script = [provider.failing(401)]
    reply = reply_to(remote, shelf.key, explain=True).content
    steps = {step["name"]: step for step in reply["trace"]["steps"]}
    assert steps["embed"]["status"] == "failed"
    assert steps["embed"]["warnings"] == reply["notes"]
    assert {listing["list"] for listing in reply["trace"]["listings"][shelf.id]} == {"sparse"}
    assert {listing["list"] for listing in honest["trace"]["listings"][shelf.id]} == {"dense", "sparse"}
    assert "degraded" not in honest
    assert honest["notes"] == []


def test_a_model_that_hangs_costs_the_first_search_a_second_and_the_next_ones_nothing(
    remote: Remote, shelf: Shelf, provider: Endpoint
) -> None:
    provider.script = [provider.silent]
    replies = [reply_to(remote, shelf.key) for _ in range(4)]
    assert of_endpoint(remote)[2] >= 2
    held_back = of_endpoint(remote)[2]
    # Whoever waits for the model as long as a request may last gets no answer at all.
    assert all(reply.content["degraded"] == ["dense"] for reply in replies)
    dense = reply_to(
        remote, shelf.key, "dense"
    )  # it has the time of a request, and gets a reason in that time
    assert "embedding model gave no answer in time" in dense.error
    assert "no answer within" in under(remote, dense.request)
    assert reply_to(remote, shelf.key, "dense").error
    assert of_endpoint(remote)[2] > held_back


def test_a_model_that_is_slow_but_alive_serves_mode_dense_and_does_not_flap(
    remote: Remote, shelf: Shelf, provider: Endpoint
) -> None:
    provider.script = [provider.slow(1.6)]
    for _ in range(2):
        assert reply_to(remote, shelf.key, "dense").titles == ["Clock", "Pasta"]
        assert reply_to(remote, shelf.key).content["degraded"] == ["dense"]
        assert of_endpoint(remote)[0] == 1


def test_an_operator_who_wants_no_words_alone_gets_errors_instead(
    listen: Callable[..., Remote], shelf: Shelf, provider: Endpoint
) -> None:
    remote = listen(shelf.data, **settings(provider), search_degrade="false", search_overrides="limit")
    assert reply_to(remote, shelf.key).titles[0] == "Clock"
    provider.script = [provider.failing(401)]
    error = reply_to(remote, shelf.key).error
    assert f"embedding model {UNAVAILABLE}" in error
    assert "mode sparse" not in error  # which the operator has ruled out


NAN = float("nan")
LIES: dict[str, Callable[[Message], list[list[float]]]] = {
    "other dimensions": lambda request: [[1.0, 2.0, 3.0]] * len(request["input"]),
    "not a number": lambda request: [[NAN] * 16] * len(request["input"]),
    "zero": lambda request: [[0.0] * 16] * len(request["input"]),
    "another count": lambda request: [[1.0] * 16] * (len(request["input"]) + 1),
}


def lying(endpoints: ModuleType, lie: str) -> Behaviour:
    behaviour: Behaviour = lambda request: endpoints.embedded(LIES[lie](request))  # noqa: E731 typed
    return behaviour


def test_what_a_lying_model_says_is_neither_believed_nor_remembered(
    listen: Callable[..., Remote], shelf: Shelf, provider: Endpoint, endpoints: ModuleType
) -> None:
    provider.script = [lying(endpoints, "other dimensions")]  # it is the first that the server hears of it
    remote = listen(shelf.data, **settings(provider))
    for lie in LIES:
        provider.script = [lying(endpoints, lie)]
        hybrid, dense = reply_to(remote, shelf.key), reply_to(remote, shelf.key, "dense")
        assert hybrid.titles == ["Clock"]
        assert hybrid.content["degraded"] == ["dense"]
        assert "embedding model" in dense.error
        assert not [word for word in SECRETS if word in hybrid.words + dense.words.replace(dense.request, "")]
        provider.script = [provider.embedding]
        recovered(remote, shelf.key)


def test_under_load_every_answer_is_whole_or_says_what_it_lacks_whatever_the_model_does(
    remote: Remote, shelf: Shelf, provider: Endpoint, endpoints: ModuleType
) -> None:
    phases: list[Behaviour] = [
        provider.failing(503),
        provider.silent,
        *(lying(endpoints, lie) for lie in LIES),
        provider.failing(429, **{"Retry-After": "30"}),
    ]
    over, outcomes = Event(), Counter[tuple[str, str]]()

    def client(mode: Mode) -> None:
        while not over.wait(PAUSE_SECONDS):
            reply = reply_to(remote, shelf.key, mode)
            outcomes[mode, judged(reply, mode)] += 1

    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(client, mode) for mode in MODES * 2]
        try:
            for phase in phases:
                provider.script = [phase]
                over.wait(1)
                provider.script = [provider.embedding]
                recovered(remote, shelf.key)
        finally:
            over.set()
        for future in futures:
            future.result(timeout=30)
    for mode in MODES:
        assert outcomes[mode, "whole"], outcomes
        assert outcomes[mode, "less"], outcomes
    assert of_endpoint(remote)[0] == 0
    assert of_endpoint(remote)[2] > 0
    assert not math.isnan(of_endpoint(remote)[1])


def judged(reply: Reply, mode: Mode) -> str:
    """Whether an answer is whole, or lacks what it says that it lacks; anything else fails."""
    if reply.result.get("isError"):
        assert mode == "dense", reply.words
        assert "embedding model" in reply.error
        assert not [word for word in SECRETS if word in reply.error.replace(reply.request, "")]
        return "less"
    content: Any = reply.content
    assert reply.titles[0] == "Clock"
    has = ["similarity" in hit for hit in content["results"]]
    if content.get("degraded") is None:
        assert all(has)
        return "whole"
    assert content["degraded"] == {"hybrid": ["dense"], "sparse": ["similarity"]}[mode]
    assert content["notes"]
    assert not any(has)
    return "less"
