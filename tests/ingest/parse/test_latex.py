"""LaTeX: text without commands, mathematics as it is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

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
TEXT = r"""On $E=mc^2$ clocks [Paid by nobody]

Ann Lee
Jörg Müller

2020-01-05

# Abstract

Short 5% text.

# Methods & more

We use oil [lee2020]. So `a\b` and “quotes”—yes; café, naïve, ça [A note].

\begin{equation}
 a^2 + b_{1} = c
\end{equation}

- one
  1. in
  2. in2
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
    kinds = [block.kind for block in document.blocks]
    assert kinds == [
        *("paragraph", "paragraph", "paragraph"),
        *("heading", "paragraph", "heading", "paragraph", "paragraph", "list"),
        *("heading", "table", "paragraph", "code"),
    ]
    assert [block.level for block in document.blocks if block.kind == "heading"] == [1, 1, 2]


def test_an_address_is_literal_and_a_comment_behind_it_is_gone() -> None:
    text = r"""At \url{https://x.org/a%20b} 5\% daily.
See \href{http://x.org/~joe/a\%20b\#c}{the manual} now. % not \url{x%y}
\newcommand{\base}{x.org}\path{\base/a_b}, \nolinkurl{c&d}.
"""
    assert parse(text.encode(), "a.tex").text == (
        "At https://x.org/a%20b 5% daily.\nSee the manual (http://x.org/~joe/a%20b#c) now. x.org/a_b, c&d."
    )


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


DEFINED = [
    (
        r"\newcommand{\method}{RankFuse} We call it \method{} here. \method\ wins.",
        "We call it RankFuse here. RankFuse wins.",
    ),
    (r"Late \method{} is. \newcommand*\method{RankFuse}", "Late RankFuse is."),
    (r"\def\method{RankFuse}\method s and \method, too", "RankFuse s and RankFuse, too"),
    (r"\newcommand{\method}{\textsc{Rank{\em Fuse}}\xspace} So \method wins.", "So RankFuse wins."),
    ("\\newcommand{\\method}{% the name\n  Rank%\n  Fuse}\nSo \\method.", "So RankFuse."),
    ("\\newcommand{\\method}\n  [1]\n  {Rank\n   #1}\nSo \\method{Fuse}.", "So Rank Fuse."),
    (
        r"\newcommand{\greet}[2][Dear]{#1 \emph{#2},} \greet{Ann} and \greet[Hello]{Bo {\bf C}}",
        "Dear Ann, and Hello Bo C,",
    ),
    (r"\def\big#1{\large\bfseries#1!} \big{Rank}", "Rank!"),
    (r"\def\pair#1#2{(#1; #2)} \pair ab \pair{a}{\pair{b}{c}}", "(a; b) (a; (b; c))"),
    (r"\newcommand{\x}{old} \x{} \renewcommand{\x}{new} \x{} \providecommand{\x}{unused} \x", "old new new"),
    (r"\providecommand{\x}{first} \x{} \newcommand{\x}{second} \x", "first first"),
    (r"\newcommand{\x}{old}\let\y\x\renewcommand{\x}{\y{} and new} \x", "old and new"),
    (
        r"\DeclareMathOperator*{\argmax}{arg\,max} The \argmax{} is $\argmax_x$.",
        r"The arg max is $\argmax_x$.",
    ),
    (r"\newcommand{\R}{\ensuremath{\mathbb{R}}} In \R{} and $\R$.", r"In $\mathbb{R}$ and $\R$."),
    (r"\newcommand{\outer}{\def\inner{deep}} \outer It is \inner.", "It is deep."),
    (r"\newcommand{\s}{\section}\newcommand{\m}{RankFuse} \s{On \m} Yes", "# On RankFuse\n\nYes"),
    (r"\newcommand{\bi}{\begin{itemize}}\newcommand{\ei}{\end{itemize}} \bi \item a \item b \ei", "- a\n- b"),
    (
        "\\newcommand{\\be}{\\begin{equation}}\\newcommand{\\ee}{\\end{equation}}\nSee \\be a=b \\ee",
        "See\n\n\\begin{equation} a=b \\end{equation}",
    ),
    (
        r"\newcommand{\m}{RankFuse} \begin{tabular}{lr} \m & \multicolumn{1}{c}{2} \\ a&\m\\\end{tabular}",
        "| RankFuse | 2 |\n| --- | --- |\n| a | RankFuse |",
    ),
    (r"\newcommand{\m}{RankFuse} \begin{figure}\caption[short]{Of \m.}\end{figure}", "Of RankFuse."),
    (r"\newcommand{\m}{RankFuse} \verb|\m| is \m", r"`\m` is RankFuse"),
    (r"\newcommand{\todo}[1]{\textcolor{red}{[TODO: #1]}} A \todo{cite}", "A [TODO: cite]"),
    (r"\renewcommand{\section}[1]{gone} \section{Stays}", "# Stays"),
]


