"""Slurm on the head: check the bundle's files with Slurm's parser, apply them, go back if slurmctld does not start.

/etc/slurm stays a plain folder. Each of our files in it is a link through names.BUNDLE_DIR, so one new link changes all
files at once. Files of others stay.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpucluster.agent.boot import boot_state, bundles, state_name, systemd, topology
from gpucluster.agent.boot.boot_state import BootState, Bundle, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import BundleRefusedError, Machine, NotYetError
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec, names
from gpucluster.plan.slurm_identity import CLUSTER_NAME
from gpucluster.shell import CommandError

CONF = f"{names.SLURM_DIR}/slurm.conf"
CONTROLLER, DAEMON = "slurmctld", "gpucluster-elastic"
UP_S, CHECK_S = 30.0, 0.2
STANDBY_STOP_S = 15.0  # slurmctld 24.11 saves its state and ends within 1 s
STANDBY_STOPS = 3  # a start may fail for a temporary reason
SLURM_USER = "slurm"
DAEMON_FOLDERS = (  # the unit makes them before each start, from tmpfiles.d/gpucluster.conf
    str(Path(names.JOURNAL).parent),
    *(str(Path(names.SPOOL) / part) for part in ("tmp", "new")),
    str(Path(names.WAKE_SOCKET).parent),
)

log = logging.getLogger(__name__)


def fetch_bundle(machine: Machine, state: BootState) -> BootState:
    """Fetch the bundle. If it is damaged, continue with the last good one."""
    try:
        return bundles.fetch(machine, state)
    except BundleRefusedError as error:
        return replace(last_good(machine, state, one_line(error), error.digest), damaged=error.digest)


def check_config(machine: Machine, state: BootState) -> BootState:
    """Check slurm.conf with Slurm's parser before the bundle is applied."""
    bundle = require(state.bundle)
    if bundles.applied(machine) == bundle.digest:
        return state
    conf = {"SLURM_CONF": str(bundle.tree / CONF)}
    try:
        machine.run(["scontrol", "show", "hostnames", "x"], env=conf, timeout_s=20)
    except CommandError as error:
        reason = one_line(ValueError(error.result.stderr or error.result.stdout))
        return last_good(machine, state, f"Slurm's parser refuses slurm.conf: {reason}", bundle.digest)
    return state


def apply_bundle(machine: Machine, state: BootState) -> BootState:
    """Apply the bundle and start slurmctld with it. If it does not start, go back to the last good bundle."""
    bundle = require(state.bundle)
    try:
        _start(machine, state, bundle)
    except (GpuclusterError, OSError) as error:
        if boot_state.load(machine).good in ("", bundle.digest):
            raise
        state = last_good(machine, state, one_line(error), bundle.digest)
        _start(machine, state, require(state.bundle))
    good = require(state.bundle).digest
    boot_state.update(machine, good=good)
    bundles.prune(machine, (good, state.offered.digest if state.offered else None))
    return state


def run_daemon(machine: Machine, state: BootState) -> BootState:
    """Run the elastic daemon. Restart it only if the plan or the bindings have changed, or if a folder of it was removed.

    A running daemon cannot use a folder that is made anew: the unit mounts the folders when it starts.
    """
    wanted = bundles.content_digest(require(state.bundle), names.PLAN_FILE, names.BINDINGS_FILE)
    removed = [folder for folder in DAEMON_FOLDERS if not machine.path(folder).is_dir()]
    if removed:
        log.warning("%s is missing: %s starts again and makes it", ", ".join(removed), DAEMON)
    if removed or boot_state.load(machine).daemon_digest != wanted or not systemd.active(machine, DAEMON):
        systemd.ensure(machine, DAEMON, restart=True)
        boot_state.update(machine, daemon_digest=wanted)
    return state


def wait_until_ready(machine: Machine, state: BootState) -> BootState:
    """Wait until slurmctld answers and the daemon listens for nodes."""
    head = require(state.bundle).plan.head
    _wait_until_up(machine, state)
    if not any(machine.listening(address, head.registration_port) for address in head.addresses):
        reason = systemd.last_log_lines(machine, DAEMON)
        raise NotYetError(
            f"the daemon does not listen on port {head.registration_port} yet: {reason}", limit_s=UP_S
        )
    return state


def wait_for_controller(machine: Machine, state: BootState) -> BootState:
    """Wait until slurmctld answers: the last step of an existing head, which has no daemon."""
    _wait_until_up(machine, state)
    return state


def link_files(machine: Machine, bundle: Bundle) -> None:
    """Link each file of the bundle into /etc/slurm, and remove our links to files that the bundle no longer has."""
    etc, through = machine.path(names.SLURM_ETC), Path(names.BUNDLE_DIR) / names.SLURM_DIR
    etc.mkdir(parents=True, exist_ok=True)
    wanted = {p.name for p in (bundle.tree / names.SLURM_DIR).iterdir()}
    divided = topology.target_of(machine, bundle)
    for name in sorted(wanted):
        link, target = etc / name, through / name
        if name == topology.NAME and divided is not None:
            target = divided
        if not (link.is_symlink() and link.readlink() == target):
            new = etc / f".{name}.new"
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            new.replace(link)
    for link in etc.iterdir():
        if link.is_symlink() and link.readlink().parent == through and link.name not in wanted:
            link.unlink()


