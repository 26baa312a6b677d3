"""Texts in batches that an endpoint accepts: what it refuses is halved, and what that taught is kept.

An endpoint refuses a batch because it is too large, or because of one text in it. Halving finds out: if every
part is accepted, the size was the cause, and later batches are not larger. If a single text is refused, that
text was the cause, and the size is again what it was before.

An endpoint that limits the rate is sent smaller batches, after the time that it asks for. They grow again;
if it then limits the rate anew, the next growth comes after twice as many batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from rag.models.endpoint import RefusedError, delay_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from rag.corpus import Vectors

GROWS_AFTER = 8  # accepted batches in a row, before a batch that the rate limit shrank doubles


class TooFastError(Exception):
    """The endpoint limits the rate (HTTP 429) of a batch of several texts. `retry_after` is its header."""

    def __init__(self, retry_after: str) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


@dataclass(slots=True)
class BatchSize:
    """How many texts an endpoint takes at once, as learnt until now; kept as long as its embedder.

    `most` is the limit of the settings, or what the endpoint accepted when it refused more. `now` is smaller
    than that while the endpoint limits the rate. `tokens` limits the sum of a batch of several texts.
    """

    most: int
    now: int
    tokens: int
    accepted: int = 0
    grows_after: int = GROWS_AFTER
    grew: bool = False

    def taken(self, counts: Sequence[int], start: int) -> int:
        """How many texts from `start` are the next batch, at least one. `counts` are their tokens."""
        total = 0
        for number, count in enumerate(counts[start : start + self.now]):
            total += count
            if number and total > self.tokens:
                return number
        return min(self.now, len(counts) - start)

    def limit(self, most: int) -> None:
        """Take at most this many texts at once."""
        self.most = self.now = most

    def slow_down(self, refused: int) -> None:
        """Halve the batches after one of this size came too fast."""
        if self.grew:
            self.grows_after, self.grew = 2 * self.grows_after, False
        self.now, self.accepted = max(1, refused // 2), 0

    def note_accepted(self) -> None:
        """Count an accepted batch. After several in a row, batches grow again."""
        self.accepted += 1
        if self.accepted >= self.grows_after and self.now < self.most:
            self.now, self.accepted, self.grew = min(self.most, self.now * 2), 0, True


async def in_batches(
    texts: Sequence[str],
    counts: Sequence[int],
    size: BatchSize,
    request: Callable[[Sequence[str]], Awaitable[Vectors]],
    alone: Callable[[RefusedError], Awaitable[Vectors]],
    *,
    first_delay: float,
) -> AsyncIterator[Vectors]:
    """The vectors of all texts, in order, a part for each batch as soon as it was accepted.

    `counts` are the tokens of the texts. `alone` has the vector of a text that is refused although it is
    alone in its batch, or raises. `first_delay`, in seconds, doubles with every batch in a row that came too
    fast.
    """
    refused: list[tuple[int, int]] = []  # where a refused batch ends, and the limit before it
    done = hurried = 0
    while done < len(texts):
        batch = texts[done : done + size.taken(counts, done)]
        try:
            part = await request(batch)
        except TooFastError as error:
            hurried += 1
            size.slow_down(len(batch))
            await anyio.sleep(delay_after(hurried, error.retry_after, first_delay=first_delay))
            continue
        except RefusedError as error:
            if len(batch) > 1:
                refused.append((done + len(batch), size.most))
                size.limit(len(batch) // 2)
                continue
            part = await alone(error)
            size.limit(next((before for end, before in refused if end > done), size.most))
        size.note_accepted()
        hurried = 0
        done += len(batch)
        yield part
