"""Write problems for GitHub: SARIF 2.1.0 for code scanning, and workflow commands for changed lines.

A fingerprint identifies a finding: rule, path in the spec, message, and a counter for equal findings. The line is not
part of it, so an edit above the finding opens no new alert.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpucluster.spec import Problem
from gpucluster.text import printable

VERSION = "2.1.0"
_ROOT = "%SRCROOT%"  # base of relative URIs: the repository's root
_FINGERPRINT = "gpucluster/v1"
_LEVELS = {"error": "error", "warning": "warning"}  # other severities, such as advice, are notes
_PLACE = re.compile(r"\bline \d+")
_MOST = 25_000  # maximum number of results of one run on GitHub


def sarif(
    problems: Sequence[Problem], *, uris: Mapping[str, str], unread: Sequence[str], version: str
) -> Any:
    """Return the log as plain JSON values. `uris`: a problem's file -> its path in the repository, or an absolute URI."""
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
    quoted = quote(uri, errors="surrogateescape")  # a file name is bytes
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


_KINDS = {"error": "error", "warning": "warning"}


def annotations(problems: Sequence[Problem], uris: Mapping[str, str]) -> Iterator[str]:
    """Return one workflow command for each problem: `::error file=stacks/burst.yaml,line=3,col=7,title=bad-name::...`."""
    for one in problems:
        kind = _KINDS.get(one.level.value, "notice")
        place = f"file={_property(uris[one.file])},line={one.mark.line},col={one.mark.column}"
        text = f"{one.path}: {one.message}" if one.path else one.message
        yield f"::{kind} {place},title={_property(one.id)}::{_text(text)}"


def _text(value: str) -> str:
    return printable(value).replace("%", "%25")


def _property(value: str) -> str:
    return _text(value).replace(":", "%3A").replace(",", "%2C")