@pytest.mark.parametrize(("source", "text"), DEFINED)
def test_a_macro_that_the_file_defines_is_what_it_stands_for(source: str, text: str) -> None:
    document = parse(source.encode(), "a.tex")
    assert re.sub(" +", " ", document.text) == text
    assert document.remarks == ()


def test_a_macro_of_the_preamble_is_expanded_in_title_and_author() -> None:
    source = r"""\newcommand{\method}{RankFuse}\newcommand{\uni}[1]{University of #1}
    \title{\method: two lists} \author{Ann Lee, \uni{Bonn}} \begin{document} \method\ it is. \end{document}"""
    document = parse(source.encode(), "a.tex")
    assert document.title == "RankFuse: two lists"
    assert document.metadata == {"author": "Ann Lee, University of Bonn"}
    assert document.text == "RankFuse it is."


def test_unknown_macros_stay_by_name_or_by_their_arguments_and_are_remarked_once() -> None:
    source = r"\foo{Ann}{Bo} has \alpha\ \ce{5}{\mole} \textbf{and} \foo{x} \a@b \q1 \'e"
    document = parse(source.encode(), "a.tex")
    assert document.text.split() == [
        "Ann",
        "Bo",
        "has",
        r"\alpha",
        "5",
        r"\mole",
        "and",
        "x",
        r"\a@b",
        r"\q1",
        "é",
    ]
    assert document.metadata == {"left_out": "2 unknown macros"}
    by_name, by_arguments = document.remarks
    assert all(name in by_name for name in (r"\alpha", r"\mole", r"\a@b", r"\q"))
    assert all(name in by_arguments for name in (r"\foo", r"\ce"))


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (
            r"We trained \model{} for \model\ and \model, (\model).",
            r"We trained \model for \model and \model, (\model).",
        ),
        (
            r"\section{On \model} \emph{\model{} wins}\footnote{As \model{} does.}",
            "# On \\model\n\n\\model wins [As \\model does.]",
        ),
        (
            r"\begin{tabular}{ll}\ours & 3\\ \multicolumn{2}{l}{\theirs}\end{tabular}",
            "| \\ours | 3 |\n| --- | --- |\n| \\theirs |  |",
        ),
        (
            "First.\n\n\\bigbreak\n\\thickline\n\\starline\n\nSecond \\model is.",
            "First.\n\nSecond \\model is.",
        ),
        (r"a \foo{b {\it c {d}}} e", "a b c d e"),
        (r"A\foo{}{two} \foo {three} \foo[x]{four}", "A two three four"),
    ],
)
def test_a_macro_of_another_file_leaves_no_hole_in_a_sentence(written: str, seen: str) -> None:
    assert parse(written.encode(), "a.tex").text == seen


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (r"Stra\ss{}e, \oe{}uvre, \LaTeX{} \copyright{} 2020", "Straße, œuvre, LaTeX © 2020"),
        (r"\noindent\textbf{Note} that \centering\emph{it} ticks", "Note that it ticks"),
        (r"pre\textbf{fix} \large{Big}\small\texttt{a}", "prefix Biga"),
    ],
)
def test_a_command_beside_another_costs_no_word(written: str, seen: str) -> None:
    document = parse(written.encode(), "a.tex")
    assert document.text == seen
    assert not document.remarks


def test_a_reference_has_the_title_of_what_the_file_labels() -> None:
    written = r"""\section{Our \emph{method}}\label{sec:m}\label{sec:n}
    See \ref{sec:n}, \cref{tab:r, fig:x}, \ref{eq:a}, \autoref{fig:long}, \cite{sec:m}.
    \begin{equation}\label{eq:a} a \end{equation}
    \caption[Short]{All \textbf{results} \cite{lee}. Bold is best, see \ref{sec:m}.\label{tab:r}}
    \caption{%s}\label{fig:long}"""
    text = parse((written % ("word " * 30)).encode(), "a.tex").text
    assert "See [Our method], [All results, fig:x], [eq:a], [fig:long], [sec:m]." in text


