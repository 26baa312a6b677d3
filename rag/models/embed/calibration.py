"""What a model's cosines mean, measured: the cosine that it gives to texts that have nothing in common.

And in a collection: how near to a question passages are that don't answer it.

Models differ in it, from 0 to over .8, and without it every passage of some models would seem relevant. A
model is asked for vectors of the texts here. Of one behind an endpoint that fails, the vectors that an
ingestion has paid for anyway are compared. rag/models/embed/README.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rag.corpus import Calibration, Vectors
from rag.models.embed import Embedder
from rag.text.plain_text import sentences

MAX_UNRELATED = 0.95  # of the settings, too; a model that gives more has the same vector for everything
APART = 0.05  # the least difference of related and unrelated texts from which a scale can be made
QUARTILE = 0.25
PAIRS = 20_000  # the standard error of the quartile is then under .002
MIN_PASSAGES = 100  # in 50 samples of 100 passages the quartile has a standard deviation of at most .012
MIN_SOURCES = 10
ASKED = 128  # sentences: the standard error of their median is then about .02
SHORTEST = 30  # bytes of such a sentence, as many as ten Chinese characters: headings say too little
LONGEST = 250  # characters of it: what is longer is a table, or code
SEED = 20_26

PAIRS_BY_LANGUAGE: dict[str, tuple[tuple[str, str], ...]] = {
    "en": (
        (
            "How long do I boil an egg?",
            "Hard-boiled eggs need ten minutes in simmering water, soft ones about five.",
        ),
        (
            "Where was the peace treaty signed?",
            "The powers signed the treaty in Vienna in 1815, after nine months.",
        ),
        ("How do I reset the router?", "Press and hold the reset button of the router for ten seconds."),
        ("How do whales breathe?", "Whales come to the surface and breathe air through a blowhole."),
        (
            "What does a transfer abroad cost?",
            "Our bank charges a fee of two euros for each transfer abroad.",
        ),
        (
            "Who scored in the second half?",
            "She scored twice in the second half of the match and was substituted.",
        ),
        ("What is a leap second for?", "A leap second keeps civil time close to the rotation of the Earth."),
        (
            "How many days of leave do employees have?",
            "Each employee is entitled to thirty days of paid leave a year.",
        ),
        (
            "Which vaccine protects against measles?",
            "Two doses of the MMR vaccine prevent measles in most children.",
        ),
        (
            "How are arrays sorted in place?",
            "The function sort() orders the elements of an array without copying it.",
        ),
        (
            "Why do leaves turn red?",
            "In autumn, trees break down chlorophyll, and red pigments become visible.",
        ),
        (
            "When does the museum open?",
            "The museum of modern art opens at nine on weekdays and at ten on Sundays.",
        ),
    ),
    "de": (
        ("Wie lange muss ein Ei kochen?", "Ein hartes Ei braucht zehn Minuten in siedendem Wasser."),
        ("Wie setze ich den Router zurück?", "Halten Sie die Taste am Router zehn Sekunden lang gedrückt."),
        ("Wie atmen Wale?", "Wale kommen an die Oberfläche und atmen durch ein Blasloch."),
        ("Was kostet eine Überweisung?", "Die Bank verlangt für jede Überweisung ins Ausland zwei Euro."),
    ),
    "es": (
        ("¿Cuánto tiempo se hierve un huevo?", "Un huevo duro necesita diez minutos en agua hirviendo."),
        ("¿Cómo reinicio el router?", "Mantenga pulsado el botón del router durante diez segundos."),
        ("¿Cómo respiran las ballenas?", "Las ballenas suben a la superficie y respiran por un espiráculo."),
        (
            "¿Cuánto cuesta una transferencia?",
            "El banco cobra dos euros por cada transferencia al extranjero.",
        ),
    ),
    "ru": (
        ("Сколько варить яйцо?", "Яйцо вкрутую варят десять минут в кипящей воде."),
        ("Как сбросить роутер?", "Нажмите кнопку на роутере и удерживайте её десять секунд."),
        ("Как дышат киты?", "Киты всплывают на поверхность и дышат через дыхало."),
        ("Сколько стоит перевод?", "Банк берёт два евро за каждый перевод за границу."),
    ),
    "zh": (
        ("鸡蛋要煮多久？", "煮全熟的鸡蛋需要在沸水中煮十分钟。"),
        ("如何重置路由器？", "按住路由器上的按钮十秒钟即可恢复出厂设置。"),
        ("鲸鱼怎样呼吸？", "鲸鱼浮到水面，用头顶的呼吸孔呼吸空气。"),
        ("汇款要多少手续费？", "银行对每笔境外汇款收取两欧元的手续费。"),
    ),
    "ar": (
        ("كم من الوقت تُسلق البيضة؟", "تحتاج البيضة المسلوقة جيدا إلى عشر دقائق في ماء يغلي."),
        ("كيف أعيد ضبط جهاز التوجيه؟", "اضغط على زر جهاز التوجيه لمدة عشر ثوان."),
        ("كيف تتنفس الحيتان؟", "تصعد الحيتان إلى السطح وتتنفس الهواء من فتحة في الرأس."),
        ("كم تكلف الحوالة؟", "يتقاضى البنك رسما قدره يوروهان عن كل حوالة إلى الخارج."),
    ),
    "hi": (
        ("अंडा कितनी देर उबालें?", "पूरा उबला अंडा उबलते पानी में दस मिनट लेता है।"),
        ("राउटर को रीसेट कैसे करें?", "राउटर का बटन दस सेकंड तक दबाए रखें।"),
        ("व्हेल कैसे साँस लेती हैं?", "व्हेल सतह पर आकर सिर के छेद से हवा में साँस लेती हैं।"),
        ("पैसे भेजने का शुल्क कितना है?", "बैंक विदेश भेजे गए हर भुगतान पर दो यूरो लेता है।"),
    ),
}
"""Questions and passages that answer them, and no other of their language, in the words of everyday texts."""


async def measured_calibration(embedder: Embedder) -> Calibration:
    """The model's own scale, from texts in seven languages, in the one that it tells apart best.

    A model finds everything alike in a language that it doesn't know, so the language with the largest
    difference of related and unrelated texts is one that it knows.

    Raises:
        ProviderError: the model has no vector for one of the texts.
    """
    languages = [await cosines_in(language, embedder) for language in PAIRS_BY_LANGUAGE]
    unrelated, related = max(languages, key=_difference)
    return Calibration(_within_bounds(unrelated), round(related, 3) if related - unrelated > APART else None)


def _difference(cosines: tuple[float, float]) -> float:
    unrelated, related = cosines
    return related - unrelated


async def cosines_in(language: str, embedder: Embedder) -> tuple[float, float]:
    """The mean cosine of questions and passages that don't answer them, and of those that do."""
    pairs = PAIRS_BY_LANGUAGE[language]
    queries = await embedder.embed([query for query, _ in pairs], "query")
    cosines = queries @ (await embedder.embed([text for _, text in pairs], "document")).T
    answers = float(cosines.trace())
    mismatches = len(pairs) * (len(pairs) - 1)
    return (float(cosines.sum()) - answers) / mismatches, answers / len(pairs)


