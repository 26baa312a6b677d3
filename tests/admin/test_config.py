"""Where settings come from, and how refdesk-admin config check tries what they name."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from rag.access.tenants import check_tenant
from rag.config.load import load_settings, named_values
from rag.config.settings import Settings
from rag.home import check_data_folder
from rag.models.endpoint import CHECK_KEY
from rag.runtime import extra_needed
from tests.endpoint import embedded
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.conftest import Scripts
    from tests.endpoint import Behaviour, Endpoint, Reply

pytestmark = pytest.mark.slow

Check: TypeAlias = "Callable[..., tuple[int, dict[str, str]]]"

VALID, SETTINGS_OK = "The settings are valid.", "ok     settings: every key and value is valid"
NO_COLLECTION = "wrong There is no collection {}."
NO_PKCE = "note It doesn't declare PKCE with S256"


def test_without_any_file_the_defaults_are_right(scripts: Scripts) -> None:
    run = scripts.admin("config", "check", "--all")
    assert run.returncode == 0
    first, *settings, last = run.stdout.splitlines()
    assert first == f"Settings file: {scripts.home}/refdesk/config.toml (does not exist)"
    assert f'data = "{scripts.home}/refdesk"' in settings
    assert "search.limit = 8" in settings
    left_out = (
        ".git",
        ".hg",
        ".svn",
        "CVS",
        "node_modules",
        "site-packages",
        "__pycache__",
        "*.min.js",
        "_sources",
        "searchindex.js",
        "search_index.json",
        "navtree*.js",
        "~$*",
    )
    assert f"ingest.exclude = {json.dumps(left_out)}" in settings
    assert "embedder.baseline = (not set)" in settings
    assert last == VALID

    printed = json.loads(scripts.admin("config", "check", "--json").stdout)
    usual = Settings().model_dump(mode="json")
    assert printed["settings"] == usual | {"data": f"{scripts.home}/refdesk"}
    assert printed["settings_file"] == f"{scripts.home}/refdesk/config.toml"


def test_a_mistake_in_the_file_or_in_the_environment_is_named_with_its_place(
    scripts: Scripts, tmp_path: Path
) -> None:
    file = tmp_path / "desk.toml"
    file.write_text("[search]\nlimt = 5\n")
    for path, environment in ((file, {}), (None, {"REFDESK_SERCH_LIMIT": "5"})):
        named = ("--config", file) if path else ()
        run = scripts.admin("config", "check", *named, env=environment)
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr == f"refdesk-admin: {refusal(load_settings, path, environment)}\n"


@pytest.mark.parametrize("places", range(4))
def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    scripts: Scripts, tmp_path: Path, places: int
) -> None:
    """The data folder and the settings file, named in so many of three places, the weakest first."""
    folders = [tmp_path / name for name in ("file", "environment", "flag")]
    files = [tmp_path / "refdesk" / "config.toml", tmp_path / "environment.toml", tmp_path / "flag.toml"]
    files[0].parent.mkdir()
    for limit, file in enumerate(files, 1):
        file.write_text(f'data = "{folders[0]}"\n[search]\nlimit = {limit}\n' if places else "")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    flags: list[str | Path] = []
    if places > 1:
        environment |= {"REFDESK_DATA": str(folders[1]), "REFDESK_CONFIG": str(files[1])}
    if places > 2:
        flags = ["--data", folders[2], "--config", files[2]]
    lines = scripts.admin("config", "check", "--all", *flags, env=environment).stdout.splitlines()
    folder = folders[places - 1] if places else scripts.home / "refdesk"
    origin = ["", "", "  (from REFDESK_DATA)", "  (from --data)"][places]
    assert lines[0] == f"Settings file: {files[max(places - 1, 0)]}"
    assert lines[1] == f'data = "{folder}"{origin}'
    assert f"search.limit = {places or 8}" in lines


KEY = "sk-zebrafish"


@pytest.fixture
def check(scripts: Scripts, clock_room: Path, tmp_path: Path) -> Check:
    """The exit code and the lines by their parts, with this settings file."""

    def checked(text: str, *options: str | Path) -> tuple[int, dict[str, str]]:
        file = tmp_path / "config.toml"
        file.write_text(text)
        flags = options or ("--data", clock_room)
        run = scripts.admin("config", "check", "--config", file, *flags, env={"MY_KEY": KEY})
        assert KEY not in run.stdout + run.stderr
        lines = [line for line in run.stdout.splitlines() if line[:7].strip() in {"ok", "note", "wrong"}]
        assert lines[0] == SETTINGS_OK
        parts = [line[7:].partition(": ") for line in lines]
        return run.returncode, {
            part: f"{line[:7].strip()} {text}" for line, (part, _, text) in zip(lines, parts, strict=True)
        }

    return checked


def vectors(request: dict[str, Any]) -> Reply:
    return embedded([[0.6, 0.8] for _ in request["input"]])


def remote(provider: Endpoint) -> str:
    return f'model = "m"\nbase_url = "{provider.url}"\napi_key_env = "MY_KEY"\n'


def test_a_right_configuration_is_told_part_by_part_without_its_defaults(
    scripts: Scripts, clock_room: Path
) -> None:
    run = scripts.admin("config", "check", "--data", clock_room)
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert lines[1:6] == [
        f'data = "{clock_room}"  (from --data)',
        SETTINGS_OK,
        f"ok     data folder: {clock_room}",
        "ok     tenant: default",
        "ok     embedder: builtin all-MiniLM-L6-v2, 384 dimensions",
    ]
    assert lines[-1] == VALID


def test_before_the_first_ingestion_only_the_usual_folder_may_be_missing(
    scripts: Scripts, check: Check, tmp_path: Path
) -> None:
    run = scripts.admin("config", "check")
    assert run.returncode == 0
    assert f"\nnote   data folder: {refusal(check_data_folder, Path(scripts.home) / 'refdesk')}" in run.stdout
    code, findings = check("", "--data", tmp_path / "typo")
    assert code == 1
    assert findings["data folder"] == f"wrong {refusal(check_data_folder, tmp_path / 'typo')}"


def test_a_tenant_that_there_is_not_is_wrong_and_several_without_a_name_are_noted(
    scripts: Scripts, check: Check, tmp_path: Path
) -> None:
    for name in ("acorn", "birch"):
        scripts.admin("tenant", "create", name, "--data", tmp_path / "data")
    assert check("[principal]\ntenant = 'birch'\n", "--data", tmp_path / "data")[1]["tenant"] == "ok birch"
    code, findings = check("[principal]\ntenant = 'brich'\n", "--data", tmp_path / "data")
    assert (code, findings["tenant"]) == (1, f"wrong {refusal(check_tenant, tmp_path / 'data', 'brich')}")
    code, findings = check("", "--data", tmp_path / "data")
    assert (code, findings["tenant"].startswith("note ")) == (0, True)
    assert "2 tenants (acorn, birch)" in findings["tenant"]


def test_a_model_folder_is_opened(check: Check, tmp_path: Path) -> None:
    code, findings = check(f'[embedder]\nprovider = "onnx"\nmodel = "{tmp_path}/model"\n')
    assert code == 1
    assert findings["embedder"].startswith("wrong ")
    assert f"{tmp_path}/model" in findings["embedder"]


def test_what_an_origin_has_on_this_machine_is_looked_for(check: Check, tmp_path: Path) -> None:
    def settings(place: Path, program: str) -> str:
        folder = f"[origins.docs]\ntype = 'folder'\npath = '{place}'\n"
        return f"{folder}[origins.tickets]\ntype = 'records'\ncommand = ['{program}', '--full']\n"

    assert check(settings(tmp_path, "true"))[1]["origin docs"] == f"ok {tmp_path}"
    code, findings = check(settings(tmp_path / "typo", "no-such-program"))
    assert code == 1
    assert findings["origin docs"] == f"wrong there is no {tmp_path / 'typo'}"
    assert findings["origin tickets"] == "wrong there is no program no-such-program"


@pytest.mark.parametrize(
    ("inside", "finding"),
    [
        ("docs", "wrong {} is not a git repository"),
        (".git", "ok {}"),
        ("HEAD", "ok {}"),
        ("", "wrong there is no {}"),
    ],
)
def test_a_folder_that_is_no_repository_is_told(
    check: Check, tmp_path: Path, inside: str, finding: str
) -> None:
    place = tmp_path / "code"
    if inside:
        (place / inside).mkdir(parents=True)
    findings = check(f"[origins.code]\ntype = 'git'\nrepository = '{place}'\n")[1]
    assert findings["origin code"] == finding.format(place)


def test_endpoints_are_asked_and_wrong_keys_told(
    check: Check,
    provider: Endpoint,
    chat_server: Endpoint,
    rerank_server: Endpoint,
    chats: ModuleType,
    tmp_path: Path,
) -> None:
    text = (
        f'[embedder]\nprovider = "openai"\n{remote(provider)}[chat]\n{remote(chat_server)}'
        f'[reranker]\nprovider = "voyage"\n{remote(rerank_server)}'
    )
    none_yet = ("--data", tmp_path / "none")
    provider.script = [vectors]
    chat_server.script = [chats.saying({"ready": True})]
    rerank_server.script = [rerank_server.sending(b'{"data": [{"index": 0, "relevance_score": 0.5}]}')]
    _, findings = check(text, *none_yet)
    assert findings["embedder"] == "ok openai m, 2 dimensions"
    assert findings["chat"] == "ok m answers"
    assert findings["reranker"] == "ok voyage answers"
    assert provider.keys[0] == chat_server.keys[0] == f"Bearer {KEY}"

    small, big = '{ stage = "multi_query", model = "small" }', '{ stage = "rerank", model = "big" }'
    profile = f"[search.profiles.fine]\nstages = [{small}, {big}]\n"
    _, findings = check(text + profile, *none_yet)
    assert (findings["chat small"], findings["reranker big"]) == ("ok small answers", "ok big answers")
    assert (chat_server.requests[-1]["model"], rerank_server.requests[-1]["model"]) == ("small", "big")

    for server in (provider, chat_server, rerank_server):
        server.script = [server.failing(401)]
    code, findings = check(text, *none_yet)
    assert code == 1
    for part in ("embedder", "chat", "reranker"):
        assert findings[part].startswith("wrong ")
        assert findings[part].endswith(f"HTTP 401{CHECK_KEY.format('MY_KEY')}.")


def test_extras_that_settings_need_are_looked_for(scripts: Scripts, clock_room: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    origin = 'origins.a = { type = "s3", bucket = "acorn" }'
    file.write_text(f'server.traces = true\ningest.ocr = "auto"\n{origin}\n')
    without = (
        "import sys\nfor name in 'obstore', 'rapidocr', 'opentelemetry.exporter': sys.modules[name] = None\n"
    )
    (tmp_path / "sitecustomize.py").write_text(without)
    arguments = ("config", "check", "--config", file, "--data", clock_room)
    run = scripts.admin(*arguments, env={"PYTHONPATH": str(tmp_path)})
    assert run.returncode == 1
    for part, extra in (("origins.a", "cloud"), ("ingest.ocr", "ocr"), ("server.traces", "otel")):
        assert f"wrong  {part}: {extra_needed(extra, 'It')}" in run.stdout.splitlines()
    assert "ok     server.traces: the extra otel is installed" in scripts.admin(*arguments).stdout


def test_a_moderator_that_is_an_endpoint_is_asked(check: Check, provider: Endpoint) -> None:
    provider.script = [provider.sending(b'{"results": [{"flagged": false}]}'), provider.failing(401)]
    text = f'[moderation]\nbase_url = "{provider.url}"\napi_key_env = "MY_KEY"\n'
    assert check(text)[1]["moderation"] == f"ok {provider.url} answers"
    code, findings = check(text)
    assert code == 1
    assert findings["moderation"].startswith(f"wrong {provider.url} gives no verdict: ")


def test_collections_of_another_embedder_are_told(check: Check, provider: Endpoint) -> None:
    provider.script = [vectors]
    code, findings = check(f'[embedder]\nprovider = "openai"\n{remote(provider)}')
    assert code == 1
    assert findings["embedder"].startswith(
        "wrong The collection 'documents' was made with the embedder builtin"
    )


def test_addresses_are_tried_and_one_that_is_taken_is_only_noted(check: Check) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, findings = check(f"[http]\nport = {port}\nmetrics_port = 0\n")
    assert code == 0
    assert findings["http address"] == f"note 127.0.0.1:{port} is taken, perhaps by refdesk itself."
    assert "metrics address" not in findings
    code, findings = check('[http]\nhost = "192.0.2.1"\n')
    assert code == 1
    assert findings["http address"].startswith("wrong 192.0.2.1:8300 can't be bound: ")


def test_settings_that_would_let_anybody_in_are_told(check: Check) -> None:
    code, findings = check('[http]\nauthentication = []\npublic_url = "https://desk.example.com"\n')
    assert code == 1
    assert "anybody could search" in findings["http"]
    assert check("[http]\nauthentication = []\n")[1]["http"].startswith("ok ")


def test_the_issuers_keys_are_fetched(check: Check, provider: Endpoint) -> None:
    provider.script = [_answer(provider, KEYS), provider.failing(404)]
    code, findings = check(_oauth(provider))
    assert code == 0
    assert findings["issuer"] == f"ok 1 signing keys at {provider.url}/keys"
    assert findings["issuer's metadata"].startswith(f"note {provider.url} has none")
    assert provider.paths[1:] == [
        "/.well-known/oauth-authorization-server/v1",
        "/.well-known/openid-configuration/v1",
        "/v1/.well-known/openid-configuration",
    ]
    code, findings = check(_oauth(provider))
    assert code == 1
    assert findings["issuer"] == f"wrong Its keys can't be fetched from {provider.url}/keys (oauth.jwks_url)."
    assert "issuer's metadata" not in findings


@pytest.mark.parametrize("change", [{"use": "enc"}, {"kid": ""}, {"kid": ["1"]}, {"alg": ["HS256"]}])
def test_an_issuer_without_a_usable_key_is_told(
    check: Check, provider: Endpoint, change: dict[str, object]
) -> None:
    provider.script = [_answer(provider, {"keys": [KEYS["keys"][0] | change]})]
    code, findings = check(_oauth(provider))
    assert code == 1
    assert findings["issuer"].startswith("wrong ")


@pytest.mark.parametrize(
    "table", ["tenants = { a = 'acron' }", "clients.bot = { tenant = 'acron', user = 'b' }"]
)
def test_a_tenant_that_tokens_name_and_nobody_made_is_noted(
    check: Check, clock_room: Path, table: str
) -> None:
    assert "oauth" not in check("[oauth]\ntenants = { a = 'default' }")[1]
    code, findings = check(f"[oauth]\n{table}")
    assert code == 0
    assert findings["oauth"].startswith(f"note {refusal(check_tenant, clock_room, 'acron')}")


KEYS = {"keys": [{"kty": "oct", "kid": "1", "use": "sig", "alg": "HS256", "k": "AAAA"}]}


def _oauth(provider: Endpoint) -> str:
    return (
        '[http]\npublic_url = "https://desk.example.com"\nauthentication = ["oauth"]\n[oauth]\n'
        f'issuer = "{provider.url}"\njwks_url = "{provider.url}/keys"\n'
        'tenants = { a = "default" }\n'
    )


def _answer(provider: Endpoint, body: object) -> Behaviour:
    return provider.sending(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("differences", "finding"),
    [
        ({}, "ok clients need an id from you; sign-in that an identity provider vouches for (ID-JAG): no"),
        (
            {
                "registration_endpoint": "https://login.example.com/reg",
                "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
            },
            "ok clients can register by themselves; sign-in that an identity provider vouches for",
        ),
        (
            {"issuer": "https://login.example.com/"},
            "wrong It calls itself 'https://login.example.com/', not ",
        ),
        ({"issuer": None}, "wrong It calls itself None, not "),
        (
            {"jwks_uri": "https://login.example.com/k"},
            "note It has its keys at 'https://login.example.com/k'",
        ),
        ({"code_challenge_methods_supported": ["plain"]}, NO_PKCE),
        ({"code_challenge_methods_supported": 5}, NO_PKCE),
    ],
)
def test_the_issuers_metadata_is_compared_with_the_settings(
    check: Check, provider: Endpoint, differences: dict[str, object], finding: str
) -> None:
    metadata = {
        "issuer": provider.url,
        "jwks_uri": f"{provider.url}/keys",
        "code_challenge_methods_supported": ["S256"],
    }
    provider.script = [_answer(provider, KEYS), _answer(provider, metadata | differences)]
    code, findings = check(_oauth(provider))
    assert findings["issuer's metadata"].startswith(finding)
    assert (code == 1) is finding.startswith("wrong")


def test_the_findings_come_as_json_too(scripts: Scripts, tmp_path: Path) -> None:
    run = scripts.admin("config", "check", "--json", "--data", tmp_path / "typo")
    assert run.returncode == 1
    checks = {check["part"]: check["state"] for check in json.loads(run.stdout)["checks"]}
    assert (checks["data folder"], checks["embedder"]) == ("wrong", "ok")


def test_a_binding_that_leaves_nothing_is_wrong(check: Check) -> None:
    code, findings = check(
        """
        [[server.tools]]
        collections = ["documents"]
        [[server.tools]]
        name = "search_b"
        opener = { name = "open_b" }
        collections = ["documents", "handbook"]
        [oauth.scopes.final]
        filter = { status = "final" }
        [oauth.scopes.all]
        """
    )
    assert code
    assert findings["tool search_b"] == NO_COLLECTION.format("handbook")
    assert (
        findings["scope final"]
        == "wrong The filter doesn't fit the declared fields of any collection (documents)."
    )
    assert not findings.keys() & {"tool search", "scope all"}


def test_names_in_the_tables_of_search_that_nothing_has_are_wrong(
    check: Check, scripts: Scripts, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    scripts.admin("collection", "create", "documents", "--field", "status=string", "--data", data)
    text = """
        search.filter = {{ {field} = "x" }}
        [search.profiles.final]
        filter = {{ {field} = "final" }}
        [search.of_collections]
        {collection} = "fast"
        [search.urls]
        {collection} = "https://desk.example.com/{{path}}"
        [search.of_tenants.{tenant}]
        filter = {{ {field} = "final" }}
        """
    wrong = text.format(field="statuss", collection="handbok", tenant="default")
    code, findings = check(wrong, "--data", data)
    assert code
    for part in ("search.filter", "profile final", "search.of_tenants.default"):
        assert findings[part].startswith("wrong The filter doesn't fit the declared fields")
    for part in ("search.of_collections", "search.urls"):
        assert findings[part] == NO_COLLECTION.format("handbok")
    right = text.format(field="status", collection="documents", tenant="nope")
    code, findings = check(right, "--data", data)
    assert (code, findings.keys() & {"search.filter", "profile final", "search.urls"}) == (0, set())
    assert findings["search.of_tenants"].startswith("note There is no tenant 'nope'")


def test_tables_whose_keys_the_operator_chooses_are_printed(scripts: Scripts, tmp_path: Path) -> None:
    lines = [
        f'origins.x.path = "{tmp_path}"',
        "search.profiles.final.limit = 5",
        'search.profiles.final.filter.year."$gte" = 2020',
        'search.of_collections.documents = "fast"',
        'oauth.tenants."Acorn Ltd" = "default"',
        'oauth.scopes."hb:read".collections = ["documents"]',
        'oauth.scopes."all:read" = {}',
    ]
    file = tmp_path / "config.toml"
    file.write_text("\n".join(['origins.x.type = "folder"', *lines]))
    for flags in ((), ("--all",)):
        printed = scripts.admin("config", "check", "--config", file, *flags).stdout.splitlines()
        assert [line for line in printed if line in lines] == lines
        profiles = [line for line in printed if line.startswith("search.profiles.")]
        assert profiles == [line for line in lines if line in profiles]  # and none of those built in
    assert not [*named_values(Settings())]


def test_an_access_rule_that_stands_too_late_is_wrong(check: Check) -> None:
    rules = [f'{{ path = "{path}", allow = ["group:x"] }}' for path in ("*", "hr/*")]
    code, findings = check(f"access.rules = [{', '.join(rules)}]")
    assert code
    assert "the rule for * stands before it" in findings["access rule hr/*"]
    code, findings = check(f"access.rules = [{', '.join(reversed(rules))}]")
    assert (code, "access rule *" in findings) == (0, False)


def test_a_key_that_names_what_is_no_longer_there_is_wrong(
    check: Check, scripts: Scripts, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    scripts.admin("collection", "create", "handbook", "--data", data)
    (tmp_path / "config.toml").write_text("[search.profiles.own]\nlimit = 3\n")
    create = ("key", "create", "--data", data, "--config", tmp_path / "config.toml", "--json")
    ids = []
    for option in (["--profile", "own"], ["--collection", "handbook"], ["--tool", "search"]):
        run = scripts.admin(*create, *option)
        ids.append(json.loads(run.stdout)["id"])
    scripts.admin("collection", "create", "other", "--data", data)
    assert scripts.admin("collection", "remove", "handbook", "--yes", "--data", data).returncode == 0
    code, findings = check('server.tools = [{ name = "find" }]', "--data", data)
    assert code
    assert findings[f"key {ids[0]}"].startswith("wrong It can't search: there is no profile 'own'")
    assert findings[f"key {ids[1]}"] == NO_COLLECTION.format("handbook")
    assert findings[f"key {ids[2]}"].startswith("wrong It can't search: there is no search tool 'search'")
    (data / "keys.json").write_text("{")
    (data / "keys.json").chmod(0o600)
    assert "can't be read" in check("", "--data", data)[1]["keys"]
