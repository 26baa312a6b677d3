"""The files that start replicas elsewhere: what they set is valid, and what they ask for is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import yaml

from tests import nginx
from tests.server.conftest import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bucket import ObjectStore
    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / ".packaging" / "replicas"
NOWHERE = Path("no-such-folder")


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """By kind."""
    made = yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text())
    return {one["kind"]: one for one in made}


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    return dict(yaml.safe_load((PACKAGING / "compose.yaml").read_text()))


def test_the_manifests_satisfy_their_schemas(manifests: dict[str, Any]) -> None:
    missing = "the schemas of Kubernetes, 120 MB, are not installed: pip install kubernetes-validate"
    schemas = pytest.importorskip("kubernetes_validate", reason=missing)
    for one in manifests.values():
        schemas.validate(one, "1.30", strict=True)
    misspelt = manifests["Service"] | {"specs": {}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(misspelt, "1.30", strict=True)


def test_the_service_and_the_budget_select_the_pods(manifests: dict[str, Any]) -> None:
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"] == {"matchLabels": labels}
    assert manifests["Deployment"]["spec"]["selector"] == {"matchLabels": labels}


def test_a_server_starts_with_what_they_set_and_answers_their_probes(
    manifests: dict[str, Any],
    composed: dict[str, Any],
    listen: Callable[..., Remote],
    scripts: Scripts,
    world: World,
    object_store: ObjectStore,
) -> None:
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    command = [*container["command"], *container["args"]]
    assert command == composed["x-replica"]["command"] == ["refdesk", "--http", "--port", "8300"]
    to = ("storage", "copy", "--to", object_store.uri, "--data", world.data)
    assert scripts.admin(*to, env=object_store.environment).returncode == 0
    object_store.read_only = True
    here = object_store.serving | {"REFDESK_HTTP_HOST": "127.0.0.1"}
    for settings in (manifests["ConfigMap"]["data"], composed["x-replica"]["environment"]):
        remote = listen(NOWHERE, more=settings | here)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert httpx2.get(remote.base + container[probe]["httpGet"]["path"]).status_code == 200
        host = settings["REFDESK_HTTP_PUBLIC_URL"].removeprefix("https://")
        assert remote.post(world.ann, Host=host).status_code == 200
        assert remote.post(world.ann, Host="evil.example").status_code == 421


def test_what_the_documentation_shows_for_nginx_is_valid(tmp_path: Path) -> None:
    page = ROOT / "server/running.md"
    shown = nginx.shown(page, word="upstream refdesk")
    port = free_port()
    without_tls = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port};",
        "    listen [::]:443 ssl;\n": "",
        "    ssl_certificate /etc/ssl/desk.example.com.pem;\n": "",
        "    ssl_certificate_key /etc/ssl/desk.example.com.key;\n": "",
    }
    with nginx.running(nginx.replaced(shown, without_tls), tmp_path, port):
        assert httpx2.get(f"http://127.0.0.1:{port}/mcp").status_code == 502  # nobody is behind it