def publish_status(
    machine: Machine, state: BootState, *, ready: bool, detail: str, last: bytes, key: str = names.STATUS_KEY
) -> bytes:
    """Write the status to the bucket if it differs from `last`; return the published status."""
    me = require(state.identity)
    status = {
        "bundle": state.damaged or (state.offered.digest if state.offered else ""),
        "applied": bundles.applied(machine) or "",
        "ready": ready,
        "detail": detail,
        "refused": state.refused,
        "steps": codec.to_json(boot_state.load(machine).steps),
    }
    without_steps = json.dumps({**status, "steps": []}).encode()  # a step with other seconds is no change
    if without_steps != last:
        machine.services(me.region).put_object(me.bucket, key, codec.dumps(status).encode())
    return without_steps


def conf_values(text: str, key: str) -> Iterator[str]:
    """Return the values of `key` in slurm.conf. The case of keys is ignored, `#` begins a comment."""
    for line in text.splitlines():
        if found := re.match(rf"\s*{re.escape(key)}\s*=\s*(\S+)", line.split("#")[0], re.IGNORECASE):
            yield found[1]


def last_good(machine: Machine, state: BootState, reason: str, refused: str) -> BootState:
    """Continue with the last good bundle; BundleRefusedError if there is none. `refused` is the digest of the other one."""
    good = bundles.stored(machine, boot_state.load(machine).good or "none")
    if good is None:
        raise BundleRefusedError(reason, refused)
    log.warning("bundle %s is refused: %s", refused[:12], reason)
    return replace(state, bundle=good, refused=reason)


def _start(machine: Machine, state: BootState, bundle: Bundle) -> None:
    bundles.apply(machine, bundle.digest)
    link_files(machine, bundle)
    _create_folders(machine, bundle)
    state_name.adopt(machine, bundle, _known_names(machine, state))
    wanted = bundles.content_digest(bundle, names.SLURM_DIR)
    if (divided := topology.divided(machine, bundle)) is not None:
        wanted = hashlib.sha256(f"{wanted}\0{divided}".encode()).hexdigest()
    if not systemd.active(machine, CONTROLLER):
        _stop_standby(machine, state)
        machine.run(["systemctl", "reset-failed", f"{CONTROLLER}.service"], check=False)
        systemd.ensure(machine, CONTROLLER)
    elif boot_state.load(machine).slurm_digest != wanted:
        _reconfigure(machine)
    elif not boot_state.load(machine).standby_stops:
        return
    _wait_until_up(machine, state)
    started = machine.read(CLUSTER_NAME).strip()
    boot_state.update(machine, slurm_digest=wanted, standby_stops=0, clustername=started)


def _known_names(machine: Machine, state: BootState) -> set[str]:
    """Return the names of the last good bundle and of the offered one."""
    good = bundles.stored(machine, boot_state.load(machine).good or "none")
    return {one.plan.name for one in (good, state.offered) if one is not None}


def _stop_standby(machine: Machine, state: BootState) -> None:
    """Stop the standby's slurmctld, which saves its state. The standby's agent starts it again, and it waits as backup.

    If the primary slurmctld requests control itself, the backup hands over after 29 s without any controller, and the
    primary reads the state before the backup has saved it ("Old state possible", 24.11.5).
    After STANDBY_STOPS stops without an answer of our slurmctld, the standby's slurmctld stays: it is then the only one.
    """
    head = require(state.bundle).plan.head
    if head.standby is None or require(state.identity).role != names.ROLE_HEAD:
        return
    other = head.standby.address, head.controller_port
    times = boot_state.load(machine).standby_stops
    if times >= STANDBY_STOPS or not machine.listening(*other):
        return
    boot_state.update(machine, standby_stops=times + 1)
    machine.run(
        ["scontrol", "shutdown", "slurmctld"], check=False, timeout_s=STANDBY_STOP_S
    )  # exit code 1: our own slurmctld is off
    end = machine.now() + STANDBY_STOP_S  # counted from here: on a busy machine scontrol alone takes seconds
    while machine.listening(*other) and machine.now() < end:
        machine.pause(CHECK_S)


def _reconfigure(machine: Machine) -> None:
    """Let slurmctld read its files again. Some errors that the parser accepts end slurmctld; the reason is in its own log."""
    try:
        machine.run(["scontrol", "reconfigure"], timeout_s=UP_S)
    except CommandError as error:
        reason = systemd.last_log_lines(machine, CONTROLLER)
        raise NotYetError(f"slurmctld refuses the files: {reason}", limit_s=UP_S) from error


def _create_folders(machine: Machine, bundle: Bundle) -> None:
    text = (bundle.tree / CONF).read_text()
    for folder in conf_values(text, "StateSaveLocation"):
        machine.make_folder(folder, mode=0o700, owner=SLURM_USER)
    for file in conf_values(text, "SlurmctldLogFile"):
        machine.make_folder(str(Path(file).parent), mode=0o755, owner=SLURM_USER)


def _wait_until_up(machine: Machine, state: BootState) -> None:
    end = machine.now() + UP_S
    while not (answer := _controller_answers(machine, state))[0]:
        if machine.now() >= end:
            raise NotYetError(f"slurmctld does not answer: {one_line(ValueError(answer[1]))}", limit_s=UP_S)
        machine.pause(CHECK_S)


def _controller_answers(machine: Machine, state: BootState) -> tuple[bool, str]:
    """Return whether slurmctld answers here, and a message. With two heads `scontrol ping` would wait for the one that is off."""
    head = require(state.bundle).plan.head
    if head.standby is not None:
        here = require(state.identity).address
        return machine.listening(
            here, head.controller_port
        ), f"no process listens on port {head.controller_port}"
    answer = machine.run(["scontrol", "ping"], check=False, timeout_s=15).stdout
    return "is UP" in answer, answer
