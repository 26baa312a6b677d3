"""What an operator can set, where, and what is said of a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rag.config.load import asker_flags, config_path, environment_name, load_settings, setting_keys
from rag.config.settings import (
    NAME_LENGTH,
    HttpSettings,
    PrincipalSettings,
    SearchSettings,
    Settings,
    bare_name,
    valid_name,
)
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[str], Path]

EVERY_SETTING = {
    "data": ("/srv/desk", Path("/srv/desk")),
    "principal.tenant": ("acme", "acme"),
    "principal.user": ("ann", "ann"),
    "principal.groups": ("hr, it", ("hr", "it")),
    "embedder.provider": ("openai", "openai"),
    "embedder.path": ("/srv/model", Path("/srv/model")),
    "embedder.model": ("tiny", "tiny"),
    "embedder.base_url": ("http://localhost:1/v1", "http://localhost:1/v1"),
    "embedder.api_key_env": ("MY_KEY", "MY_KEY"),
    "embedder.dimensions": ("256", 256),
    "embedder.max_tokens": ("1024", 1024),
    "embedder.query_prefix": ("query: ", "query: "),
    "embedder.document_prefix": ("a, b: ", "a, b: "),
    "embedder.batch_size": ("7", 7),
    "embedder.timeout_seconds": ("1.5", 1.5),
    "chat.model": ("small", "small"),
    "chat.base_url": ("http://localhost:1/v1", "http://localhost:1/v1"),
    "chat.api_key_env": ("MY_KEY", "MY_KEY"),
    "chat.input_price": ("0.15", 0.15),
    "chat.output_price": ("0.6", 0.6),
    "reranker.provider": ("tei", "tei"),
    "reranker.base_url": ("http://localhost:1", "http://localhost:1"),
    "reranker.model": ("ranks", "ranks"),
    "reranker.revision": ("0" * 40, "0" * 40),
    "reranker.sha256": ("0" * 64, "0" * 64),
    "reranker.api_key_env": ("MY_KEY", "MY_KEY"),
    "reranker.path": ("/srv/reranker", Path("/srv/reranker")),
    "reranker.max_tokens": ("256", 256),
    "chunking.max_tokens": ("99", 99),
    "ingest.include": ("*.md, *.txt", ("*.md", "*.txt")),
    "ingest.exclude": ("", ()),
    "ingest.hidden": ("true", True),
    "ingest.max_removed": ("5", 5),
    "ingest.max_removed_share": ("0.5", 0.5),
    "ingest.max_file_bytes": ("123", 123),
    "ingest.parse_timeout_seconds": ("9", 9.0),
    "access.of_documents": ("true", True),
    "access.letter_case": ("never", "never"),
    "access.rules_case": ("file system", "file system"),
    "search.collections": ("handbook,tickets", ("handbook", "tickets")),
    "search.mode": ("dense", "dense"),
    "search.limit": ("3", 3),
    "search.candidates": ("77", 77),
    "search.statistics": ("strict", "strict"),
    "search.relax": ("true", True),
    "search.timeout_seconds": ("2", 2.0),
    "server.max_chars": ("4000", 4000),
    "http.host": ("0.0.0.0", "0.0.0.0"),  # noqa: S104 it is only read
    "http.port": ("8080", 8080),
    "http.path": ("/desk/mcp", "/desk/mcp"),
    "http.metrics_port": ("9100", 9100),
    "http.public_url": ("https://desk.example.com", "https://desk.example.com"),
    "http.allowed_hosts": ("a:1, b:2", ("a:1", "b:2")),
    "http.allowed_origins": ("http://a:1", ("http://a:1",)),
    "http.trusted_proxies": ("127.0.0.1, 10.0.0.0/24", ("127.0.0.1", "10.0.0.0/24")),
    "http.authentication": ("", ()),
    "http.sse": ("true", True),
    "oauth.issuer": ("https://issuer.example.com/", "https://issuer.example.com/"),
    "oauth.jwks_url": ("https://issuer.example.com/jwks", "https://issuer.example.com/jwks"),
    "oauth.audience": ("desk", "desk"),
    "oauth.tenant_claim": ("org", "org"),
    "oauth.user_claim": ("email", "email"),
    "oauth.groups_claim": ("roles", "roles"),
    "oauth.groups_required": ("always", "always"),
    "limits.concurrent": ("5", 5),
    "limits.concurrent_per_tenant": ("2", 2),
    "limits.concurrent_per_user": ("1", 1),
    "limits.queue_seconds": ("0", 0.0),
    "limits.requests_per_minute": ("60", 60),
    "limits.requests_per_minute_per_user": ("20", 20),
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
    "search.fusion.method": ("rrf", "rrf"),
    "search.fusion.alpha": ("0.7", 0.7),
    "search.fusion.k": ("10", 10),
    "search.fusion.weights": ("2, 1", (2.0, 1.0)),
    "search.fusion.baseline": ("0.7", 0.7),
    "server.include_vectors": ("true", True),
    "search.overrides": ("limit", ("limit",)),
    "server.explain": ("true", True),
    "server.profiles": ("fast, default", ("fast", "default")),
    "server.openai_compat": ("true", True),
    "server.traces": ("true", True),
    "server.log_level": ("debug", "debug"),
}
"""A value for each as it is written in the environment, and as it is understood."""
ONLY_IN_THE_FILE = {("access", "rules"), ("search", "stages")}  # lists of tables
NEEDED = {
    "embedder.provider": {"embedder.model": "m"},
    "reranker.provider": {"reranker.base_url": "http://x"},
}
"""What else must be set."""


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


@pytest.mark.parametrize("setting", ["hosts", "origins"])
def test_an_address_that_stands_for_several_is_refused(setting: str) -> None:
    HttpSettings.model_validate({f"allowed_{setting}": ["desk.example.com:8443"]})
    with pytest.raises(ValidationError, match="name each in full"):
        HttpSettings.model_validate({f"allowed_{setting}": ["desk.example.com:*"]})


def test_every_setting_can_be_made_in_the_environment(write: Write) -> None:
    keys_of_one_line = setting_keys().keys() - ONLY_IN_THE_FILE
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
    config, other = write("[search]\nlimit = 1\n"), tmp_path / "other.toml"
    other.write_text("[search]\nlimit = 2\n")
    environment = {"REFDESK_CONFIG": str(other)}
    assert load_settings(config, environment).search.limit == 1
    assert load_settings(None, environment).search.limit == 2
    path, required = config_path(None, {})
    assert (path.parts[-2:], required) == (("refdesk", "config.toml"), False)


def test_a_file_that_somebody_named_must_be_there_and_be_toml(write: Write, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert _complaint(missing) == f"There is no settings file {missing}."
    assert _complaint(None, {"REFDESK_CONFIG": str(missing)}) == f"There is no settings file {missing}."
    assert _complaint(write("[search\n")).startswith(f"{tmp_path}/config.toml is not valid TOML: ")
    (tmp_path / "config.toml").write_bytes(b"\xff")
    assert "config.toml can't be read: 'utf-8' codec" in _complaint(tmp_path / "config.toml")
    assert "can't be read: [Errno 21] Is a directory" in _complaint(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[search]\n\nlimt = 3\n", "line 3: there is no setting search.limt; did you mean search.limit?"),
        ("[serch]\nlimit = 3\n", "line 1: there is no setting serch; did you mean search?"),
        ("tenant = 'a'\n", "line 1: there is no setting tenant; did you mean principal.tenant?"),
        ("xyzzy = 1\n", "line 1: there is no setting xyzzy."),
        (
            "# limit\n[search]\nmode = 'dense'\nlimit = '3'\n",
            "line 4: search.limit: Input should be a valid integer.",
        ),
        ("[search]\nlimit = -1\n", "line 2: search.limit: Input should be greater than or equal to 0."),
        ("[search.profiles.default]\nmode = 'dense'\n", "line 1: search.profiles: default is what"),
        ("[search.profiles.Wide]\n", "line 1: search.profiles.Wide: String should"),
        (
            "[search.profiles.wide]\nmod = 'dense'\n",
            "line 2: there is no setting search.profiles.wide.mod; did you mean search.profiles.wide.mode?",
        ),
        ("[search]\nlimit = 101\n", "line 2: search.limit: Input should be less than or equal to 100."),
        ("[search]\nlimit = 3.5\n", "line 2: search.limit: Input should be a valid integer"),
        ("[search]\nlimit = true\n", "line 2: search.limit: Input should be a valid integer."),
        ("[search]\nmode = 'exact'\n", "line 2: search.mode: Input should be 'dense', 'sparse' or 'hybrid'."),
        ("[search]\ntimeout_seconds = nan\n", "line 2: search.timeout_seconds: Input should be"),
        ("[search]\ntimeout_seconds = inf\n", "line 2: search.timeout_seconds: Input should be"),
        ("[search]\ncollections = 'a'\n", "line 2: search.collections: Input should be a valid"),
        (
            "[search]\ncollections = ['ok', 'Not']\n",
            "line 2: search.collections: String should match pattern",
        ),
        (
            "[[search.stages]]\nstage = 'dedupe'\n[[search.stages]]\nstage = 'recency'\nweight = 2\n",
            "line 5: search.stages.weight: Input should be less than or equal to 1.",
        ),
        (
            "[search]\nlimit = 1\n[[search.stages]]\nstage = 'recent'\n",
            "line 3: search.stages: Input tag 'recent' found using 'stage' does not match any of",
        ),
        (
            "[search.profiles.new]\n\n[[search.profiles.new.stages]]\nstage = 'recency'\nhalf_life = 2\n",
            "line 5: there is no setting search.profiles.new.stages.half_life",
        ),
        (
            "[search.profiles.mine]\n[server]\nprofiles = ['mine', 'default', 'fresh', 'theirs']\n",
            "line 3: server.profiles: there is no profile 'theirs'; there are: default, fast, precise, fr",
        ),
        (
            "[search.of_tenants.acorn]\nlimits = 3\n",
            "line 2: there is no setting search.of_tenants.acorn.limits; did you mean search.of_tenants",
        ),
        (
            "[search.of_collections]\n\ntickets = 'new'\n",
            "line 3: search.of_collections.tickets: there is no profile 'new'; there are: default, fast, pre",
        ),
        (
            "[search]\noverrides = ['profile']\n",
            "line 2: search.overrides: Input should be 'mode' or 'limit'.",
        ),
        (
            "[[search.stages]]\nstage = 'dedupe'\n[[search.stages]]\nstage = 'rerank'\n",
            "line 3: search.stages: the stage rerank needs reranker.provider, which isn't set.",
        ),
        (
            "[search.profiles.a]\n[[search.profiles.a.stages]]\nstage = 'rerank'\nby = 'chat'\n",
            "line 2: search.profiles.a.stages: the stage rerank needs chat.model, which isn't set.",
        ),
        (
            "[search.of_tenants.a]\n[[search.of_tenants.a.stages]]\nstage = 'planner'\n",
            "line 2: search.of_tenants.a.stages: the stage planner needs chat.model, which isn't set.",
        ),
        (
            "[chat]\nmodel = 'm'\n[search.profiles.a]\nstages = [{stage = 'dedupe'}, {stage = 'planner'}]\n",
            "line 4: search.profiles.a.stages: the stage planner makes queries, so it must stand before all",
        ),
        (
            (
                "[[search.stages]]\nstage = 'dedupe'\n"
                "[[search.stages]]\nstage = 'custom'\ncall = 'a:b'\ntakes = 'query'\n"
            ),
            "line 3: search.stages: the stage custom makes queries, so it must stand before all that take",
        ),
        (
            "[[search.stages]]\nstage = 'custom'\ncall = 'a.b'\ntakes = 'hits'\n",
            "line 3: search.stages.call: String should match pattern",
        ),
        (
            "[[search.stages]]\nstage = 'rerank'\nweights = { semantic = 0.5 }\n",
            "line 3: search.stages.weights: semantic, vector and position must add up to 1.",
        ),
        ("[reranker]\nprovider = 'onnx'\n", 'line 1: reranker: provider = "onnx" needs either path'),
        (
            f"[reranker]\nprovider = 'onnx'\nmodel = 'a/b'\nrevision = '{'0' * 40}'\n",
            "line 1: reranker: a model of the hub needs revision, a commit of it, and sha256, the checksum",
        ),
        (
            f"[reranker]\nprovider = 'onnx'\nmodel = 'a/b'\nsha256 = '{'0' * 64}'\n",
            "line 1: reranker: a model of the hub needs revision, a commit of it, and sha256, the checksum",
        ),
        ("[reranker]\nrevision = 'main'\n", "line 2: reranker.revision: String should match pattern"),
        ("[reranker]\nsha256 = 'abc'\n", "line 2: reranker.sha256: String should match pattern"),
        ("[reranker]\nprovider = 'tei'\n", 'line 1: reranker: provider = "tei" needs base_url'),
        (
            "[reranker]\nprovider = 'voyage'\nbase_url = 'http://x'\n",
            'line 1: reranker: provider = "voyage" needs model',
        ),
        ("[ingest]\nhidden = 'yes'\n", "line 2: ingest.hidden: Input should be a valid boolean."),
        ("[ingest]\ninclude = [1]\n", "line 2: ingest.include: Input should be a valid string."),
        ("data = 5\n", "line 1: data: Input should be a valid string."),
        ("data = '~nobody-here/x'\n", "line 1: data: ~nobody-here/x begins with a user"),
        ("search = 5\n", "line 1: search: Input should be an object."),
        ("[principal]\ntenant = 'a__b'\n", "line 2: principal.tenant: String should match pattern"),
        ("[embedder]\nprovider = 'onnx'\n", 'line 1: embedder: provider = "onnx" needs path'),
        ("[embedder]\nprovider = 'openai'\n", 'line 1: embedder: provider = "openai" needs model'),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line_and_what_would_be_right(
    write: Write, text: str, told: str
) -> None:
    config = write(text)
    assert _complaint(config).startswith(f"{config}, {told}")


def test_every_mistake_is_told_at_once(write: Write) -> None:
    complaint = _complaint(write("datta = 'x'\n[search]\nlimit = -1\nmode = 3\n"))
    lines = [line.split(", ")[1].split(":")[0] for line in complaint.splitlines()]
    assert sorted(lines) == ["line 1", "line 3", "line 4"]


@pytest.mark.parametrize(
    ("name", "raw", "told"),
    [
        (
            "REFDESK_SEARCH_LIMT",
            "3",
            "The environment variable REFDESK_SEARCH_LIMT is no setting; did you mean ",
        ),
        ("REFDESK_XYZZY", "3", "The environment variable REFDESK_XYZZY is no setting."),
        ("REFDESK_SEARCH_LIMIT", "three", "The environment variable REFDESK_SEARCH_LIMIT: Input should be"),
        ("REFDESK_SEARCH_LIMIT", "101", "the environment or flags: search.limit: Input should be less than"),
        (
            "REFDESK_SEARCH_MODE",
            "exact",
            "The environment variable REFDESK_SEARCH_MODE: Input should be 'dense'",
        ),
        ("REFDESK_INGEST_HIDDEN", "2", "The environment variable REFDESK_INGEST_HIDDEN: Input should be"),
        ("REFDESK_SEARCH_COLLECTIONS", "a,B", "The environment variable REFDESK_SEARCH_COLLECTIONS: String"),
        ("REFDESK_EMBEDDER_DIMENSIONS", "0", "The environment variable REFDESK_EMBEDDER_DIMENSIONS: Input"),
        ("REFDESK_DATA", "~nobody-here", "the environment or flags: data: ~nobody-here begins with a user"),
        (
            "REFDESK_EMBEDDER_PROVIDER",
            "onnx",
            'the environment or flags: embedder: provider = "onnx" needs path',
        ),
    ],
)
def test_a_mistake_in_the_environment_is_told_with_its_name_and_not_with_a_line_of_the_file(
    write: Write, name: str, raw: str, told: str
) -> None:
    config = write("data = '/x'\n[search]\nlimit = 3\nmode = 'dense'\n")
    assert _complaint(config, {name: raw}).startswith(told)


def test_paths_are_made_absolute_and_a_tilde_is_the_home(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert load_settings(write("data = 'desk'\n"), {}).data == tmp_path / "desk"
    assert load_settings(None, {"REFDESK_DATA": "~/desk"}).data == Path("/home/me/desk")
    assert load_settings(None, {}, {"data": Path("desk")}).data == tmp_path / "desk"


def test_numbers_without_a_point_do_for_seconds(write: Write) -> None:
    assert load_settings(write("[search]\ntimeout_seconds = 3\n"), {}).search.timeout_seconds == 3.0


def test_settings_do_not_change_once_they_are_read() -> None:
    with pytest.raises(ValidationError):
        Settings().search.limit = 3


@pytest.mark.parametrize("name", ["a", "documents", "my-notes_2024", "0", "a-b_c", "x" * NAME_LENGTH])
def test_names_of_lower_case_letters_digits_and_single_marks_are_valid(name: str) -> None:
    assert valid_name(name) == name
    assert PrincipalSettings(tenant=name).tenant == name
    assert SearchSettings(collections=(name,)).collections == (name,)


BAD_NAMES = [
    "",
    "A",
    "a__b",
    "a--b",
    "a-_b",
    "-a",
    "a-",
    "_a",
    "a_",
    "a.b",
    "a/b",
    "../a",
    "a b",
    "ä",
    "a\n",
    "a\x00",
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "٣", "x" * (NAME_LENGTH + 1)])
def test_other_names_are_refused_everywhere_and_told_what_a_name_looks_like(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters and digits, with single - or _"):
        valid_name(name)
    with pytest.raises(ValidationError):
        PrincipalSettings(tenant=name)
    with pytest.raises(ValidationError):
        SearchSettings(collections=(name,))


@given(st.text())
def test_the_function_and_the_settings_agree_on_names(name: str) -> None:
    try:
        PrincipalSettings(tenant=name)
    except ValidationError:
        with pytest.raises(ConfigurationError):
            valid_name(name)
    else:
        assert valid_name(name) == name


@pytest.mark.parametrize("name", ["hr", "hr-europe", "hr: all", "Jos\u00e9", "a b", "team:hr"])
def test_a_bare_name_is_taken_as_it_is(name: str) -> None:
    assert bare_name("group", name) == name
    assert bare_name("user", name) == name


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("group", "group:hr", "write hr, not group:hr"),
        ("group", "Group:hr", "write hr, not Group:hr"),
        ("group", "group: hr", "write hr, not group: hr"),
        ("user", "user:ann", "write ann, not user:ann"),
        ("group", "user:ann", "names a user"),
        ("user", "group:hr", "names a group"),
        ("group", "group:", "write NAME, not group:"),
        ("group", "", "can't be the name of a group"),
        ("user", " ", "can't be the name of a user"),
        ("group", "h\nr", "can't be the name of a group"),
        ("group", "x" * 251, "up to 250 printable characters"),
    ],
)
def test_an_entry_where_a_name_is_wanted_is_refused_with_the_right_form(
    kind: Literal["user", "group"], name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        bare_name(kind, name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_entry_where_the_settings_want_a_name_is_refused(write: Write) -> None:
    config = write('[principal]\nuser = "ann"\ngroups = ["hr", "it"]\n')
    assert load_settings(config, {}).principal.groups == ("hr", "it")
    assert load_settings(write('[principal]\nuser = ""\n'), {}).principal.user == ""
    assert "line 2: principal.user: A user's bare name is wanted: write ann, not user:ann." in _complaint(
        write('[principal]\nuser = "user:ann"\n')
    )
    assert "line 2: principal.groups: A group's bare name" in _complaint(
        write('[principal]\ngroups = ["hr", "group:it"]\n')
    )
    assert _complaint(write(""), {"REFDESK_PRINCIPAL_GROUPS": "hr,group:it"}).startswith(
        "The environment variable REFDESK_PRINCIPAL_GROUPS: A group's bare name is wanted"
    )


def test_flags_say_wholly_who_asks(write: Write) -> None:
    config = write('[principal]\nuser = "ann"\ngroups = ["hr"]\n')

    def asker(user: str | None, *groups: str) -> tuple[str, tuple[str, ...]]:
        asked = load_settings(config, {}, asker_flags(user, groups)).principal
        return asked.user, asked.groups

    assert asker(None) == ("ann", ("hr",))
    assert asker("bob") == ("bob", ())
    assert asker("bob", "it", "staff") == ("bob", ("it", "staff"))
    assert asker(None, "it") == ("", ("it",))
    assert asker("") == ("", ())
