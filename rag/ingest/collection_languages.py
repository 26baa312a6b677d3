"""Keeps the languages of a collection, whose rules analyse its words, up to date with its documents.

With the language `auto`, the words of a document are analysed in its own language, or in the most frequent
language of the collection if its own is unknown. A query is analysed in all languages of the definition, so
a language is added before its first document is stored, and dropped after its last one is gone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.corpus import USUAL_LANGUAGE, Collection, Language, LanguageChoice
from rag.ingest.detect_language import with_language
from rag.ingest.stored_document import document_of
from rag.report.text_and_html import counted
from rag.store.read import schema
from rag.store.read.word_analysis import query_languages
from rag.store.write.change_collection import change_collection
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import NewSource
from rag.text.languages import LANGUAGE, analysed_in, name_of, rules_of

if TYPE_CHECKING:
    from rag.ingest.report import Outcome

READ_AT_ONCE = 50  # sources with their texts


async def note_languages(writer: CollectionWriter, wave: Iterable[NewSource]) -> None:
    """Add the languages of these sources to the definition. Call it before they are stored."""
    collection = writer.collection
    if not writer.writes or collection.language != "auto":
        return
    before = collection.languages or (USUAL_LANGUAGE,)
    new = {analysed_in(collection, new_source.source.metadata) for new_source in wave}
    if missing := sorted(new.difference(collection.languages)):
        added = tuple(language for language in missing if language not in before)
        await _note(writer, languages=(*before, *added))


async def settle_languages(writer: CollectionWriter) -> None:
    """Drop unused languages; re-analyse documents of unknown language if the most frequent one changed."""
    collection = writer.collection
    if not writer.writes or collection.language != "auto":
        return
    tags = await _tags(writer)
    languages = _ranked(tags.values())
    if languages == collection.languages:
        return
    usual = replace(collection, languages=languages).usual_language
    if usual != collection.usual_language and (without := [id_ for id_, tag in tags.items() if not tag]):
        await writer.reanalyse(without, usual)
    await _note(writer, languages=languages)


async def change_language(writer: CollectionWriter, language: LanguageChoice) -> Collection:
    """Re-analyse the words of all stored documents. Nothing is embedded. Returns the changed collection.

    Meanwhile, searches match the earlier and the new words. After an interruption, call it again.
    """
    collection = writer.collection
    tags = await _detected_tags(writer) if language == "auto" else await _tags(writer)
    languages = _ranked(tags.values()) if language == "auto" else (language,)
    coming = replace(collection, language=language, languages=languages if language == "auto" else ())
    all_languages = dict.fromkeys((*query_languages(collection), *languages, coming.usual_language))
    # Until all words are analysed again, a query must match the old analysis as well as the new one.
    await _note(writer, language="auto", languages=tuple(all_languages))
    by_rules: dict[Language, list[str]] = defaultdict(list)
    for id_, tag in tags.items():
        by_rules[analysed_in(coming, {LANGUAGE: tag})].append(id_)
    for rules, ids in by_rules.items():
        await writer.reanalyse(ids, rules)
    await _note(writer, language=coming.language, languages=coming.languages)
    return writer.collection


def language_notes(outcomes: Iterable[Outcome], collection: Collection) -> Iterator[str]:
    """A note if most of the documents aren't in the collection's language.

    Example: "12 of 15 documents are in Russian, but the collection wiki is analysed as English: …".
    """
    tags = Counter(outcome.language for outcome in outcomes if outcome.language)
    if collection.language in {"auto", "none"} or not tags:
        return
    foreign_tags = Counter({tag: n for tag, n in tags.items() if rules_of(tag) != collection.language})
    if 2 * foreign_tags.total() > tags.total():
        tag, _ = foreign_tags.most_common(1)[0]
        number = sum(n for foreign_tag, n in foreign_tags.items() if name_of(foreign_tag) == name_of(tag))
        yield (
            f"{number} of {counted(tags.total(), 'document')} {'is' if number == 1 else 'are'} in "
            f"{name_of(tag)}, but the words of the collection {collection.name} are analysed as "
            f"{collection.language}: other forms of a word are missed. Run refdesk-admin collection set "
            f"{collection.name} --language auto. That embeds nothing."
        )


def _ranked(tags: Iterable[str]) -> tuple[Language, ...]:
    """The rules for documents with these tags, most frequent first."""
    counts = Counter(rules_of(tag) for tag in tags if tag)
    return tuple(sorted(counts, key=lambda rules: (-counts[rules], rules)))


async def _tags(writer: CollectionWriter) -> dict[str, str]:
    """The language tags of all sources by id; empty if unknown."""
    rows = await writer.source_rows()
    return {row["id"]: json.loads(row["metadata"]).get(LANGUAGE, "") for row in rows}


async def _detected_tags(writer: CollectionWriter) -> dict[str, str]:
    """As `_tags`, but detected again from the stored texts, and stored with the sources."""
    ids = [row["id"] for row in await writer.source_rows()]
    tags = {}
    for at in range(0, len(ids), READ_AT_ONCE):
        changed: dict[str, Mapping[str, str]] = {}
        for whole in await writer.whole_sources(ids[at : at + READ_AT_ONCE]):
            source = whole.source(writer.collection.name)
            outline = schema.outline_record(whole.row["outline"])
            stored = replace(document_of(source, outline, whole.row["text"]), metadata=source.metadata)
            metadata = (await to_thread.run_sync(with_language, stored)).metadata
            tags[source.id] = metadata.get(LANGUAGE, "")
            if metadata != source.metadata:
                changed[source.id] = metadata
        await writer.describe(changed)
    return tags


async def _note(
    writer: CollectionWriter, *, languages: tuple[Language, ...], language: LanguageChoice | None = None
) -> None:
    """Write the languages, and the language setting if it changes, into the collection's definition."""
    collection = writer.collection
    chosen = language or collection.language
    await change_collection(
        writer.data,
        collection.tenant,
        collection.name,
        lambda current: replace(current, language=chosen, languages=languages),
    )
    writer.collection = replace(collection, language=chosen, languages=languages)