FRONTS = [
    (
        r"\author[1]{Ann Lee}\author[1,2]{Bo Ray}\affil[1]{TU Graz}\affil[2]{Uni Bonn}\date{\today}|",
        "T\n\nAnn Lee [1]\nBo Ray [1,2]\n[1] TU Graz\n[2] Uni Bonn",
        {"author": "Ann Lee, Bo Ray"},
    ),
    (
        r"|\author{Ann}\affiliation{\institution{TU Graz}\city{Graz}}\email{a@x.org}\author{Bo}",
        "T\n\nAnn\nTU Graz, Graz\na@x.org\nBo",
        {"author": "Ann, Bo"},
    ),
    (
        r"\author{Ann\inst{1} \and Bo\inst{2}\thanks{By \emph{x}}}\institute{TU Graz \and Bonn}|",
        "T\n\nAnn [1]\nBo [2] [By x]\n[1] TU Graz\n[2] Bonn",
        {"author": "Ann, Bo"},
    ),
    (
        "\\author{\\IEEEauthorblockN{L\\'{e}e}\n\\IEEEauthorblockA{TU\\\\ Graz}\n\\and Bo \\\\\n Bonn}|",
        "T\n\nLée\nTU\nGraz\n\nBo\nBonn",
        {"author": "Lée, TU, Graz, Bo, Bonn"},
    ),
    (
        r"\subtitle{Sub}\author[AL]{Ann}\institute{TU Graz}\date{May 2023}|",
        "T\n\nSub\n\nAnn\nTU Graz\n\nMay 2023",
        {"author": "Ann", "date": "May 2023"},
    ),
]


@pytest.mark.parametrize(("front", "seen", "metadata"), FRONTS)
def test_who_wrote_a_paper_where_and_when_is_text_where_its_title_is_printed(
    front: str, seen: str, metadata: dict[str, str]
) -> None:
    source = rf"{front}\title[S]{{T}}\maketitle".replace("|", r"\begin{document}")
    document = parse(source.encode(), "a.tex")
    assert document.text == seen
    assert document.title == "T"
    assert document.metadata == metadata
    assert not document.remarks


def test_what_no_title_page_prints_is_no_text() -> None:
    document = parse(rb"\title{T}\author{Ann \And Bo}\begin{document}It ticks.\end{document}", "a.tex")
    assert (document.title, document.text) == ("T", "It ticks.")
    assert document.metadata == {"author": "Ann, Bo"}


def test_an_abstract_that_precedes_the_title_stands_below_it() -> None:
    source = r"\begin{document}\title{T}\begin{abstract}Short.\end{abstract}\author{Ann}\%s Text."
    for command in ("maketitle", "titlepage"):
        text = parse((source % command).encode(), "a.tex").text
        assert text == "T\n\nAnn\n\n# Abstract\n\nShort.\n\nText."


def test_what_changes_only_the_looks_is_not_remarked() -> None:
    source = r"""\begin{center}{\Large\bfseries Big}\end{center}\vspace{2mm} {\bf Stays} \textcolor{red}{word}
    \fcolorbox{red}{blue}{box} \begin{minipage}[t]{0.5\textwidth}Half\end{minipage} 10\,km hy\-phen
    \rule{1pt}{2pt} \textasciitilde x \clearpage"""
    document = parse(source.encode(), "a.tex")
    assert " ".join(document.text.split()) == "Big Stays word box Half 10 km hyphen ~ x"
    assert document.remarks == ()


