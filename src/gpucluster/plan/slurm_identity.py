"""What slurmctld's state says of its cluster: a name, and a number that the accounting database has, too (S50). Pure."""

from gpucluster.plan.model import ExternalDatabase, SlurmPlan
from gpucluster.plan.state_storage import BOUND_FOLDERS

STATE = BOUND_FOLDERS["slurmctld"]
CLUSTER_NAME = f"{STATE}/clustername"  # `NAME|NUMBER`
NAME_MISMATCH, ID_MISMATCH = "CLUSTER NAME MISMATCH", "CLUSTER ID MISMATCH"  # slurmctld's last words


def is_renamed(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether slurmctld's state has another name than the new plan."""
    return old.name != new.name


def is_alone(plan: SlurmPlan) -> bool:
    """Whether nothing outside of the head knows the name: hosts without accounting. On AWS it is the name of the stack."""
    return plan.aws is None and plan.slurm.accounting is None


def takes_name(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether slurmctld's state gets another name by the agent, and keeps its jobs."""
    return is_renamed(old, new) and is_alone(old) and is_alone(new)


def backup_of(name: str) -> str:
    """Return where the state stays when the cluster gets this name."""
    return f"{STATE}.before-{name}"


def has_other_database(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether slurmdbd of the new plan has another number: accounting is added, or moves to another database."""
    after = _database(new)
    return after is not None and after != _database(old)


def _database(plan: SlurmPlan) -> tuple[str, int] | None:
    """Return where the records are. On the head is one place, also after the head has moved."""
    if plan.slurm.accounting is None:
        return None
    found = plan.slurm.accounting.database
    return (found.host, found.port) if isinstance(found, ExternalDatabase) else ("", 0)
