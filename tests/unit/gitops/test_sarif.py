"""Tests of findings for code scanning and for a pull request's lines."""

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_spec_text

from gpucluster import catalog
from gpucluster.gitops.sarif import annotations, sarif
from gpucluster.spec import Level, Problem, inspect_text
from gpucluster.spec.problem import Mark

SCHEMA = Path(__file__).parents[2] / "recorded/sarif/sarif-2.1.0.json"
FILE = "stacks/burst.yaml"
BAD = a_spec_text(("idle: 5m", "idle: 5"), ("schema: 1", "schema: 2"), ("max: 4", "max: 99"))


@cache
def _validator() -> Any:
    return jsonschema.Draft4Validator(json.loads(SCHEMA.read_text()))


def _problems(text: str) -> tuple[Problem, ...]:
    return inspect_text(text, FILE, catalog.load()).problems


def _log(*problems: Problem, unread: tuple[str, ...] = (), uri: str = FILE) -> Any:
    return sarif(problems, uris={FILE: uri}, unread=unread, version="0.0.0")


def _results(text: str) -> list[Any]:
    return _log(*_problems(text))["runs"][0]["results"]


def _a_problem(**change: Any) -> Problem:
    whole: dict[str, Any] = {
        "file": FILE,
        "mark": Mark(3, 7),
        "level": Level.ERROR,
        "id": "bad-name",
        "path": "name",
        "message": "'X' is not a name",
        "source": "name: X",
    }
    return Problem(**(whole | change))


def test_log_is_sarif() -> None:
    log = _log(*_problems(BAD), unread=("none.yaml: cannot be read",))
    _validator().validate(log)
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)


def test_log_without_a_finding_is_sarif_too() -> None:
    log = _log()
    _validator().validate(log)
    assert log["runs"][0]["results"] == []  # an absent list would mean that the file was not checked


def test_schema_rejects_invalid_log() -> None:
    log = _log(*_problems(BAD))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not _validator().is_valid(log)


def test_finding_has_its_rule_level_and_place() -> None:
    log = _log(*_problems(BAD))
    run = log["runs"][0]
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("schema-version", "error")
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": FILE, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1, "startColumn": 9},
    }
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["max-above-pool", "no-unit", "schema-version"]
    assert all(rules[one["ruleIndex"]]["id"] == one["ruleId"] for one in run["results"])


def test_unreadable_file_is_failed_run() -> None:
    (invocation,) = _log(unread=("none.yaml: cannot be read",))["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "none.yaml: cannot be read"


def test_file_outside_of_a_repository_is_an_absolute_uri() -> None:
    (result,) = _log(_a_problem(), uri="/srv/a b.yaml")["runs"][0]["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///srv/a%20b.yaml"}


def test_file_with_undecodable_name_has_uri() -> None:
    """Regression: it raised a traceback."""
    (result,) = _log(_a_problem(), uri="stacks/b\udcffd.yaml")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "stacks/b%FFd.yaml"


def test_fingerprint_ignores_lines() -> None:
    moved = "# a\n# longer\n# head\n" + BAD
    before, after = _results(BAD), _results(moved)
    assert [one["partialFingerprints"] for one in before] == [one["partialFingerprints"] for one in after]
    places = [
        [one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in some]
        for some in (before, after)
    ]
    assert [line + 3 for line in places[0]] == places[1]


def test_fingerprint_of_duplicate_key_ignores_line_in_message() -> None:
    twice = a_spec_text(("idle: 5m\n", "idle: 5m\n    idle: 6m\n"))
    prints = [one["partialFingerprints"] for text in (twice, f"# a\n{twice}") for one in _results(text)]
    assert prints[0] == prints[1]


def test_equal_findings_have_distinct_fingerprints() -> None:
    results = _log(_a_problem(), _a_problem(mark=Mark(9, 1)))["runs"][0]["results"]
    first, second = (one["partialFingerprints"]["gpucluster/v1"] for one in results)
    assert (first[-2:], second[-2:]) == (":1", ":2")
    assert first[:-2] == second[:-2]


HOSTILE = st.text(alphabet="ab[]()%:,\r\n\t\x1b\x00<>&@`é\u202e ", max_size=30)


@given(HOSTILE, HOSTILE)
def test_any_text_makes_a_valid_log_without_a_link(path: str, message: str) -> None:
    log = _log(_a_problem(path=path, message=message, id="an-id"), uri=f"stacks/{path}.yaml")
    _validator().validate(json.loads(json.dumps(log)))
    (result,) = log["runs"][0]["results"]
    assert "](" not in result["message"]["text"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) == f"stacks/{path}.yaml"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (_a_problem(), "::error file=stacks/burst.yaml,line=3,col=7,title=bad-name::name: 'X' is not a name"),
        (
            _a_problem(level=Level.WARNING, path=""),
            "::warning file=stacks/burst.yaml,line=3,col=7,title=bad-name::'X' is not a name",
        ),
        (
            _a_problem(message="100%\n::error::x\r", path=""),
            "::error file=stacks/burst.yaml,line=3,col=7,title=bad-name::100%25 ::error::x ",
        ),
    ],
)
def test_annotation_is_one_command(problem: Problem, expected: str) -> None:
    assert list(annotations([problem], {FILE: FILE})) == [expected]


@given(HOSTILE, HOSTILE)
def test_no_text_starts_workflow_command(path: str, message: str) -> None:
    (line,) = annotations([_a_problem(path=path, message=message)], {FILE: f"a,b:{path}"})
    assert line.isprintable()
    properties = line.removeprefix("::error ").split("::")[0]
    assert [one.split("=")[0] for one in properties.split(",")] == ["file", "line", "col", "title"]