@pytest.mark.parametrize(
    ("definitions", "name"),
    [
        (r"\def\a{x\a}", r"\a"),
        (r"\def\a{\b\b}\def\b{\a}", r"\a"),
        (r"\def\a{x\b}\def\b#1{#1\a}", r"\a"),
        ("".join(rf"\def\x{'i' * at}{{\x{'i' * at}i\x{'i' * at}i}}" for at in range(40)), r"\x"),
        (r"\def\x#1{#1#1}\def\a{" + r"\x{" * 40 + "x" + "}" * 40 + "}", r"\a"),
    ],
)
def test_a_macro_without_an_end_stays_as_a_name_and_is_remarked(definitions: str, name: str) -> None:
    source = rf"{definitions}\def\good{{fine}} Before {name} {'word ' * 100} \good after."
    document = parse(source.encode(), "a.tex")
    assert document.text.startswith(f"Before {name} ")
    assert document.text.endswith("word  fine after.")
    assert document.remarks[-1].endswith(f": {name}")


def test_a_macro_that_no_one_can_follow_leaves_the_text_around_it() -> None:
    source = r"\def\until#1;{[#1]} A \until b; c \newcommand{\open}{x \foo"
    document = parse(source.encode(), "a.tex")
    assert document.text.startswith("A")
    assert any(r"\until" in remark for remark in document.remarks)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (r"A layer of \SI{5}{\micro\metre}, \SI{10}{\percent}.", "A layer of 5 µm, 10 %."),
        (
            r"\qty{3}{\kilo\gram\per\metre\squared} \si{\newton\metre} \ang{12;30}",
            "3 kg/m^2 N·m 12°30′",
        ),
        (r"\SIrange{1}{5}{\square\metre} \qty{2}{km} \SI{1}{\foo}", "1 to 5 m^2 2 km 1 foo"),
        (r"\begin{theorem}[Pythagoras] $a$. \end{theorem}", "Theorem (Pythagoras):  $a$."),
        (r"\newtheorem{satz}{Satz}\begin{satz}Es gilt.\end{satz}", "Satz: Es gilt."),
        (r"A.\iffalse Old \emph{claim}. \fi B.", "A. B."),
        (
            r"\begin{enumerate}\item a\begin{itemize}\item b\end{itemize}\item c\item[x] d\end{enumerate}",
            "1. a\n  - b\n2. c\n- x: d",
        ),
        *(
            (rf"\begin{{enumerate}}{begin}\item a\item b\end{{enumerate}}", items)
            for begin, items in (
                (r"\def\labelenumi{\arabic{enumi}.}\tightlist", "1. a\n2. b"),
                ("[start=7]", "7. a\n8. b"),
                (r"[label={Step \Roman*:}, start=2]", "Step II: a\nStep III: b"),
                ("[(a)]", "(a) a\n(b) b"),
                (r"[leftmargin=*]\item[4.] x\item[Key] y", "4. x\n- Key: y\n1. a\n2. b"),
            )
        ),
        (r"\begin{itemize}\item[$\boxtimes$] a\item[$\square$] b\end{itemize}", "- [x] a\n- [ ] b"),
        ("\\hypertarget{dose}{%\n\\section{Dose}\\label{dose}}\n\\hyperlink{dose}{See}", "# Dose\n\nSee"),
        (r"\section{\texorpdfstring{\emph{A} b}{A b}}", "# A b"),
        (
            r"\section{A}\begin{frame}[t]{B}c\end{frame}\begin{frame}\frametitle{D}e\end{frame}",
            "# A\n\n## B\n\nc\n\n## D\n\ne",
        ),
        (r"\frame{\frametitle{A}\begin{columns}[T]\begin{column}{.5\textwidth}b\end{column}", "# A\n\nb"),
        (
            r"\newacronym{x}{XRD}{X-ray diffraction}\gls{x}, \glspl{x}, \acrlong{x}, \gls{y}",
            "X-ray diffraction (XRD), XRDs, X-ray diffraction, y",
        ),
        (r"\DeclareAcronym{t}{short=TEM, long={tunnelling microscopy}}\Ac{t}", "Tunnelling microscopy (TEM)"),
        (r"\newglossaryentry{p}{name={pump P1}, description={x}}\gls{p}", "pump P1"),
        (
            r"\begin{algorithmic}\Require $n$ \If{$a>b$} \State swap \EndIf\FOR{each}\STATE add\ENDFOR",
            "Require: $n$\nif $a>b$ then\nswap\nend if\nfor each do\nadd\nend for",
        ),
        (
            r"\begin{thebibliography}{9}\bibitem{knuth} D. Knuth.\bibitem[L]{lam} L.\end{thebibliography}",
            "- [knuth] D. Knuth.\n- [lam] L: L.",
        ),
    ],
)
def test_what_latex_prints_is_text(written: str, expected: str) -> None:
    assert parse(written.encode(), "a.tex").text == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            r"\multirow{2}{*}{A} & \multicolumn{2}{c|}{B}\\ \cmidrule(lr){2-3} & b & c\\[2pt] 1 & 2 & 3",
            ["| A | B |  |", "| A | b | c |", "| 1 | 2 | 3 |"],
        ),
        (
            r"\multicolumn{2}{c}{\multirow[t]{2}{=}{A}} & x\\ & & y\\\hline \multirow{2}{*}{B} & & z\\ c & 1",
            ["| A |  | x |", "| A |  | y |", "| B |  | z |", "| c | 1 |"],
        ),
        (r"a & 1\\ & 2\\ \multirow{-2}{*}{b} & 3", ["| a | 1 |", "| b | 2 |", "| b | 3 |"]),
        (r"\multirow{2}*{7} & 1\\ & 2", ["| 7 | 1 |", "| 7 | 2 |"]),
        (r"\multirow{-2}{*}{b} & 3\\ {\bf c} & 4", ["| b | 3 |", "| c | 4 |"]),
        (
            r"\rowcolor[HTML]{C0C0C0}\makecell{a\\b}&\begin{tabular}[c]{@{}l@{}}c&d\\e\end{tabular}\\ 1&2",
            ["| a b | c d e |", "| 1 | 2 |"],
        ),
        (
            r"a & \begin{tabular}{ll}\multicolumn{2}{c}{\multirow{2}{*}{b}}\\&\end{tabular} & c\\ 1 & & 3",
            ["| a | b | c |", "| 1 |  | 3 |"],
        ),
    ],
)
def test_a_cell_over_rows_and_columns_leaves_the_others_below_their_headers(
    rows: str, expected: list[str]
) -> None:
    document = parse(rf"\begin{{tabular}}{{lcc}}{rows}\end{{tabular}}".encode(), "a.tex")
    assert [line for line in document.text.split("\n") if "---" not in line] == expected
    assert not document.remarks


