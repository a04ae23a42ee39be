"""The commands of Systems Manager, and the agents of machines that run them (T53)."""

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpucluster import shell

OUTPUT_MAX, ERROR_MAX = 24_000, 8_000  # characters of stdout and stderr in GetCommandInvocation
TRUNCATED = "--output truncated--"
# Of a script that its agent kills at the limit. A script's own 137 looks the same to the agent.
KILLED_CODE = 137

Outcome = tuple[int, str, str]  # exit code, stdout, stderr
Shell = Callable[[str, float], Outcome]  # runs a script of sh as root; KILLED_CODE after so many seconds
Agents = Callable[[str], Shell | None]  # by instance id; None while the machine does not run
Upload = Callable[[str, str, str], None]  # instance id, key, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command on one instance. `code` is -1 until it has run."""

    instance: str
    status: str = "Pending"
    details: str = "Pending"
    code: int = -1
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What was sent. `bucket` and `prefix` are empty if output goes to no bucket."""

    id: str
    document: str
    script: str
    limit_s: float
    sent_at: float
    comment: str = ""
    bucket: str = ""
    prefix: str = ""

    def key(self, instance: str, stream: str) -> str:
        """The key of an output in the bucket, as the agent names it."""
        folder = f"{self.prefix}/" if self.prefix else ""
        return f"{folder}{self.id}/{instance}/awsrunShellScript/0.awsrunShellScript/{stream}"


def run_script(argv: Sequence[str], limit_s: float) -> Outcome:
    """Run a script to its end as an agent does: at the limit it is killed."""
    try:
        done = shell.run(argv, check=False, timeout_s=limit_s)
    except shell.CommandError as error:
        late = error.result.code == shell.TIMED_OUT
        return KILLED_CODE if late else error.result.code, "", error.result.stderr
    return done.code, done.stdout, done.stderr


def no_machines(_: str) -> Shell | None:
    """The agents of a cloud without machines: none."""
    return None


@dataclass(slots=True)
class Commands:
    """All commands of the account. Each runs in a thread, and only immutable values leave."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sent: dict[str, Command] = field(default_factory=dict[str, Command])
    _states: dict[tuple[str, str], Invocation] = field(default_factory=dict[tuple[str, str], Invocation])

    def send(self, command: Command, instances: Sequence[str], agents: Agents, upload: Upload) -> None:
        """Start the command on each instance."""
        with self._lock:
            self._sent[command.id] = command
            for one in instances:
                self._states[command.id, one] = Invocation(instance=one)
        for one in instances:
            arguments = (command, one, agents, upload)
            threading.Thread(
                target=self._run, args=arguments, name=f"ssm-{command.id[:8]}", daemon=True
            ).start()

    def find(self, command_id: str) -> Command | None:
        """The command of that id."""
        return self._sent.get(command_id)

    def all(self) -> tuple[Command, ...]:
        """Every command, the newest first."""
        return tuple(reversed(self._sent.values()))

    def invocations(self, command_id: str) -> tuple[Invocation, ...]:
        """The command on each of its instances."""
        with self._lock:
            return tuple(one for (known, _), one in self._states.items() if known == command_id)

    def cancel(self, command_id: str, instances: Sequence[str]) -> None:
        """Mark what has not ended; as on AWS, the process on the machine may go on."""
        with self._lock:
            for key, one in self._states.items():
                wanted = key[0] == command_id and (not instances or key[1] in instances)
                if wanted and one.status in ("Pending", "InProgress"):
                    self._states[key] = replace(one, status="Cancelled", details="Cancelled")

    def _run(self, command: Command, instance: str, agents: Agents, upload: Upload) -> None:
        self._set(command, Invocation(instance=instance, status="InProgress", details="InProgress"))
        run = agents(instance)
        if run is None:  # it ended between SendCommand and now
            self._set(command, Invocation(instance=instance, status="Failed", details="Undeliverable"))
            return
        code, out, err = run(command.script, command.limit_s)
        if command.bucket:
            for stream, text in (("stdout", out), ("stderr", err)):
                if text:
                    upload(instance, command.key(instance, stream), text)
        self._set(command, _ended(instance, code, out, err))

    def _set(self, command: Command, after: Invocation) -> None:
        with self._lock:
            if self._states[command.id, after.instance].status != "Cancelled":
                self._states[command.id, after.instance] = after


def _ended(instance: str, code: int, out: str, err: str) -> Invocation:
    shown = {"stdout": _cut(out, OUTPUT_MAX), "stderr": _cut(err, ERROR_MAX)}
    status = {0: "Success", KILLED_CODE: "TimedOut"}.get(code, "Failed")
    return Invocation(instance=instance, status=status, details=status, code=code, **shown)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - len(TRUNCATED)] + TRUNCATED


def new_id() -> str:
    """The id of a command."""
    return str(uuid.uuid4())
