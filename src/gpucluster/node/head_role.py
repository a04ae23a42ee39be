"""The head: key, Slurm's files, slurmctld, the elastic daemon; then a look at the bundle now and then."""

import logging

from gpucluster.errors import GpuclusterError
from gpucluster.node import (
    accounts,
    controller,
    directory,
    disks,
    exports,
    guard,
    identity,
    key,
    mounts,
    naming,
    state,
)
from gpucluster.node.known import Known
from gpucluster.node.machine import Machine
from gpucluster.node.walk import StoppedError, Table, one_line, walk
from gpucluster.plan import names

STORAGE: Table = (
    ("volumes", disks.volumes),
    ("exports", exports.served),
    ("mounts", mounts.attached),
    ("state", disks.state),
)
FOLLOW: Table = (  # again at each look: each does nothing if all is so already
    ("bundle", controller.offered),
    ("slurm", controller.tried),
    ("hostname", naming.head),
    *STORAGE,
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("controller", controller.controller),
    ("elastic", controller.elastic),
    ("ready", controller.ready),
)
BOOT: Table = (
    ("guard", guard.strict),
    ("machine", identity.find),
    ("guard-daemon", guard.with_daemon),
    ("bundle", controller.offered),
    ("key", key.make_or_take),
    *FOLLOW[1:],
)
LOOK_S = 60.0  # while the plan does not say
TELL_S = 120.0  # a step that waits longer is published as the reason

log = logging.getLogger(__name__)


def live(machine: Machine) -> None:
    """Never returns: boot until it succeeds, then follow the bundle."""
    state.save(machine, state.load(machine))
    known, table, last = Known(), BOOT, b""
    while True:
        known, done, last = look(machine, table, known, last)
        table = FOLLOW if done else table
        machine.pause(known.bundle.plan.times.reconcile_s if known.bundle else LOOK_S)


def look(
    machine: Machine, table: Table, known: Known, last: bytes, *, key: str = names.STATUS_KEY
) -> tuple[Known, bool, bytes]:
    """Walk once and publish how it went; return what is known, whether all steps were done, what stands published."""
    deadline = machine.now() + TELL_S
    try:
        known, done, detail = walk(machine, table, known, until=lambda _: deadline), True, ""
    except StoppedError as failure:
        known, done, detail = failure.known, False, one_line(failure)
        log.warning("this machine is not ready: %s", detail)
    if known.refused:
        detail = f"the offered bundle is not applied: {known.refused}"
    if known.identity is None:
        return known, done, last
    try:
        ready = done and not known.refused
        last = controller.publish(machine, known, ready=ready, detail=detail, last=last, key=key)
    except (GpuclusterError, OSError) as error:
        log.warning("the status cannot be published: %s", one_line(error))
    return known, done, last
