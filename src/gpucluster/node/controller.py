"""The head's Slurm: the bundle's files tried by the real parser, applied, taken back if slurmctld does not like them.

/etc/slurm stays a plain folder: each file of ours in it is a link through names.BUNDLE_DIR, so swapping that one
link changes them all at once, and what others put there stays.
"""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.node import bundles, state, systemd
from gpucluster.node.known import Bundle, Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.node.walk import one_line
from gpucluster.plan import codec, names
from gpucluster.plan.model import there
from gpucluster.shell import CommandError

CONF = f"{names.SLURM_DIR}/slurm.conf"
CONTROLLER, DAEMON = "slurmctld", "gpucluster-elastic"
UP_S, LOOK_S = 30.0, 0.2
RELIEVE_S = 15.0  # slurmctld 24.11 saves all and ends within 1 s
RELIEFS = 3  # a start may fail for a reason that passes
OWNER = "slurm"

log = logging.getLogger(__name__)


def offered(machine: Machine, known: Known) -> Known:
    """The bucket's bundle. One that is not whole leaves the last good one in place."""
    try:
        return bundles.fetch(machine, known)
    except StepError as error:
        return _last_good(machine, known, one_line(error))


def tried(machine: Machine, known: Known) -> Known:
    """Have slurm.conf read by Slurm's own parser before anything points at it."""
    bundle = of(known.bundle)
    if bundles.applied(machine) == bundle.digest:
        return known
    conf = {"SLURM_CONF": str(bundle.tree / CONF)}
    try:
        machine.run(["scontrol", "show", "hostnames", "x"], env=conf, timeout_s=20)
    except CommandError as error:
        words = one_line(ValueError(error.result.stderr or error.result.stdout))
        return _last_good(machine, known, f"Slurm's parser refuses slurm.conf: {words}")
    return known


def controller(machine: Machine, known: Known) -> Known:
    """Apply the bundle and have slurmctld run with it; if it does not come up, go back to the last good one."""
    bundle = of(known.bundle)
    try:
        _bring_up(machine, known, bundle)
    except (GpuclusterError, OSError) as error:
        if state.load(machine).good in ("", bundle.digest):
            raise
        known = _last_good(machine, known, one_line(error))
        _bring_up(machine, known, of(known.bundle))
    good = of(known.bundle).digest
    state.change(machine, good=good)
    bundles.prune(machine, (good, known.offered.digest if known.offered else None))
    return known


def elastic(machine: Machine, known: Known) -> Known:
    """The daemon, restarted only for another plan or other bindings."""
    wanted = bundles.mark(of(known.bundle), names.PLAN_FILE, names.BINDINGS_FILE)
    if state.load(machine).elastic != wanted or not systemd.active(machine, DAEMON):
        systemd.ensure(machine, DAEMON, restart=True)
        state.change(machine, elastic=wanted)
    return known


def ready(machine: Machine, known: Known) -> Known:
    """slurmctld answers, and the daemon listens for nodes."""
    head = there(of(known.bundle).plan.head)
    _until_up(machine, known)
    if not any(machine.listening(address, head.registration_port) for address in head.addresses):
        words = systemd.last_words(machine, DAEMON)
        raise NotYetError(
            f"the daemon does not listen on {head.registration_port} yet: {words}", limit_s=UP_S
        )
    return known


def answers(machine: Machine, known: Known) -> Known:
    """slurmctld answers, which is all that is to be waited for where no daemon launches."""
    _until_up(machine, known)
    return known


def link_files(machine: Machine, bundle: Bundle) -> None:
    """A link for each file of the bundle; links of ours that lead nowhere go."""
    etc, through = machine.place(names.SLURM_ETC), Path(names.BUNDLE_DIR) / names.SLURM_DIR
    etc.mkdir(parents=True, exist_ok=True)
    wanted = {p.name for p in (bundle.tree / names.SLURM_DIR).iterdir()}
    for name in sorted(wanted):
        link, target = etc / name, through / name
        if not (link.is_symlink() and link.readlink() == target):
            fresh = etc / f".{name}.new"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target)
            fresh.replace(link)
    for link in etc.iterdir():
        if link.is_symlink() and link.readlink().parent == through and link.name not in wanted:
            link.unlink()


def publish(
    machine: Machine, known: Known, *, ready: bool, detail: str, last: bytes, key: str = names.STATUS_KEY
) -> bytes:
    """Put the machine's status in the bucket if it is not the `last` one; return what stands there now."""
    me = of(known.identity)
    status = {
        "bundle": known.offered.digest if known.offered else "",
        "applied": bundles.applied(machine) or "",
        "ready": ready,
        "detail": detail,
        "steps": codec.to_json(state.load(machine).steps),
    }
    settled = json.dumps({**status, "steps": []}).encode()  # the seconds of a step are no news
    if settled != last:
        machine.store(me.region).put(me.bucket, key, codec.dumps(status).encode())
    return settled


