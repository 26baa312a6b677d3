"""Files from a hub: whole and right, or not at all, whatever the hub and the line do."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants, get_session

from rag.errors import ConfigurationError
from rag.models.hub import PART, HubCommit, LaterError, RemoteFile, WrongBytesError, download, open_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.hub import Hub

CONTENT = bytes(range(256)) * 400
OTHER = CONTENT[::-1]
FILE = RemoteFile("onnx/model.onnx", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
UNKNOWN_SIZE = RemoteFile(FILE.path, 0, FILE.sha256)
NAME = "acme/small"


@pytest.fixture
def hub(hubs: ModuleType) -> Iterator[Hub]:
    """A hub that has the file."""
    for running in hubs.running():
        running.files[NAME] = {FILE.path: CONTENT}
        yield running


@contextmanager
def place(hub: Hub, commit: str = "", **environment: str) -> Iterator[HubCommit]:
    with open_hub(hub.environment(**environment)) as opened:
        yield HubCommit(opened, NAME, commit or "c0ffee" + "0" * 34)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fetched(hub: Hub, target: Path, file: RemoteFile = FILE, **environment: str) -> list[int]:
    """Download the file, and return what was told of the bytes that came."""
    counts: list[int] = []
    with place(hub, **environment) as here:
        assert download(here, file, target, counts.append) == FILE.sha256
    return counts


@pytest.mark.parametrize("file", [FILE, UNKNOWN_SIZE])
def test_a_file_comes_from_where_the_hub_redirects(hub: Hub, tmp_path: Path, file: RemoteFile) -> None:
    counts = fetched(hub, tmp_path / "model", file)
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert sum(counts) == len(CONTENT)
    assert [host for host, *_ in hub.asked] == ["home", "cdn"]
    assert names(tmp_path) == ["model"]


def test_a_token_goes_to_the_hub_and_to_nobody_else(hub: Hub, tmp_path: Path) -> None:
    fetched(hub, tmp_path / "model", HF_TOKEN="hf_secret")  # noqa: S106 no password
    assert [(host, token) for host, _, _, token in hub.asked] == [("home", "Bearer hf_secret"), ("cdn", "")]


@pytest.mark.parametrize("ranges", [True, False])
def test_what_a_killed_run_left_is_not_fetched_again(hub: Hub, tmp_path: Path, ranges: bool) -> None:  # noqa: FBT001 a table
    hub.ranges = ranges
    (tmp_path / f"model{PART}").write_bytes(CONTENT[:1000])
    counts = fetched(hub, tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert [range_ for host, _, range_, _ in hub.asked if host == "cdn"] == ["bytes=1000-"]
    assert sum(counts) == len(CONTENT)


@pytest.mark.parametrize("leftover", [OTHER[:1000], CONTENT + b"more", OTHER])
def test_what_a_run_left_of_another_file_does_no_harm(hub: Hub, tmp_path: Path, leftover: bytes) -> None:
    (tmp_path / f"model{PART}").write_bytes(leftover)
    counts = fetched(hub, tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert sum(counts) == len(CONTENT)


@pytest.mark.slow  # the library waits a second before each further try
def test_a_line_that_breaks_and_a_hub_that_is_busy_are_tried_again(
    hub: Hub, hubs: ModuleType, tmp_path: Path
) -> None:
    busy = hubs.Trouble(status=429, headers={"Retry-After": "86400"})
    hub.troubles[FILE.path] = [hubs.Trouble(cut=40_000), busy, hubs.Trouble(cut=40_000)]
    assert sum(fetched(hub, tmp_path / "model")) == len(CONTENT)
    chunks = constants.DOWNLOAD_CHUNK_SIZE
    first, second = (f"bytes={count * chunks}-" for count in (2, 4))  # only whole chunks were kept
    assert [range_ for host, _, range_, _ in hub.asked if host == "cdn"] == ["", first, first, second]


def test_a_hub_that_stays_away_is_given_up_and_what_came_is_kept(
    hub: Hub, hubs: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / f"model{PART}").write_bytes(CONTENT[:3000])
    hub.troubles[FILE.path] = [hubs.Trouble(status=502)]
    with pytest.raises(LaterError, match="can't answer now"):
        fetched(hub, tmp_path / "model")
    assert names(tmp_path) == [f"model{PART}"]
    assert sum(fetched(hub, tmp_path / "model")) == len(CONTENT)
    assert hub.asked[-1][2] == "bytes=3000-"


@pytest.mark.parametrize("file", [FILE, UNKNOWN_SIZE])
def test_a_whole_file_that_an_ended_run_left_is_only_checked(
    hub: Hub, tmp_path: Path, file: RemoteFile
) -> None:
    (tmp_path / f"model{PART}").write_bytes(CONTENT)
    assert fetched(hub, tmp_path / "model", file) == [len(CONTENT)]


def test_nothing_but_the_file_is_asked_for_and_nothing_is_told(hub: Hub, tmp_path: Path) -> None:
    fetched(hub, tmp_path / "model")
    with open_hub(hub.environment()) as opened:
        opened.repository(NAME)
    assert {path.rpartition("/")[2] for _, path, _, _ in hub.asked} == {"model.onnx", "main"}
    assert {agent.partition("/")[0] for agent in hub.agents} == {"refdesk"}


@pytest.mark.parametrize("stated", ["bytes 0-9/*", "bytes 3000-9/7", "nonsense"])
def test_a_range_that_cant_be_is_no_end_of_the_world(
    hub: Hub, hubs: ModuleType, tmp_path: Path, stated: str
) -> None:
    (tmp_path / f"model{PART}").write_bytes(CONTENT[:3000])
    hub.troubles[FILE.path] = [hubs.Trouble(headers={"Content-Range": stated})]
    with pytest.raises(LaterError, match="states no possible size"):
        fetched(hub, tmp_path / "model")
    assert sum(fetched(hub, tmp_path / "model")) == len(CONTENT)


@pytest.mark.parametrize("content", [OTHER, CONTENT[:-1] + b"?", CONTENT + b"?"])
def test_wrong_bytes_are_refused_and_gone(hub: Hub, tmp_path: Path, content: bytes) -> None:
    hub.files[NAME][FILE.path] = content
    for file in (FILE, UNKNOWN_SIZE):
        with pytest.raises(WrongBytesError, match="deleted"):
            fetched(hub, tmp_path / "model", file)
        assert not names(tmp_path)


def test_a_small_file_is_held_to_the_checksum_of_git(hub: Hub, tmp_path: Path) -> None:
    hub.files[NAME] = {"config.json": b"{}"}
    blob = "9e26dfeeb6e641a33dae4961196235bdb965b21b"  # echo -n {} | git hash-object --stdin
    counts: list[int] = []
    with place(hub) as here:
        download(here, RemoteFile("config.json", 2, blob=blob), tmp_path / "config.json", counts.append)
        wrong = RemoteFile("config.json", 2, blob="0" * 40)
        with pytest.raises(WrongBytesError):
            download(here, wrong, tmp_path / "other.json", counts.append)
    assert names(tmp_path) == ["config.json"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme/gated", "accepted its licence. HF_TOKEN is not set. Accept the licence on http"),
        ("acme/none", "has no model acme/none, or it is private"),
    ],
)
def test_a_refusal_says_what_to_do(hub: Hub, name: str, message: str) -> None:
    hub.files["acme/gated"], hub.gated, hub.wants_token = {}, {"acme/gated"}, "hf_right"
    with open_hub(hub.environment()) as opened, pytest.raises(ConfigurationError, match=message):
        opened.repository(name)
    with open_hub(hub.environment(HF_TOKEN="hf_right")) as opened:  # noqa: S106 no password
        assert not (opened.repository("acme/gated")).files


def test_a_missing_file_and_a_missing_revision_are_final(hub: Hub, tmp_path: Path) -> None:
    for commit, path in (("", "onnx/other.onnx"), ("f" * 40, FILE.path)):
        words = pytest.raises(ConfigurationError, match=r"has no file .*mirror")
        with place(hub, commit) as here, words:
            download(here, RemoteFile(path, 1), tmp_path / "model", lambda _: None)
    assert len(hub.asked) == 2


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "mirror.example"}, "HF_ENDPOINT is 'mirror.example'. Set it to a URL"),
    ],
)
def test_an_environment_that_names_no_hub_is_said(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), open_hub(environment):
        pass


def test_without_a_network_the_message_names_the_way_without_one() -> None:
    words = r"can't be reached.*--from FOLDER.*HTTPS_PROXY.*HF_ENDPOINT"
    with open_hub({"HF_ENDPOINT": "http://127.0.0.1:9"}) as opened, pytest.raises(LaterError, match=words):
        opened.repository(NAME)


def test_a_token_stays_home_where_others_could_listen() -> None:
    """Nothing answers at these addresses: the request is looked at before it is sent."""
    for endpoint, sent in (("http://mirror.example", None), ("https://mirror.example", "Bearer hf_secret")):
        with open_hub({"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret"}) as opened:
            assert "hf_secret" not in repr(opened)
            request = get_session().build_request("GET", f"{endpoint}/x", headers=opened.headers)
            (restrict,) = get_session().event_hooks["request"]
            restrict(request)
            assert request.headers.get("authorization") == sent
            elsewhere = get_session().build_request("GET", "https://cdn.example/x", headers=opened.headers)
            restrict(elsewhere)
            assert "authorization" not in elsewhere.headers


def test_no_redirect_leads_out_of_encryption() -> None:
    with open_hub({"HF_ENDPOINT": "https://mirror.example"}):
        (restrict,) = get_session().event_hooks["request"]
        restrict(get_session().build_request("GET", "https://cdn.example/x"))
        with pytest.raises(ConfigurationError, match="without encryption"):
            restrict(get_session().build_request("GET", "http://cdn.example/x"))
