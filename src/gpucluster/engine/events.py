"""The engine's events as typed values: progress for people, and what changed."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.automation import EngineEvent
from pulumi.automation.events import StepEventMetadata

from gpucluster.engine.blame import Explain
from gpucluster.engine.provider.values import Value, has_unknown, read_back

QUIET = frozenset({"same", "read", "refresh"})
DONE_WORDS = {
    "create": "created",
    "create-replacement": "created anew",
    "delete": "deleted",
    "delete-replaced": "deleted the old",
    "replace": "replaced",
    "update": "updated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One resource began (`done` false) or finished its step, or the engine had something to say (`message`)."""

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
    """One resource that differs: `op` is create, update, replace or delete; `properties` are the changed inputs.

    `follows`: in a preview, every changed input waits for another resource's change (the bundle names the version
    that an edited launch template will get).
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
    """What a run did, or would do."""

    counts: Mapping[str, int]  # by op, `same` included
    changes: tuple[Change, ...]  # sorted by urn
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0


def in_its_words(kind: str, name: str, words: str) -> str:
    """Nothing is known of the resource's wish."""
    return words


class Gatherer:
    """Takes every event of one run."""

    def __init__(self, report: Report, explain: Explain = in_its_words) -> None:
        self.report, self._explain = report, explain
        self._changes: dict[str, Change] = {}
        self._same: set[str] = set()
        self.errors: list[str] = []
        self.raw: list[str] = []  # the same in the engine's own words

    def take(self, event: EngineEvent) -> None:
        """Note one event, and tell the user of it."""
        if event.resource_pre_event is not None:
            self._step(event.resource_pre_event.metadata, done=False)
        elif event.res_outputs_event is not None:
            self._step(event.res_outputs_event.metadata, done=True)
        elif (said := event.diagnostic_event) is not None and said.severity == "error":
            self._error(said.message, said.urn)
        elif said is not None and said.severity == "info":
            self._told(said.message, said.urn)

    def outcome(self, outputs: Mapping[str, Any], seconds: float) -> Outcome:
        """What was gathered."""
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
        """A replacement comes as several steps of one urn."""
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

    def _told(self, message: str, urn: str | None) -> None:
        """What a resource says while it is waited for; a program's own lines are its makers'."""
        kind, name = _type_and_name(urn)
        if name:
            self.report(Progress(message=f"{kind.rpartition(':')[2]} {name}: {plain(message)}"))

    def _error(self, message: str, urn: str | None) -> None:
        self.raw.append(message)
        kind, name = _type_and_name(urn)
        text = (f"{name}: " if name else "") + self._explain(kind, name, plain(message))
        if text not in self.errors and not _sums_up(message):
            self.errors.append(text)


def _type_and_name(urn: str | None) -> tuple[str, str]:
    """The stack's own errors are of no resource."""
    if not urn or "pulumi:pulumi:Stack" in urn:
        return "", ""
    return urn.split("::")[2].rpartition("$")[2], urn.rpartition("::")[2]


def _sums_up(message: str) -> bool:
    """What the engine says at the end of each failed run."""
    return message.strip() in ("update failed", "preview failed", "destroy failed", "refresh failed")


def plain(message: str) -> str:
    """An error of the engine without what only its makers need: tracebacks, and who called whom."""
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
    """A new input as the engine says it; `name` may be a path into it."""
    inputs: Mapping[str, Value] = (step.new.inputs if step.new is not None else None) or {}
    return read_back(inputs.get(name.partition(".")[0].partition("[")[0]))
