"""Languages of documents: from BCP 47 tags to names for readers, and to rules for words."""

from __future__ import annotations

from collections.abc import Mapping

from rag.corpus import Collection, Language

LANGUAGE = "language"
"""The metadata of a source that holds the tag of its language."""

_STEMMED: dict[str, Language] = {
    "ar": "Arabic",
    "da": "Danish",
    "nl": "Dutch",
    "en": "English",
    "fi": "Finnish",
    "fr": "French",
    "de": "German",
    "el": "Greek",
    "hu": "Hungarian",
    "it": "Italian",
    "nb": "Norwegian",
    "nn": "Norwegian",
    "no": "Norwegian",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "es": "Spanish",
    "sv": "Swedish",
    "ta": "Tamil",
    "tr": "Turkish",
    "vi": "Vietnamese",
}

_OTHERS = """
af Afrikaans|am Amharic|an Aragonese|as Assamese|az Azerbaijani|be Belarusian|bg Bulgarian
bn Bengali|br Breton|bs Bosnian|ca Catalan|cs Czech|cy Welsh|dz Dzongkha|eo Esperanto|et Estonian
eu Basque|fa Persian|fo Faroese|ga Irish|gl Galician|gu Gujarati|he Hebrew|hi Hindi|hr Croatian
ht Haitian|hy Armenian|id Indonesian|is Icelandic|ja Japanese|jv Javanese|ka Georgian|kk Kazakh
km Khmer|kn Kannada|ko Korean|ku Kurdish|ky Kyrgyz|la Latin|lb Luxembourgish|lo Lao|lt Lithuanian
lv Latvian|mg Malagasy|mk Macedonian|ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese
ne Nepali|oc Occitan|or Odia|pa Punjabi|pl Polish|ps Pashto|qu Quechua|rw Kinyarwanda
se Northern Sami|si Sinhala|sk Slovak|sl Slovenian|sq Albanian|sr Serbian|sw Swahili|te Telugu
th Thai|tl Tagalog|ug Uyghur|uk Ukrainian|ur Urdu|vo Volapük|wa Walloon|xh Xhosa
zh Chinese|zu Zulu
"""
_NAMES = dict(_STEMMED) | dict(
    entry.split(" ", 1) for line in _OTHERS.strip().splitlines() for entry in line.split("|")
)


def primary(tag: str) -> str:
    """The language of a tag, without country and script: "de-AT" -> "de"."""
    return tag.replace("_", "-").partition("-")[0].lower()


def name_of(tag: str) -> str:
    """The name of a tag's language for readers: "de-AT" -> "German", "xx" -> "xx"."""
    return _NAMES.get(primary(tag), primary(tag))


def is_known(tag: str) -> bool:
    """Whether a tag's language has a name here. Others can be anything that a document states."""
    return primary(tag) in _NAMES


def rules_of(tag: str) -> Language:
    """The language by whose rules words of this tag are analysed: "de-AT" -> "German", "uk" -> "none"."""
    return _STEMMED.get(primary(tag), "none")


def analysed_in(collection: Collection, metadata: Mapping[str, str]) -> Language:
    """The language by whose rules the words of a source with this metadata are analysed."""
    tag = metadata.get(LANGUAGE, "")
    if collection.language == "auto" and tag:
        return rules_of(tag)
    return collection.usual_language
