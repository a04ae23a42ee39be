"""Read and write recorded answers of the cloud, stored beside the spec. A review needs no account and guesses nothing.

`stacks/lookups/NAME.yaml` has one entry for each look-up. The answer null means that a person left it unanswered:
values that depend on it stay unknown. A look-up without an entry is the same with a warning, which shows the lines to add.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpucluster.engine.offline.lookups import complaints, sentence
from gpucluster.engine.offline.model import Lookup, Planned, Value
from gpucluster.errors import GpuclusterError
from gpucluster.plan.codec import from_json
from gpucluster.text import printable

if TYPE_CHECKING:
    from gpucluster.spec.problem import Finding, Mark

SCHEMA: Final = 1
HEAD: Final = (
    "# The program's look-ups in the account, with their answers; null stays unknown until `pulumi up`.\n"
)

AGAIN: Final = "an entry has `token`, `arguments` and `answer`, as `gpucluster plan FILE --resources --live --record` writes it"

Answer = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One look-up and its answer. None: a person left it unanswered."""

    token: str  # token of a data source, or type of a resource that is only read
    arguments: Mapping[str, Value]
    answer: Answer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    lookups: tuple[Recording, ...] = ()


class AnswersError(GpuclusterError):
    """The file is invalid."""


def place(spec: Path, name: str) -> Path:
    """Return the path of the recorded answers of cluster `name`, beside its spec."""
    return spec.parent / "lookups" / f"{name}.yaml"


def read(path: Path) -> tuple[Recording, ...]:
    """Return the entries of the file; none if there is no file. AnswersError names the invalid place."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise AnswersError(f"{path}: cannot be read: {error}") from error
    return read_text(text, str(path))


def read_text(text: str, where: str) -> tuple[Recording, ...]:
    """Return the entries of a text; AnswersError names the invalid place in `where`."""
    found = _file(text, where)
    if found.schema != SCHEMA:
        raise AnswersError(f"{where}: schema: found {found.schema}, expected {SCHEMA}")
    for number, one in enumerate(found.lookups):
        for complaint in complaints(one.token, one.answer):
            raise AnswersError(printable(f"{where}: lookups[{number}].{complaint}"), next_step=AGAIN)
    return _each_once(where, found.lookups)


def write(recordings: Iterable[Recording]) -> str:
    """Return the text of the file. The same entries always give the same text."""
    entries = sorted(recordings, key=lambda one: key(one.token, one.arguments))
    lines = "\n" + "".join(map(entry, entries)) if entries else " []\n"
    return f"{HEAD}schema: {SCHEMA}\nlookups:{lines}"


def entry(recording: Recording) -> str:
    """Return the three lines of one entry."""
    return (
        f"  - token: {recording.token}\n"
        f"    arguments: {_json(recording.arguments)}\n"
        f"    answer: {_json(recording.answer)}\n"
    )


def key(token: str, arguments: Mapping[str, Value]) -> str:
    """Return the identity of a look-up."""
    return f"{token} {_json({k: v for k, v in arguments.items() if v is not None})}"


def lacking(planned: Planned, recordings: Iterable[Recording]) -> tuple[Lookup, ...]:
    """Return the program's look-ups without an entry."""
    known = {key(one.token, one.arguments) for one in recordings}
    return tuple(one for one in planned.lookups if key(one.token, one.arguments) not in known)


def merged(own: Iterable[Recording], other: Iterable[Recording]) -> tuple[Recording, ...]:
    """Return the entries of `own`, and those of `other` that `own` does not contain."""
    every = {key(one.token, one.arguments): one for one in (*other, *own)}
    return tuple(every.values())


def how_to_answer(spec: str, path: Path, questions: Iterable[Lookup]) -> str:
    """Return the command that records the answers, and the lines to add to the file."""
    lines = "".join(entry(Recording(token=one.token, arguments=one.arguments)) for one in questions)
    head = "" if path.exists() else f"schema: {SCHEMA}\nlookups:\n"
    return f"{how_to_record(spec)}; or add to {path} (null leaves it open):\n{head}{lines}".rstrip("\n")


def still_open(planned: Planned) -> tuple[Lookup, ...]:
    """Return the look-ups that only `pulumi up` makes: without an entry, or with null."""
    return tuple(one for one in planned.lookups if not one.answered)


def unanswered(name: str, path: Path, questions: Iterable[Lookup]) -> str:
    """Return a sentence that lists the look-ups without an answer."""
    lookups = ", ".join(sentence(one.token) for one in questions)
    return f"{name}: the program looks up {lookups}, and {path} has no answer"


def how_to_record(spec: str) -> str:
    """Return the command that queries the account."""
    record = shlex.join(["gpucluster", "plan", spec, "--resources", "--live", "--record"])
    return f"`{record}` queries the account and records the answers"


def _file(text: str, where: str) -> _File:
    from gpucluster.spec.tree import plain  # noqa: PLC0415  the child process reads no file
    from gpucluster.spec.yaml import TreeError, parse  # noqa: PLC0415

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


def _wrong(where: str, mark: "Mark", finding: "Finding") -> AnswersError:
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
    """Return a YAML string. JSON is valid YAML, except for surrogate pairs."""
    return _PAIR.sub(_whole, json.dumps(value, sort_keys=True))


_PAIR: Final = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})+)")


def _whole(found: re.Match[str]) -> str:
    every: str = json.loads(f'"{found[2]}"')
    return found[1] + "".join(f"\\U{ord(one):08x}" for one in every)
