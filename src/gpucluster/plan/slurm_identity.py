"""What slurmctld's state says of its cluster: a name, and a number that the accounting database has, too (S50). Pure."""

from gpucluster.plan.model import ExternalDatabase, SlurmPlan
from gpucluster.plan.state_storage import BOUND_FOLDERS

STATE = BOUND_FOLDERS["slurmctld"]
CLUSTER_NAME = f"{STATE}/clustername"  # `NAME|NUMBER`
NAME_MISMATCH, ID_MISMATCH = "CLUSTER NAME MISMATCH", "CLUSTER ID MISMATCH"  # slurmctld's last words


def is_renamed(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether slurmctld's state has another name than the new plan."""
    return old.name != new.name


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
