"""What `gpucluster down` says about a cluster's network: what prevents its deletion, and what a long deletion waits for."""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gpucluster.cloud.network_interfaces import Blocker, Declared, Network, OccupantsPort, blockers, ids_in
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import GpuclusterError, StateError

if TYPE_CHECKING:
    from gpucluster.cli.transport import Run
    from gpucluster.engine.deployment import DeployedResource
    from gpucluster.engine.events import Progress, Report

PAUSE_S = 5.0
REPEAT_S = 30.0  # a wait without progress is reported again after this time
CLEAR_S = 10 * 60.0  # interfaces stay for minutes after their instance is terminated (T42)
JOURNAL_S = 30.0
DELETE_MINUTES = (
    60  # the longest deletion that the provider waits for, of a Lustre file system: `aws/lustre.py`
)
_KINDS = {
    "aws:ec2/vpc:Vpc": "vpcs",
    "aws:ec2/subnet:Subnet": "subnets",
    "aws:ec2/securityGroup:SecurityGroup": "groups",
}
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
EKS = "aws:eks/cluster:Cluster"

FindBlockers = Callable[[], tuple[Blocker, ...]]


class BlockedError(StateError):
    """Something in the network is not the cluster's, so AWS does not delete the network."""


def launched_by(run: "Run", report: Callable[[str], None]) -> frozenset[str]:
    """Return the instances that the daemon's journal on the head has. Without an answer the network and the tags must do."""
    from gpucluster.checks import daemon_journal
    from gpucluster.checks.check import ParseError, QueryOutput

    try:
        done = run("head", daemon_journal.QUERY.argv, JOURNAL_S)
        answer = QueryOutput(code=done.code, stdout=done.stdout, stderr=done.stderr)
        return daemon_journal.parse(answer).launched
    except (CloudError, GpuclusterError, ParseError) as error:
        report(f"the daemon's journal is not read: {error}; instances are found by network and tags alone")
        return frozenset()


def blocker_finder(
    port: OccupantsPort,
    found: "Iterable[DeployedResource]",
    name: str,
    region: str,
    *,
    data: bool,
    launched: frozenset[str] = frozenset(),
) -> FindBlockers:
    """Return a function that finds what is in the way of deleting the resources; of the retained ones, too, if `data`.

    It also finds the `launched` instances that lost their tags: nothing terminates them, so they would run on unseen.
    """
    every = tuple(found)
    network = network_of(one for one in every if data or not one.retained)
    declared = Declared(
        cluster=name,
        region=region,
        ids=frozenset(one.id for one in every) | ids_in(one.outputs for one in every),
        eks=frozenset(one.id for one in every if one.type == EKS),
        templates=frozenset(one.id for one in every if one.type == _TEMPLATE),
        launched=launched,
    )

    def look() -> tuple[Blocker, ...]:
        inside = port.occupants(network) if network else ()
        return blockers(inside, declared, port.instances(sorted(launched)) if launched else ())

    return look


def warn(look: FindBlockers, name: str, report: Callable[[str], None]) -> None:
    """Report what else is in the network before anything ends. A missing answer is no error yet: `require_clear` asks again."""
    try:
        found = look()
    except CloudError as error:
        report(f"what else is in the network of {name} is not known yet: {error}")
        return
    for one in _firm(found):
        report(f"in the network of {name}, and no node of it: {one}; next: {one.step}")


def require_no_karpenter(look: FindBlockers, name: str, region: str) -> None:
    """Raise if the cluster's Karpenter has machines: it ends them only while its pods run, and the deletion of EKS ends those."""
    found = [one for one in look() if one.karpenter]
    if not found:
        return
    ids = " ".join(one.id for one in found)
    raise StateError(
        f"{name} has machines of Karpenter, which would run on after its cluster is gone: {_listed(found)}; nothing was changed",
        next_step=f"gpucluster k8s down {name}; then: gpucluster down {name}; if the API server is gone for good, first: "
        f"aws ec2 terminate-instances --region {region} --instance-ids {ids}",
    )