def conf_values(text: str, key: str) -> Iterator[str]:
    """The values of `key` in a slurm.conf; keys have no case, `#` begins a comment."""
    for line in text.splitlines():
        if found := re.match(rf"\s*{re.escape(key)}\s*=\s*(\S+)", line.split("#")[0], re.IGNORECASE):
            yield found[1]


def _last_good(machine: Machine, known: Known, reason: str) -> Known:
    """Go on with the last bundle that worked; StepError if there is none."""
    good = bundles.stored(machine, state.load(machine).good or "none")
    if good is None:
        raise StepError(reason)
    log.warning("bundle %s is refused: %s", known.offered.digest[:12] if known.offered else "?", reason)
    return replace(known, bundle=good, refused=reason)


def _bring_up(machine: Machine, known: Known, bundle: Bundle) -> None:
    bundles.apply(machine, bundle.digest)
    link_files(machine, bundle)
    _slurm_folders(machine, bundle)
    wanted = bundles.mark(bundle, names.SLURM_DIR)
    if not systemd.active(machine, CONTROLLER):
        _relieve(machine, known)
        machine.run(["systemctl", "reset-failed", f"{CONTROLLER}.service"], check=False)
        systemd.ensure(machine, CONTROLLER)
    elif state.load(machine).slurm != wanted:
        _reconfigure(machine)
    elif not state.load(machine).relieved:
        return
    _until_up(machine, known)
    state.change(machine, slurm=wanted, relieved=0)


def _relieve(machine: Machine, known: Known) -> None:
    """Have the second head's slurmctld save all and end; its agent starts it again, and then it waits.

    Asked by slurmctld itself it hands over after 29 s, in which nobody answers, and the first reads its state
    before the second has saved it ("Old state possible", 24.11.5).
    RELIEFS times, until ours has answered: one that does not come up must leave the second's alone, the only one then.
    """
    head = there(of(known.bundle).plan.head)
    if head.standby is None or of(known.identity).role != names.ROLE_HEAD:
        return
    other = head.standby.address, head.controller_port
    times = state.load(machine).relieved
    if times >= RELIEFS or not machine.listening(*other):
        return
    state.change(machine, relieved=times + 1)
    machine.run(["scontrol", "shutdown", "slurmctld"], check=False, timeout_s=RELIEVE_S)  # 1: ours is off
    end = machine.now() + RELIEVE_S  # from here: on a busy machine the asking alone takes seconds
    while machine.listening(*other) and machine.now() < end:
        machine.pause(LOOK_S)


def _reconfigure(machine: Machine) -> None:
    """slurmctld reads its files again; it dies of some errors that the parser does not see, and says so only itself."""
    try:
        machine.run(["scontrol", "reconfigure"], timeout_s=UP_S)
    except CommandError as error:
        words = systemd.last_words(machine, CONTROLLER)
        raise NotYetError(f"slurmctld refuses the files: {words}", limit_s=UP_S) from error


def _slurm_folders(machine: Machine, bundle: Bundle) -> None:
    text = (bundle.tree / CONF).read_text()
    for folder in conf_values(text, "StateSaveLocation"):
        _folder(machine, folder, mode=0o700)
    for file in conf_values(text, "SlurmctldLogFile"):
        _folder(machine, str(Path(file).parent), mode=0o755)


def _folder(machine: Machine, path: str, *, mode: int) -> None:
    place = machine.place(path)
    if not place.is_dir():
        place.mkdir(parents=True)
        place.chmod(mode)
        machine.own(place, OWNER)


def _until_up(machine: Machine, known: Known) -> None:
    end = machine.now() + UP_S
    while not (answer := _answer(machine, known))[0]:
        if machine.now() >= end:
            raise NotYetError(f"slurmctld does not answer: {one_line(ValueError(answer[1]))}", limit_s=UP_S)
        machine.pause(LOOK_S)


def _answer(machine: Machine, known: Known) -> tuple[bool, str]:
    """Whether slurmctld answers here, and its words. With two heads a ping waits for the one that may be off."""
    head = there(of(known.bundle).plan.head)
    if head.standby is not None:
        here = of(known.identity).address
        return machine.listening(here, head.controller_port), f"nobody listens on {head.controller_port}"
    said = machine.run(["scontrol", "ping"], check=False, timeout_s=15).stdout
    return "is UP" in said, said
