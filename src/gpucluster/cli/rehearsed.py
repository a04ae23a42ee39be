"""What a `pulumi up` typed in `gpucluster sandbox shell` changes in the plan: the lines of a rehearsal, as `sandbox up` does."""

import os
from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.plan import codec
from gpucluster.plan.model import ClusterPlan

SANDBOX = "GPUCLUSTER_SANDBOX"  # the name, in the shell's environment
AMEND = "gpucluster.cli.rehearsed:amend"


def amend(plan: ClusterPlan) -> ClusterPlan:
    """The plan as the sandbox runs it; an update writes it down, so that every other verb sees what stands."""
    import pulumi

    from gpucluster.sandbox import differences, host, ledger

    home = ledger.living(os.environ.get(SANDBOX, ""))
    if plan.name != home.name:
        raise StateError(
            f"this shell is of the sandbox '{home.name}', and the stack is '{plan.name}'",
            next_step=f"pulumi stack select {home.name}",
        )
    mode = host.cgroup_mode(host.cgroup_trees(Path("/proc/self/mountinfo").read_text()))
    amended = differences.apply(plan, mode, real_times=home.real_times)
    if not pulumi.runtime.is_dry_run():
        _replace(home.plan, codec.dumps(amended))
    return amended


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)
