"""A console of the installed command, and a browser without scripts that is signed in to it."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import Scripts

START_SECONDS = 120  # a bound for a test that hangs


@dataclass(slots=True)
class Page:
    """A reply as a person would read it."""

    status: int
    html: str
    headers: httpx2.Headers = field(repr=False)
    replied_with: int = 200  # the status of the first reply, before a redirect

    @property
    def text(self) -> str:
        """What is shown, with single spaces."""
        visible = re.sub(r"<(script|style|title)\b.*?</\1>", " ", self.html, flags=re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", visible)).split())

    def elements(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of this name, as an HTML parser finds them."""
        attributes: list[dict[str, str | None]] = []

        class Finder(HTMLParser):
            def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
                if name == tag:
                    attributes.append(dict(attrs))

        Finder().feed(self.html)
        return attributes


class Browser:
    """A browser without scripts. A form has the secret of the page that was shown last."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.client = httpx2.Client(base_url=origin, timeout=60, trust_env=False)

    def get(self, path: str, **parameters: Any) -> Page:  # noqa: ANN401 httpx2's
        return _page(self.client.get(path, params=parameters or None))

    def form(self) -> dict[str, str]:
        """What our pages put into each of their forms: a secret, and the tenant that they show."""
        page = self.client.get("/keys").text
        hidden = dict(re.findall(r'<input type="hidden" name="(form|of)" value="([^"]+)">', page))
        assert len(hidden) == 2
        return hidden

    def post(self, path: str, files: Any = None, **fields: Any) -> Page:  # noqa: ANN401 httpx2's
        """Send a form as our pages do, and show the page that follows."""
        data = {**self.form(), **fields}
        headers = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        return _page(self.client.post(path, data=data, files=files, headers=headers, follow_redirects=True))


def _page(reply: httpx2.Response) -> Page:
    return Page(reply.status_code, reply.text, reply.headers, [*reply.history, reply][0].status_code)


@dataclass(slots=True)
class Running:
    """A console that runs; `address` works once."""

    process: subprocess.Popen[str]
    address: str
    browsers: list[Browser] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return self.address.partition("/sign-in")[0]

    def signed_in(self) -> Browser:
        browser = Browser(self.origin)
        self.browsers.append(browser)
        assert browser.get(self.address).status == 200
        return browser


@contextmanager
def started(
    scripts: Scripts, data: Path, *arguments: str, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Running]:
    """A console on this data folder. It ends as by Ctrl-C."""
    command = [scripts.forked_admin, "console", "--data", str(data), *arguments]
    process = subprocess.Popen(
        command,
        env={**scripts.environment, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    console = Running(process, "")
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/sign-in\?token=\S+", line)
        assert address, line
        console.address = address[0]
        yield console
    finally:
        for browser in console.browsers:
            browser.client.close()
        process.terminate()
        process.wait(START_SECONDS)
        process.stdout.close()


@pytest.fixture(scope="module")
def web_data(clock_room: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of a module's own with the demo corpus in it."""
    data = tmp_path_factory.mktemp("web") / "desk"
    shutil.copytree(clock_room, data)
    return data


@pytest.fixture(scope="module")
def running(scripts: Scripts, web_data: Path) -> Iterator[Running]:
    with started(scripts, web_data) as console:
        yield console


@pytest.fixture(scope="module")
def browser(running: Running) -> Browser:
    return running.signed_in()


@pytest.fixture(scope="session")
def start_console() -> Any:  # noqa: ANN401 the function above
    return started
