"""What a caller sees of a tag: its own passages under its own ids, where it names the tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_tag_is_listed_searched_by_name_and_read(
    scripts: Scripts, start: Start, tmp_path: Path, era: str
) -> None:
    def admin(*arguments: str | Path) -> None:
        done = scripts.admin(*arguments, "--data", tmp_path / "data")
        assert done.returncode == 0, done.stderr

    text = tmp_path / "leave.md"
    text.write_text("# Leave\n\nThe pendulum swings for twenty days.\n")
    admin("ingest", text, "--collection", "handbook")
    admin("collection", "tag", "handbook", "then")
    text.write_text("# Leave\n\nThe pendulum swings for thirty days.\n")
    admin("ingest", text, "--collection", "handbook")

    wire = start(tmp_path / "data", era=era)
    wire.begin()

    def found(**more: Any) -> dict[str, Any]:  # noqa: ANN401 any arguments
        (hit,) = wire.tool("search", {"query": "pendulum", **more})["structuredContent"]["results"]
        return dict(hit)

    assert "thirty" in found()["text"]
    tagged = found(collections=["then"])
    assert "twenty" in tagged["text"]
    read = wire.tool("get_source", {"id": tagged["id"]})["structuredContent"]
    assert "twenty" in read["text"]
    (content,) = wire.result("resources/read", {"uri": f"refdesk://then/{tagged['id']}"})["contents"]
    assert "twenty" in content["text"]
    tools = str(wire.result("tools/list"))
    assert "handbook as it was on 20" in tools
    assert wire.leave() == 0
