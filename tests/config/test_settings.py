"""Where settings come from, and how mistakes in them are reported."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from rag.access.rule import valid_entries, valid_name
from rag.config.load import asker_flags, config_path, environment_name, load_settings, setting_keys
from rag.config.profiles import WINDOWS_PATH
from rag.config.server_settings import HttpSettings
from rag.config.settings import Settings, StorageSettings
from rag.errors import ConfigurationError
from tests.config.test_mistakes import LATE
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[str], Path]

ONNX = (
    'provider = "onnx" needs model: the name of a model that refdesk-admin model has pulled or added, or the '
    "path of a folder with model.onnx and tokenizer.json."
)
NO_HOME = "begins with the home folder of a user who doesn't exist."
EVERY_SETTING = {
    "data": ("/srv/desk", Path("/srv/desk")),
    "models": ("/srv/models", Path("/srv/models")),
    "storage.uri": ("s3://bucket/desk", "s3://bucket/desk"),
    "storage.consistency_seconds": ("0", 0.0),
    "storage.options.endpoint": ("https://localhost:1", "https://localhost:1"),
    "storage.options.region": ("eu-west-1", "eu-west-1"),
    "storage.options.skip_signature": ("true", True),
    "storage.options.allow_http": ("true", True),
    "principal.tenant": ("acme", "acme"),
    "principal.user": ("ann", "ann"),
    "principal.groups": ("hr, it", ("hr", "it")),
    "embedder.provider": ("openai", "openai"),
    "embedder.model": ("multilingual-e5-small", "multilingual-e5-small"),
    "embedder.base_url": ("http://localhost:1/v1", "http://localhost:1/v1"),
    "embedder.api_key_env": ("MY_KEY", "MY_KEY"),
    "embedder.dimensions": ("256", 256),
    "embedder.max_tokens": ("1024", 1024),
    "embedder.query_prefix": ("query: ", "query: "),
    "embedder.document_prefix": ("a, b: ", "a, b: "),
    "embedder.baseline": ("0.7", 0.7),
    "embedder.price": ("0.02", 0.02),
    "embedder.timeout_seconds": ("1.5", 1.5),
    "chat.model": ("small", "small"),
    "chat.base_url": ("http://localhost:1/v1", "http://localhost:1/v1"),
    "chat.api_key_env": ("MY_KEY", "MY_KEY"),
    "chat.input_price": ("0.15", 0.15),
    "chat.output_price": ("0.6", 0.6),
    "chat.timeout_seconds": ("1.5", 1.5),
    "reranker.provider": ("tei", "tei"),
    "reranker.base_url": ("http://localhost:1", "http://localhost:1"),
    "reranker.model": ("ranks", "ranks"),
    "reranker.api_key_env": ("MY_KEY", "MY_KEY"),
    "reranker.timeout_seconds": ("1.5", 1.5),
    "ingest.include": ("*.md, *.txt", ("*.md", "*.txt")),
    "ingest.exclude": ("[]", ()),
    "ingest.hidden": ("true", True),
    "ingest.archives": ("true", True),
    "ingest.ignore_files": ("false", False),
    "ingest.max_file_bytes": ("123", 123),
    "ingest.embedding_cache_bytes": ("0", 0),
    "ingest.keep_versions_minutes": ("2.5", 2.5),
    "ingest.parse_timeout_seconds": ("9", 9.0),
    "ingest.ocr": ("auto", "auto"),
    "access.of_documents": ("true", True),
    "access.letter_case": ("never", "never"),
    "search.mode": ("dense", "dense"),
    "search.limit": ("3", 3),
    "search.detail": ("section", "section"),
    "search.candidates": ("77", 77),
    "search.statistics": ("strict", "strict"),
    "search.relax": ("true", True),
    "search.must_contain": ("approved,final", ("approved", "final")),
    "search.degrade": ("false", False),
    "search.timeout_seconds": ("2", 2.0),
    "search.index_cache_bytes": ("500000000", 500_000_000),
    "search.memory_bytes": ("90000000", 90_000_000),
    "server.name": ("acorn-desk", "acorn-desk"),
    "server.title": ("Acorn's desk", "Acorn's desk"),
    "server.instructions": ("Acorn's own documents, in English.", "Acorn's own documents, in English."),
    "server.website": ("https://desk.example.com/about", "https://desk.example.com/about"),
    "server.icon": ("https://desk.example.com/icon.png", "https://desk.example.com/icon.png"),
    "server.max_chars": ("4000", 4000),
    "server.pictures": ("always", "always"),
    "http.host": ("0.0.0.0", "0.0.0.0"),  # noqa: S104 it is only read
    "http.port": ("8080", 8080),
    "http.path": ("/desk/mcp", "/desk/mcp"),
    "http.metrics_port": ("9100", 9100),
    "http.public_url": ("https://desk.example.com", "https://desk.example.com"),
    "http.allowed_hosts": ("a:1, b:2", ("a:1", "b:2")),
    "http.allowed_origins": ("http://a:1", ("http://a:1",)),
    "http.trusted_proxies": ("127.0.0.1, 10.0.0.0/24", ("127.0.0.1", "10.0.0.0/24")),
    "http.authentication": ("[]", ()),
    "http.sse": ("true", True),
    "oauth.issuer": ("https://issuer.example.com/", "https://issuer.example.com/"),
    "oauth.jwks_url": ("https://issuer.example.com/jwks", "https://issuer.example.com/jwks"),
    "oauth.audience": ("desk", "desk"),
    "oauth.tenant_claim": ("org", "org"),
    "oauth.user_claim": ("email", "email"),
    "oauth.groups_claim": ("roles", "roles"),
    "oauth.groups_required": ("always", "always"),
    "oauth.scope_prefix": ("api://desk/", "api://desk/"),
    "oauth.page_client": ("refdesk-pages", "refdesk-pages"),
    "limits.concurrent": ("5", 5),
    "limits.concurrent_per_tenant": ("2", 2),
    "limits.requests_per_minute": ("60", 60),
    "limits.connections_per_address": ("10", 10),
    "limits.failures_per_minute": ("5", 5),
    "limits.request_seconds": ("5", 5.0),
    "limits.receive_seconds": ("2.5", 2.5),
    "search.thresholds.min_similarity": ("0.3", 0.3),
    "search.thresholds.max_distance": ("0.7", 0.7),
    "search.thresholds.percentage_distance": ("25", 25.0),
    "search.thresholds.min_evidence": ("0.25", 0.25),
    "search.thresholds.weak_evidence": ("no hits", "no hits"),
    "search.context_tokens": ("500", 500),
    "moderation.call": ("my.module:check", "my.module:check"),
    "moderation.command": ("/usr/bin/check, -q", ("/usr/bin/check", "-q")),
    "moderation.base_url": ("http://localhost:1/v1", "http://localhost:1/v1"),
    "moderation.model": ("small", "small"),
    "moderation.api_key_env": ("MY_KEY", "MY_KEY"),
    "moderation.flagged": ("skip", "skip"),
    "moderation.on_failure": ("skip", "skip"),
    "search.fusion.method": ("rrf", "rrf"),
    "search.fusion.alpha": ("0.7", 0.7),
    "server.include_vectors": ("true", True),
    "server.full_results": ("true", True),
    "search.overrides": ("limit", ("limit",)),
    "search.engine.operator": ("and", "and"),
    "server.explain": ("true", True),
    "server.profiles": ("fast, default", ("fast", "default")),
    "server.field_values": ("false", False),
    "server.openai_compat": ("true", True),
    "server.apps": ("true", True),
    "server.traces": ("true", True),
    "server.log_level": ("debug", "debug"),
}
"""A value for each as it is written in the environment, and as it is understood."""
LISTS_OF_TABLES = {
    ("server", "tools"),
    ("access", "rules"),
    ("search", "stages"),
}  # lists of tables
NEEDED = {
    "embedder.provider": {"embedder.model": "m"},
    "reranker.provider": {"reranker.base_url": "http://x"},
}
"""The settings that these values need beside them."""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a settings file."""

    def written(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def _value(settings: Settings, name: str) -> object:
    value: object = settings
    for key in name.split("."):
        value = getattr(value, key)
    return value


def _complaint(config: Path | None = None, environment: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(ConfigurationError) as error:
        load_settings(config, environment or {}, flags)
    return str(error.value)


def test_the_environment_wins_over_the_file_and_flags_over_both(write: Write) -> None:
    config = write('data = "/file"\n[search]\nlimit = 1\nmode = "dense"\n')
    environment = {"REFDESK_DATA": "/environment", "REFDESK_SEARCH_LIMIT": "2"}
    settings = load_settings(config, environment, {"data": Path("/flag")})
    assert (settings.data, settings.search.limit, settings.search.mode) == (Path("/flag"), 2, "dense")
    assert load_settings(config, environment, {"data": None}).data == Path("/environment")
    assert load_settings(config, {}).data == Path("/file")


def test_a_setting_that_nobody_made_has_its_default(write: Write) -> None:
    assert load_settings(write(""), {}) == Settings()
    assert load_settings(write("[search]\n"), {"HOME": "/x", "PATH": "y"}) == Settings()


@pytest.mark.parametrize(
    ("setting", "address", "words"),
    [
        ("hosts", "desk.example.com", "write a host as clients name it"),
        ("origins", "https://desk.example.com", "write an origin as browsers send it"),
    ],
)
def test_an_address_that_stands_for_several_is_refused(setting: str, address: str, words: str) -> None:
    HttpSettings.model_validate({f"allowed_{setting}": [f"{address}:8443"]})
    with pytest.raises(ValidationError, match=words):
        HttpSettings.model_validate({f"allowed_{setting}": [f"{address}:*"]})


@pytest.mark.parametrize("name", ["", "hb read", 'hb"', "hb\\", "büro:read", "hb\\n"])
def test_a_scope_that_no_token_could_have_is_refused(write: Write, name: str) -> None:
    assert "hb:read" in load_settings(write('[oauth.scopes."hb:read"]\n'), {}).oauth.scopes
    complaint = _complaint(write(f"[oauth.scopes]\n{json.dumps(name, ensure_ascii=False)} = {{}}\n"))
    assert "a scope as tokens have it" in complaint


@pytest.mark.parametrize(
    "wrong",
    [
        'uri = "https://bucket/desk"',
        'uri = "s3://"',
        'uri = "s3://key:secret@bucket"',
        'uri = "s3://bucket/../other"',
        'uri = "s3://bucket/desk?versionId=1"',
        "consistency_seconds = -1",
        '[storage.options]\nsecret_access_key = "secret"',
        '[storage.options]\nendpoint = "https://key:secret@localhost"',
        '[storage.options]\nendpoint = "http://localhost:1"',
    ],
)
def test_an_address_of_a_bucket_is_exact_and_holds_no_credentials(write: Write, wrong: str) -> None:
    right = '[storage]\nuri = "az://bucket/some/desk"\n[storage.options]\nendpoint = "https://localhost:1"\n'
    assert str(load_settings(write(right), {}).home) == "az://bucket/some/desk"
    complaint = _complaint(write(f"[storage]\n{wrong}\n"))
    assert "storage." in complaint
    if "secret_access_key" not in wrong:
        assert "secret" not in complaint


@pytest.mark.parametrize("uri", ["db://desk", "DB://desk", "db://"])
def test_a_service_is_refused_by_its_name(write: Write, uri: str) -> None:
    assert "LanceDB Enterprise or Cloud, where no desk can be" in _complaint(
        write(f'[storage]\nuri = "{uri}"\n')
    )


def test_a_desk_without_a_bucket_is_in_its_data_folder_and_one_with_it_is_not(write: Write) -> None:
    assert load_settings(write('data = "/srv/desk"\n'), {}).home == Path("/srv/desk")
    settings = load_settings(write('[storage]\nuri = "s3://bucket/desk"\n'), {})
    assert settings.home is settings.home
    assert str(settings.model_copy(update={"storage": StorageSettings(uri="s3://bucket/desk/")}).home) == str(
        settings.home
    )
    assert str(settings.home) == "s3://bucket/desk"


def test_every_setting_can_be_made_in_the_environment(write: Write) -> None:
    keys_of_one_line = setting_keys().keys() - LISTS_OF_TABLES
    assert EVERY_SETTING.keys() == {".".join(keys) for keys in keys_of_one_line}
    for keys in keys_of_one_line:
        name = ".".join(keys)
        raw, understood = EVERY_SETTING[name]
        extra = {
            environment_name(tuple(key.split("."))): value for key, value in NEEDED.get(name, {}).items()
        }
        settings = load_settings(write(""), extra | {environment_name(keys): raw})
        assert _value(settings, name) == understood
        assert _value(Settings(), name) != understood


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("access.rules", '[{"path": "hr/*", "visibility": "restricted", "allow": ["group:hr"]}]'),
        ("oauth.tenants", '{"Acme Inc.": "acme"}'),
        ("search.profiles", '{"wide": {"limit": 20}}'),
        ("embedders", '{"other": {"model": "multilingual-e5-small"}}'),
    ],
)
def test_tables_can_be_made_in_the_environment_as_in_the_file(write: Write, name: str, raw: str) -> None:
    variable = environment_name(tuple(name.split(".")))
    from_environment = load_settings(write(""), {variable: raw})
    values = json.loads(raw)
    if isinstance(values, list):
        text = "".join(f"[[{name}]]\n{_lines(value)}" for value in values)
    else:
        tables = {key: value for key, value in values.items() if isinstance(value, dict)}
        text = f"[{name}]\n{_lines({key: values[key] for key in values.keys() - tables})}"
        text += "".join(f"[{name}.{key}]\n{_lines(value)}" for key, value in tables.items())
    assert from_environment == load_settings(write(text), {}) != Settings()


