"""What an edit does to sessions that are open, and who may begin one. Pure.

The agent writes the limits of a user's slice, and systemd gives them to the sessions that run (systemd.resource-control(5));
the kernel ends processes above a lower limit of memory, and only refuses new ones above that of tasks (cgroup-v2.rst).
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmOnAws, SlurmOnHosts, SlurmPlan
from gpucluster.plan.security_rules import ANYWHERE
from gpucluster.text import format_size

# T55
_UNTRACKED = "those through the rule for all addresses end at once: AWS tracks no such connection"


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield what is said of sessions on login machines and nodes."""
    if isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws):
        yield from _on_login(old, new)
    if new is not None and type(old) is type(new):
        yield from _on_nodes(old, new)


def _on_login(old: SlurmOnAws, new: SlurmOnAws) -> Iterator[Note]:
    if old.login is None or new.login is None:
        return
    was, now = old.login.sessions, new.login.sessions
    if now.memory_mib < was.memory_mib:
        yield Note(
            sessions=f"processes in those of a user with more than {format_size(now.memory_mib)} are ended"
        )
    if now.tasks < was.tasks:
        yield Note(sessions=f"those of a user with {now.tasks} tasks or more start no process")
    if ANYWHERE in old.access.ssh_from and ANYWHERE not in new.access.ssh_from:
        yield Note(sessions=_UNTRACKED)


def _on_nodes(old: SlurmPlan, new: SlurmPlan) -> Iterator[Note]:
    """The agent of a host writes PAM's stack of sshd at once. On AWS sshd of a node is as it was at its launch, and its port as in the new plan."""
    was, now = old.slurm.node_ssh is not None, new.slurm.node_ssh is not None
    if was == now:
        return
    if isinstance(new, SlurmOnHosts):
        yield Note(sessions=f"the next one on a node needs {'a' if now else 'no'} job there")
    elif was:
        yield Note(sessions="the next one on a node is refused")
