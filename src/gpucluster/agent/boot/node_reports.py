"""Reports of a node to the elastic daemon. The answer has the node name, so a report is registration and heartbeat."""

import re
import secrets
from dataclasses import replace

from gpucluster.agent.boot import boot_state, systemd
from gpucluster.agent.boot.boot_state import BootState, SavedState, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.credentials import job_steps
from gpucluster.agent.machine import Machine, NotYetError, Reply
from gpucluster.agent.monitors import job_heartbeats
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport, RunAnswer, RunQuestion
from gpucluster.plan.model import Head
from gpucluster.text import ascii_line

NODE_PATH, FAILED_PATH, RUN_PATH = "/v1/node", "/v1/failed", "/v1/run"
READER = "slurm"  # only the daemon's user may decode the credential
REFUSED_S = 20.0  # a munged that restarts on the head causes 403 for a moment; temporary faults answer 503
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
CONTROLLER = re.compile(r"[A-Za-z0-9.:-]+:[0-9]{1,5}")
TAIL_LINES, TAIL_WIDTH = 20, 160
JOURNAL = ("journalctl", "--boot", "--no-pager", "--quiet", "--output=cat", f"--lines={TAIL_LINES}")


def register(machine: Machine, state: BootState) -> BootState:
    """The step of the boot: get the node name and the incarnation for slurmd."""
    return replace(state, answer=send(machine, state, NodePhase.BOOTING))


def send(machine: Machine, state: BootState, phase: NodePhase) -> NodeAnswer:
    """Send a report and return the answer. NotYetError if no controller answers; after REFUSED_S of refusals the step fails."""
    head = require(state.bundle).plan.head
    credential = _credential(machine, build(machine, state, phase))
    answer = _answer(_post(machine, head, NODE_PATH, credential), state)
    boot_state.update(machine, last_contact_at=machine.now())
    return answer


def send_failure(machine: Machine, state: BootState) -> None:
    """Report the failed step in plain text, because without a key munge cannot sign the report. OSError if there is no answer."""
    head = require(state.bundle).plan.head
    body = codec.message(build(machine, state, NodePhase.FAILED)).encode()
    machine.post(head.address, head.registration_port, FAILED_PATH, body)


def runs_begun(machine: Machine, state: BootState, job: int, restarts: int) -> int:
    """Ask the daemon how many runs of the job began before this one. NotYetError without an answer."""
    instance = require(state.identity).instance_id
    question = RunQuestion(instance_id=instance, nonce=secrets.token_hex(16), job=job, restarts=restarts)
    reply = _post(machine, require(state.bundle).plan.head, RUN_PATH, _credential(machine, question))
    if reply.status != 200:
        raise NotYetError(f"the controller answered {reply.status}{_text(reply)}")
    try:
        return codec.loads_known(RunAnswer, reply.body).begun
    except ValueError as error:
        raise NotYetError(f"the controller's answer cannot be read: {error}") from error


def _credential(machine: Machine, message: NodeReport | RunQuestion) -> bytes:
    argv = ["munge", f"--restrict-uid={READER}"]
    return machine.run(argv, stdin=codec.message(message), timeout_s=10).stdout.encode()


def build(machine: Machine, state: BootState, phase: NodePhase) -> NodeReport:
    """Return the report of this machine."""
    saved, health = boot_state.load(machine), machine.health()
    awaited = state.answer is not None and state.answer.awaited
    return NodeReport(
        instance_id=require(state.identity).instance_id,
        nonce=secrets.token_hex(16),
        boot_id=saved.boot_id,
        phase=phase,
        incarnation=saved.incarnation,
        steps=saved.steps,
        tail=log_tail(machine, saved, phase, awaited=awaited),
        notices=health.notices,
        faults=health.faults,
        heartbeats=job_heartbeats.read(machine),
        watched=health.watched,
        clock=machine.clock(),
        without_script=_without_script(machine, state),
        slurmd_down_s=systemd.down_s(machine, "slurmd") if saved.slurmd_node else None,
    )


def _without_script(machine: Machine, state: BootState) -> tuple[int, ...]:
    expected = set(state.answer.batch_jobs) if state.answer else set[int]()
    return tuple(sorted(expected - job_steps.batch_jobs(machine))) if expected else ()


def log_tail(machine: Machine, saved: SavedState, phase: NodePhase, *, awaited: bool) -> str:
    """Return the last log lines of agent and slurmd if a step failed or Slurm waits for the node; else an empty text.

    `awaited`: slurmd has not registered with slurmctld yet.
    """
    failed = phase is NodePhase.FAILED or any(not step.ok for step in saved.steps)
    if not failed and not (phase is NodePhase.UP and saved.slurmd_node and awaited):
        return ""
    argv = [*JOURNAL, f"--unit={names.AGENT_UNIT}", "--unit=slurmd.service"]
    try:
        log = machine.run(argv, timeout_s=5, check=False).stdout
    except (GpuclusterError, OSError):
        return ""
    return "\n".join(ascii_line(line, TAIL_WIDTH) for line in log.splitlines()[-TAIL_LINES:])


def _post(machine: Machine, head: Head, path: str, body: bytes) -> Reply:
    """Send to the head, then to the standby: the daemon listens on one of them."""
    first_error = ""
    for address in head.addresses:
        try:
            return machine.post(address, head.registration_port, path, body)
        except OSError as error:
            first_error = (
                first_error
                or f"the controller at {address}:{head.registration_port} does not answer: {error}"
            )
    raise NotYetError(first_error)


def _answer(reply: Reply, state: BootState) -> NodeAnswer:
    if reply.status == 403:
        raise NotYetError(f"the controller does not know this machine{_text(reply)}", limit_s=REFUSED_S)
    if reply.status != 200:
        raise NotYetError(f"the controller answered {reply.status}{_text(reply)}")
    try:
        answer = codec.loads_known(NodeAnswer, reply.body)
    except ValueError as error:
        raise NotYetError(f"the controller's answer cannot be read: {error}") from error
    if not _is_ours(state, answer.node):
        raise NotYetError(f"the controller calls this machine {answer.node!r}, and the plan has no such node")
    if not CONTROLLER.fullmatch(answer.controller):
        raise NotYetError(
            f"the controller's answer has slurmctld at {answer.controller!r}, expected HOST:PORT"
        )
    return answer


def _is_ours(state: BootState, node: str) -> bool:
    """Return whether the name can be ours. At a boot our bundle may be newer than that of a head that holds it."""
    if require(state.bundle).plan.pool_of(node) is not None:
        return True
    return bool(NODE.fullmatch(node)) and (state.answer is None or state.answer.node == node)


def _text(reply: Reply) -> str:
    """Return the text of the answer as one printable line, because it comes from the network."""
    words = one_line(ValueError(reply.body[:400].decode(errors="replace")))
    return f": {words}" if reply.body else ""