def require_clear(look: FindBlockers, name: str, clock: Clock, report: Callable[[str], None]) -> None:
    """Wait for what ends by itself, for at most CLEAR_S. Raise BlockedError for what a person must end."""
    deadline, words, at = clock.now() + CLEAR_S, "", clock.now()
    while True:
        found, why = _answer(look)
        late = clock.now() > deadline
        firm = found if late else _firm(found)
        if firm:
            raise blocked(name, firm)
        if late:
            raise StateError(
                f"EC2 does not list the interfaces of {name}: {why}", next_step=f"gpucluster down {name}"
            )
        if not found and not why:
            return
        now = f"waiting for the end of {_listed(found)}" if found else f"EC2 does not list interfaces: {why}"
        if now != words or clock.now() - at >= REPEAT_S:
            report(f"{now}; at most {(deadline - clock.now()) / 60:.0f} more minutes")
            words, at = now, clock.now()
        clock.pause(PAUSE_S)


def blocked(name: str, found: tuple[Blocker, ...]) -> BlockedError:
    """Return the error that names everything in the way, and what to type."""
    lines = "".join(f"\n  {one}" for one in found)
    steps = "; ".join((*(one.step for one in found if one.step), f"gpucluster down {name}"))
    return BlockedError(
        f"{name} is not deleted: AWS deletes no subnet, security group or VPC that is in use. In use by:{lines}\n"
        f"  scaling is stopped, the nodes of {name} are terminated; nothing of this list was touched",
        next_step=f"check that nobody needs them; then: {steps}",
    )


def destroyed(
    destroy: "Callable[[Report], int]", look: FindBlockers, name: str, report: Callable[[str], None]
) -> int:
    """Run a deletion that is never silent. If it fails and something is in the way, the error names it."""
    try:
        with Watch(look, report) as watch:
            return destroy(watch.take)
    except StateError:
        raise
    except GpuclusterError as error:
        firm = _firm(_answer(look)[0])
        if firm:
            raise blocked(name, firm) from error
        raise


class Watch:
    """Print the progress of a deletion. After REPEAT_S without any it prints what is not deleted yet, and why."""

    def __init__(self, look: FindBlockers, report: Callable[[str], None]) -> None:
        self._look, self._report = look, report
        self._running: dict[str, None] = {}
        self._steps = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def take(self, step: "Progress") -> None:
        """Record one step of the engine, and print it if it has ended."""
        self._steps += 1
        what = f"{step.type.rpartition(':')[2]} {step.name}"
        if step.done:
            self._running.pop(what, None)
        elif not step.message:
            self._running[what] = None
        if step.done or step.message:
            self._report(str(step))

    def _watch(self) -> None:
        seen = 0
        while not self._over.wait(REPEAT_S):
            if self._steps == seen:
                self._say()
            seen = self._steps

    def _say(self) -> None:
        running = sorted(self._running.copy())
        what = ", ".join(running[:6]) + (f" and {len(running) - 6} more" if len(running) > 6 else "")
        self._report(
            f"still waiting for AWS: {what or 'no deletion has started'}; "
            f"the provider gives up at most {DELETE_MINUTES} minutes after the start of a deletion"
        )
        for one in _answer(self._look)[0]:
            self._report(f"  in use by {one}" + (f"; next: {one.step}" if one.step else ""))


def _answer(look: FindBlockers) -> tuple[tuple[Blocker, ...], str]:
    """Return what is in the way, or why EC2 did not answer. A refusal is an error of the caller."""
    try:
        return look(), ""
    except CloudError as error:
        if error.fault in (Fault.THROTTLED, Fault.LOST):
            return (), str(error)
        raise


def _firm(found: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
    """Return what does not go away by itself."""
    return tuple(one for one in found if not one.ends)


def _listed(found: Iterable[Blocker]) -> str:
    return ", ".join(str(one) for one in found)


def network_of(found: "Iterable[DeployedResource]") -> Network:
    """Return the VPCs, subnets and security groups among the resources."""
    ids: dict[str, list[str]] = {part: [] for part in _KINDS.values()}
    for one in found:
        if one.type in _KINDS and one.id:
            ids[_KINDS[one.type]].append(one.id)
    return Network(**{part: tuple(sorted(named)) for part, named in ids.items()})
