"""How sshd of a compute node admits only users with a job there: the agent writes it, a check compares it."""

from typing import Final

from gpucluster.plan.model import NodeSsh

OPERATORS: Final = "/etc/gpucluster/ssh-operators"  # accounts that need no job, one a line
MODULE: Final = "pam_slurm_adopt.so"
ACCOUNT_STACK: Final = (  # its first lines, in PAM's words
    f"account [success=1 default=ignore] pam_listfile.so item=user sense=allow onerr=fail quiet file={OPERATORS}",
    f"account required {MODULE} action_no_jobs=deny action_adopt_failure=deny action_generic_failure=deny",
)


def operators(access: NodeSsh) -> tuple[str, ...]:
    """The lines of `OPERATORS`."""
    return ("root", *access.operators)
