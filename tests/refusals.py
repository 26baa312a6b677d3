"""What the program says when it refuses, for tests elsewhere than those that assert the wording."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec

import pytest

from rag.errors import RefdeskError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


def refusal(function: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> str:
    """The message with which `function` refuses these arguments.

    A command that passes on a refusal is tested against this, so that the words stand only in the tests of
    the function itself.
    """
    with pytest.raises((RefdeskError, ValueError)) as error:
        function(*arguments, **options)
    message = str(error.value)
    assert message, "it refuses without a word"
    return message
