"""Normalizes words of scripts other than Latin, Greek and Cyrillic, which write them in several ways.

Chinese words are compared in simplified characters. A traditional character with several simplified forms has
the usual one. So different words may compare as equal, as they do in simplified characters anyway.

Source of the table `simplified.txt`: TSCharacters and JPShinjitaiCharacters of Open Chinese Convert 1.4.2
(Apache-2.0, github.com/BYVoid/OpenCC), without characters that neither Big5 nor GBK has.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

_ZEROS = (  # of decimal digits, each followed by nine more: Arabic, Persian, Indic, Thai, Lao, Burmese, Khmer
    "\u0660\u06f0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0e50\u0ed0\u0f20\u1040\u17e0"
)
_DIGITS = {ord(zero) + digit: str(digit) for zero in _ZEROS for digit in range(10)}
_POINTS = (  # of Hebrew and of Arabic: vowels, cantillation, and the line that stretches a word
    *(set(range(0x0591, 0x05C8)) - {0x05BE, 0x05C0, 0x05C3, 0x05C6}),
    *(*range(0x0610, 0x061B), 0x0640, *range(0x064B, 0x0660), 0x0670, *range(0x06D6, 0x06DD)),
)
_PLAIN = _DIGITS | dict.fromkeys(_POINTS) | str.maketrans("٫٬٪", ".,%")
_MARK_IN_HEBREW = re.compile("(?<=[א-ת])[\"'’”״׳](?=[א-ת])")  # in צה״ל and ג׳ירפה, also as on a keyboard
_OF_PERSIAN = {"ي": "ىیې", "ك": "کڪ", "ه": "ۀەہھۃ"}  # and the letters of Arabic for them
_ARABIC = {ord(letter): arabic for arabic, letters in _OF_PERSIAN.items() for letter in letters}
_DEFINITE = re.compile(r"(?<!\w)([وف]?(?:[بك]?ال|لل)\w{3,})ه(?!\w)")
_ENDS_AND_ALEFS = str.maketrans("أإآٱة", "اااا" + "ه")  # after stemming: the stemmer of Arabic needs them
_KATAKANA = {code: code + 0x60 for code in (*range(0x3041, 0x3097), 0x309D, 0x309E)}  # by their hiragana
_LONG = re.compile("[ァ-ヺー]{3,}ー")
_TABLE = Path(__file__).with_name("simplified.txt").read_text("utf-8").split()
_SIMPLIFIED = {ord(pair[0]): pair[1] for pair in _TABLE}  # of a traditional and a simplified character
_SIMPLIFIED |= dict.fromkeys(map(ord, "帳帐"), "账")  # accounts are written in both ways, too
_ONE_LETTER = {**_SIMPLIFIED, **_KATAKANA, **_ENDS_AND_ALEFS}

_NAMES = """
    辺邊邉 斉斎齊齋 高髙 崎﨑嵜 沢澤 浜濱濵 広廣 桜櫻 国國 島嶋嶌 竜龍 滝瀧 関關 渋澁澀 真眞 条條 栄榮
    恵惠 徳德 富冨 峰峯 桧檜 亀龜 寿壽 宝寶 弥彌 蔵藏 豊豐 遥遙 槙槇 鉄鐵 黒黑 吉𠮷 礼禮 穂穗 尭堯 曽曾
    浅淺 静靜 荘莊 覚覺 柳栁 桑桒 薮藪 頼賴 瀬瀨 塩鹽 巌巖 縄繩 鶴靏 顕顯 麦麥 児兒 勲勳 円圓 奥奧 郎郞 晃晄
    """
FORMS_OF_NAMES = {form: forms for forms in _NAMES.split() for form in forms}
"""The forms of the characters that names of Japanese people and places are written in, the usual one first.

