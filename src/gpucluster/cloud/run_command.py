"""Commands on a machine without an open port: Systems Manager's SendCommand with the document AWS-RunShellScript.

It needs no plugin of the AWS CLI. The agent of the machine runs the command as root. Facts: docs/facts/aws.md, T53.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import GpuclusterError, HostError, StateError
from gpucluster.plan import names
from gpucluster.shell import Result

DOCUMENT = "AWS-RunShellScript"
OUTPUT_MAX, ERROR_MAX = 24_000, 8_000  # characters of stdout and stderr in GetCommandInvocation
TRUNCATED = "--output truncated--"  # the agent ends a truncated output with it
DELIVERY_S = (
    60  # an agent that does not take the command by then does not run it; SendCommand takes 30 or more
)
SETTLE_S = 15.0  # GetCommandInvocation does not find a younger command, and a younger object of its output can be missing
REBOOT_CODE = 194  # the agent reboots the machine after this exit code
KILLED_CODE = 137  # the agent takes this exit code for its own time-out
TIMED_OUT_CODE = 124  # of `timeout`
_PAUSE_S, _PAUSE_MAX_S = 0.5, 3.0
_REPORT_S = 5.0  # a longer wait is reported
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_UNFINISHED = ("Pending", "InProgress", "Delayed", "Cancelling")
_RAN = ("Success", "Failed")  # the command ended by itself, with its own exit code

Clients = Callable[[str], Any]  # service -> boto3 client
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedMachine:
    """A machine that Systems Manager reaches. `bucket` is the cluster's: long output of heads goes through it; else it is empty."""

    cluster: str
    role: str
    instance: str
    region: str
    bucket: str

    def __str__(self) -> str:
        return f"the {self.role} of {self.cluster}, {self.instance} in {self.region}"


# StatusDetails of a command that did not run to its end -> what happened, and the next step
_UNRUN: Mapping[str, tuple[str, str]] = {
    "DeliveryTimedOut": (
        f"its agent did not take the command within {DELIVERY_S} s",
        "{agent}",
    ),
    "Undeliverable": ("the command cannot be delivered", "{agent}"),
    "Terminated": ("AWS ended the command before it was sent", "repeat the command"),
    "TimedOut": (
        "the command did not end within {limit:g} s",
        "repeat it; or run it on the machine: {shell}",
    ),
    "Cancelled": (
        "somebody cancelled the command",
        "repeat it; CloudTrail has the CancelCommand with its caller",
    ),
    "AccessDenied": ("the agent may not run the command", "{agent}"),
}


def aws_clients(region: str) -> Clients:
    """Return clients of boto3's session, each made once. Endpoint and keys come from the environment."""
    from gpucluster.cloud.aws import boto3_session, client_config  # noqa: PLC0415 - boto3 is slow to import

    session = boto3_session()

    @cache
    def client(service: str) -> Any:
        config = client_config(attempts=5, read_timeout_s=30)
        return session.client(service, region_name=region, config=config)

    return client


