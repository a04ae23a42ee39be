"""A node: from power on to slurmd, then a heartbeat for as long as it lives."""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from gpucluster.errors import GpuclusterError
from gpucluster.node import (
    accounts,
    bundles,
    directory,
    farewell,
    guard,
    identity,
    job_role,
    job_tokens,
    key,
    mounts,
    naming,
    register,
    selfend,
    slurmd,
    state,
    steps,
)
from gpucluster.node.doorbell import Doorbell, Ring
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine
from gpucluster.node.walk import StoppedError, Table, one_line, walk
from gpucluster.plan.messages import NodePhase


def mounted(machine: Machine, known: Known) -> Known:
    """The file systems. What is waited for is told at each try, or the boot's limit would pass without a reason."""
    if any(step.name == "mounts" and not step.ok for step in state.load(machine).steps):
        with contextlib.suppress(GpuclusterError, OSError):
            register.ask(machine, known, NodePhase.BOOTING)
    return mounts.attached(machine, known)


SETTLE: Table = (  # again at each answer: each does nothing if all is so already
    ("hostname", naming.node),
    ("devices", slurmd.devices),
    ("slurmd", slurmd.run),
)
BOOT: Table = (
    ("guard", guard.strict),
    ("machine", identity.find),
    ("bundle", bundles.fetch_and_apply),
    ("key", key.take),
    ("name", register.name),
    ("mounts", mounted),
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("jobs", job_role.offered),
    *SETTLE,
)
UNTOLD_BEAT_S = 30.0  # between two words of a failure, while no answer says how often
SHORTEST_BEAT_S = 0.1
RESOLVE_TRIES, RESOLVE_S = 10, 0.2  # the Prolog waits 5 s

log = logging.getLogger(__name__)


def live(machine: Machine, bell: Doorbell) -> None:
    """Boot, then beat until the machine ends; after a failure, say so until it ends."""
    state.save(machine, state.load(machine))
    try:
        known = walk(machine, BOOT, Known(), until=lambda known: _end_of_patience(machine, known))
    except StoppedError as failure:
        log.warning("this node cannot join: %s", failure)
        mourn(machine, failure.known)
        return
    known = beat(machine, known)
    while not end_if_due(machine, known):
        ring = bell.wait(max(of(known.answer).heartbeat_s, SHORTEST_BEAT_S))
        known = beat(machine, known)
        if ring is not None:
            known = _answer(machine, known, bell, ring)


def beat(machine: Machine, known: Known) -> Known:
    """One heartbeat, the site's farewell if this machine or the controller heard of its end, and new people."""
    known = _beat(machine, known)
    try:
        farewell.run(machine, known)
    except (GpuclusterError, OSError) as error:
        log.warning("farewell: %s", one_line(error))
    with contextlib.suppress(OSError):
        job_tokens.sweep(machine)
    try:
        return accounts.followed(machine, known)
    except (GpuclusterError, OSError) as error:
        log.warning("users: %s", one_line(error))
    return known


def mourn(machine: Machine, known: Known) -> None:
    """Tell of the failure, by the key if there is one, until it is time to end."""
    while not end_if_due(machine, known):
        try:
            known = known if known.bundle else _found_head(machine, known)
            keyed = any(step.name == "key" and step.ok for step in state.load(machine).steps)
            if keyed:
                register.ask(machine, known, NodePhase.FAILED)
            else:
                register.tell_failed(machine, known)
        except (GpuclusterError, OSError) as error:
            log.warning("nobody hears of the failure: %s", one_line(error))
        machine.pause(known.bundle.plan.times.heartbeat_s if known.bundle else UNTOLD_BEAT_S)


def end_if_due(machine: Machine, known: Known) -> bool:
    """Power off a machine that no controller answers and no job uses; the cloud takes that as its end."""
    kept, busy = state.load(machine), bool(steps.jobs(machine))
    plan = known.bundle.plan if known.bundle else None
    silent_s = machine.now() - kept.heard_at
    if busy and silent_s > 0:
        state.change(machine, heard_at=machine.now())
    if not selfend.due(plan=plan, node=kept.node, silent_s=silent_s, steps_running=busy):
        return False
    log.warning("no controller and no job for %.0f s: this machine ends itself", silent_s)
    machine.run(["systemctl", "poweroff"], check=False)
    return True


def _beat(machine: Machine, known: Known) -> Known:
    """Tell, hear, and make it so. A controller that does not answer changes nothing here."""
    try:
        heard = replace(known, answer=register.ask(machine, known, NodePhase.UP))
        kept, answer = state.load(machine), of(heard.answer)
        heard = walk(machine, SETTLE, heard, until=lambda _: machine.now())
        if (kept.running, kept.life) != (answer.node, answer.life):
            heard = replace(heard, answer=register.ask(machine, heard, NodePhase.UP))
        return heard
    except (GpuclusterError, OSError) as error:
        log.warning("heartbeat: %s", one_line(error))
        return known


def _answer(machine: Machine, known: Known, bell: Doorbell, ring: Ring) -> Known:
    """Ask until every name of the job resolves here, or the tries are over; the job starts either way."""
    wanted, tries = _expanded(ring.hostlist), RESOLVE_TRIES
    while (missing := wanted - naming.known_names(machine)) and tries:
        machine.pause(RESOLVE_S)
        known, tries = beat(machine, known), tries - 1
    if missing:
        log.warning("names that the controller does not tell: %s", ",".join(sorted(missing)[:20]))
    bell.answer(ring, "ok")
    return known


def _expanded(hostlist: str) -> frozenset[str]:
    # imported with the first job: it costs 50 ms
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    try:
        return frozenset(cast("Iterable[str]", NodeSet(hostlist)))
    except NodeSetException:
        return frozenset()


def _found_head(machine: Machine, known: Known) -> Known:
    """The bundle says where the controller is; a failure may have come before it was fetched."""
    known = known if known.identity else identity.find(machine, known)
    return bundles.fetch(machine, known)


def _end_of_patience(machine: Machine, known: Known) -> float:
    plan = known.bundle.plan if known.bundle else None
    return state.load(machine).heard_at + selfend.limit_s(plan)
