"""`refdesk-admin init`: six questions, and a settings file with comments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rag.access.rule import valid_name
from rag.admin.command_line import command, flag, same_desk, settings_file
from rag.admin.terminal import ask, echo, print_result
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL
from rag.config.server_settings import HttpSettings
from rag.config.settings import DEFAULT_COLLECTION, Settings
from rag.errors import ConfigurationError, if_system_refuses

T = TypeVar("T")
EVERYBODY, NOBODY = "everybody", "nobody"
VISIBILITIES = {EVERYBODY: "tenant", NOBODY: "restricted"}
AS_DOCUMENTS = "as the documents"
MODELS_BY_LANGUAGE = {AS_DOCUMENTS: "", "english": ENGLISH_MODEL, "any": MULTILINGUAL_MODEL}
SERVING = ("refdesk-admin key create", "refdesk --http")

FILE = """\
# Settings of refdesk. config.example.toml of the project lists all of them, with their defaults.
# Try what this file names with refdesk-admin config check.

# The folder for all that refdesk stores: texts, indexes, rights and keys. Nobody else should read it.
data = {data}

[principal]
# The user on whose behalf assistants on this machine search. Without one they find what everybody may see.
user = ""
"""
ORIGIN = """
# Where documents come from. refdesk-admin sync brings them in, and later what has changed since.
[origins.{name}]
type = "folder"
path = {documents}
# The collection that they go to. Assistants see its name, and can search in it alone.
collection = {collection}
# Who may see new documents: "tenant" for everybody who uses this desk, "restricted" for nobody until you
# grant it (refdesk-admin access grant ID --to group:NAME).
visibility = {visibility}
"""
EMBEDDER = """
[embedder]
# The embedding model of all collections, whatever language their documents are in. Without this line, each
# gets the built-in one that fits its first documents.
model = {model}
"""
HTTP = """
[http]
# The address at which assistants on other machines reach refdesk --http, through a proxy with TLS.
public_url = {public_url}
# The address from which that proxy connects. It is believed when it says where a request comes from.
trusted_proxies = ["127.0.0.1"]
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers for the settings file. Without `documents` or a `model`, they have no section in it."""

    documents: Path | None
    data: Path
    collection: str
    visibility: str
    public_url: str
    model: str


@command("init", of_tenant=False, makes_settings=True)
@flag("--yes", help="Ask nothing; take the default answers.")
async def init_command(settings: Settings, *, yes: bool) -> None:
    """Ask six questions, and write a settings file with comments.

    It asks where the documents are, where to store what refdesk makes of them, how the collection is named,
    who may see it, whether assistants on other machines connect, and which languages the model must know.
    Enter takes the default. A pipe can answer, one answer per line. An existing file is never overwritten.
    """
    file = settings_file()
    if file.exists() or file.is_symlink():
        raise ConfigurationError(f"There is {file} already. Edit it, or name another file with --config.")
    answers = _answers(settings, yes=yes)
    _write(file, settings_text(answers))
    commands = [_bringing(answers), *(SERVING if answers.public_url else ("refdesk-admin connect",))]
    steps = [f"{next_command}{same_desk('config')}" for next_command in commands]
    result = {"settings_file": file, "next": steps}
    print_result(result, f"Wrote {file}.", f"Next: {', then '.join(steps)}")


def _bringing(answers: Answers) -> str:
    """The command that ingests the documents; without an origin, it has the collection and visibility."""
    if answers.documents:
        return "refdesk-admin sync"
    collection = "" if answers.collection == DEFAULT_COLLECTION else f" --collection {answers.collection}"
    visibility = (
        "" if answers.visibility == VISIBILITIES[EVERYBODY] else f" --visibility {answers.visibility}"
    )
    return f"refdesk-admin ingest PATH{collection}{visibility}"


def _answers(settings: Settings, *, yes: bool) -> Answers:
    usual = Path.home() / "Documents"
    documents = _answer("Folder with your documents", str(usual) if usual.is_dir() else "", _folder, yes=yes)
    data = _answer("Folder for what refdesk stores", str(settings.data), _path, yes=yes)
    if documents and (data == documents or documents.is_relative_to(data)):
        raise ConfigurationError(f"{documents} lies in the data folder {data}. Keep them apart.")
    return Answers(
        documents,
        data,
        _answer("Name of the collection", DEFAULT_COLLECTION, valid_name, yes=yes),
        _answer("Who may see it: everybody, or nobody until you grant it", EVERYBODY, _visibility, yes=yes),
        _answer("Address for assistants on other machines, if any (https://…)", "", _public_url, yes=yes),
        _answer(f"Languages to search: {', '.join(MODELS_BY_LANGUAGE)}", AS_DOCUMENTS, _model, yes=yes),
    )


def _answer(question: str, usual: str, check: Callable[[str], T], *, yes: bool) -> T:
    """A valid answer. A person is asked again; an invalid answer from a pipe ends the command."""
    while True:
        answer = usual if yes else ask(question, usual)
        try:
            return check(answer)
        except ConfigurationError as error:
            if yes or not sys.stdin.isatty():
                raise
            echo(error, err=True)


def _path(answer: str) -> Path:
    if not answer or not answer.isprintable():
        raise ConfigurationError("Name a folder.")
    try:
        return Path(answer).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigurationError(f"{answer} names a user who doesn't exist.") from error


def _folder(answer: str) -> Path | None:
    if not answer:
        return None
    folder = _path(answer)
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}.")
    return folder


def _chosen(values: Mapping[str, str], answer: str) -> str:
    if answer.lower() not in values:
        *first_answers, last = values
        raise ConfigurationError(f"Answer {', '.join(first_answers)} or {last}, not {answer!r}.")
    return values[answer.lower()]


_visibility, _model = partial(_chosen, VISIBILITIES), partial(_chosen, MODELS_BY_LANGUAGE)


def _public_url(answer: str) -> str:
    try:
        return HttpSettings(public_url=answer.rstrip("/")).public_url
    except ValidationError as error:
        raise ConfigurationError(
            f"{answer!r} is not a URL without a path, like https://desk.example.com."
        ) from error


def settings_text(answers: Answers) -> str:
    """The settings file, in TOML. Its strings are written like JSON's."""
    sections = {ORIGIN: answers.documents, EMBEDDER: answers.model, HTTP: answers.public_url}
    text = FILE + "".join(section for section, answer in sections.items() if answer)
    values = {name: json.dumps(str(value), ensure_ascii=False) for name, value in asdict(answers).items()}
    return text.format(name=answers.collection, **values)


def _write(file: Path, text: str) -> None:
    with if_system_refuses(ConfigurationError, f"{file} can't be written", "Name another with --config."):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8", newline=os.linesep) as opened:
            opened.write(text)
