"""Asking the controller who this machine is. The same question is the heartbeat."""

import re
import secrets
from dataclasses import replace

from gpucluster.node import beats, state, tail
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError, Reply
from gpucluster.node.walk import one_line
from gpucluster.plan import codec
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport
from gpucluster.plan.model import Head, there

NODE_PATH, FAILED_PATH = "/v1/node", "/v1/failed"
READER = "slurm"  # only the daemon's user may decode the credential
REFUSED_S = (
    20.0  # a munged that starts anew refuses for a moment; the controller's own doubts it answers with 503
)
CONTROLLER = re.compile(r"[A-Za-z0-9.:-]+:[0-9]{1,5}")


def name(machine: Machine, known: Known) -> Known:
    """The step: the name and the life that slurmd is to run with."""
    return replace(known, answer=ask(machine, known, NodePhase.BOOTING))


def ask(machine: Machine, known: Known, phase: NodePhase) -> NodeAnswer:
    """Say where we stand, hear who we are. NotYetError if nobody answers, for long or (not ours) for a while."""
    head = there(of(known.bundle).plan.head)
    argv = ["munge", f"--restrict-uid={READER}"]
    payload = codec.dumps(report(machine, known, phase))
    credential = machine.run(argv, stdin=payload, timeout_s=10).stdout
    answer = _answer(_posted(machine, head, credential.encode()), known)
    state.change(machine, heard_at=machine.now())
    return answer


def tell_failed(machine: Machine, known: Known) -> None:
    """Without a key: say in plain which step failed. Nobody may be there to hear it."""
    head = there(of(known.bundle).plan.head)
    body = codec.dumps(report(machine, known, NodePhase.FAILED)).encode()
    machine.post(head.address, head.registration_port, FAILED_PATH, body)


def report(machine: Machine, known: Known, phase: NodePhase) -> NodeReport:
    """Where this machine stands."""
    kept, heard = state.load(machine), machine.heard()
    awaited = known.answer is not None and known.answer.awaited
    return NodeReport(
        instance_id=of(known.identity).instance_id,
        nonce=secrets.token_hex(16),
        boot_id=kept.boot_id,
        phase=phase,
        life=kept.life,
        steps=kept.steps,
        tail=tail.of(machine, kept, phase, awaited=awaited),
        notices=heard.notices,
        faults=heard.faults,
        beats=beats.read(machine),
        watched=heard.watched,
        clock=machine.clock(),
    )


def _posted(machine: Machine, head: Head, body: bytes) -> Reply:
    """Ask the head, then the standby: the daemon listens on one of them."""
    said = ""
    for address in head.addresses:
        try:
            return machine.post(address, head.registration_port, NODE_PATH, body)
        except OSError as error:
            said = said or f"the controller at {address}:{head.registration_port} does not answer: {error}"
    raise NotYetError(said)


def _answer(reply: Reply, known: Known) -> NodeAnswer:
    if reply.status == 403:
        raise NotYetError(f"the controller does not know this machine{_said(reply)}", limit_s=REFUSED_S)
    if reply.status != 200:
        raise NotYetError(f"the controller answered {reply.status}{_said(reply)}")
    try:
        answer = codec.loads(NodeAnswer, reply.body)
    except ValueError as error:
        raise NotYetError(f"the controller's answer cannot be read: {error}") from error
    if of(known.bundle).plan.pool_of(answer.node) is None:
        raise NotYetError(f"the controller names this machine {answer.node!r}, which this plan does not have")
    if not CONTROLLER.fullmatch(answer.controller):
        raise NotYetError(f"the controller says that slurmctld is at {answer.controller!r}")
    return answer


def _said(reply: Reply) -> str:
    """The answer's own words; they come from the network, so they are made one plain line."""
    words = one_line(ValueError(reply.body[:400].decode(errors="replace")))
    return f": {words}" if reply.body else ""
