"""Jobs and files of a user whose uid another user gets. Pure. Slurm and file systems know a uid, and no name."""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmOnHosts, SlurmPlan


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield what is said of users who lose their uid, and the command that shows the jobs. `new` is None if Slurm leaves."""
    if new is None:
        return
    names, owners = {one.name for one in new.users}, {one.uid: one.name for one in new.users}
    taken = list[str]()
    for one in old.users:
        now = owners.get(one.uid)
        if now is None and one.name in names and isinstance(new, SlurmOnHosts):
            yield Note(queued=f"those of {one.name} keep the uid {one.uid}, which no user has then")
        elif now not in {None, one.name}:
            taken.append(one.name)
            yield Note(
                queued=f"those of {one.name} keep the uid {one.uid}, which {now} has then",
                data=f"that of {one.name} with the uid {one.uid} is that of {now} until `chown` changes it",
            )
    if taken:
        whose = ",".join(sorted(taken))
        yield Note(
            before=(
                f"squeue --user={whose}    # jobs with the uid of another user then: cancel them, unless both names are one person",
            )
        )
