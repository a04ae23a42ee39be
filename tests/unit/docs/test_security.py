"""docs/security.md: each claim of a defence ends with the tests that make it happen."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
WITHOUT_TESTS = ("Who is who", "What is not defended")  # names of parties, and gaps
# `unit/x/test_y.py::test_z`, then `::test_w` for another one of the same file
NAMED = r"`(?:(?:engine|guest|kubernetes|sandbox|unit)/[a-z0-9_/]+\.py)?::test_[a-z0-9_]+`"
TESTS = re.compile(rf"Tests?: ({NAMED}(?:, {NAMED})*)\.?")


def sections() -> dict[str, str]:
    return {title: body for title, _, body in (one.partition("\n") for one in PAGE.split("\n## ")[1:])}


def claims() -> Iterator[str]:
    """Each row of a list, paragraph and row of a table outside the sections without tests."""
    for title, body in sections().items():
        if title not in WITHOUT_TESTS:
            yield from (one.strip() for one in re.split(r"\n(?=- )|\n\n", body) if one.strip())


def named(claim: str) -> Iterator[tuple[str, str]]:
    file = ""
    for word in re.findall(NAMED, claim):
        own, _, test = word.strip("`").partition("::")
        file = own or file
        yield file, test


def test_each_sentence_of_a_defence_comes_before_the_tests_of_it() -> None:
    found = list(claims())
    assert len(found) > 20
    assert [one for one in found if TESTS.split(one)[-1].strip()] == []


def test_every_named_test_exists() -> None:
    for claim in claims():
        for file, test in named(claim):
            written = (ROOT / "tests" / file).read_text()
            assert re.search(rf"^(async )?def {test}\(", written, re.MULTILINE), f"{file}::{test}"


def test_every_word_test_is_followed_by_names() -> None:
    """A name that is written otherwise would be no name, and nothing would look for it."""
    assert PAGE.count("Test: ") + PAGE.count("Tests: ") == len(TESTS.findall(PAGE))


def test_page_lists_the_warnings_about_security() -> None:
    """A rule says it by `security_warning`. Another rule may not make the same warning without it."""
    (shown,) = re.findall(r"are about security: (.*?)\. `accept`", PAGE)
    assert set(re.findall("`([a-z-]+)`", shown)) == _ids_made_by("security_warning")
    assert not _ids_made_by("security_warning") & (_ids_made_by("warning") | _ids_made_by("advice"))


def _ids_made_by(function: str) -> set[object]:
    rules = (ROOT / "src/gpucluster/spec").rglob("*.py")
    calls = [
        node for path in rules for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    of_it = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == function]
    return {
        word.value.value
        for call in of_it
        for word in call.keywords
        if word.arg == "id" and isinstance(word.value, ast.Constant)
    }
