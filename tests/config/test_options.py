"""Options of endpoints: what may be added to a request, and what is refused when the settings are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.config.load import load_settings
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

REMOTE = 'provider = "openai"\nmodel = "m"\n'
RERANKER = 'provider = "cohere"\nmodel = "m"\nbase_url = "http://localhost"\n'


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_settings(file, {})
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ('headers = { Authorization = "Bearer x" }', "api_key_env names the variable with the key"),
        ('headers_env = { authorization = "MY_KEY" }', "refdesk sets this header itself"),
        (
            'headers = { Content-Type = "text/plain" }',
            "headers.Content-Type: refdesk sets this header itself",
        ),
        ('headers = { "X-Api-Key" = "sk-123" }', 'write headers_env = { "X-Api-Key" = "MY_VARIABLE" }'),
        ('headers = { Cookie = "a=b" }', "looks like a secret"),
        ('headers = { "X Y" = "1" }', "this is not the name of a header"),
        ('headers = { "X-Y" = "a\\nX-Evil: 1" }', "write printable ASCII characters"),
        ('headers_env = { "api-key" = "sk-123" }', "not the key itself"),
        ('headers = { X-A = "1" }, headers_env = { x-a = "MY_KEY" }', "the header x-a is set twice"),
        ('body = { model = "other" }', "the field model is refdesk's own; remove it from body"),
        ('query_body = { input = "x" }', "the field input is refdesk's own; remove it from query_body"),
        ("document_body = { dimensions = 3 }", "the field dimensions is refdesk's own"),
        ("body = { a = 1 }, query_body = { a = 2 }", "the field a is in body and in query_body; keep one"),
        ("body = { a = nan }", "nan and inf can't be sent"),
        ("header = {}", "there is no setting embedder.options.header; did you mean embedder.options.headers"),
    ],
)
def test_what_would_replace_something_of_refdesk_or_show_a_secret_is_refused(
    tmp_path: Path, options: str, saying: str
) -> None:
    message = refusal(tmp_path, f"[embedder]\n{REMOTE}options = {{ {options} }}\n")
    assert saying in message
    assert "line 4" in message
    assert "sk-123" not in message or "not the key itself" in message


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("[embedder]\noptions = { body = { a = 1 } }", 'embedder: options are for provider = "openai"'),
        ("[chat]\noptions = { body = { a = 1 } }", "chat: options need model"),
        (
            '[chat]\nmodel = "m"\noptions = { body = { messages = [] } }',
            "the field messages is refdesk's own",
        ),
        ("[reranker]\noptions = { body = { a = 1 } }", "options are for the provider of an endpoint"),
        (f"[reranker]\n{RERANKER}options = {{ body = {{ top_n = 1 }} }}", "the field top_n is refdesk's own"),
        (
            f"[reranker]\n{RERANKER}options = {{ query_body = {{}} }}",
            "no setting reranker.options.query_body",
        ),
        (
            f'[embedders.a]\n{REMOTE}options = {{ body = {{ model = "x" }} }}',
            "the field model is refdesk's own",
        ),
    ],
)
def test_options_are_refused_where_they_would_do_nothing_or_harm(
    tmp_path: Path, text: str, saying: str
) -> None:
    assert saying in refusal(tmp_path, text)


def test_options_are_read_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f"[embedder]\n{REMOTE}[embedder.options]\nheaders_env = {{ api-key = 'AZURE' }}\n"
        "body = { a = [1, { b = true }] }\ndocument_body = { c = 'd' }\n"
    )
    options = load_settings(file, {}).embedder.options
    assert options.headers_env == {"api-key": "AZURE"}
    assert options.of_queries == {"a": [1, {"b": True}]}
    assert options.of_documents == {"a": [1, {"b": True}], "c": "d"}