def _lines(table: dict[str, object]) -> str:
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items())


def test_every_setting_can_be_made_in_the_file(write: Write) -> None:
    for name, (_, understood) in EVERY_SETTING.items():
        section, _, key = name.rpartition(".")
        extra = "".join(
            f"{key.partition('.')[2]} = '{value}'\n" for key, value in NEEDED.get(name, {}).items()
        )
        header = f"[{section}]\n{extra}" if section else ""
        # JSON is TOML, as far as strings, numbers, booleans and lists of them go.
        config = write(f"{header}{key} = {json.dumps(understood, default=str)}\n")
        assert _value(load_settings(config, {}), name) == understood


def test_the_file_is_the_named_one_then_that_of_the_environment_then_the_usual_one(
    write: Write, tmp_path: Path
) -> None:
    config, second = write("[search]\nlimit = 1\n"), tmp_path / "other.toml"
    second.write_text("[search]\nlimit = 2\n")
    environment = {"REFDESK_CONFIG": str(second)}
    assert load_settings(config, environment).search.limit == 1
    assert load_settings(None, environment).search.limit == 2
    path, required = config_path(None, {})
    assert (path.parts[-2:], required) == (("refdesk", "config.toml"), False)


@pytest.mark.parametrize(
    "name", ["my\u00a0docs", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0646\u0645", "\u66f8\u985e\u3000A"]
)
def test_a_path_may_have_the_spaces_and_joiners_of_any_script(
    write: Write, tmp_path: Path, name: str
) -> None:
    assert load_settings(write(f'data = "{tmp_path}/{name}"\n'), {}).data == tmp_path / name


@pytest.mark.parametrize("path", [r"C:\Users\ann", r"C:\Data", r"\\server\share", r"D:\temp", r"C:\notes"])
def test_a_windows_path_in_double_quotes_is_refused_with_what_to_write(write: Write, path: str) -> None:
    """TOML takes \\t and \\n in it for a tab and a new line."""
    assert WINDOWS_PATH in _complaint(write(f'# one line\u2028of TOML\ndata = "{path}"\n'))
    assert load_settings(write(f"data = '{path}'\n"), {}).data.name == path


def test_a_file_that_somebody_named_must_be_there_and_be_toml(write: Write, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert _complaint(missing) == f"There is no settings file {missing}."
    assert _complaint(None, {"REFDESK_CONFIG": str(missing)}) == _complaint(missing)
    assert _complaint(write("[search\n")).startswith(f"{tmp_path}/config.toml is not valid TOML: ")
    (tmp_path / "config.toml").write_bytes(b"\xff")
    assert "config.toml is not text in UTF-8. Save it in" in _complaint(tmp_path / "config.toml")
    assert "can't be read: Is a directory." in _complaint(tmp_path)


TWO_TOOLS = "[[server.tools]]\nname = 'a'\n[[server.tools]]\nname = 'b'\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data = 'd'\nsearch = {limit = 300}\n", 2),
        ("data = 'd'\n'search' = {stages = [{stage = 'dedupe'}, {stage = 'late'}]}\n", 2),
        ("data = 'd'\nsearch.limit = 300\n", 2),
        ("data = 'd'\nsearch . 'limit' = 300\n", 2),
        ("[search]\nlimit = 3\nthresholds.min_similarity = 3\n", 3),
        ('[search]\n"limit" = 300\n', 2),
        ("data = 'd'\n [ 'search' ] # see [server]\n\tlimit = 300\n", 3),
        ("[server]\ntools = [\n  # two\n  {name = 'a'},\n\n  {name = 'b', limit = 300},\n]\n", 6),
        ("server.tools = [{name = 'a'}, {name = 'b'},\n {name = '[', limit = 300}]\n", 2),
        ("[server]\ntools = [{name = 'a'}\n, {name = 'b', limit = 300}]\n", 3),
        ("server = {tools = [{name = 'a'},\n {name = 'b', limit = 300}]}\n", 2),
        (f"{TWO_TOOLS}limit = 300\n", 5),
        (f"{TWO_TOOLS}[server.tools.opener]\nnam = 'c'\n", 6),
        (f"{TWO_TOOLS}opener.nam = 'c'\n", 5),
        (f"{TWO_TOOLS}opener = {{nam = 'c'}}\n", 5),
        ('[server]\ninstructions = """\n[search]\nlimit = 3\\"""""\n[search]\nlimit = 300\n', 6),
        ("[server]\ninstructions = '''\n[search]\nlimit = 3'''\n[search]\nlimit = 300", 6),
        ("server.profiles = [\n  'fast',\n  'theirs',\n]\n", 1),
        ("[server]\nprofiles = [\n  'fast',\n  3,\n]\n", 4),
    ],
)
def test_a_mistake_is_told_with_its_line_however_the_file_is_written(
    write: Write, tmp_path: Path, text: str, line: int
) -> None:
    assert _complaint(write(text)).startswith(f"{tmp_path}/config.toml, line {line}: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[search]\n\nlimt = 3\n", "line 3: there is no setting search.limt; did you mean search.limit?"),
        ("[search]\nlimits = 3\n", "line 2: there is no setting search.limits; did you mean search.limit?"),
        (
            "[embedder]\nroute = 'a'\n",
            "line 2: there is no setting embedder.route. [embedder] has provider, ",
        ),
        ("[serch]\nlimit = 3\n", "line 1: there is no setting serch; did you mean search?"),
        ("tenant = 'a'\n", "line 1: there is no setting tenant; did you mean principal.tenant?"),
        ("limit = 5\n", "line 1: there is no setting limit; did you mean search.limit?"),
        (
            "access.rules = [{ path = 'hr/*', pat = 'x' }]\n",
            "line 1: there is no setting access.rules.pat; did you mean access.rules.path?",
        ),
        ("xyzzy = 1\n", "line 1: there is no setting xyzzy."),
        ("[metrics]\nport = 1\n", "line 1: there is no setting metrics."),
        ("[embedder]\nkind = 'x'\n", "line 2: there is no setting embedder.kind."),
        (
            "# limit\n[search]\nmode = 'dense'\nlimit = '3'\n",
            "line 4: search.limit must be a whole number, not '3'.",
        ),
        ("[search]\nlimit = -1\n", "line 2: search.limit must be at least 0, not -1."),
        ("[search.profiles.default]\nmode = 'dense'\n", "line 1: search.profiles: 'default' is the name of"),
        ("[search.profiles.Wide]\n", f"line 1: search.profiles.Wide: {refusal(valid_name, 'Wide')}"),
        (
            "[search.profiles.wide]\nmod = 'dense'\n",
            "line 2: there is no setting search.profiles.wide.mod; did you mean search.profiles.wide.mode?",
        ),
        ("[search]\nlimit = 101\n", "line 2: search.limit must be at most 100, not 101."),
        ("[search]\nlimit = 3.5\n", "line 2: search.limit must be a whole number, not 3.5."),
        ("[search]\nlimit = true\n", "line 2: search.limit must be a whole number, not true."),
        (
            "[search]\nmode = 'fuzzy'\n",
            "line 2: search.mode must be 'dense', 'sparse', 'hybrid' or 'exact', not 'fuzzy'.",
        ),
        ("[search]\ntimeout_seconds = nan\n", "line 2: search.timeout_seconds must be at most 600, not nan."),
        ("[search]\ntimeout_seconds = inf\n", "line 2: search.timeout_seconds must be at most 600, not inf."),
        ("[server]\nprofiles = 'a'\n", "line 2: server.profiles must be a list, not 'a'."),
        (
            "[server]\nprofiles = ['ok', 'Not']\n",
            f"line 2: server.profiles: {refusal(valid_name, 'Not')}",
        ),
        (
            "[[search.stages]]\nstage = 'dedupe'\n[[search.stages]]\nstage = 'diversify'\nlambda = 2\n",
            "line 5: search.stages.lambda must be at most 1, not 2.",
        ),
        (
            "[search]\nlimit = 1\n[[search.stages]]\nstage = 'recent'\n",
            "line 3: search.stages: there is no stage 'recent'; use one of 'multi_query', 'planner',",
        ),
        (
            "[search.profiles.new]\n\n[[search.profiles.new.stages]]\nstage = 'recency'\nhalf_life = 2\n",
            "line 5: there is no setting search.profiles.new.stages.half_life",
        ),
        (
            "[search.profiles.mine]\n[server]\nprofiles = ['mine', 'default', 'fresh', 'theirs']\n",
            "line 3: server.profiles: there is no profile 'theirs'; use one of: default, fast, precise, fr",
        ),
        (
            "[search.of_tenants.acorn]\nlimits = 3\n",
            "line 2: there is no setting search.of_tenants.acorn.limits; did you mean search.of_tenants",
        ),
        (
            "[search.of_collections]\n\ntickets = 'new'\n",
            "line 3: search.of_collections.tickets: there is no profile 'new'; use one of: default, fast, p",
        ),
        (
            "[search]\noverrides = ['profile']\n",
            (
                "line 2: each item of search.overrides must be 'mode', 'limit', 'fusion', 'alpha', "
                "'candidates', 'thresholds', 'stages', 'vectors' or 'distance', not 'profile'."
            ),
        ),
        (
            "[[search.stages]]\nstage = 'dedupe'\n[[search.stages]]\nstage = 'rerank'\n",
            "line 3: search.stages: the stage rerank needs reranker.provider, which is not set.",
        ),
        (
            "[search.profiles.a]\n[[search.profiles.a.stages]]\nstage = 'rerank'\nby = 'chat'\n",
            "line 2: search.profiles.a.stages: the stage rerank needs chat.model, which is not set.",
        ),
        (
            "[search.of_tenants.a]\n[[search.of_tenants.a.stages]]\nstage = 'planner'\n",
            "line 2: search.of_tenants.a.stages: the stage planner needs chat.model, which is not set.",
        ),
        (
            "[chat]\nmodel = 'm'\n[search.profiles.a]\nstages = [{stage = 'dedupe'}, {stage = 'planner'}]\n",
            f"line 4: search.profiles.a.stages: {LATE.format('planner')}",
        ),
        (
            (
                "[[search.stages]]\nstage = 'dedupe'\n"
                "[[search.stages]]\nstage = 'custom'\ncall = 'a:b'\ntakes = 'query'\n"
            ),
            f"line 3: search.stages: {LATE.format('custom')}",
        ),
        (
            "[[search.stages]]\nstage = 'custom'\ncall = 'a.b'\ntakes = 'hits'\n",
            "line 3: search.stages.call: write module:function, like our_search.stages:by_popularity.",
        ),
        ("[reranker]\nprovider = 'onnx'\n", f"line 1: reranker: {ONNX}"),
        ("[reranker]\nprovider = 'tei'\n", 'line 1: reranker: provider = "tei" needs base_url'),
        (
            "[reranker]\nprovider = 'voyage'\nbase_url = 'http://x'\n",
            'line 1: reranker: provider = "voyage" needs model',
        ),
        ("[ingest]\nhidden = 'yes'\n", "line 2: ingest.hidden must be true or false, not 'yes'."),
        ("[ingest]\ninclude = [1]\n", "line 2: each item of ingest.include must be a string, not 1."),
        ("data = 5\n", "line 1: data must be a string, not 5."),
        ("data = '~nobody-here/x'\n", "line 1: data: ~nobody-here/x " + NO_HOME),
        ("search = 5\n", "line 1: search must be a table, not 5."),
        ("[principal]\ntenant = 'a__b'\n", f"line 2: principal.tenant: {refusal(valid_name, 'a__b')}"),
        ("[http]\npath = '/healthz'\n", "line 2: http.path: /healthz is an address of the server's own"),
        ("[http]\npath = '/sse/mcp'\n", "line 2: http.path: /sse/mcp is an address of the server's own"),
        ("[embedder]\nprovider = 'onnx'\n", f"line 1: embedder: {ONNX}"),
        ("[embedder]\nprovider = 'openai'\n", 'line 1: embedder: provider = "openai" needs model'),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_line_and_the_remedy(
    write: Write, text: str, complaint: str
) -> None:
    config = write(text)
    assert _complaint(config).startswith(f"{config}, {complaint}")


