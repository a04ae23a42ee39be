"""Which places in S3 the jobs of Slurm lose by an edit. Pure.

`pulumi up` changes the role of jobs at once, so the keys that running jobs have lose what the new plan does not grant.
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.gitops.pod_rights import lost_places
from gpucluster.plan.model import SlurmOnAws, SlurmPlan
from gpucluster.text import listed


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield what is said of running jobs. `field_effects` has a role that leaves whole."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    was, now = old.aws.jobs, new.aws.jobs
    if was is None or now is None:
        return
    if places := listed(lost_places(was, now)):
        yield Note(running=f"those that use it lose their access to S3 at `pulumi up`: {places}")