Nobody knows by heart which one a person has. Modern and former forms, and the commonest variants of both.
"""
USUAL_FORM = {ord(form): forms[0] for form, forms in FORMS_OF_NAMES.items() if form != forms[0]}
"""The usual one of each other form, for `str.translate`."""
JAPANESE_FORM = re.compile("[邉斎髙﨑嵜濵嶋嶌澁眞冨峯槇𠮷栁桒靏郞晄]")
"""A form that neither Chinese texts nor most dictionaries have, so that it may cut a word."""
_NAME_CHARS = 6

_VOWEL_AM = re.compile("([\u0e4d\u0ecd])([\u0e48-\u0e4b\u0ec8-\u0ecb]?)([\u0e32\u0eb2])")  # น้ํา
_AM = {"\u0e32": "\u0e33", "\u0eb2": "\u0eb3"}
_BEFORE = "\u0e40-\u0e44\u0ec0-\u0ec4"  # vowels of Thai and Lao that are written before their consonant
_CONSONANTS = "\u0e01-\u0e2e\u0e81-\u0eae\u0edc-\u0edf\u1000-\u102a\u103f\u1050-\u1055\u1780-\u17b3"
_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u1038\u103a-\u103e\u1056-\u1059"
    "\u17b4-\u17d1\u17d3\u17dd"
)
_BELOW = "\u1039\u17d2"  # a consonant under another one follows
_BEHIND = "\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3"
_SYLLABLE = f"[{_BEFORE}]?[{_CONSONANTS}](?:[{_BELOW}][{_CONSONANTS}]|[{_MARKS}])*[{_BEHIND}]?"
_SYLLABLES = re.compile(_SYLLABLE)
UNSPACED_RUN = re.compile(f"((?:{_SYLLABLE})+)")  # of Thai, Lao, Burmese or Khmer
_KOREAN = re.compile("(?<![가-힣])[가-힣]{3,80}(?![가-힣])")  # longer is not a word, and would take seconds
_PARTICLE = re.compile(
    "(?<=[가-힣][가-힣])(?:은|는|이|가|을|를|의|에|로|으로|와|과|도|만|에서|에게|에게서|께|께서|한테|한테서|까지|부터"
    "|처럼|보다|마다|조차|마저|밖에|이나|이라|라는|이라는|이란|하고|으로서|로서|으로써|로써|대로|만큼|뿐|이며|이고|들"
    "|입니다|이다|입니까|합니다|합니까|하다|하는|하여|해서|했다|했습니다|됩니다|되다|되는|되어|된|할|한)$"
)
_OF_JAPANESE = (  # characters that only Japanese uses; kana alone don't tell, as some Chinese texts have them
    "両乗亀亜仏仮価値倶倹兎児円処剣剤剰労効勅勧勲単厳収呉呪唖営噛団囲図圏圧塁塩増壊壌壱売変奨姉姫嬢実"
    "寛対専尭巌巣巻帯帰庁広廃弐弾従徳徴応恵悩悪懐戦戯戸戻払抜択拝拠拡挙挿捜掲掻揺摂撃撹斉斎晩暁暦曁曽"
    "栄桜桝桟検楡楽様権歓歩歯歳歴毎気氷汚沢浄涙渇済渉渋渓満溌滝瀬焔焼犠猟獣畳痩発皐県砕稲穂穏穣竃竜粋"
    "粛粧経絵継続総縁縄縦繊繋繍聡聴脳臓舎舗艶茘荘蔵薫薬蛍蝋覇覚覧観訳読譲賛転軽輌辺逓遅郷酔醗醤醸釈鉄"
    "鉱銭鋳錬関闘陥険隠隣雑霊頼顕駅駆駈騒験髄髪鬪鴎鶏鹸麹麺黒黙鼈齢"
)
_JAPANESE = re.compile(f"[ぁ-ヺ{_OF_JAPANESE}]")
_LEAST_JAPANESE = 0.05  # of the characters of a text
_TRADITIONAL_ONE = re.compile(f"[{''.join(map(chr, _SIMPLIFIED))}]")


def plain_letters(text: str) -> str:
    """A text as most people type it: with digits from 0 to 9, and without the points of Hebrew and Arabic.

    The vowel am of Thai and Lao is one letter again, which Unicode's compatible form takes to pieces.
    Example: "שָׁלוֹם" -> "שלום"; "צה״ל" -> "צהל"; "كتــابٌ ۱۲" -> "كتاب 12".
    """
    text = _MARK_IN_HEBREW.sub("", text.translate(_PLAIN))
    return _VOWEL_AM.sub(lambda match: match[2] + _AM[match[3]], text)


def syllables(run: str) -> list[str]:
    """The syllables of a run: each a consonant with what is written around it.

    Example: "น้ำดื่ม" -> ["น้ำ", "ดื่", "ม"].
    """
    return _SYLLABLES.findall(run)


def pairs_of_syllables(run: str) -> list[str]:
    """The words of a run: each pair of consecutive syllables, or its only syllable.

    Example: "น้ำดื่ม" -> ["น้ำดื่", "ดื่ม"].
    """
    single = syllables(run)
    return [first + second for first, second in pairwise(single)] or single


def comparable_text(text: str) -> str:
    """A text before its words are stemmed: Persian with Arabic letters, Korean words `without_particles`.

    Example: "کتاب" -> "كتاب".
    """
    return _KOREAN.sub(lambda word: without_particles(word[0]), text.translate(_ARABIC))


def with_teh_marbuta(text: str) -> str:
    """An Arabic text with a teh marbuta where many write a heh for it: at the end of words with the article.

    Behind other words heh is also a pronoun, and the stemmer takes both off; an article excludes one, and
    there it takes off teh marbuta alone. Words of three letters, such as الوجه (the face), may end in a heh.
    Example: "المكتبه" -> "المكتبة".
    """
    return _DEFINITE.sub(r"\1ة", text)


def comparable_word(word: str) -> str:
    """A stemmed word with one letter for each that is written in several.

    Chinese is in simplified characters, Japanese in katakana without the mark of a long vowel at the end, and
    Arabic with bare alefs and without teh marbuta.
    Example: "用戶" -> "用户"; "りんご" -> "リンゴ"; "サーバー" -> "サーバ"; "أحمد" -> "احمد".

    Source for Arabic and Persian: their normalization in Apache Lucene.
    """
    word = word.translate(_ONE_LETTER)
    return word[:-1] if _LONG.fullmatch(word) else word


def without_particles(word: str) -> str:
    """A Korean word without the particles and endings behind it, as long as two syllables are left.

    Particles are written together with a noun and would make it another word. Words that only seem to end in
    one lose it in texts and queries alike.
    Example: "경비실에서는" -> "경비실"; "회의" -> "회의".
    """
    while (stem := _PARTICLE.sub("", word)) != word:
        word = stem
    return word


def simplified(text: str) -> str:
    """A Chinese text in simplified characters. Japanese stays unchanged, because that would break its words.

    Example: "用戶可以設定" -> "用户可以设定"; "ユーザーの設定" -> the same.
    """
    if not _TRADITIONAL_ONE.search(text) or len(_JAPANESE.findall(text)) > _LEAST_JAPANESE * len(text):
        return text
    return text.translate(_SIMPLIFIED)


def may_name_in_japanese(text: str) -> bool:
    """Whether a query is in Japanese, or short enough for a name alone."""
    return len(text) <= _NAME_CHARS or bool(_JAPANESE.search(text))