WRONG = (
    "'?'",
    "-1",
    "1e99",
    "nan",
    "true",
    "1979-05-27",
    "[[]]",
    "['a', 1]",
    "{ a = 1 }",
    "[{ stage = 'x' }]",
)
OF_PYDANTIC = re.compile(r"Input|[Ss]hould|[Pp]ydantic|Value error|String|\btag\b|pattern|Extra|type=|unable")


@pytest.mark.parametrize("keys", setting_keys(), ids=".".join)
def test_no_message_about_a_wrong_value_is_that_of_the_validation_library(
    write: Write, keys: tuple[str, ...]
) -> None:
    complaints = []
    for value in WRONG:
        header = f"[{'.'.join(keys[:-1])}]\n" if keys[:-1] else ""
        with contextlib.suppress(ConfigurationError):
            load_settings(write(f"{header}{keys[-1]} = {value}\n"), {})
            continue
        complaints.append(_complaint(write(f"{header}{keys[-1]} = {value}\n")))
    assert complaints
    for complaint in complaints:
        assert ".".join(keys) in complaint
        assert not OF_PYDANTIC.search(complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[search]]\nlimit = 3\n", "line 1: search must be a table, not a list."),
        ("[search]\nstages = [5]\n", "line 2: each item of search.stages must be a table, not 5."),
        ("[[search.stages]]\nlimit = 1\n", "line 1: search.stages: stage is missing; write stage ="),
        ("[[search.stages]]\nstage = 'custom'\ntakes = 'hits'\n", "line 1: search.stages.call is missing."),
        ("[search.profiles]\nwide = 3\n", "line 2: search.profiles.wide must be a table, not 3."),
        (
            "[search.profiles.wide.fusion]\nalpha = 'x'\n",
            "line 2: search.profiles.wide.fusion.alpha must be a number,",
        ),
        ("[oauth.tenants]\n'A B' = 'A B'\n", f"line 2: oauth.tenants.A B: {refusal(valid_name, 'A B')}"),
        ("[access]\nrules = [{ path = 3 }]\n", "line 2: access.rules.path must be a string, not 3."),
        ("[[access.rules]]\nallow = ['user:a']\n", "line 1: access.rules.path is missing."),
        (
            "[[access.rules]]\npath = 'a'\nallow = ['hr']\n",
            f"line 1: access.rules: {refusal(valid_entries, ['hr'])}",
        ),
        (
            "[principal]\ngroups = [" + "'g'," * 300 + "]\n",
            "line 2: principal.groups has 300 items; give at most 256.",
        ),
    ],
)
def test_mistakes_in_tables_and_lists_name_the_table_or_list(write: Write, text: str, complaint: str) -> None:
    config = write(text)
    assert _complaint(config).startswith(f"{config}, {complaint}")


