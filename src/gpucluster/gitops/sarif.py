"""Problems as SARIF 2.1.0, for the code scanning of a repository's host.

A finding is known again by its fingerprint: rule, path in the spec and message, and which of several alike it
is; not by its line, so that an edit above it opens no new alert.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpucluster.spec import Problem

VERSION = "2.1.0"
_ROOT = "%SRCROOT%"  # what relative uris are relative to: the repository's top
_FINGERPRINT = "gpucluster/v1"
_LEVELS = {"error": "error", "warning": "warning"}  # any other, such as advice, is a note
_PLACE = re.compile(r"\bline \d+")
_MOST = 25_000  # results that GitHub takes of one run


def sarif(
    problems: Sequence[Problem], *, uris: Mapping[str, str], unread: Sequence[str], version: str
) -> Any:
    """The log as plain JSON values. `uris`: a problem's file -> its path from the repository's top, or an absolute one."""
    rules = sorted({problem.id for problem in problems})
    counted = Counter[str]()
    results = [_result(one, uris[one.file], rules, counted) for one in problems[:_MOST]]
    return {
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": _driver(rules, problems, version)},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(unread)],
                "results": results,
            }
        ],
    }


def _driver(rules: Sequence[str], problems: Iterable[Problem], version: str) -> dict[str, Any]:
    levels = {problem.id: _level(problem) for problem in problems}
    return {
        "name": "gpucluster",
        "version": version,
        "rules": [_rule(rule, levels[rule]) for rule in rules],
    }


def _rule(rule: str, level: str) -> dict[str, Any]:
    words = rule.replace("-", " ")
    return {
        "id": rule,
        "shortDescription": {"text": words},
        "fullDescription": {"text": f"A cluster's spec: {words}."},
        "help": {"text": "`gpucluster check FILE` shows the line, what was found and what was expected."},
        "defaultConfiguration": {"level": level},
    }


def _result(problem: Problem, uri: str, rules: Sequence[str], counted: Counter[str]) -> dict[str, Any]:
    where = f"{problem.path}: " if problem.path else ""
    print_ = _fingerprint(problem, uri)
    counted[print_] += 1
    return {
        "ruleId": problem.id,
        "ruleIndex": rules.index(problem.id),
        "level": _level(problem),
        "message": {"text": f"{where}{problem.message}".replace("](", "] (")},  # `[a](b)` would be a link
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(uri),
                    "region": {"startLine": problem.mark.line, "startColumn": problem.mark.column},
                }
            }
        ],
        "partialFingerprints": {_FINGERPRINT: f"{print_}:{counted[print_]}"},
    }


def _artifact(uri: str) -> dict[str, str]:
    quoted = quote(uri, errors="surrogateescape")  # a file's name is bytes
    if uri.startswith("/"):  # outside of any repository
        return {"uri": f"file://{quoted}"}
    return {"uri": quoted, "uriBaseId": _ROOT}


def _fingerprint(problem: Problem, uri: str) -> str:
    message = _PLACE.sub("line", problem.message)
    parts = (uri, problem.id, problem.path, message)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def _invocation(unread: Sequence[str]) -> dict[str, Any]:
    notes = [{"level": "error", "message": {"text": text}} for text in unread]
    return {"executionSuccessful": not unread, **({"toolExecutionNotifications": notes} if notes else {})}


def _level(problem: Problem) -> str:
    return _LEVELS.get(problem.level.value, "note")