def unrelated_cosine(sources: Sequence[str], vectors: Vectors) -> float | None:
    """The cosine of unrelated texts by the passages of a collection; None if there are too few.

    It is the lower quartile over pairs of different sources. Their mean says more of the collection than of
    the model: most passages of a manual have its subject in common.
    """
    there = vectors.any(axis=1)
    names, vectors = np.array(sources)[there], vectors[there]
    if not _are_enough(names.tolist()):
        return None
    random = np.random.default_rng(SEED)
    first, second = random.integers(0, len(vectors), (2, PAIRS))
    apart = names[first] != names[second]
    cosines = np.einsum("ij,ij->i", vectors[first[apart]], vectors[second[apart]])
    return _within_bounds(float(np.quantile(cosines, QUARTILE))) if len(cosines) else None


def _are_enough(sources: Sequence[str]) -> bool:
    return len(sources) >= MIN_PASSAGES and len(set(sources)) >= MIN_SOURCES


async def cosine_elsewhere(
    embedder: Embedder, sources: Sequence[str], vectors: Vectors, texts: Sequence[str]
) -> float | None:
    """The cosine of a passage's sentence, as a question, and the nearest passage of another source.

    That is how near passages are that don't answer: in a manual, whose passages have their subject in common,
    nearer than among articles. It is the median over some sentences; None if there are too few passages.

    Raises:
        ProviderError: the model has no vector for one of the sentences.
    """
    if not _are_enough([source for source, vector in zip(sources, vectors, strict=True) if vector.any()]):
        return None
    random = np.random.default_rng(SEED)
    questions: dict[str, str] = {}  # with the source of each
    for passage in random.permutation(len(texts))[:ASKED]:
        spans = sentences(texts[passage])
        parts = [texts[passage][start:end] for start, end in spans if end - start <= LONGEST]
        if long := [part for part in parts if len(part.encode()) >= SHORTEST]:
            questions[long[random.integers(len(long))]] = sources[passage]
    if not questions:
        return None
    cosines = (await embedder.embed([*questions], "query")) @ vectors.T
    cosines[np.array([*questions.values()])[:, None] == np.array(sources)] = -1
    return round(float(np.median(cosines.max(axis=1))), 3)


def _within_bounds(unrelated: float) -> float:
    return round(min(max(unrelated, 0.0), MAX_UNRELATED), 3)
