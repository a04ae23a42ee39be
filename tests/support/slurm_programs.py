"""squeue and scontrol as programs that answer from files, for tests of the client. They refuse what they do not know."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucluster.slurm.client import Scontrol
from gpucluster.slurm.parse import QueueRow

PLACE = "\x1e"  # of the mark, in the file of the rows
_JOB = {"job_state": ["COMPLETING", "FAILED"], "node_count": 1, "requeue": True, "batch_flag": True}
_SQUEUE = """#!/bin/bash
cd {folder}; echo "squeue $*" >>calls
[ -s error ] && {{ cat error >&2; exit 1; }}
case "$*" in
  *--json*) cat jobs.json ;;
  "--noheader --all --array --states=all --sort=i")
    mark=${{SQUEUE_FORMAT2%%,*}}; mark=${{mark#JobId:0}}
    echo "$mark" >>marks; env >variables; sed "s/{place}/$mark/g" rows ;;
  *) echo "squeue: unknown $*" >&2; exit 2 ;;
esac
"""
_SCONTROL = """#!/bin/bash
cd {folder}; echo "scontrol $*" >>calls
case "$*" in
  *"show job"*--json) cat jobs.json ;;
  *"show nodes --json") echo '{{"nodes": []}}' ;;
  "show config") date --date=@1795405697 +"BOOT_TIME               = %FT%T" ;;
  *"show reservations --json") echo '{{"reservations": []}}' ;;
  *) echo "scontrol: unknown $*" >&2; exit 2 ;;
esac
"""


@dataclass(frozen=True)
class Programs:
    """The client of both programs, and what they got."""

    folder: Path
    client: Scontrol

    def rows(self, rows: Sequence[QueueRow]) -> None:
        """What squeue writes from now on, in the format that it is asked for."""
        text = "".join("".join(f"{field}{PLACE}" for field in row.fields) + "\n" for row in rows)
        (self.folder / "rows").write_text(text)

    def fail(self, words: str) -> None:
        """From now on squeue writes this as an error and fails."""
        (self.folder / "error").write_text(words)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def marks(self) -> list[str]:
        return (self.folder / "marks").read_text().splitlines()

    def variables(self) -> set[str]:
        """The names of the variables of the last call of squeue for rows."""
        return {line.partition("=")[0] for line in (self.folder / "variables").read_text().splitlines()}


def programs(folder: Path, rows: Sequence[QueueRow], jobs: Sequence[Mapping[str, Any]] = ()) -> Programs:
    """Write the programs into the folder. `jobs` is what the JSON has, whoever asks."""
    for name, text in (("squeue", _SQUEUE), ("scontrol", _SCONTROL)):
        (folder / name).write_text(text.format(folder=shlex.quote(str(folder)), place="\\x1e"))
        (folder / name).chmod(0o755)
    (folder / "jobs.json").write_text(json.dumps({"jobs": [{**_JOB, **job} for job in jobs]}))
    made = Programs(
        folder,
        Scontrol(
            str(folder / "scontrol"), "/bin/false", str(folder / "squeue"), near=folder / "standby.conf"
        ),
    )
    made.rows(rows)
    return made
