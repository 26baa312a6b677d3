"""What an assistant gets: the default reply of the tool `search`, and how much of what is wanted it shows.

The tool searches without a limit of the caller's, and renders the answer within the operator's `max_chars`.
So does this, by the same functions. A hit that did not fit is not shown, and of a truncated one only the
beginning is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.evaluate.metrics import Stretch, ndcg, recall, token_scores
from rag.search.reply.search_reply import search_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Answer
    from rag.config.server_settings import ServerSettings
    from rag.evaluate.expected import Expected
    from rag.search.reply.search_reply import HitRecord, SearchReply

NDCG, RECALL, TOKEN_RECALL = "shown_nDCG@10", "shown_recall", "shown_token_recall"
SHOWN = (NDCG, RECALL, TOKEN_RECALL)
"""Scores of the reply: its first ten documents or passages in order; the share of all that is wanted which it
shows; and, if passages are wanted, the share of their characters."""
CHARS = "shown_chars"
"""The length of the reply, in characters of JSON. No score: neither more nor less is better by itself."""
SIZES = frozenset({CHARS})


def default_reply(answer: Answer, server: ServerSettings) -> SearchReply:
    """What the tool `search` returns of an answer by default. The answer is `Desk.checked`, as there."""
    return search_reply(answer, server.max_chars, vectors=server.include_vectors, urls=server.openai_compat)


def shown_metrics(one: Expected, reply: SearchReply) -> dict[str, float]:
    """How good a reply is for a question, and how long."""
    shown = [stretches(record) for record in reply.results]
    ranking = one.ranked((record.id, parts) for record, parts in zip(reply.results, shown, strict=True))
    scores = {NDCG: ndcg(ranking, one.grades, 10), RECALL: recall(ranking, one.grades, len(ranking))}
    if one.of_passages:
        found = [part for parts in shown for part in parts]
        scores[TOKEN_RECALL] = token_scores(found, one.wanted(found)).recall
    return scores | {CHARS: float(len(reply.compact()))}


def stretches(record: HitRecord) -> Sequence[Stretch]:
    """Where the text of a result stands in its source."""
    source_id = record.id.partition("/")[0]
    return [Stretch(source_id, *part) for part in record.excerpts or [[record.start, record.end]]]
