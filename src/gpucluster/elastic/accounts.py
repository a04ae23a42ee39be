"""Compare the plan's accounts with slurmdbd, and apply them: `python -m gpucluster.elastic.accounts diff|apply [--json]` on the head."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan.model import Accounting
from gpucluster.slurm.accounts import apply as accounts
from gpucluster.slurm.accounts.diff import Change, Difference

SACCTMGR_S = 120.0


def main(argv: Sequence[str] | None = None, run: accounts.Run | None = None) -> int:
    """Print the difference. Exit code 0: none, or all applied; 1: `diff` found one, or not all could be applied; 2: error.

    `run` runs sacctmgr; None: the program of this machine.
    """
    parser = argparse.ArgumentParser(prog="gpucluster accounts")
    parser.add_argument("verb", choices=("diff", "apply"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plan", type=Path, default=Path(names.BUNDLE_DIR) / names.PLAN_FILE)
    args = parser.parse_args(argv)
    try:
        cluster, accounting = _of_plan(args.plan)
        slurmdbd = _Slurmdbd(run or _run, accounting, cluster)
        found = slurmdbd.compare()
        left = slurmdbd.apply(found) if args.verb == "apply" else None
    except (GpuclusterError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(_as_json(found, left) if args.json else _as_text(found, left))
    sys.stdout.write("\n")
    return 1 if _differs(found if left is None else left) else 0


@dataclass(frozen=True, slots=True)
class _Slurmdbd:
    run: accounts.Run
    accounting: Accounting
    cluster: str

    def compare(self) -> Difference:
        return accounts.compare(self.run, self.accounting, self.cluster, time.time())

    def apply(self, found: Difference) -> Difference:
        """Make the changes, and return what differs after them: a proof, not a count of commands."""
        accounts.apply(self.run, found.changes)
        return self.compare() if found.changes else found


def _of_plan(path: Path) -> tuple[str, Accounting]:
    plan = plan_json.load_slurm(path.read_bytes())
    if plan.slurm.accounting is None:
        step = "write `slurm: {accounting: {database: local}}` in the spec"
        raise GpuclusterError("the cluster has no accounting", next_step=step)
    return plan.name, plan.slurm.accounting


def _run(argv: Sequence[str]) -> shell.Result:
    return shell.run(argv, check=False, timeout_s=SACCTMGR_S)


def _differs(found: Difference) -> bool:
    return bool(found.changes or found.conflicts)


def _as_json(found: Difference, left: Difference | None) -> str:
    """`left`: what differs after `apply`; None after `diff`."""
    values = {"verb": "diff", "changes": codec.to_json(found.changes)}
    if left is not None:
        values |= {"verb": "apply", "left": codec.to_json(left.changes)}
    return json.dumps(
        {**values, "conflicts": codec.to_json((left or found).conflicts)}, indent=1, sort_keys=True
    )


def _as_text(found: Difference, left: Difference | None) -> str:
    if not _differs(found):
        return "slurmdbd has the accounts of the plan"
    if left is None or not found.changes:
        return "\n".join(_lines(found))
    count = len(found.changes)
    changes = [line for change in found.changes for line in _of_change(change)]
    if _differs(left):
        were = "change was" if count == 1 else "changes were"
        return "\n".join([*changes, f"{count} {were} sent, and slurmdbd still differs:", *_lines(left)])
    return "\n".join([*changes, f"{count} {'change is' if count == 1 else 'changes are'} made"])


def _lines(found: Difference) -> list[str]:
    changes = [line for change in found.changes for line in _of_change(change)]
    return [*changes, *(f"cannot: {text}" for text in found.conflicts)]


def _of_change(change: Change) -> list[str]:
    notes = {"close": ": no new jobs; its records stay", "reset": ": its GPU-hours start at zero"}
    details = [
        f"    {one.field}: {one.before or 'none'} -> {one.after}"
        if one.before
        else f"    {one.field}: {one.after}"
        for one in change.details
    ]
    return [f"{change.kind.value} {change.subject}{notes.get(change.kind.value, '')}", *details]


if __name__ == "__main__":
    sys.exit(main())
