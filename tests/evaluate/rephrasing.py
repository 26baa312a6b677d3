"""What paraphrases of a question bring, for developers: `python -m tests.evaluate.rephrasing anthropic_docs`.

A scripted model gives the stage multi_query two paraphrases of each of 24 questions of that set. Prints
nDCG@10 and recall@5 of the questions alone and with them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from rag.config.profiles import MultiQueryStage, ProfileSettings
from rag.config.settings import SearchSettings, Settings
from rag.evaluate.evaluation import contenders, evaluate, prepare_fresh
from rag.evaluate.judged_sets import read_set
from rag.ingest.report import Progress
from tests import chats
from tests.endpoint import running

if TYPE_CHECKING:
    from rag.evaluate.judged_sets import JudgedSet
    from tests.endpoint import Reply

PARAPHRASES = {
    "bad75951": [
        "multi-turn dialogue with the Messages API",
        "send earlier messages back to continue a chat",
    ],
    "544c05c2": ["delta types in streamed content blocks", "text_delta and input_json_delta stream events"],
    "6d9b42c3": ["vision cookbook and examples", "learn more about pictures as input, multimodal guides"],
    "c417a6d5": [
        "why prompt chaining gives more accurate results",
        "each subtask gets full attention of the model",
    ],
    "c7132d11": [
        "RLHF and fine-tuning of the base model",
        "base LLM versus assistant that follows instructions",
    ],
    "2c3d41c0": [
        "metrics for classifying support tickets",
        "accuracy, cost and speed of routing support requests",
    ],
    "77486ab3": [
        "why prompts beat fine-tuning",
        "catastrophic forgetting and understanding of external content",
    ],
    "1d6210b8": [
        "spreadsheet add-on to test many prompts",
        "Google Sheets extension, parallel prompts at scale",
    ],
    "c832aa3f": [
        "multishot prompting, few-shot examples",
        "show the model sample outputs for accuracy and consistency",
    ],
    "4cc35077": ["overloaded_error 529", "errors in a stream of events when the service is busy"],
    "5bb18b73": [
        "skip the preamble and return JSON only",
        "put words in the assistant turn to force a JSON object",
    ],
    "0e17a981": ["subscribe to Voyage model package in AWS", "deploy an embedding model on SageMaker"],
    "bbeaa6b6": [
        "prerequisites: success criteria, empirical tests, first draft",
        "before prompt engineering",
    ],
    "9aca7b76": ["try Claude in the web console or chat app", "getting started without code"],
    "6c0f4d5c": [
        "prompt chaining for consistent multi-step results",
        "break work into steps that check each other",
    ],
    "0a4078a0": ["list foundation models on Bedrock by region", "aws bedrock list-foundation-models command"],
    "f6c21a30": [
        "fastest model for real-time applications",
        "trade-off of speed, cost and intelligence of models",
    ],
    "8019b9f5": [
        "put ticket classification live: retries, monitoring",
        "production integration of support routing",
    ],
    "8ec5561c": ["base64 image content block", "JPEG, PNG, GIF and WebP as message input"],
    "c07779d4": ["return a tool_result after the model calls a function", "the model wants to use a tool"],
    "62f954f3": ["529 API is temporarily overloaded", "HTTP error codes of the API"],
    "48f497ca": ["usage limits of my account, settings page", "limits tab in the console"],
    "b01ae76d": ["act as CFO: role prompting example", "system prompt gives an expert persona in finance"],
    "32c48e52": ["ANTHROPIC_API_KEY environment variable", "pass api_key when initializing the client"],
}
"""Two paraphrases of each question, as documents could put it."""
SHOWN = ("nDCG@10", "recall@5")


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
def rephrasing(path: Path) -> None:
    """Measure and print."""
    anyio.run(_measured, read_set(path))


async def _measured(judged: JudgedSet) -> None:
    questions = tuple(question for question in judged.questions if question.id in PARAPHRASES)
    by_text = {question.text: PARAPHRASES[question.id] for question in questions}

    def rephrased(request: dict[str, Any]) -> Reply:
        question = json.loads(request["messages"][-1]["content"])["question"]
        return chats.saying({"queries": by_text[question]})(request)

    stage = MultiQueryStage(stage="multi_query")
    profiles = {"alone": ProfileSettings(), "rephrased": ProfileSettings(stages=(stage,))}
    with running() as server:
        server.script = [rephrased]
        search = SearchSettings(profiles=profiles, overrides=("mode", "limit"))
        settings = Settings(search=search, chat=chats.settings(server, timeout_seconds=60))
        few = replace(judged, questions=questions)
        async with prepare_fresh(few, settings, {}, language=None, progress=Progress()) as room:
            for run in await evaluate(few, room, {}, contenders(settings, list(profiles), [None])):
                figures = ", ".join(f"{name} {run.summary.metrics[name]:.3f}" for name in SHOWN)
                click.echo(f"{run.summary.profile}: {figures}")


if __name__ == "__main__":
    rephrasing()