def test_a_byte_order_mark_before_the_settings_is_not_a_part_of_them(write: Write) -> None:
    assert load_settings(write("\ufeff[search]\nlimit = 3\n"), {}).search.limit == 3


def test_text_that_is_not_in_utf_8_is_refused(write: Write) -> None:
    not_utf_8 = os.fsdecode(b"/\xff")
    assert _complaint(write(""), {"REFDESK_SEARCH_MODE": not_utf_8}) == (
        "REFDESK_SEARCH_MODE must be text in UTF-8."
    )
    assert _complaint(write(""), None, data=not_utf_8) == (
        "the environment or flags: a value is not text in UTF-8."
    )


def test_all_mistakes_are_reported_at_once(write: Write) -> None:
    complaint = _complaint(write("datta = 'x'\n[search]\nlimit = -1\nmode = 3\n"))
    lines = [line.split(", ")[1].split(":")[0] for line in complaint.splitlines()]
    assert sorted(lines) == ["line 1", "line 3", "line 4"]


@pytest.mark.parametrize(
    ("name", "raw", "complaint"),
    [
        (
            "REFDESK_SEARCH_LIMT",
            "3",
            "The environment variable REFDESK_SEARCH_LIMT is not a setting; did you mean ",
        ),
        ("REFDESK_XYZZY", "3", "The environment variable REFDESK_XYZZY is not a setting."),
        ("REFDESK_SEARCH_LIMIT", "three", "REFDESK_SEARCH_LIMIT must be a whole number, not 'three'."),
        ("REFDESK_SEARCH_LIMIT", "101", "REFDESK_SEARCH_LIMIT must be at most 100, not '101'."),
        (
            "REFDESK_SEARCH_MODE",
            "fuzzy",
            "REFDESK_SEARCH_MODE must be 'dense', 'sparse', 'hybrid' or 'exact', not 'fuzzy'.",
        ),
        ("REFDESK_INGEST_HIDDEN", "2", "REFDESK_INGEST_HIDDEN must be true or false, not '2'."),
        ("REFDESK_SERVER_PROFILES", "a,B", f"REFDESK_SERVER_PROFILES: {refusal(valid_name, 'B')}"),
        ("REFDESK_EMBEDDER_DIMENSIONS", "0", "REFDESK_EMBEDDER_DIMENSIONS must be at least 1, not '0'."),
        ("REFDESK_ACCESS_RULES", "hr/*", "REFDESK_ACCESS_RULES must be written as JSON"),
        ("REFDESK_OAUTH_TENANTS", "[]", "REFDESK_OAUTH_TENANTS must be written as JSON"),
        ("REFDESK_ACCESS_RULES", '[{"pat": "hr/*"}]', "the environment or flags: "),
        ("REFDESK_ACCESS_RULES", " ", "REFDESK_ACCESS_RULES is empty."),
        ("REFDESK_DATA", "~nobody-here", "REFDESK_DATA: ~nobody-here " + NO_HOME),
        ("REFDESK_EMBEDDER_PROVIDER", "onnx", f"the environment or flags: embedder: {ONNX}"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable_and_no_line_of_the_file(
    write: Write, name: str, raw: str, complaint: str
) -> None:
    config = write("data = '/x'\n[search]\nlimit = 3\nmode = 'dense'\n")
    assert _complaint(config, {name: raw}).startswith(complaint)


def test_paths_are_made_absolute_and_a_tilde_is_the_home(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert load_settings(write("data = 'desk'\n"), {}).data == tmp_path / "desk"
    assert load_settings(None, {"REFDESK_DATA": "~/desk"}).data == Path("/home/me/desk")
    assert load_settings(None, {}, {"data": Path("desk")}).data == tmp_path / "desk"


def test_an_empty_path_is_refused_and_an_empty_variable_is_none(write: Write, tmp_path: Path) -> None:
    config = write(f"data = '{tmp_path}'\n")
    assert load_settings(config, {"REFDESK_DATA": "", "REFDESK_MODELS": ""}).data == tmp_path
    assert "line 1: data: an empty path" in _complaint(write("data = ''\n"))
    assert ": data: an empty path" in _complaint(config, data="")
    assert "line 3: origins.docs.path: an empty path" in _complaint(
        write("[origins.docs]\ntype = 'folder'\npath = ' '\n")
    )


@pytest.mark.parametrize("raw", ["", " ", " ,"])
def test_an_empty_variable_lifts_no_protection(write: Write, raw: str) -> None:
    lists = [
        "http.authentication",
        "principal.groups",
        "server.profiles",
        "ingest.exclude",
        "ingest.include",
    ]
    texts = ["http.host", "principal.user", "moderation.call", "moderation.base_url", "oauth.groups_claim"]
    for key in (*lists, "moderation.command", *(texts if raw.isspace() or not raw else ())):
        name = environment_name(tuple(key.split(".")))
        assert _complaint(write(""), {name: raw}).startswith(f"{name} is empty.")


def test_a_variable_empties_a_list_if_it_says_so_and_leaves_the_bucket(write: Write) -> None:
    config = write('[http]\nauthentication = ["oauth"]\n[storage]\nuri = "s3://bucket/desk"\n')
    environment = {"REFDESK_HTTP_AUTHENTICATION": "[]", "REFDESK_STORAGE_URI": ""}
    settings = load_settings(config, environment)
    assert (settings.http.authentication, settings.storage.uri) == ((), "")


def test_numbers_without_a_point_do_for_seconds(write: Write) -> None:
    assert load_settings(write("[search]\ntimeout_seconds = 3\n"), {}).search.timeout_seconds == 3.0


def test_settings_do_not_change_once_they_are_read() -> None:
    with pytest.raises(ValidationError):
        Settings().search.limit = 3


def test_an_entry_where_the_settings_want_a_name_is_refused(write: Write) -> None:
    config = write('[principal]\nuser = "ann"\ngroups = ["hr", "it"]\n')
    assert load_settings(config, {}).principal.groups == ("hr", "it")
    assert load_settings(write('[principal]\nuser = ""\n'), {}).principal.user == ""
    assert "line 2: principal.user: Give the user's name without a prefix: ann, not user:ann." in _complaint(
        write('[principal]\nuser = "user:ann"\n')
    )
    assert "line 2: principal.groups: Give the group's name" in _complaint(
        write('[principal]\ngroups = ["hr", "group:it"]\n')
    )
    assert "begins or ends with a space" in _complaint(write('[principal]\ngroups = ["it "]\n'))
    of_json = {"REFDESK_PRINCIPAL_GROUPS": '["hr, it", "staff"]'}
    assert load_settings(write(""), of_json).principal.groups == ("hr, it", "staff")
    assert load_settings(write(""), {"REFDESK_PRINCIPAL_GROUPS": "[]"}).principal.groups == ()
    assert _complaint(write(""), {"REFDESK_PRINCIPAL_GROUPS": "hr,group:it"}).startswith(
        "REFDESK_PRINCIPAL_GROUPS: Give the group's name without a prefix: it, not group:it."
    )


def test_flags_say_wholly_who_asks(write: Write) -> None:
    config = write('[principal]\nuser = "ann"\ngroups = ["hr"]\n')

    def asker(user: str | None, *groups: str) -> tuple[str, tuple[str, ...]]:
        principal = load_settings(config, {}, asker_flags(user, groups)).principal
        return principal.user, principal.groups

    assert asker(None) == ("ann", ("hr",))
    assert asker("bob") == ("bob", ())
    assert asker("bob", "it", "staff") == ("bob", ("it", "staff"))
    assert asker(None, "it") == ("", ("it",))
    assert asker("") == ("", ())


def test_a_model_that_is_named_lies_in_the_models_folder(write: Write) -> None:
    named = "[{table}]\nprovider = 'onnx'\nmodel = '{model}'\n".format
    written = write(
        "data = '/srv/desk'\n"
        + named(table="embedder", model="mdbr-leaf-ir")
        + named(table="embedders.other", model="BAAI/bge-small-en-v1.5")
        + named(table="reranker", model="ettin-reranker-17m")
    )
    for more, folder in (({}, "/srv/desk/models"), ({"REFDESK_MODELS": "/srv/shared"}, "/srv/shared")):
        settings = load_settings(written, more)
        assert settings.models_folder == Path(folder)
        assert settings.embedder.folder == Path(folder, "mdbr-leaf-ir")
        assert settings.embedders["other"].folder == Path(folder, "bge-small-en-v1-5")
        assert settings.reranker.folder == Path(folder, "ettin-reranker-17m")
    assert load_settings(written, {}, {"data": Path("/srv/b")}).embedder.folder == Path(
        "/srv/b/models/mdbr-leaf-ir"
    )
    elsewhere = load_settings(write(named(table="reranker", model="/srv/c")), {})
    assert elsewhere.reranker.folder == Path("/srv/c")
