"""No regular expression that reads text of others has a cost that grows with the square of the text. Steps are counted, and no time."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.regex_steps import growth

SRC = Path(__file__).parents[2] / "src/gpucluster"
ROOMS = ("agent", "checks", "cloud", "cost", "elastic", "importer", "k8s/lint", "slurm", "spec")
FILES = ("json_text.py", "markdown.py", "text.py")
METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
OVER_ALL = {"finditer", "sub", "split"}  # as findall: they go on behind a match
LINEAR = 2.6  # 2 is linear, and 4 a square
Case = tuple[str, str, int, str]


def cases() -> Iterator[Case]:
    files = [path for room in ROOMS for path in sorted((SRC / room).rglob("*.py"))]
    for path in (*files, *(SRC / name for name in FILES)):
        yield from dict.fromkeys(_of_file(path))


def _of_file(path: Path) -> Iterator[Case]:
    tree, name = ast.parse(path.read_text()), str(path.relative_to(SRC))
    calls = [
        one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    ]
    used: dict[str, set[str]] = {}
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        used.setdefault(ast.unparse(call.func.value), set()).add(call.func.attr)
    names = {
        id(one.value): ast.unparse(one.targets[0]) for one in ast.walk(tree) if isinstance(one, ast.Assign)
    }
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if ast.unparse(call.func.value) != "re" or call.func.attr not in METHODS | {"compile"}:
            continue
        text = call.args[0]
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            continue  # made of parts: those are expressions of their own, or escaped words
        flags = _flags(call)
        by_name = used.get(names.get(id(call), ""), set()) & METHODS
        for method in (by_name or {"search"}) if call.func.attr == "compile" else {call.func.attr}:
            yield name, text.value, flags, "findall" if method in OVER_ALL else method


def _flags(call: ast.Call) -> int:
    words = [ast.unparse(one) for one in (*call.args[1:], *(k.value for k in call.keywords))]
    return sum(
        int(getattr(re, found)) for one in words for found in set(re.findall(r"\bre\.([A-Z]+)\b", one))
    )


EVERY = [*cases()]


def test_expressions_are_found() -> None:
    assert len(EVERY) > 150
    assert {file for file, *_ in EVERY} >= {
        "spec/secret_values.py",
        "k8s/lint/device_names.py",
        "checks/ports.py",
    }


def test_no_expression_grows_with_the_square_of_its_text() -> None:
    """Regression (X9): a manifest of 130 KB took `lint` 38 s, by the option `--a--a--a...`."""
    found = {(file, text): growth(text, flags, method) for file, text, flags, method in EVERY}
    assert {one: worst for one, worst in found.items() if worst[0] > LINEAR} == {}


@pytest.mark.parametrize(
    ("text", "method", "square"),
    [
        (r"--(?:[\w-]+-)?key=", "search", True),
        (r"(?<![\w-])--(?:[\w-]+-)?key=", "search", False),
        (r"a.*b", "search", True),
        (r"a.*b", "match", False),
        (r"\s*(.*)x", "fullmatch", True),
        (r"\s*(\S.*)x", "fullmatch", False),
        (r"(a+)+b", "match", True),
        (r"(?:ab)*c", "search", True),
        (r"\bword\b", "search", False),
    ],
)
def test_squares_are_seen(text: str, method: str, square: bool) -> None:
    assert (growth(text, 0, method)[0] > LINEAR) is square
