"""Convert the engine's events to typed values: progress lines and resource changes."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.automation import EngineEvent
from pulumi.automation.events import StepEventMetadata

from gpucluster.engine.error_attribution import Explain
from gpucluster.engine.values import Value, has_unknown, read_back

QUIET = frozenset({"same", "read", "refresh"})
DONE_WORDS = {
    "create": "created",
    "create-replacement": "created again",
    "delete": "deleted",
    "delete-replaced": "deleted the old",
    "replace": "replaced",
    "update": "updated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One resource started (`done` false) or finished a step, or the engine sent a `message`."""

    op: str = ""
    type: str = ""
    name: str = ""
    done: bool = False
    message: str = ""

    def __str__(self) -> str:
        if self.message:
            return self.message
        word = DONE_WORDS.get(self.op, self.op) if self.done else f"{self.op} ..."
        return f"{self.type.rpartition(':')[2]} {self.name}: {word}"


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed resource: `op` is create, update, replace or delete; `properties` are the changed inputs.

    `follows`: in a preview, every changed input depends on another resource's change. Example: the bundle contains the
    version of an edited launch template.
    """

    op: str
    urn: str
    properties: tuple[str, ...]
    follows: bool = False

    @property
    def type(self) -> str:
        return self.urn.split("::")[2].rpartition("$")[2]

    @property
    def name(self) -> str:
        return self.urn.split("::")[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run or of a preview."""

    counts: Mapping[str, int]  # by op, `same` included
    changes: tuple[Change, ...]  # sorted by URN
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0


def unexplained(kind: str, name: str, words: str) -> str:
    """Return the engine's message unchanged: an explanation that adds nothing."""
    return words


class EventCollector:
    """Collect the events of one run."""

    def __init__(self, report: Report, explain: Explain = unexplained) -> None:
        self.report, self._explain = report, explain
        self._changes: dict[str, Change] = {}
        self._same: set[str] = set()
        self.errors: list[str] = []
        self.raw: list[str] = []  # the same errors in the engine's own words

    def take(self, event: EngineEvent) -> None:
        """Record one event and report it as progress."""
        if event.resource_pre_event is not None:
            self._step(event.resource_pre_event.metadata, done=False)
        elif event.res_outputs_event is not None:
            self._step(event.res_outputs_event.metadata, done=True)
        elif (diagnostic := event.diagnostic_event) is not None and diagnostic.severity == "error":
            self._error(diagnostic.message, diagnostic.urn)
        elif diagnostic is not None and diagnostic.severity == "info":
            self._message(diagnostic.message, diagnostic.urn)

    def outcome(self, outputs: Mapping[str, Any], seconds: float) -> Outcome:
        """Return the result."""
        changes = tuple(sorted(self._changes.values(), key=lambda c: c.urn))
        counts = Counter(change.op for change in changes)
        same = len(self._same - self._changes.keys())
        return Outcome(
            counts={**({"same": same} if same else {}), **dict(sorted(counts.items()))},
            changes=changes,
            outputs=outputs,
            seconds=seconds,
        )

    def _step(self, step: StepEventMetadata, *, done: bool) -> None:
        if step.type == "pulumi:pulumi:Stack" or step.type.startswith("pulumi:providers:"):
            return
        op = step.op.value
        if op in QUIET:
            self._same.add(step.urn)
            return
        self._changes[step.urn] = self._merged(step, op)
        name = step.urn.rpartition("::")[2]
        self.report(Progress(op=op, type=step.type, name=name, done=done))

    def _merged(self, step: StepEventMetadata, op: str) -> Change:
        """Merge the steps of one URN: a replacement has several."""
        had = self._changes.get(step.urn)
        replacing = "replac" in op or (had is not None and had.op == "replace")
        found: set[str] = {*(step.diffs or []), *(step.detailed_diff or {}).keys()}
        properties = tuple(sorted(found)) or (had.properties if had else ())
        return Change(
            op="replace" if replacing else op,
            urn=step.urn,
            properties=properties,
            follows=bool(properties) and all(has_unknown(_input(step, name)) for name in properties),
        )

    def _message(self, message: str, urn: str | None) -> None:
        """Report a message of a resource that waits. Do not report lines that the program prints."""
        kind, name = _type_and_name(urn)
        if name:
            self.report(Progress(message=f"{kind.rpartition(':')[2]} {name}: {plain(message)}"))

    def _error(self, message: str, urn: str | None) -> None:
        self.raw.append(message)
        kind, name = _type_and_name(urn)
        text = (f"{name}: " if name else "") + self._explain(kind, name, plain(message))
        if text not in self.errors and not _is_summary(message):
            self.errors.append(text)


def _type_and_name(urn: str | None) -> tuple[str, str]:
    """Return type and name of a URN; empty for the stack itself, which is no resource."""
    if not urn or "pulumi:pulumi:Stack" in urn:
        return "", ""
    return urn.split("::")[2].rpartition("$")[2], urn.rpartition("::")[2]


def _is_summary(message: str) -> bool:
    """Return whether the text is the summary that ends each failed run."""
    return message.strip() in ("update failed", "preview failed", "destroy failed", "refresh failed")


def plain(message: str) -> str:
    """Return an engine error without tracebacks and call stacks."""
    text = message.partition("Traceback (most recent call last)")[0]
    for noise in _NOISE:
        text = noise.sub("", text)
    return " ".join(text.split())


_NOISE = (
    re.compile(r"python inline source runtime error:"),
    re.compile(r"Exception calling application:"),
    re.compile(r"invoke of \S+ failed: invocation of \S+ returned an error:"),
    re.compile(r"1 error occurred:\s+\*"),
)


def _input(step: StepEventMetadata, name: str) -> Value:
    """Return a new input in the engine's form; `name` may be a path into it."""
    inputs: Mapping[str, Value] = (step.new.inputs if step.new is not None else None) or {}
    return read_back(inputs.get(name.partition(".")[0].partition("[")[0]))
