"""Edits that change the cluster's name or its accounting, and what happened to jobs in tests/slurm/test_cluster_identity.py.

The laboratory there has existing hosts, whose agent is that of AWS; an existing database stands in specs of AWS only.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpucluster.markdown import table, text
from support.account_rows import SITE
from support.builders import LAB
from support.edits import BASE
from support.reviewed import a_diff

RECORDED = Path(__file__).parents[1] / "recorded/identity-edits.json"
_ACCOUNTS = BASE[BASE.index("qos:\n") : BASE.index("health:")]
ELSEWHERE = 'accounting: {host: db.example.org, secret: "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf", ca: /etc/ssl/ca.pem}'
NO_ACCOUNTS = BASE.replace(_ACCOUNTS, "")
LAB_WITH = LAB.replace('version: "26.05"\n', 'version: "26.05"\n  accounting: {database: local}\n')
NONE = BASE.replace("  accounting: {database: local}\n", "").replace(_ACCOUNTS, "")
EDITS = {
    "renamed": (LAB, LAB.replace("name: lab", "name: labor")),
    "renamed, with accounting": (SITE, SITE.replace("name: lab", "name: labor")),
    "renamed, with accounting without accounts": (
        LAB_WITH,
        LAB_WITH.replace("name: lab", "name: labor"),
    ),
    "accounting added": (NONE, BASE),
    "accounting added without accounts": (NONE, NO_ACCOUNTS),
    "accounting removed": (BASE, NONE),
    "another database": (BASE, BASE.replace("accounting: {database: local}", ELSEWHERE)),
    "another database with a copy": (BASE, BASE.replace("accounting: {database: local}", ELSEWHERE)),
    "shorter keep": (BASE, BASE.replace("{database: local}", "{database: local, keep: 30d}")),
}
_HEAD = """## The name of the cluster, and its accounting

Made from `tests/support/identity_edits.py` and `tests/recorded/identity-edits.json`, which `GPUCLUSTER_RECORD=1 pytest tests/slurm/test_cluster_identity.py` writes: real daemons on existing
hosts, with the whole agent of the head. One job had ended, one ran, and one waited for its node. Where the head refuses the bundle, nothing stops; then the commands that `diff` prints were typed, without those that
empty the queue, and the bundle was applied. A restart of slurmctld followed. "a copy": the old database was copied into the new one.
"""
_SUBJECTS = ("running jobs", "queued jobs", "sessions", "data")


def recorded() -> list[Mapping[str, Any]]:
    return json.loads(RECORDED.read_text())


def part() -> str:
    """The part of docs/edits.md."""
    rows = ((text(edit), *_said(edit), text("; ".join(_seen(edit)))) for edit in EDITS)
    return f"{_HEAD}\n{table(('edit', 'class', *_SUBJECTS, 'seen'), rows)}\n"


def _said(edit: str) -> Iterator[str]:
    found = a_diff(*EDITS[edit])
    assert found.effects is not None
    yield str(found.worst)
    yield from (text(what) for _, what in found.effects.lines())


def _seen(edit: str) -> Iterator[str]:
    """One text if both versions did the same, else one for each."""
    found = {one["version"]: "; ".join(_words(one)) for one in recorded() if one["edit"] == edit}
    if len(set(found.values())) == 1:
        yield from set(found.values())
    else:
        yield from (f"{version}: {words}" for version, words in found.items())


def _words(seen: Mapping[str, Any]) -> Iterator[str]:
    if seen["refused"]:
        yield f"the head refuses the bundle ({seen['refused']})"
    yield f"running job: {seen['running'].partition(' ')[0].lower()}, and ends; it started once"
    yield f"queued job: {seen['queued']}"
    if "queued, with an account" in seen:
        yield f"after `scontrol update` with an account: {seen['queued, with an account']}"
    if "history" in seen:
        yield f"the job that had ended: {seen['history']} by sacct"
        yield f"record of the running job: {seen['record of the running job'].lower()}"
    yield f"slurmctld restarts: {seen['restart'] or 'yes'}"