def test_a_long_table_has_its_head_once_and_its_caption_above() -> None:
    widths = r"{@{}>{\raggedright\arraybackslash}p{(\columnwidth - 2\tabcolsep) * \real{0.5}}l@{}}"
    document = parse(
        rb"""\begin{longtable}[]%s
\caption{Doses}\tabularnewline \toprule Drug & Dose \\ \midrule \endfirsthead
\caption[]{(continued)}\\ Drug & Dose \\ \endhead
\multicolumn{2}{r}{next page} \endfoot \bottomrule \endlastfoot
\begin{minipage}[t]{\linewidth}A\\B\end{minipage} & 5 \end{longtable}"""
        % widths.encode(),
        "a.tex",
    )
    assert document.text == "Doses\n\n| Drug | Dose |\n| --- | --- |\n| A B | 5 |"
    assert not document.remarks


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part",
    [
        r"\SI{",
        r"\SI{1}",
        r"\iffalse ",
        r"\iffalse\fi",
        r"\begin{comment}",
        r"\begin{verbatim}",
        r"\begin{tikzpicture}",
        r"\end{comment}\begin{comment}",
        r"\begin{theorem}[",
        r"\bibitem[",
        r"\begin{tabular}{",
        r"\begin{tabular}[",
        r"\begin{tabularx}{l}",
        r"\caption{",
        r"\multirow{-9}{*}{a}\\ ",
        r"\title{",
        r"\author[",
        r"\and ",
        r"\ref{a}\section{b}\label{a}",
        r"\begin{frame}{",
        r"\begin{algorithmic}\If{",
        r"\newacronym{a}{b}{",
        r"\newacronym{a}{b}{c}\gls{a}",
        r"\DeclareAcronym{a}{short=",
        r"\foo\textbf{a}",
        r"\foo{}",
    ],
)
def test_hostile_latex_costs_no_more_than_its_length(part: str) -> None:
    parse((part * 8_000 + "\n\n x").encode(), "a.tex")
    parse(rf"\title{{{part * 8_000}}}\maketitle x".encode(), "a.tex")
    parse(rf"\begin{{tabular}}{{l}}{part * 8_000}\end{{tabular}} x".encode(), "a.tex")
