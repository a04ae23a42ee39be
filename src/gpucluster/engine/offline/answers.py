"""What the cloud answered once, kept beside the spec: a review asks nobody, and nothing is guessed.

`stacks/lookups/NAME.yaml` has one entry a question. An entry whose answer is null was left open by a person: what
hangs on it stays unknown. A question without an entry is refused, with the lines to add.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpucluster.engine.offline.lookups import complaints, sentence
from gpucluster.engine.offline.model import Lookup, Planned, Value
from gpucluster.errors import GpuclusterError
from gpucluster.markdown import printable
from gpucluster.plan.codec import from_json
from gpucluster.spec.problem import Finding, Mark
from gpucluster.spec.yaml import TreeError, parse

SCHEMA: Final = 1
HEAD: Final = (
    "# What the program looks up in the account, and what it was told; null is left open until `pulumi up`.\n"
)

AGAIN: Final = "an entry has `token`, `arguments` and `answer`, as `gpucluster plan FILE --resources --live --record` writes it"

Answer = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One question and its answer; None: left open."""

    token: str  # of a data source, or the type of what is only read
    arguments: Mapping[str, Value]
    answer: Answer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    lookups: tuple[Recording, ...] = ()


class AnswersError(GpuclusterError):
    """The file cannot be read, or lacks an answer."""


def place(spec: Path, name: str) -> Path:
    """Where the recorded answers of the cluster `name` stand: beside its spec."""
    return spec.parent / "lookups" / f"{name}.yaml"


def read(path: Path) -> tuple[Recording, ...]:
    """The file's entries; none when there is no file. AnswersError says where it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise AnswersError(f"{path}: cannot be read: {error}") from error
    return read_text(text, str(path))


def read_text(text: str, where: str) -> tuple[Recording, ...]:
    """The entries of a text; AnswersError says where in `where` it is wrong."""
    found = _file(text, where)
    if found.schema != SCHEMA:
        raise AnswersError(f"{where}: schema: found {found.schema}, expected {SCHEMA}")
    for number, one in enumerate(found.lookups):
        for complaint in complaints(one.token, one.answer):
            raise AnswersError(printable(f"{where}: lookups[{number}].{complaint}"), next_step=AGAIN)
    return _each_once(where, found.lookups)


def write(recordings: Iterable[Recording]) -> str:
    """The file's text, the same for the same entries."""
    entries = sorted(recordings, key=lambda one: key(one.token, one.arguments))
    lines = "\n" + "".join(map(entry, entries)) if entries else " []\n"
    return f"{HEAD}schema: {SCHEMA}\nlookups:{lines}"


def entry(recording: Recording) -> str:
    """Three lines."""
    return (
        f"  - token: {recording.token}\n"
        f"    arguments: {_json(recording.arguments)}\n"
        f"    answer: {_json(recording.answer)}\n"
    )


def key(token: str, arguments: Mapping[str, Value]) -> str:
    """What makes two questions the same."""
    return f"{token} {_json({k: v for k, v in arguments.items() if v is not None})}"


def lacking(planned: Planned, recordings: Iterable[Recording]) -> tuple[Lookup, ...]:
    """What the program asked and no entry says a word of."""
    known = {key(one.token, one.arguments) for one in recordings}
    return tuple(one for one in planned.lookups if key(one.token, one.arguments) not in known)


def merged(own: Iterable[Recording], other: Iterable[Recording]) -> tuple[Recording, ...]:
    """`own`, and from `other` what it says no word of."""
    every = {key(one.token, one.arguments): one for one in (*other, *own)}
    return tuple(every.values())


def refuse(name: str, spec: str, path: Path, questions: Iterable[Lookup]) -> AnswersError:
    """Say what is asked, the command that records it, and the lines that would answer or leave it open."""
    every = tuple(questions)
    said = ", ".join(sentence(one.token) for one in every)
    lines = "".join(entry(Recording(token=one.token, arguments=one.arguments)) for one in every)
    head = "" if path.exists() else f"schema: {SCHEMA}\nlookups:\n"
    record = shlex.join(["gpucluster", "plan", spec, "--resources", "--live", "--record"])
    return AnswersError(
        f"{name}: the program looks up {said}, and {path} has no answer",
        next_step=f"`{record}` asks the account and keeps what it says; or add to {path}"
        f" (null leaves it open):\n{head}{lines}".rstrip("\n"),
    )


def _file(text: str, where: str) -> _File:
    from gpucluster.spec.tree import plain  # noqa: PLC0415

    try:
        parsed = parse(text)
    except TreeError as error:
        raise _wrong(where, error.mark, error.finding) from error
    for mark, finding in parsed.findings:
        raise _wrong(where, mark, finding)
    try:
        return from_json(_File, plain(parsed.root), "the file")
    except ValueError as error:
        raise AnswersError(printable(f"{where}: {error}"), next_step=AGAIN) from error


def _wrong(where: str, mark: Mark, finding: Finding) -> AnswersError:
    return AnswersError(printable(f"{where}:{mark.line}:{mark.column}: {finding.message}"), next_step=AGAIN)


def _each_once(where: str, found: tuple[Recording, ...]) -> tuple[Recording, ...]:
    seen = set[str]()
    for one in found:
        this = key(one.token, one.arguments)
        if this in seen:
            raise AnswersError(printable(f"{where}: two answers to {this}, expected one"))
        seen.add(this)
    return found


def _json(value: object) -> str:
    """JSON is YAML, but for what JSON writes as two halves."""
    return _PAIR.sub(_whole, json.dumps(value, sort_keys=True))


_PAIR: Final = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})+)")


def _whole(found: re.Match[str]) -> str:
    every: str = json.loads(f'"{found[2]}"')
    return found[1] + "".join(f"\\U{ord(one):08x}" for one in every)
