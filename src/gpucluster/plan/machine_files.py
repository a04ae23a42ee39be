"""Which of our own files a machine has: hooks from modules of the package, and the tree `agent/units`, which mirrors `/`."""

from collections.abc import Mapping

from gpucluster.plan import names

# program in HOOK_DIR -> its module in `gpucluster/elastic`
HOOKS: Mapping[str, str] = {
    "resume": "hook.py",
    "suspend": "hook.py",
    "resume_fail": "hook.py",
    "prolog_slurmctld": "waiter.py",
}
_UNITS = "/etc/systemd/system"
# Beginnings of the paths that existing hosts have: no hooks, no guard, no daemon, no cloud-init.
OF_HOSTS = (
    f"{_UNITS}/{names.AGENT_UNIT}",
    f"{_UNITS}/gpucluster-watch.",
    f"{_UNITS}/munge.service.d/",
    f"{_UNITS}/slurmctld.service.d/",
    f"{_UNITS}/slurmd.service.d/",
    f"{_UNITS}/gpucluster-accounts.",
    f"{_UNITS}/gpucluster-mps@.",
    "/etc/logrotate.d/",
    f"{names.HOOK_DIR}/health_",
    names.TASK_PROLOG,
    names.MACHINE_COMMAND,
)
