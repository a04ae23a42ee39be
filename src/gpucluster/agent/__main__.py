"""The agent's commands. They run as root, with the Python of names.VENV.

`python -m gpucluster.agent`: the service. It starts at every boot, waits for the user data's file, and runs the role that
the file names. On an existing host Ansible writes the file, and the service ends when the host is ready. The log goes to
the journal and to the console: the cloud keeps the console's text for users who cannot log in.
`python -m gpucluster.agent install-munge-key`: read the key from standard input, print `changed` or `same`.
`python -m gpucluster.agent compare-munge-key`: on the head, print as JSON whether the secret has its key.
`python -m gpucluster.agent prove-restart`: end with 1 if its next start would change or lose the machine's munge key.
`python -m gpucluster.agent restore-munge-key`: on the head, write its key into the secret again; print the same.
`python -m gpucluster.agent wait-until-ready DIGEST SECONDS`: wait until an existing host has applied this bundle.
`python -m gpucluster.agent watch`: look after slurmctld of an existing head once; a timer runs it.
`python -m gpucluster.agent apply-accounts`: on an existing head, what its agent does of accounts at its start; a timer runs it each month.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpucluster.agent import effects
from gpucluster.agent.boot import guard, identity, munge_key, run_folders
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.imds import Metadata
from gpucluster.agent.boot.runner import run_steps
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.agent.monitors.kernel_log import KernelLog
from gpucluster.agent.monitors.prolog_socket import PrologSocket
from gpucluster.agent.monitors.watcher import HealthWatcher
from gpucluster.agent.roles import head, host, login, node, standby
from gpucluster.files import variables
from gpucluster.plan import codec, names

BEFORE_ROLE = (("guard", guard.root_only), ("machine", identity.from_user_data))


def main(arguments: list[str]) -> int:
    """Run the command; exit code 1 if it fails."""
    command, *rest = arguments or ["serve"]
    return COMMANDS[command](rest)


def serve(_: list[str]) -> int:
    """Run until the machine ends; on an existing host, until it is ready."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("gpucluster").setLevel(logging.INFO)  # botocore logs too much at this level
    machine = effects.this_machine()
    run_folders.mount_at_start(machine)
    run = host.run if identity.is_existing_host(machine) else ROLES[role(machine)]
    run(machine)
    return 0


def run_node(machine: Machine) -> None:
    """Run a node with its prolog socket and its monitors."""
    with PrologSocket(machine.path(names.PROLOG_SOCKET)) as prolog_socket:
        log = KernelLog(kernel_log_path())
        watcher = HealthWatcher(query=Metadata().maybe, kernel_log=log, wake=prolog_socket.wake)
        watcher.start()
        node.run(replace(machine, health=watcher), prolog_socket)


ROLES: Mapping[str, Callable[[Machine], None]] = {
    names.ROLE_HEAD: head.run,
    names.ROLE_STANDBY: standby.run,
    names.ROLE_LOGIN: login.run,
    names.ROLE_NODE: run_node,
}


def kernel_log_path() -> Path:
    """The kernel's log; in a container the environment names another file, because the log belongs to the host."""
    return Path(os.environ.get(names.KERNEL_LOG_VARIABLE) or names.KERNEL_LOG)


def role(machine: Machine) -> str:
    """The role in the user data; until cloud-init has written it, only the guard is up."""
    if (found := identity.role_if_known(machine)) is None:
        state = run_steps(machine, BEFORE_ROLE, BootState(), until=lambda _: float("inf"))
        found = state.identity.role if state.identity else names.ROLE_NODE
    return found


def install_munge_key(_: list[str]) -> int:
    """The key comes on standard input, in base64: so it is in no argument, no log and no other file."""
    try:
        changed = munge_key.install(effects.this_machine(), sys.stdin.read())
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print("changed" if changed else "same")  # noqa: T201  the playbook reads it
    return 0


def compare_munge_key(_: list[str]) -> int:
    """Print whether the secret has the key of this head, never the key."""
    return _print_comparison(munge_key.compare)


def prove_restart(_: list[str]) -> int:
    """Each start installs the key of the secret. With another key there, the machine would leave the cluster."""
    try:
        _see_endpoint()
        if munge_key.keeps_own(effects.this_machine()):
            return 0
    except (NotYetError, StepError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print("the secret has another munge key than this machine: see auth.secret of the head", file=sys.stderr)  # noqa: T201
    return 1


def restore_munge_key(_: list[str]) -> int:
    """Write the key of this head into the secret, if the secret has another one."""
    return _print_comparison(munge_key.restore)


def _print_comparison(work: Callable[[Machine], munge_key.KeyComparison]) -> int:
    _see_endpoint()
    try:
        found = work(effects.this_machine())
    except (NotYetError, StepError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(codec.message(found))  # noqa: T201  `validate` reads it
    return 0


def _see_endpoint() -> None:
    logging.disable()  # botocore could log a request
    for key, value in variables(Path(names.ENDPOINT_FILE)).items():
        os.environ.setdefault(key, value)  # the unit has them already


def wait_until_ready(arguments: list[str]) -> int:
    """Print one line: ready, or the step that fails."""
    digest, limit_s = arguments[0], float(arguments[1])
    reason = host.wait(effects.this_machine(), digest, limit_s)
    print(reason or f"ready with bundle {digest[:12]}")  # noqa: T201  the playbook reads it
    return 1 if reason else 0


def watch(_: list[str]) -> int:
    """Look after slurmctld of an existing head once, and print what is wrong for the journal."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    if wrong := host.watch(effects.this_machine()):
        print(wrong)  # noqa: T201
    return 0


def apply_accounts(_: list[str]) -> int:
    """Print one line: that the accounts are applied, or why not."""
    reason = host.apply_accounts(effects.this_machine())
    print(reason or "slurmdbd has the accounts of the plan and of this month")  # noqa: T201  systemd's journal keeps it
    return 1 if reason else 0


COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "serve": serve,
    "install-munge-key": install_munge_key,
    "compare-munge-key": compare_munge_key,
    "prove-restart": prove_restart,
    "restore-munge-key": restore_munge_key,
    "wait-until-ready": wait_until_ready,
    "watch": watch,
    "apply-accounts": apply_accounts,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
