from __future__ import annotations

import pytest

from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import parse
from rag.ingest.parse.source_code import GRAMMARS, definitions
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget
from rag.search.source_window import section_span
from tests.ingest.parse.conftest import Shape
from tests.ingest.parse.document_shape import word_spans

# In each language: a class or its like with one method, and a function beside it.
SAMPLES = {
    "a.py": (
        "class A(Base):\n    @cached\n    def m(self):\n        pass\n\ndef f(): ...\n",
        "class A(Base)",
    ),
    "a.js": ("class A extends B {\n  m() {}\n}\nconst f = () => {\n  return 1;\n};\n", "class A extends B"),
    "a.jsx": ("class A extends B {\n  m() {}\n}\nconst f = () => <b>x</b>;\n", "class A extends B"),
    "a.ts": ("export class A<T> {\n  m(a: T): void {}\n}\nexport function f() {}\n", "class A<T>"),
    "a.tsx": ("class A {\n  m() { return <b/>; }\n}\nfunction f() {}\n", "class A"),
    "a.java": (
        "@Entity\nclass A extends B {\n  @Override int m() { return 1; }\n}\nrecord f() {}\n",
        "class A extends B",
    ),
    "a.c": ("struct a { int b; };\n\nstatic int *f(int a)\n{\n  return 0;\n}\n", "struct a"),
    "a.cpp": (
        "class A : public B {\n  int m() { return 1; }\n};\nint f() { return 1; }\n",
        "class A : public B",
    ),
    "a.cs": ("namespace N;\n[X]\nclass A : B {\n  void M() { }\n}\nstruct f { }\n", "class A : B"),
    "a.go": (
        "package a\n\ntype A struct {\n\tb int\n}\n\nfunc (a *A) M() {\n}\n\nfunc f() {\n}\n",
        "type A struct",
    ),
    "a.rs": (
        "#[derive(X)]\npub struct A;\nimpl B for A {\n    fn m(&self) {}\n}\nfn f() {}\n",
        "impl B for A",
    ),
    "a.rb": ("class A < B\n  def m(x)\n    1\n  end\nend\n\ndef f\n  2\nend\n", "class A < B"),
    "a.php": (
        "<?php\nfinal class A extends B {\n  function m() { }\n}\nfunction f() { }\n",
        "class A extends B",
    ),
    "a.kt": ("class A(val x: Int) : B() {\n  fun m() = 1\n}\nfun f() = 2\n", "class A(val x: Int) : B()"),
    "a.swift": ("extension A {\n  func m() {}\n}\nfunc f() {}\n", "extension A"),
    "a.scala": ("object A extends B {\n  def m = 1\n}\ndef f = 2\n", "object A extends B"),
    "a.sh": ("set -e\n\nf() {\n  echo 1\n}\nf\n", "f"),
    "a.lua": ("local A = {}\nfunction A.m()\n  return 1\nend\nlocal function f() end\n", "A.m"),
}


def sections(code: str, name: str, limit: int = 200) -> list[tuple[tuple[str, ...], str]]:
    """The section and text of each passage."""
    document = parse(code.encode(), name)
    cut = passages(document, token_spans=word_spans, limit=limit)
    return [(passage.section, document.text[passage.start : passage.end]) for passage in cut]


@pytest.mark.parametrize("name", SAMPLES)
def test_functions_and_classes_of_a_language_are_found(name: str) -> None:
    code, title = SAMPLES[name]
    parts = definitions(code, "." + name.partition(".")[2])
    titles = [part.title for part in parts]
    assert title in titles
    if name != "a.c" and name not in {"a.sh", "a.lua", "a.go"}:
        (outer,) = (part for part in parts if part.title == title)
        assert [part.title.lower() for part in outer.inside] == ["m"]
    assert "f" in " ".join(titles).replace("(", " ").split()


def test_fifteen_languages_are_known() -> None:
    languages = {
        "javascript" if suffix in {".js", ".jsx"} else grammar for suffix, grammar in GRAMMARS.items()
    }
    assert len(languages | {"c"}) >= 15


def test_blocks_without_definitions_end_at_blank_lines(shape: Shape) -> None:
    first = "first = 1\nsecond = 2"
    two = "x = (\n\n)"
    assert shape(f"\n{first}\n\n\n{two}\n", "a.py") == [("code", first), ("code", two)]


def test_a_closing_brace_belongs_to_what_it_closes(shape: Shape) -> None:
    body = "sub main {\n  return 0;\n\n}"
    assert shape(f"{body}\n\nmy $other;", "a.pl") == [("code", body), ("code", "my $other;")]


def test_a_passage_names_the_class_and_the_function() -> None:
    method = (
        '    # Why it is so.\n    @cached\n    def method(self):\n        """Does it."""\n        return 1'
    )
    first = "class Three(Base):\n    def first(self):\n        return 0"
    code = f"import os\n\n\n{first}\n\n{method}\n\n    last = 4\n\n\nmain()\n"
    assert sections(code, "a.py") == [
        ((), "import os"),
        (("class Three(Base)", "first"), first),
        (("class Three(Base)", "method"), method),
        (("class Three(Base)",), "    last = 4"),
        ((), "main()"),
    ]


