"""What refdesk --http says at the start: where it listens, and who may come in from where."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from rag.config.settings import Settings
from server.http.listening import announce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

pytestmark = pytest.mark.slow


def said(caplog: pytest.LogCaptureFixture, **sections: Any) -> str:  # noqa: ANN401 any settings
    caplog.set_level(logging.INFO, "refdesk.start")
    announce(Settings.model_validate(sections))
    return "\n".join(f"{record.levelname} {record.getMessage()}" for record in caplog.records)


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({}, "INFO refdesk listens on http://127.0.0.1:8300/mcp, reachable from this machine only"),
        ({"host": "0.0.0.0"}, "on http://0.0.0.0:8300/mcp, reachable from every network of this machine"),  # noqa: S104 it is told
        ({"host": "192.0.2.1", "port": 80}, "on http://192.0.2.1:80/mcp, reachable from other machines"),
        ({}, "INFO Clients must send an API key"),
        (
            {"authentication": ("keys", "oauth")},
            "an API key (refdesk-admin key create) or a token issued by https://i.example",
        ),
        ({"authentication": ()}, "everybody who reaches the server searches as the user 'ann'"),
        ({}, "Allowed Host headers: 127.0.0.1:8300, localhost:8300, [::1]:8300."),
        ({"host": "0.0.0.0"}, "WARNING Every request will be refused with status 421"),  # noqa: S104 it is told
        ({"host": "192.0.2.1"}, "WARNING Every request will be refused with status 421"),
        ({"public_url": "https://desk.example.com"}, "WARNING http.public_url implies a proxy"),
        ({"trusted_proxies": ("10.0.0.7",)}, "trusted from these proxies: 10.0.0.7."),
    ],
)
def test_it_says_where_and_who(caplog: pytest.LogCaptureFixture, http: dict[str, Any], words: str) -> None:
    assert words in said(caplog, http=http, principal={"user": "ann"}, oauth={"issuer": "https://i.example"})


def test_it_warns_of_nothing_that_is_as_it_should_be(
    caplog: pytest.LogCaptureFixture, scripts: Scripts, tmp_path: Path
) -> None:
    assert scripts.admin("key", "create", "--data", tmp_path).returncode == 0
    right = {"public_url": "https://desk.example.com", "trusted_proxies": ("127.0.0.1",)}
    assert "WARNING" not in said(caplog, http=right, data=tmp_path)
    assert "WARNING" not in said(caplog, http={"host": "0.0.0.0"} | right, data=tmp_path)  # noqa: S104 it is told


def test_it_says_what_it_serves_and_how_many_keys_open_it(
    caplog: pytest.LogCaptureFixture, scripts: Scripts, tmp_path: Path
) -> None:
    told = said(caplog, data=tmp_path)
    assert "WARNING No API key is valid, so every request will be refused with status 401." in told
    assert "It serves" not in told
    caplog.clear()
    assert "No API key" not in said(caplog, http={"authentication": ()}, data=tmp_path)
    for name in ("acme", "beta"):
        assert scripts.admin("tenant", "create", name, "--data", tmp_path).returncode == 0
        assert scripts.admin("key", "create", "--tenant", name, "--data", tmp_path).returncode == 0
    stored = tmp_path / "keys.json"
    keys = json.loads(stored.read_text())
    keys["keys"][0] |= {"created_at": "2020-01-01T00:00:00Z", "expires_at": "2020-01-02T00:00:00Z"}
    stored.write_text(json.dumps(keys))
    told = said(caplog, data=tmp_path)
    assert f"INFO It serves the documents of 2 tenants in {tmp_path}." in told
    assert "INFO Valid API keys: 1." in told


def test_it_is_said_on_standard_error_whatever_the_level(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, server_log_level="error", http_public_url="https://desk.example.com")
    lines = [json.loads(line) for line in remote.noise.read_text().splitlines()]
    assert {line["logger"] for line in lines} == {"refdesk.start"}
    assert lines[0]["message"].startswith(f"refdesk listens on {remote.url}, ")
    assert "warning" in {line["level"] for line in lines}
