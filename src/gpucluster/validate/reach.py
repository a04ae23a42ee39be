"""Ways into machines: testinfra backends, each of which gets argv lists, quoted only at the last step.

- argv: any program that takes a command after it (`sandbox exec`, `nsenter`, `docker exec`);
- ssh: OpenSSH, host keys strictly from a known_hosts file, one connection a machine, closed at the end;
- paramiko: the same in Python. testinfra's own backend loads no known_hosts and takes any key; ours takes none other.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testinfra.backend.base import BaseBackend, CommandResult  # pyright: ignore[reportMissingTypeStubs] -- it ships none
from testinfra.host import Host  # pyright: ignore[reportMissingTypeStubs] -- it ships none

from gpucluster import shell
from gpucluster.checks.model import TIMED_OUT, Answer, short
from gpucluster.errors import GpuclusterError

CONNECT_S = 10
GRACE_S = (
    20.0  # a machine that does not end a question itself, as with a hung file system, is left after so long
)
SSH_FAILED = 255  # ssh's own code: it did not get there
KILLED = 137  # timeout's own code when a program had to be killed
SSH = (  # options that a user's configuration, which may name jump hosts, must not weaken
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no"),
    *("KnownHostsCommand=none", "VerifyHostKeyDNS=no", "NoHostAuthenticationForLocalhost=no"),
    *("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no"),
    *("RemoteCommand=none", "RequestTTY=no", "LogLevel=ERROR"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
)
USERS_PATH = "/usr/local/bin:/usr/bin:/bin"

Enter = Callable[[str], Sequence[str]]  # machine -> argv that runs what stands after it there, as root


class UnreachableError(GpuclusterError):
    """There is no way into `machine` now; nothing that is asked there can be judged."""

    def __init__(self, machine: str, words: str, *, next_step: str | None = None) -> None:
        super().__init__(f"{machine} cannot be reached: {words}", next_step=next_step)
        self.machine = machine


class Reach(Protocol):
    """Machines by name."""

    def host(self, machine: str) -> Host:
        """The way in; UnreachableError when there is none."""
        ...

    def close(self) -> None:
        """Leave no connection behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SshPlace:
    """Where a machine's ssh answers."""

    address: str
    user: str
    port: int = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeys:
    """Whom we trust, and who we are. `config` is an OpenSSH configuration, for jump hosts and the like."""

    known_hosts: Path
    identity: Path | None = None
    config: Path | None = None


