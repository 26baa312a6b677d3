"""LaTeX: text without commands, mathematics as it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import ParseError
from rag.ingest.parse import parse

PAPER = r"""% a comment
\documentclass{article}
\newcommand{\x}{y}
\title{On $E=mc^2$ clocks\thanks{Paid by nobody}}
\author{Ann Lee \and J\"org M\"uller}
\date{2020-01-05}
\begin{document}
\maketitle
\begin{abstract}Short 5\% text.\end{abstract}
\section{Methods \& more}\label{sec:m}
We \emph{use \textbf{oil}} \cite{lee2020}. % gone
So \verb|a\b| and ``quotes''---yes; caf\'e, na\"{\i}ve, \c{c}a\footnote{A note}.
\begin{equation}
 a^2 + b_{1} = c
\end{equation}
\begin{itemize}
 \item one
 \begin{enumerate}\item in \item in2\end{enumerate}
 \item[Key] two
\end{itemize}
\subsection{Tab}
\begin{table}[h]\centering\begin{tabular}{l|r}\hline a & b \\ \hline 1 & $x$ \\ \end{tabular}\caption{Cap.}
\end{table}
\begin{lstlisting}[language=Python]
def f(): % no comment
\end{lstlisting}
\input{other}
\end{document}
gone
"""
TEXT = r"""# Abstract

Short 5% text.

# Methods & more

We use oil [lee2020]. So `a\b` and “quotes”—yes; café, naïve, ça [A note].

\begin{equation}
 a^2 + b_{1} = c
\end{equation}

- one
  - in
  - in2
- Key: two

## Tab

| a | b |
| --- | --- |
| 1 | $x$ |

Cap.

```
def f(): % no comment
```"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_paper_is_read_without_its_commands(end: str) -> None:
    document = parse(PAPER.replace("\n", end).encode(), "a.tex")
    assert document.text == TEXT
    assert document.title == "On $E=mc^2$ clocks"
    assert document.date
    assert document.date.date().isoformat() == "2020-01-05"
    assert document.metadata == {"author": "Ann Lee, Jörg Müller"}
    assert document.remarks == ("it includes other, which was not read with it",)
    kinds = [one.kind for one in document.blocks]
    assert kinds == [
        *("heading", "paragraph", "heading", "paragraph", "paragraph", "list"),
        *("heading", "table", "paragraph", "code"),
    ]
    assert [one.level for one in document.blocks if one.kind == "heading"] == [1, 1, 2]


def test_a_part_of_a_paper_needs_no_preamble() -> None:
    document = parse(rb"\chapter{Clocks} They tick. \section*{Oil} Yes.", "oil.tex")
    assert document.text == "# Clocks\n\nThey tick.\n\n## Oil\n\nYes."
    assert document.title == "Clocks"


PIECES = [
    r"\begin{itemize}",
    r"\end{itemize}",
    r"\item",
    r"\section{",
    "}",
    "{",
    "$",
    "$$",
    r"\[",
    "%",
    "\n",
    "a",
    r"\\",
    "&",
]


@given(
    st.lists(
        st.sampled_from(
            [*PIECES, r"\begin{tabular}{l}", r"\end{tabular}", r"\emph{", r"\c", "\ue000", "\ue001"]
        )
    )
)
def test_any_commands_are_a_document_or_a_parse_error(parts: list[str]) -> None:
    try:
        assert parse("".join(parts).encode(), "a.tex").blocks
    except ParseError as error:
        assert str(error)  # noqa: PT017 either end is fine


@pytest.mark.parametrize("part", [r"\section{", r"\begin{equation}", "$$", "$a", r"\emph{x", r"\[", "{"])
def test_what_is_not_closed_takes_no_time(part: str) -> None:
    assert parse((part * 1000 + "\n\nx").encode(), "a.tex").blocks
