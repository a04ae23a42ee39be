"""What whoever hosts the program changes in its plan: nothing on AWS, the lines of a rehearsal in the sandbox.

The program asks here; only our own language host ever sets it, so that a variable left behind in a shell changes
no real cluster.
"""

from collections.abc import Callable

from gpucluster.plan.model import ClusterPlan

Amend = Callable[[ClusterPlan], ClusterPlan]

_amends: list[Amend] = []  # one process runs one program


def amended(plan: ClusterPlan) -> ClusterPlan:
    """The plan as this host runs it."""
    for amend in _amends:
        plan = amend(plan)
    return plan


def amend_with(amend: Amend) -> None:
    """From now on `amended` answers so, in this process."""
    _amends.append(amend)
