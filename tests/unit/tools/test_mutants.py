"""Tests of tools/mutants.py: the choice of mutants, and the rows of EQUIVALENT."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@cache
def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools/mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # its dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_each_row_of_equivalent_mutants_matches_a_line_of_the_sources() -> None:
    assert _tool().stale(_tool().EQUIVALENT) == []


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("the line has changed", ("spec/rules/network.py", "for key in keys:", "True -> False")),
        ("the change is of another kind", ("spec/rules/storage.py", "strict=True,", "Lt -> LtE")),
        ("the file does not exist", ("spec/rules/nothing.py", "strict=True,", "True -> False")),
    ],
)
def test_row_that_matches_no_line_is_an_error(
    what: str, key: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = _tool()
    good = next(iter(tool.EQUIVALENT))
    assert tool.stale({good: "a reason", key: "a reason"}) == [key], what
    monkeypatch.setattr(tool, "EQUIVALENT", {key: "a reason"})
    monkeypatch.setattr(tool, "_load_everything", lambda: pytest.fail("no mutant may run"))
    assert tool.main(["--count", "1"]) == 2
    assert (
        f"EQUIVALENT has a row that matches no line: {key[0]}: {key[2]}: {key[1]}" in capsys.readouterr().err
    )


def test_choice_of_mutants_depends_on_the_seed_alone() -> None:
    tool = _tool()
    first, again, other = (tool.chosen(60, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sum(len(some) for _, some in first) == 60
    assert {room for room, some in first if some} == set(tool.ROOMS)


def test_equivalent_mutants_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = _tool()
    (file, line, what) = next(iter(tool.EQUIVALENT))
    path = tool.ROOM / file
    number = [text.strip() for text in path.read_text().splitlines()].index(line) + 1
    keys = {(one.line, one.what) for one in tool._shuffled(path, 1)}
    assert (number, what) not in keys
    monkeypatch.setattr(tool, "EQUIVALENT", {})
    assert (number, what) in {(one.line, one.what) for one in tool._shuffled(path, 1)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x < 1", ["1 -> 2", "Lt -> LtE"]),
        ("a and not b", ["And -> Or", "not x -> x"]),
        ("[n for n in x if n]", ["filter dropped"]),
        ("min(a, b)", ["min -> max"]),
        ("a if b else c", ["if ... -> if False", "if ... -> if True"]),
        ("'text'", []),
    ],
)
def test_changes_of_an_expression(code: str, expected: list[str], tmp_path: Path) -> None:
    tool = _tool()
    path = tmp_path / "a.py"
    path.write_text(f"def f(a, b, c, x):\n    return {code}\n")
    found = tool.mutants_of(path)
    assert sorted(one.what for one in found) == expected
    for one in found:
        assert ast.unparse(tool.mutated(one)) != ast.unparse(ast.parse(path.read_text()))


def test_files_of_the_quickest_tests_run_first() -> None:
    tool = _tool()
    tests = [f"{file}.py::test" for file in "aabcdefg"]
    assert tool._in_turn(tests) == [["a.py", "b.py", "c.py", "d.py"], ["e.py", "f.py", "g.py"]]
    assert tool._in_turn(tests[:2]) == [["a.py"]]
