"""docs/edits.md from the edits, what `diff` says of each, and what was seen."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpucluster.gitops.model import Diff
from gpucluster.markdown import table, text
from support import identity_edits
from support.edits import EDITS, Edit
from support.reviewed import a_diff

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/edits.md"
RECORDED = ROOT / "tests/recorded/edits.json"
Seen = Mapping[str, Any]
_HEAD = """# Edits of a spec, what `diff` says, and what happened

Made from `tests/support/edits.py` and `tests/recorded/edits.json` by `make golden`. Do not edit it by hand.

Each edit was applied by `pulumi up` to a cluster in the sandbox with Slurm 26.05, accounting, a login machine and homes on the head. On it ran a batch job, a step that a
user attached by `srun` from the login machine, and an ssh session; a second job was in the queue. `tests/sandbox/observe_edits.py` records what is seen after the head has applied the edit, or holds it.
Silence is the longest time between two answers of slurmctld to `scontrol ping`, on a busy machine with two cores; without a change it is up to 3 s there. Edits that were applied at
once have one observation: what none of them did together, none of them does alone. "not observed yet": nobody has run this edit.
The sandbox filters no packet by a security group: that a new login works says nothing about the networks that `access.ssh_from` allows.
A unit test compares each sentence with its observation.
"""
_SUBJECTS = ("running jobs", "queued jobs", "sessions", "data")


def recorded() -> Mapping[str, Seen]:
    return json.loads(RECORDED.read_text())


def diff_of(edit: Edit) -> Diff:
    return a_diff(edit.old, edit.new)


def page() -> str:
    found = recorded()
    rows = (
        (text(edit.says), str(diff.worst or "-"), *_said(diff), _seen(edit, found.get(edit.id)))
        for edit in EDITS
        for diff in (diff_of(edit),)
    )
    return f"{_HEAD}\n{table(('edit', 'class', *_SUBJECTS, 'seen'), rows)}\n\n{identity_edits.part()}"


def _said(diff: Diff) -> Iterator[str]:
    if diff.effects is None:
        yield from ("-",) * len(_SUBJECTS)
    else:
        yield from (text(what) for _, what in diff.effects.lines())


def _seen(edit: Edit, seen: Seen | None) -> str:
    return "not observed yet" if seen is None else text("; ".join(_words(seen)))


def _words(seen: Seen) -> Iterator[str]:
    if seen["waits"]:
        yield "the head holds the bundle"
    yield f"running job: {seen['running']}"
    yield f"queued job: {str(seen['queued']).lower()}"
    yield f"srun: {seen['srun']}"
    yield f"ssh session: {seen['login']}, a new one: {seen['new_login']}"
    yield f"data: {seen['data']}"
    yield f"silence {seen['silence_s']} s"
    for word in ("ended_machines", "new_machines", "drained"):
        if seen[word]:
            yield f"{word.replace('_', ' ')}: {', '.join(seen[word])}"
    if seen.get("together"):
        yield f"applied with {len(seen['together'])} other edits"