def ask(
    reach: Reach, machine: str, argv: Sequence[str], *, limit_s: float, user: str | None, sudo: bool
) -> Answer:
    """Run `argv` on the machine as root or as `user`, for at most `limit_s`."""
    whole = ["timeout", "--kill-after=2", f"{limit_s:g}", *_as(user), *argv]
    if sudo:
        whole = ["sudo", "--non-interactive", "--", *whole]
    try:
        host = reach.host(machine)
        done = host.run(" ".join(["%s"] * len(whole)), *whole, timeout_s=limit_s + GRACE_S)
    except UnreachableError:
        raise
    except GpuclusterError as error:
        raise UnreachableError(machine, short(error.message), next_step=error.next_step) from error
    except Exception as error:  # testinfra lets through whatever its transport raises
        words = _words(error)
        step = next(step for part, step in _STEPS if part in words)
        raise UnreachableError(machine, words, next_step=step) from error
    out, err = done.stdout_bytes, done.stderr_bytes
    code = TIMED_OUT if done.rc == KILLED else done.rc
    return Answer(code=code, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"))


def _as(user: str | None) -> tuple[str, ...]:
    """No login: a profile that greets would speak into the answer, and a home may hang."""
    if user is None:
        return ()
    return ("runuser", f"--user={user}", "--", "env", "-i", "--chdir=/tmp", f"PATH={USERS_PATH}")


_CHANGED = "compare its key with the machine's own console; then ssh-keygen -R ADDRESS, and add the new key"
_NEW = (
    "ssh-keyscan ADDRESS, compare the key with the machine's own console, add it to the file of --known-hosts"
)
_STEPS = (  # a part of what ssh says, what to do
    ("has changed", _CHANGED),
    ("does not match", _CHANGED),
    ("key is known", _NEW),
    ("not found in known_hosts", _NEW),
    ("", "ssh there by hand as the spec's user; --ssh-user, --ssh-port and --identity say otherwise"),
)


def _words(error: Exception) -> str:
    """One line: OpenSSH's warning of a changed key is a page, paramiko's has both keys in it."""
    result = error.args[0] if error.args and isinstance(error.args[0], CommandResult) else None
    if result is None:
        return short(str(error).partition(": got ")[0] or type(error).__name__)
    lines = result.stderr.strip().splitlines() or ["ssh ended with 255"]
    return short(next((line for line in lines if "strict checking" in line), lines[-1]))


class ArgvBackend(BaseBackend):
    """Enter by a program: `enter` and then `sh -c COMMAND`."""

    NAME = "argv"

    def __init__(self, hostspec: str, enter: Enter) -> None:
        super().__init__(hostspec)
        self._enter = enter

    def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
        argv = [*self._enter(self.hostname), "sh", "-c", self.get_command(command, *args)]
        done = shell.run(argv, check=False, timeout_s=timeout_s)
        return self.result(done.code, command.encode(), done.stdout.encode(), done.stderr.encode())


class OpenSshBackend(BaseBackend):
    """OpenSSH without a question: an unknown or changed host key ends it."""

    NAME = "ssh"

    def __init__(self, place: SshPlace, keys: SshKeys, sockets: str) -> None:
        super().__init__(place.address)
        own = (
            f'UserKnownHostsFile="{keys.known_hosts}"',
            f"ConnectTimeout={CONNECT_S}",
            f"Port={place.port}",
        )
        shared = ("ControlMaster=auto", "ControlPersist=60s", f"ControlPath={sockets}/%C")
        self._ssh = [
            "ssh",
            *(() if keys.config is None else ("-F", str(keys.config))),
            *(() if keys.identity is None else ("-i", str(keys.identity))),
            *(word for option in (*SSH, *own, f"User={place.user}", *shared) for word in ("-o", option)),
        ]

    def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
        words = self.get_command(command, *args)
        done = shell.run([*self._ssh, "--", self.hostname, words], check=False, timeout_s=timeout_s)
        result = self.result(done.code, words.encode(), done.stdout.encode(), done.stderr.encode())
        if done.code == SSH_FAILED:
            raise RuntimeError(result)
        return result

    def close(self) -> None:
        """End the shared connection."""
        shell.run([*self._ssh, "-O", "exit", "--", self.hostname], check=False, timeout_s=10)


def paramiko_backend(place: SshPlace, keys: SshKeys) -> BaseBackend:
    """paramiko with the known_hosts file loaded and every other key refused."""
    import paramiko  # noqa: PLC0415  half a second
    from testinfra.backend.paramiko import ParamikoBackend  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    class StrictParamikoBackend(ParamikoBackend):
        """testinfra's, but for whom it trusts."""

        @functools.cached_property
        def client(self) -> paramiko.SSHClient:
            client = paramiko.SSHClient()
            client.load_host_keys(str(keys.known_hosts))
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                place.address,
                port=place.port,
                username=place.user,
                key_filename=None if keys.identity is None else str(keys.identity),
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
            )
            transport = client.get_transport()
            if transport is not None:
                transport.set_keepalive(5)
            return client

        def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
            self._limit_s = timeout_s
            return super().run(command, *args)

        def _exec_command(self, command: bytes) -> tuple[int, bytes, bytes]:
            """testinfra's waits for ever."""
            transport = self.client.get_transport()
            if transport is None:
                raise ConnectionResetError("the connection is closed")
            channel = transport.open_session(timeout=CONNECT_S)
            channel.settimeout(self._limit_s)
            channel.exec_command(command)
            out, err = b"".join(channel.makefile("rb")), b"".join(channel.makefile_stderr("rb"))
            if not channel.status_event.wait(self._limit_s):
                raise TimeoutError(f"no end within {self._limit_s:g} s")
            return channel.recv_exit_status(), out, err

        def close(self) -> None:
            if "client" in self.__dict__:
                self.client.close()

    return StrictParamikoBackend(_spec(place), timeout=CONNECT_S)


class Machines:
    """A Reach over backends that are made when first asked for."""

    def __init__(self, make: Callable[[str], BaseBackend]) -> None:
        self._make = make
        self._hosts: dict[str, Host] = {}

    def host(self, machine: str) -> Host:
        if machine not in self._hosts:
            backend = self._make(machine)
            host = Host(backend)
            backend.set_host(host)
            self._hosts[machine] = host
        return self._hosts[machine]

    def close(self) -> None:
        for host in self._hosts.values():
            end = getattr(host.backend, "close", None)
            if end is not None:
                end()
        self._hosts.clear()


def by_argv(enter: Enter) -> Machines:
    """Machines that a program enters; `enter` raises a GpuclusterError for one that is not there."""
    return Machines(lambda machine: ArgvBackend(machine, enter))


def by_ssh(places: Mapping[str, SshPlace], keys: SshKeys, *, paramiko: bool = False) -> "SshMachines":
    """Machines by ssh, with strict host keys."""
    return SshMachines(places, keys, paramiko=paramiko)


class SshMachines(Machines):
    """With a folder for the sockets of shared connections, which goes at the end."""

    def __init__(self, places: Mapping[str, SshPlace], keys: SshKeys, *, paramiko: bool) -> None:
        if not keys.known_hosts.is_file():
            raise GpuclusterError(
                f"{keys.known_hosts} is not there: host keys are never taken on trust",
                next_step=f"ssh-keyscan HOST >> {keys.known_hosts}, and compare each key with the machine's own",
            )
        self._places, self._keys, self._paramiko = places, keys, paramiko
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        super().__init__(self._backend)

    def close(self) -> None:
        super().close()
        if self._sockets is not None:
            self._sockets.cleanup()

    def _backend(self, machine: str) -> BaseBackend:
        place = self._places.get(machine)
        if place is None:
            raise UnreachableError(machine, "no address is known for it")
        if self._paramiko:
            return paramiko_backend(place, self._keys)
        if self._sockets is None:
            self._sockets = tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True)
        return OpenSshBackend(place, self._keys, self._sockets.name)


def _spec(place: SshPlace) -> str:
    address = f"[{place.address}]" if ":" in place.address else place.address
    return f"{place.user}@{address}:{place.port}"
