"""The facts of a local model besides its weights, and the files in its folder that state them.

`refdesk-admin model` writes a file of facts: from the list of known models, or from the administrator's
options. For a folder without that file, the publisher's files are read, in the format of
sentence-transformers: `modules.json` lists the steps from tokens to a vector, and each step has a folder with
a config.json. Facts that these files lack are None. Nothing is guessed, because a wrong pooling gives vectors
that look right and find little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rag.config.model_settings import expanded
from rag.corpus import Pooling
from rag.errors import ConfigurationError

FACTS_FILE = "refdesk-model.json"

ModelKind = Literal["embedder", "reranker"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: its path below the model's folder, with /, its bytes, and their SHA-256 in hex."""

    path: str
    size: int
    sha256: str

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The facts of a model. None or empty values are unknown, and may come from the folder's files.

    `repository` and `revision`, a commit, are the origin of files from a hub; an own model has neither.
    `graph` is the path of the ONNX graph below the folder. `dense` are the folders of the layers that follow
    the pooling, in order: dense ones and norms. `dimension` is that of a whole vector, and `truncations` are
    the smaller ones that it may be cut to. `window` is in tokens, special ones included. `baseline` is the
    cosine of unrelated texts, as measured when the model was installed; what a collection goes by is measured
    when it is built.
    """

    name: str
    kind: ModelKind = "embedder"
    repository: str = ""
    revision: str = ""
    licence: str = ""
    files: tuple[ModelFile, ...] = ()
    graph: str = "model.onnx"
    pooling: Pooling | None = None
    dense: tuple[str, ...] = ()
    dimension: int | None = None
    truncations: tuple[int, ...] = ()
    query_prefix: str | None = None
    document_prefix: str | None = None
    window: int | None = None
    multilingual: bool | None = None
    baseline: float | None = None

    __pydantic_config__ = ConfigDict(extra="forbid")


_FORM = TypeAdapter(ModelFacts)


def read_facts(folder: Path) -> ModelFacts | None:
    """The facts that refdesk stored in a model's folder; None without them.

    Raises:
        ConfigurationError: they can't be read.
    """
    path = folder / FACTS_FILE
    try:
        return _FORM.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise ConfigurationError(
            f"The facts of the model in {path} can't be read. Remove the model, and pull or add it again "
            "with refdesk-admin model."
        ) from error


def facts_as_json(facts: ModelFacts) -> bytes:
    """The content of the file that `read_facts` reads."""
    return _FORM.dump_json(facts, indent=2) + b"\n"


def check_pulled(model: str, folder: Path) -> None:
    """Check that a model of the settings is on this machine.

    Raises:
        ConfigurationError: it is missing; the message has the command that fetches it.
    """
    if not expanded(model).is_absolute() and not folder.is_dir():
        raise ConfigurationError(
            f"The model {model} is not on this machine: there is no folder {folder}. Run refdesk-admin model "
            f"pull {model}, or refdesk-admin model list to see which models there are."
        )


GRAPHS = ("model.onnx", "onnx/model.onnx")
MAX_WINDOW = 1 << 17  # tokenizers without a limit state 10^30

_POOLINGS: dict[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "max": "max",
    "mean_sqrt_len": "mean",  # the same direction; only the length differs
    "weightedmean": "weighted",
    "lasttoken": "last",
}
"""By their names in newer files. The flags pooling_mode_… of older ones may end in _token or _tokens."""
_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names of the prompts for questions and for documents: those of sentence-transformers' own methods."""
_OFFSET = ("roberta", "camembert", "mpnet")  # model types whose first positions stand for padding
_LANGUAGES = re.compile(
    r"^language:\s*(?:\[(?P<inline>[^\]]*)\]|(?P<one>\S+)\s*$|(?P<list>(?:\n\s*-.*)+))", re.MULTILINE
)
MANY_LANGUAGES = 10
_LAYERS = {"Dense", "LayerNorm"}
_STEPS = {"Transformer", "Pooling", *_LAYERS, "Normalize", "Dropout"}


def facts_of_folder(folder: Path) -> ModelFacts:
    """The facts of the model in `folder`: refdesk's file, completed from the publisher's files.

    Raises:
        ConfigurationError: a file isn't valid JSON, refdesk's facts contradict the publisher's files, or
            they ask for a step that refdesk doesn't have.
    """
    stored, published = read_facts(folder), published_facts(folder)
    if stored is None:
        return published
    for name in ("pooling", "dense", "dimension"):
        ours, theirs = getattr(stored, name), getattr(published, name)
        if ours and theirs and ours != theirs and "graph" not in {ours, theirs}:
            raise ConfigurationError(
                f"The model in {folder} has the {name} {theirs!r} by its publisher's files, and {ours!r} by "
                "refdesk's own. Remove the model, and pull or add it again with refdesk-admin model."
            )
    unknown = [field.name for field in fields(stored) if getattr(stored, field.name) in {None, ()}]
    return replace(stored, **{name: getattr(published, name) for name in unknown})


