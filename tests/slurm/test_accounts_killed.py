"""`gpucluster accounts apply` on the head is killed after each of its changes, and run again, on real daemons.

Both ways begin with the same database: an applied spec, records of the site, and the count of an earlier month. At the end the rows
of the tables, with their numbers, are the same.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from accounting import apply_accounts, start_slurmdbd, with_accounting
from real_slurm import VERSIONS, RealSlurm
from support.account_rows import SITE
from support.builders import changed, on_hosts

from gpucluster import catalog
from gpucluster.plan import codec, names
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

PEOPLE = ("vision", "speech", "recsys")
EARLIER = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
BY_HAND = (
    ("add", "qos", "weekend", "priority=7"),
    ("add", "account", "guests", "organization=site", "description=by_hand"),
    ("add", "user", "researcher", "account=guests"),
    ("add", "user", "speech", "account=guests", "grpsubmitjobs=3"),
)
CHANGES = (  # of a spec: what is new, what changes, what moves, what leaves
    ("share: 3, qos: [normal, urgent]", "share: 3, qos: [normal, urgent, batch]"),
    (
        "  - {name: urgent, priority: 1000, preempts: [normal], limits: {gpus_per_user: 16}}\n",
        "  - {name: urgent, priority: 2000, preempts: [normal, batch], limits: {gpus_per_user: 8}}\n"
        "  - {name: batch, priority: 10}\n",
    ),
    ("parent: science, share: 2, users: [vision, speech], limits: {gpus: 24}", "share: 5, users: [vision]"),
    (
        "  - {name: product, qos: [normal], users: [recsys], limits: {gpu_hours_per_month: 5000}}\n",
        "  - {name: product, qos: [normal], users: [vision, recsys], limits: {gpu_hours_per_month: 4000}}\n"
        "  - {name: robots, parent: science, users: [recsys], limits: {gpus_per_user: 4}}\n",
    ),
)
TABLES = {  # without the times of the rows
    "acct_table": "name, deleted, description, organization",
    "user_table": "name, deleted, admin_level",
    "qos_table": "*",
    "lab_assoc_table": "*",
}
TIMES = ("creation_time", "mod_time")
SACCTMGR = """#!/bin/sh
echo "$*" >> {calls}
{sacctmgr} "$@" || exit
[ "$(grep --count --invert-match -e --json {calls})" != "$(cat {last})" ] || kill -KILL $PPID
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_runs_end_where_an_undisturbed_one_does(version: str, tmp_path: Path) -> None:
    """Each run is killed after its first change. They make the changes of an undisturbed run, in its order, each once.

    Only the count of a month is set to zero again if its new month is not written yet.
    """
    plan, later = _plan(), _plan(*CHANGES)
    with with_accounting(version, plan, *PEOPLE) as slurm:
        apply_accounts(slurm, at=EARLIER)
        for words in BY_HAND:
            slurm.must("sacctmgr", "--immediate", *words)
        head = Head(slurm, tmp_path, codec.dumps(later))
        before = slurm.must("mariadb-dump", "--single-transaction", "--databases", names.DATABASE)
        kept = _of_the_site(_rows(slurm))
        assert len(kept) == 9

        _restore(slurm, before)
        assert head.apply() == 0
        expected, rows = head.changes(), _rows(slurm)
        assert {change.split()[1] for change in expected} == {"add", "modify"}
        assert [change for change in expected if "RawUsage=0" in change], "a new month begins"
        assert [change for change in expected if "GrpSubmitJobs=0" in change], "a user leaves"
        assert _of_the_site(rows) == kept

        _restore(slurm, before)
        assert _killed(head) == expected
        assert head.apply() == 0
        assert head.changes() == []
        assert _rows(slurm) == rows


def _killed(head: "Head") -> list[str]:
    """Run it, killed after its first change, until there is none; the changes that were made."""
    made: list[str] = []
    while head.apply(killed_after=1) == -signal.SIGKILL:
        (change,) = head.changes()
        if change in made[-1:]:
            assert "RawUsage=0" in change
            assert head.apply(killed_after=2) == -signal.SIGKILL
            again, change = head.changes()
            assert again == made[-1]
        made.append(change)
    return made


@dataclass(frozen=True)
class Head:
    """The product's program on this host, whose sacctmgr is that of the cluster."""

    slurm: RealSlurm
    folder: Path
    plan: str

    def __post_init__(self) -> None:
        (self.folder / "plan.json").write_text(self.plan)
        program = self.folder / "sacctmgr"
        argv = shlex.join(self.slurm._argv(["sacctmgr"]))
        program.write_text(SACCTMGR.format(calls=self._calls, last=self._last, sacctmgr=argv))
        program.chmod(0o755)

    def apply(self, killed_after: int | None = None) -> int:
        """Run `accounts apply`; its sacctmgr kills it with the end of that change. The exit code."""
        self._calls.write_text("")
        self._last.write_text(f"{killed_after}\n")
        argv = [sys.executable, "-m", "gpucluster.elastic.accounts", "apply", "--plan"]
        path = f"{self.folder}:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*argv, str(self.folder / "plan.json")],
            env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.stderr == ""
        return done.returncode

    def changes(self) -> list[str]:
        """The calls of the last run that do more than read."""
        return [call for call in self._calls.read_text().splitlines() if "--json" not in call]

    @property
    def _calls(self) -> Path:
        return self.folder / "calls"

    @property
    def _last(self) -> Path:
        return self.folder / "last"


def _plan(*changes: tuple[str, str]) -> SlurmOnHosts:
    text = changed(SITE, *changes)
    return on_hosts(resolve(inspect_text(text, "lab.yaml", catalog.load()).result(), catalog.load()))


def _rows(slurm: RealSlurm) -> dict[str, list[dict[str, str]]]:
    """The rows of the tables with all columns but their times."""
    found = dict[str, list[dict[str, str]]]()
    for table, columns in TABLES.items():
        query = f"SELECT {columns} FROM {table}"  # noqa: S608  names of this test
        lines = slurm.must("mariadb", "--batch", names.DATABASE, "--execute", query).splitlines()
        head, *rows = (line.split("\t") for line in lines)
        named = [dict(zip(head, row, strict=True)) for row in rows]
        found[table] = [{key: one[key] for key in one if key not in TIMES} for one in named]
        found[table].sort(key=json.dumps)
    return found


def _of_the_site(rows: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    """The records that the site made by hand, and root's."""
    own = {"guests", "weekend", "researcher", "root"}
    return [
        one
        for table in TABLES
        for one in rows[table]
        if own & {one.get("name"), one.get("user"), one.get("acct")} and one.get("user") != "root"
    ]


def _restore(slurm: RealSlurm, backup: str) -> None:
    slurm.must("pkill", "--exact", "slurmdbd")
    slurm.wait(lambda: slurm.run("pgrep", "--exact", "slurmdbd").code == 1, "slurmdbd has ended")
    slurm.must("mariadb", "--execute", f"DROP DATABASE {names.DATABASE}")
    slurm.must("mariadb", stdin=backup)
    start_slurmdbd(slurm)