def test_a_function_ends_where_code_of_the_module_begins() -> None:
    document = parse(
        b"def deploy():\n    run()\n\nHANDLERS = {1: deploy}\n\ndef undo():\n    stop()\n", "a.py"
    )
    span, notes = section_span("", document.headings, len(document.text), "deploy")
    assert document.text[slice(*span)].strip() == "def deploy():\n    run()"
    assert not notes
    assert [heading.title for heading in document.outline] == ["deploy", "undo"]


def test_each_type_of_a_group_is_a_section() -> None:
    code = (
        "package a\n\n// Types.\ntype (\n\t// A serves.\n\tA struct {\n\t\tb int\n\t}\n\n"
        "\tStore interface {\n\t\tGet() int\n\t}\n)\n\n"
        "type Line struct{ SKU string }\n\ntype F = func(int) error\n"
    )
    document = parse(code.encode(), "a.go")
    titles = [heading.title for heading in document.outline]
    assert titles == ["type A struct", "type Store interface", "type Line struct", "type F = func(int) error"]
    span, _ = section_span("", document.headings, len(code), "type A struct")
    assert document.text[slice(*span)].startswith("// Types.\ntype (\n\t// A serves.")


@pytest.mark.parametrize(
    ("script", "function"),
    [
        ("#!/usr/bin/env python3\nimport x\n\ndef main():\n    pass\n", "main"),
        ("#!/bin/bash -e\nset -u\n\ndeploy() {\n  echo 1\n}\n", "deploy"),
        ("#!/usr/bin/env -S node --no-warnings\nlet x = 1;\n\nfunction go() {\n  x++;\n}\n", "go"),
    ],
)
def test_the_interpreter_of_a_script_without_a_suffix_tells_its_language(script: str, function: str) -> None:
    document = parse(script.encode(), "deploy")
    assert (document.title, [heading.title for heading in document.outline]) == ("deploy", [function])


def test_functions_in_conditions_of_a_module_are_sections() -> None:
    python = (
        b"try:\n    import y\nexcept ImportError:\n    def y():\n        return 1\n\ndef main():\n    y()\n"
    )
    php = b"<?php\nif (!function_exists('x')) {\n  function x() { return 1; }\n}\n"
    assert [heading.title for heading in parse(python, "a.py").outline] == ["y", "main"]
    assert [heading.title for heading in parse(php, "a.php").outline] == ["x"]


def test_one_line_functions_are_cited_by_their_own_names() -> None:
    code = "int one() { return 1; }\nint two() { return 2; }\n"
    assert sections(code, "a.cpp") == [
        (("one",), "int one() { return 1; }"),
        (("two",), "int two() { return 2; }"),
    ]


def test_a_closing_brace_makes_no_passage() -> None:
    code = "class A {\n  void m() {\n    x();\n  }\n}\n\nclass B {\n}\n"
    assert [text for _, text in sections(code, "a.java")] == [code.partition("\n\n")[0], "class B {\n}"]


def test_positions_are_right_after_characters_of_several_bytes() -> None:
    code = "# Grüße 汉字 👩‍👩‍👧\nname = 'é'\n\ndef ä():\n    return 'ö'\n\ndef b():\n    return 2\n"
    assert sections(code, "a.py")[1:] == [
        (("ä",), "def ä():\n    return 'ö'"),
        (("b",), "def b():\n    return 2"),
    ]


def test_broken_code_is_cut_at_blank_lines(shape: Shape) -> None:
    broken = "def f(:\n  ]]]] = (((\n\n}}} class :: {{{ def ((\n\n%%% $$ 5 ]]"
    assert not definitions(broken, ".py")
    assert shape(broken, "a.py")[0][0] == "code"


def test_a_mistake_hides_no_other_function() -> None:
    code = "def good():\n    return 1\n\n\nx = = 3\n\n\ndef also():\n    return 2\n"
    assert [part.title for part in definitions(code, ".py")] == ["good", "also"]


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("name", ["a.js", "a.cpp", "a.py"])
def test_generated_and_hostile_files_take_bounded_time(name: str) -> None:
    parse(b"function a(){return 1};" * 100_000, name)  # minified: one line
    parse(b"((((((\n" * 30_000, name)
    parse(b"class A {" * 5_000, name)


def test_a_language_without_an_installed_grammar_is_cut_at_blank_lines(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRAMMARS, ".py", ("tree_sitter_of_nobody", "language"))
    assert shape("def f(): ...\n\ndef g(): ...", "a.py") == [
        ("code", "def f(): ..."),
        ("code", "def g(): ..."),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["a.py", "a.cs", "a.swift"])
async def test_code_is_read_in_the_sandbox_whether_or_not_its_grammar_is_installed(name: str) -> None:
    document = await parse_safely(SAMPLES[name][0].encode(), name, budget=Budget(60))
    assert document.blocks == parse(SAMPLES[name][0].encode(), name).blocks