def published_facts(folder: Path) -> ModelFacts:
    """The facts from the publisher's files alone.

    Raises:
        ConfigurationError: a file isn't valid JSON, or asks for a step that refdesk doesn't have.
    """
    steps = _steps(folder)
    pooling = [path for kind, path in steps if kind == "Pooling"]
    dense = tuple(path for kind, path in steps if kind in _LAYERS)
    config, prompts = _config(folder, "config.json"), _prompts(folder)
    return ModelFacts(
        name=folder.name,
        graph=next((name for name in GRAPHS if (folder / name).is_file()), GRAPHS[0]),
        pooling=_pooling(folder, pooling[0]) if pooling else None,
        dense=dense,
        dimension=_dimension(folder, pooling, dense),
        truncations=tuple(config.get("matryoshka_dimensions") or ()),
        query_prefix=prompts.get("query"),
        document_prefix=prompts.get("document"),
        window=_window(folder),
        multilingual=_multilingual(folder),
    )


def _steps(folder: Path) -> list[tuple[str, str]]:
    """The kinds and folders of the model's steps. Without a list of them, the usual folders count."""
    modules: Sequence[Mapping[str, str]] = _config(folder, "modules.json") or [
        {"type": kind, "path": f"{at}_{kind}"}
        for at, kind in ((1, "Pooling"), (2, "Dense"), (3, "LayerNorm"), (4, "Dense"))
        if (folder / f"{at}_{kind}").is_dir()
    ]
    steps = [(module["type"].rpartition(".")[2], module.get("path", "")) for module in modules]
    if unknown := {kind for kind, _ in steps} - _STEPS:
        raise ConfigurationError(
            f"The model in {folder} needs the step {', '.join(sorted(unknown))} (modules.json), which "
            "refdesk doesn't have. Use an export whose graph returns sentence_embedding, and remove "
            "modules.json."
        )
    order = [kind for kind, _ in steps if kind in {"Pooling", "Dense", "Normalize"}]
    if order != sorted(order, key=("Pooling", "Dense", "Normalize").index) or order.count("Pooling") > 1:
        raise ConfigurationError(
            f"The steps of the model in {folder} are in an unusual order (modules.json): {', '.join(order)}. "
            "refdesk pools, applies dense layers, and normalizes."
        )
    return steps


def _pooling(folder: Path, path: str) -> Pooling:
    """The pooling of a step's config.json, in the older or the newer form."""
    config = _config(folder, f"{path}/config.json")
    stated = config.get("pooling_mode") or [
        flag.removeprefix("pooling_mode_")
        for flag, on in config.items()
        if flag.startswith("pooling_mode_") and on is True
    ]
    modes = [stated] if isinstance(stated, str) else [*stated]
    names = [mode.removesuffix("_token").removesuffix("_tokens") for mode in modes]
    if len(names) != 1 or names[0] not in _POOLINGS:
        raise ConfigurationError(
            f"{folder / path / 'config.json'} asks for the pooling {' and '.join(modes) or 'of no kind'}. "
            f"refdesk has one of {', '.join(dict.fromkeys(_POOLINGS.values()))}."
        )
    if config.get("include_prompt") is False and _prompts(folder):
        raise ConfigurationError(
            f"{folder / path / 'config.json'} leaves the tokens of a prompt out of the pooling "
            "(include_prompt), which refdesk can't. Use an export whose graph returns sentence_embedding."
        )
    return _POOLINGS[names[0]]


def _dimension(folder: Path, pooling: Sequence[str], dense: Sequence[str]) -> int | None:
    """The length of a vector after the last step that states it."""
    if dense:
        last: int | None = _config(folder, f"{dense[-1]}/config.json").get("out_features")
        return last
    of_pooling = _config(folder, f"{pooling[0]}/config.json") if pooling else {}
    return of_pooling.get("word_embedding_dimension") or of_pooling.get("embedding_dimension")


def _prompts(folder: Path) -> dict[str, str]:
    """The prefixes of queries and documents, if the publisher names any."""
    config = _config(folder, "config_sentence_transformers.json")
    prompts, usual = config.get("prompts") or {}, config.get("default_prompt_name")
    prefixes = {
        kind: next((str(prompts[name]) for name in (*names, usual) if prompts.get(name)), "")
        for kind, names in _PROMPTS.items()
    }
    return {kind: prefix for kind, prefix in prefixes.items() if prefix}


def _window(folder: Path) -> int | None:
    """The smallest limit that a file of the publisher states, in tokens with the special ones."""
    config = _config(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if positions and any(name in config.get("model_type", "") for name in _OFFSET):
        positions -= 1 + (config.get("pad_token_id") or 0)
    length = _config(folder, "sentence_bert_config.json").get("max_seq_length")
    of_tokenizer = _config(folder, "tokenizer_config.json").get("model_max_length")
    stated = [int(limit) for limit in (positions, length, of_tokenizer) if limit and limit <= MAX_WINDOW]
    return min(stated, default=None)


def _multilingual(folder: Path) -> bool | None:
    """Whether the model card lists many languages, or "multilingual"; None if it lists none."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    parts = card.split("\n---", 1)
    match = _LANGUAGES.search(parts[0]) if card.startswith("---") and len(parts) > 1 else None
    if not match:
        return None
    languages = re.findall(r"[\w-]*\w", match["inline"] or match["list"] or match["one"] or "")
    return "multilingual" in languages or len(languages) >= MANY_LANGUAGES


def _config(folder: Path, name: str) -> Any:  # noqa: ANN401 JSON
    """The content of a configuration file; empty if the file doesn't exist."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder / name} is not valid JSON. Download the model again.") from error
