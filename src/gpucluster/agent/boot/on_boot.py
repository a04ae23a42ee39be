"""The site's boot scripts: fetched with the machine's role, checked by hash, and run as root, each at most once in a boot.

A script runs as a transient systemd unit, so an agent that starts again waits for the same run. Its log is the unit's.
The file is on the root disk, because /run may be mounted noexec (Ubuntu).
"""

import hashlib
from collections.abc import Mapping

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.model import BootScript

FOLDER = f"{names.STATE_DIR}/on-boot"
FETCH_S = 180.0  # an object that is missing or refused for this time is not there
STOP_S = 10
SHOWN = ("LoadState", "ActiveState", "Result", "ExecMainStatus")
EXEC_FAILED = "203"  # systemd's status for a file that the kernel does not run


def run(machine: Machine, state: BootState) -> BootState:
    """Run the scripts of the node's pool in order. StepError if a hash differs, or if a script fails or takes too long."""
    pool = require(state.bundle).plan.pool_of(require(state.answer).node)
    for number, script in enumerate(() if pool is None else pool.on_boot, start=1):
        unit = _name(number)
        found = _unit(machine, unit)
        if found["LoadState"] != "loaded":
            _start(machine, state, script, number)
            found = _unit(machine, unit)
        if found["ActiveState"] == "failed":
            raise StepError(
                f"{script.url} {_failure(found, script)}: {systemd.last_log_lines(machine, unit)}"
            )
        if found["ActiveState"] != "active":  # a finished oneshot unit with RemainAfterExit is active
            raise NotYetError(f"{script.url} runs")
    return state


def _start(machine: Machine, state: BootState, script: BootScript, number: int) -> None:
    """Fetch, check, write and start. The file's folder is readable only by root."""
    body = _fetched(machine, require(state.identity).region, script)
    found = hashlib.sha256(body).hexdigest()
    if found != script.sha256:
        raise StepError(f"{script.url} is not run: its SHA-256 is {found}, the spec has {script.sha256}")
    path = f"{FOLDER}/{number}"
    machine.make_folder(FOLDER, mode=0o700, owner="root")
    machine.write(path, body, mode=0o700)
    properties = {
        "Type": "oneshot",
        "RemainAfterExit": "yes",
        "TimeoutStartSec": str(script.limit_s),
        "TimeoutStopSec": str(STOP_S),
    }
    argv = ["systemd-run", f"--unit={_name(number)}", "--no-block", "--quiet"]
    argv += [f"--property={name}={value}" for name, value in properties.items()]
    argv += [f"--setenv={name}={value}" for name, value in _variables(state).items()]
    machine.run([*argv, "--", path], timeout_s=10)


def _variables(state: BootState) -> Mapping[str, str]:
    """What a script may want to know of its node."""
    plan, node = require(state.bundle).plan, require(state.answer).node
    pool = plan.pool_of(node)
    return {
        "GPUCLUSTER_CLUSTER": plan.name,
        "GPUCLUSTER_NODE": node,
        "GPUCLUSTER_POOL": "" if pool is None else pool.name,
    }


def _name(number: int) -> str:
    return f"gpucluster-on-boot-{number}"


def _fetched(machine: Machine, region: str, script: BootScript) -> bytes:
    try:
        answer = machine.services(region).get_object(script.bucket, script.key, if_none_match=None)
    except NotYetError as error:
        raise NotYetError(f"the boot script {error}", limit_s=FETCH_S) from error
    return require(answer).body


def _unit(machine: Machine, unit: str) -> Mapping[str, str]:
    argv = ["systemctl", "show", f"--property={','.join(SHOWN)}", f"{unit}.service"]
    lines = machine.run(argv, timeout_s=10).stdout.splitlines()
    return {**dict.fromkeys(SHOWN, ""), **dict(line.split("=", 1) for line in lines if "=" in line)}


def _failure(found: Mapping[str, str], script: BootScript) -> str:
    if found["Result"] == "timeout":
        return f"was ended after {script.limit_s} s"
    if found["ExecMainStatus"] == EXEC_FAILED:
        return "cannot be started: its first line must name an interpreter, such as #!/bin/bash"
    if found["Result"] == "signal":
        return f"was ended by signal {found['ExecMainStatus']}"
    return f"ended with exit code {found['ExecMainStatus']}"
