"""The owners and modes of files on the head and on a node, as their makers set them. Pure.

The makers are the agent, the image's tree and its tmpfiles.d (`agent/units`), Slurm, munge and Ansible.
"""

from pathlib import PurePosixPath

from gpucluster.checks import remedies
from gpucluster.checks.modes import FilesWant, FileWant
from gpucluster.plan import gres, names, node_ssh
from gpucluster.plan.model import Containers, SlurmPlan

_ROOT, _SLURM, _MUNGE = "root", "slurm", "munge"
_SSSD = "/etc/sssd/sssd.conf"  # has the bind password; newer versions of sssd let their own group read it
_SSHD = "/etc/ssh/sshd_config.d/10-gpucluster.conf"
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_LOGS = "/var/log/slurm"
_PROGRAM, _TEXT, _OWN_FOLDER = ("755", "555"), ("644", "444"), ("700",)
_PARTS = tuple(f"{names.SPOOL}/{part}" for part in ("new", "tmp"))
_TMPFILES = "systemd-tmpfiles --create gpucluster.conf"
_AGENT = remedies.restart("gpucluster-agent")


def of_head(plan: SlurmPlan, slurm_files: tuple[str, ...], state: str) -> FilesWant:
    """`slurm_files`: the paths of Slurm's files; `state`: the folder of slurmctld's state."""
    found = [
        _file(names.MUNGE_KEY, _MUNGE, ("400", "600")),
        *(_file(path, _ROOT, _TEXT) for path in slurm_files),
        _file(state, _SLURM, _OWN_FOLDER),
        *_pyxis(plan),
    ]
    if plan.slurm.accounting is not None:
        found.append(_file(names.SLURMDBD_CONF, _SLURM, ("600",)))
    if plan.aws is not None:
        found += [
            *_of_cloud_machine(plan),
            _file(_LOGS, _SLURM, ("755", "750")),
            *_programs("resume", "suspend", "resume_fail", "prolog_slurmctld"),
            _file(str(PurePosixPath(names.JOURNAL).parent), _SLURM, ("750", "700")),
            _file(names.JOURNAL, _SLURM, ("640", "600")),
            *(_file(path, _SLURM, _OWN_FOLDER) for path in (names.SPOOL, *_PARTS)),
            _file(str(PurePosixPath(names.WAKE_SOCKET).parent), _SLURM, ("755",)),
        ]
    return FilesWant(files=tuple(found), heals_missing=f"{_TMPFILES}; {_AGENT}" if plan.aws else _AGENT)


def of_node(plan: SlurmPlan, slurm_files: tuple[str, ...], spool: str) -> FilesWant:
    """`slurm_files`: the paths of the files that slurmctld has sent; `spool`: slurmd's folder."""
    programs = (
        *(("prolog",) if plan.aws is not None else ()),
        *(("task_prolog",) if gres.has_task_prolog(plan) else ()),
        *(("health_check",) if plan.health is not None else ()),
        *(("health_prolog", "health_epilog") if plan.health is not None and plan.health.prolog else ()),
    )
    found = [
        _file(names.MUNGE_KEY, _MUNGE, ("400", "600")),
        *(_file(path, _ROOT, _TEXT) for path in slurm_files),
        _file(spool, _ROOT, ("755", "700")),
        *_programs(*programs),
        *_pyxis(plan),
    ]
    if plan.aws is not None:
        found += [*_of_cloud_machine(plan), _file(names.PROLOG_SOCKET, _ROOT, ("600", "700"))]
        if plan.aws.jobs:
            found.append(_file(names.JOBS_DIR, _ROOT, ("755",)))
        if plan.slurm.node_ssh is not None:
            found += [*_of_sshd(), _file(node_ssh.OPERATORS, _ROOT, _TEXT)]
    if plan.slurm.private_tmp is not None:
        found.append(_file(plan.slurm.private_tmp, _ROOT, ("755",)))
    return FilesWant(files=tuple(found), heals_missing=_AGENT)


def of_login(plan: SlurmPlan, slurm_files: tuple[str, ...], *, sackd: bool) -> FilesWant:
    """`slurm_files`: the paths of Slurm's files; `sackd` has its own in a folder of slurm's."""
    found = (
        _file(names.MUNGE_KEY, _MUNGE, ("400", "600")),
        *(_file(path, _SLURM if sackd else _ROOT, _TEXT) for path in slurm_files),
        *_of_cloud_machine(plan),
        *_of_sshd(),
    )
    return FilesWant(files=found, heals_missing=_AGENT)


def _of_cloud_machine(plan: SlurmPlan) -> tuple[FileWant, ...]:
    """Who may write here decides which bundle the agent applies, and who may log in."""
    found = (
        _file(names.STATE_DIR, _ROOT, ("755",)),
        _file(names.AGENT_RUN, _ROOT, ("755", "700")),
        _file(names.USER_DATA_FILE, _ROOT, (*_TEXT, "600")),
    )
    return found if plan.directory is None else (*found, _file(_SSSD, _ROOT, ("600", "640")))


def _of_sshd() -> tuple[FileWant, ...]:
    return (_file(_SSHD, _ROOT, (*_TEXT, "600")), _file(_HOST_KEY, _ROOT, ("600", "400")))


def _programs(*called: str) -> tuple[FileWant, ...]:
    """The programs that Slurm runs, and their folder: whoever writes there is root, or slurmctld's user."""
    if not called:
        return ()
    below = (
        FileWant(path=f"{names.HOOK_DIR}/{name}", owner=_ROOT, modes=_PROGRAM, packaged=True)
        for name in called
    )
    return (_file(names.HOOK_DIR, _ROOT, _PROGRAM), *below)


def _pyxis(plan: SlurmPlan) -> tuple[FileWant, ...]:
    if plan.slurm.containers is not Containers.PYXIS:
        return ()
    return (_file(names.PYXIS_PLUGIN, _ROOT, ("644", "755")),)


def _file(path: str, owner: str, modes: tuple[str, ...]) -> FileWant:
    return FileWant(path=path, owner=owner, modes=modes)
