"""docs/security.md: each claim of a defence names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
TESTS = re.findall(r"`((?:unit|sandbox)/[a-z_/]+\.py)(?:::(test_[a-z0-9_]+))?`", PAGE)
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
