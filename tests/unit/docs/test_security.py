"""docs/security.md: each claim of a defence names a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
TESTS = re.findall(r"`((?:engine|guest|kubernetes|sandbox|unit)/[a-z_/]+\.py)(?:::(test_[a-z0-9_]+))?`", PAGE)
DEFENCES = PAGE[PAGE.index("## What a user cannot do") : PAGE.index("## What root on one machine")]


def test_every_named_test_exists() -> None:
    assert len(TESTS) > 10
    for file, test in TESTS:
        assert (
            f"def {test}(" in (ROOT / "tests" / file).read_text()
            if test
            else (ROOT / "tests" / file).is_file()
        )


def test_each_defence_names_its_test() -> None:
    rows = [row for row in DEFENCES.split("\n- ")[1:] if row]
    assert len(rows) > 10
    assert [row for row in rows if "Test: `" not in row] == []


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