class RunCommand:
    """Runs commands on one machine. `report` gets a line for a long wait, and for output in the bucket that cannot be deleted."""

    def __init__(self, machine: ManagedMachine, clients: Clients, clock: Clock, report: Report) -> None:
        self._machine, self._clients, self._clock, self._report = machine, clients, clock, report

    def run(self, argv: Sequence[str], *, limit_s: float) -> Result:
        """Run `argv` to its end. GpuclusterError says why it did not run or did not end within `limit_s`.

        The command line is stored by AWS and shown in process lists: `argv` must hold no secret.
        """
        command = self._send(argv, limit_s)
        try:
            found = self._wait(command, limit_s)
            out = self._text(command, "stdout", found["StandardOutputContent"], OUTPUT_MAX)
            err = self._text(command, "stderr", found["StandardErrorContent"], ERROR_MAX)
        finally:
            self._delete(command)
        return Result(tuple(argv), int(found["ResponseCode"]), out, err)

    def _send(self, argv: Sequence[str], limit_s: float) -> str:
        answer = self._ask(
            "ssm",
            "send_command",
            InstanceIds=[self._machine.instance],
            DocumentName=DOCUMENT,
            Comment="gpucluster",
            Parameters={"commands": [script(argv)], "executionTimeout": [f"{limit_s:.0f}"]},
            TimeoutSeconds=DELIVERY_S,
            **self._output(),
        )
        return str(answer["Command"]["CommandId"])

    def _output(self) -> Mapping[str, str]:
        bucket = self._machine.bucket
        return {"OutputS3BucketName": bucket, "OutputS3KeyPrefix": names.COMMAND_OUTPUT} if bucket else {}

    def _wait(self, command: str, limit_s: float) -> Mapping[str, Any]:
        """Poll until the command has ended. A command that is younger than SETTLE_S may be unknown."""
        begun, pause, reported = self._clock.now(), _PAUSE_S, False
        status = "unknown"
        while True:
            found = self._invocation(command, young=self._clock.now() - begun < SETTLE_S)
            status = status if found is None else str(found["Status"])
            if found is not None and status not in _UNFINISHED:
                return self._ended(found, limit_s)
            waited = self._clock.now() - begun
            if waited > limit_s + DELIVERY_S + SETTLE_S:
                raise StateError(
                    f"{self._machine}: command {command} has the status {status} after {waited:.0f} s,"
                    f" expected its end within {limit_s:g} s",
                    next_step=self._agent_line(),
                )
            if waited > _REPORT_S and not reported:
                self._report(f"waiting for {self._machine}: its command is {status}, limit {limit_s:g} s")
                reported = True
            self._clock.pause(pause)
            pause = min(pause * 1.5, _PAUSE_MAX_S)

    def _invocation(self, command: str, *, young: bool) -> Mapping[str, Any] | None:
        unknown = ("InvocationDoesNotExist",) if young else ()
        place = {"CommandId": command, "InstanceId": self._machine.instance}
        return self._ask("ssm", "get_command_invocation", absent=unknown, **place)

    def _ended(self, found: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        details = str(found.get("StatusDetails") or found["Status"]).replace(" ", "")
        if details in _RAN and int(found["ResponseCode"]) >= 0:
            return found
        what, step = _UNRUN.get(details, (f"the command ended with the status {details}", "{agent}"))
        shell = f"aws ssm start-session --region {self._machine.region} --target {self._machine.instance}"
        values = {"limit": limit_s, "agent": self._agent_line(), "shell": shell}
        raise StateError(f"{self._machine}: {what.format(**values)}", next_step=step.format(**values))

    def _text(self, command: str, stream: str, shown: str, most: int) -> str:
        """The whole output: the answer holds the first characters, the bucket holds the rest."""
        if len(shown) < most and not shown.endswith(TRUNCATED):
            return shown
        if not self._machine.bucket:
            raise StateError(
                f"{self._machine}: {stream} has more than {most} characters, and only a head may write them to the bucket",
                next_step="let the command print less, for example with tail",
            )
        key, begun = (
            f"{self._folder(command)}awsrunShellScript/0.awsrunShellScript/{stream}",
            self._clock.now(),
        )
        while True:
            bucket = self._machine.bucket
            found = self._ask("s3", "get_object", absent=("NoSuchKey",), Bucket=bucket, Key=key)
            if found is not None:
                return bytes(found["Body"].read()).decode(errors="replace")
            if self._clock.now() - begun > SETTLE_S:
                raise StateError(
                    f"{self._machine}: {stream} has more than {most} characters, and the agent wrote no"
                    f" s3://{bucket}/{key}",
                    next_step="pulumi up gives the head the right to write it; or run the command on the head",
                )
            self._clock.pause(_PAUSE_MAX_S)

    def _delete(self, command: str) -> None:
        """Delete the output with all versions: the bucket is versioned."""
        bucket, prefix = self._machine.bucket, self._folder(command)
        if not bucket:
            return
        try:
            listed = self._ask("s3", "list_object_versions", Bucket=bucket, Prefix=prefix)
            for one in listed.get("Versions", ()):
                version = {"Key": one["Key"], "VersionId": one["VersionId"]}
                self._ask("s3", "delete_object", Bucket=bucket, **version)
        except GpuclusterError as error:
            self._report(f"the output of the command stays at s3://{bucket}/{prefix}: {error.message}")

    def _folder(self, command: str) -> str:
        return f"{names.COMMAND_OUTPUT}/{command}/{self._machine.instance}/"

    def _ask(self, service: str, call: str, *, absent: Sequence[str] = (), **given: Any) -> Any:
        client = self._clients(service)
        return asked(str(self._machine), lambda: getattr(client, call)(**given), absent, self._agent_line())

    def _agent_line(self) -> str:
        return (
            f"aws ssm describe-instance-information --region {self._machine.region} --filters"
            f" Key=InstanceIds,Values={self._machine.instance}; an empty list: its agent is not registered"
            " (docs/aws.md, Session Manager)"
        )


def script(argv: Sequence[str]) -> str:
    """Return the shell script of a command.

    - Systems Manager replaces `{{ssm:NAME}}` by a parameter of the account, so no two braces stand side by side.
    - The agent reboots the machine after exit code 194, so that code becomes 1.
    - The agent reports exit code 137 as its own time-out, without the command's result, so that code becomes 124.
    """
    line = shlex.join(argv).replace("{", "{''")  # shlex quotes a word with a brace by single quotes
    told = f"[ $code -ne {REBOOT_CODE} ] || code=1\n[ $code -ne {KILLED_CODE} ] || code={TIMED_OUT_CODE}"
    return f"{line}\ncode=$?\n{told}\nexit $code"


def asked(
    where: str, call: Callable[[], Any], absent: Sequence[str] = (), agent_line: str | None = None
) -> Any:
    """Return the answer of AWS; None for an error code in `absent`."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

    try:
        return call()
    except ClientError as error:
        found = cast("Mapping[str, Any]", error.response).get("Error", {})
        code, text = str(found.get("Code", "")), str(found.get("Message", ""))
        if code in absent:
            return None
        raise _refused(where, code, text, agent_line) from error
    except BotoCoreError as error:
        raise HostError(
            f"{where}: AWS cannot be asked: {error}",
            next_step="aws sts get-caller-identity shows whether keys and network work",
        ) from error


def _refused(where: str, code: str, text: str, agent_line: str | None) -> GpuclusterError:
    if code in _DENIED:
        return HostError(
            f"{where}: AWS refused: {text}",
            next_step="attach the policy of gpucluster plan SPEC --operator-policy commands (docs/aws.md)",
        )
    if code == "InvalidInstanceId":
        return StateError(
            f"{where}: Systems Manager has no running agent of it: the machine is stopped, terminated or not registered",
            next_step=agent_line,
        )
    return GpuclusterError(f"{where}: AWS refused: {code}: {text}", next_step=agent_line)
