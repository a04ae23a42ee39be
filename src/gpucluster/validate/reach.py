"""Connections to machines: testinfra backends. Each takes a list of arguments and quotes them at the last step.

- argv: a program that takes a command as its last arguments (`sandbox exec`, `nsenter`, `docker exec`);
- ssh: OpenSSH with strict host keys from a known_hosts file; one shared connection for each machine, closed at the end;
- paramiko: the same in Python. testinfra's own backend accepts any host key; ours loads known_hosts and refuses all others.
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
from gpucluster.checks.check import TIMED_OUT, QueryOutput
from gpucluster.errors import GpuclusterError
from gpucluster.text import short

CONNECT_S = 10
GRACE_S = 20.0  # after the query's own limit, for example when a file system hangs
NO_CONNECTION = 255  # the exit code of ssh and of `sandbox exec` themselves: the connection failed or ended
KILLED = 137  # the exit code of coreutils' timeout after SIGKILL
SSH = (  # the user's configuration may name jump hosts, but must not weaken these options
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no"),
    *("KnownHostsCommand=none", "VerifyHostKeyDNS=no", "NoHostAuthenticationForLocalhost=no"),
    *("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no"),
    *("RemoteCommand=none", "RequestTTY=no", "LogLevel=ERROR"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
)
USERS_PATH = "/usr/local/bin:/usr/bin:/bin"

Enter = Callable[[str], Sequence[str]]  # machine -> argv that runs the following words there, as root


class UnreachableError(GpuclusterError):
    """The machine cannot be reached now, so no check there has a result."""

    def __init__(self, machine: str, words: str, *, next_step: str | None = None) -> None:
        super().__init__(f"{machine} cannot be reached: {words}", next_step=next_step)
        self.machine = machine


class Reach(Protocol):
    """Connections to machines by name."""

    def host(self, machine: str) -> Host:
        """The machine as a testinfra host; UnreachableError if there is no connection."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class KnownAway:
    """A Reach in which one machine was away already: it is not tried again, because each attempt takes seconds."""

    def __init__(self, reach: Reach, away: UnreachableError) -> None:
        self._reach, self._away = reach, away

    def host(self, machine: str) -> Host:
        """See Reach."""
        if machine == self._away.machine:
            raise self._away
        return self._reach.host(machine)

    def close(self) -> None:
        """See Reach."""
        self._reach.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """The address, user and port of a machine's ssh."""

    address: str
    user: str
    port: int = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeys:
    """The trusted host keys and our own key. `config` is an OpenSSH configuration, for example with jump hosts."""

    known_hosts: Path
    identity: Path | None = None
    config: Path | None = None


def ask(
    reach: Reach, machine: str, argv: Sequence[str], *, limit_s: float, user: str | None, sudo: bool
) -> QueryOutput:
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
    except Exception as error:  # testinfra does not wrap the errors of its transports
        words = _words(error)
        step = next(step for part, step in _STEPS if part in words)
        raise UnreachableError(machine, words, next_step=step) from error
    out, err = done.stdout_bytes, done.stderr_bytes
    code = TIMED_OUT if done.rc == KILLED else done.rc
    return QueryOutput(code=code, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"))


def _as(user: str | None) -> tuple[str, ...]:
    """No login shell: a profile can print text into the answer, and a home directory can hang."""
    if user is None:
        return ()
    return ("runuser", f"--user={user}", "--", "env", "-i", "--chdir=/tmp", f"PATH={USERS_PATH}")


_CHANGED = "compare its key with the machine's own console; then ssh-keygen -R ADDRESS, and add the new key"
_NEW = (
    "ssh-keyscan ADDRESS, compare the key with the machine's own console, add it to the file of --known-hosts"
)
_STEPS = (  # a part of the error of ssh -> the next step
    ("has changed", _CHANGED),
    ("does not match", _CHANGED),
    ("key is known", _NEW),
    ("not found in known_hosts", _NEW),
    ("", "ssh there by hand as the spec's user; --ssh-user, --ssh-port and --identity say otherwise"),
)


def _words(error: Exception) -> str:
    """The error in one line: OpenSSH warns of a changed key with a page of text, paramiko with both keys."""
    result = error.args[0] if error.args and isinstance(error.args[0], CommandResult) else None
    if result is None:
        return short(str(error).partition(": got ")[0] or type(error).__name__)
    lines = result.stderr.strip().splitlines() or ["ssh ended with 255"]
    return short(next((line for line in lines if "strict checking" in line), lines[-1]))


class ArgvBackend(BaseBackend):
    """A program as the connection: `enter`, then `sh -c COMMAND`."""

    NAME = "argv"

    def __init__(self, hostspec: str, enter: Enter) -> None:
        super().__init__(hostspec)
        self._enter = enter

    def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
        argv = [*self._enter(self.hostname), "sh", "-c", self.get_command(command, *args)]
        done = shell.run(argv, check=False, timeout_s=timeout_s)
        if done.code == NO_CONNECTION:
            lines = done.stderr.strip().splitlines() or [f"the connection ended with {NO_CONNECTION}"]
            raise UnreachableError(self.hostname, short(lines[-1]))
        return self.result(done.code, command.encode(), done.stdout.encode(), done.stderr.encode())


class OpenSshBackend(BaseBackend):
    """OpenSSH without prompts: an unknown or changed host key is an error."""

    NAME = "ssh"

    def __init__(self, address: SshAddress, keys: SshKeys, sockets: str) -> None:
        super().__init__(address.address)
        own = (
            f'UserKnownHostsFile="{keys.known_hosts}"',
            f"ConnectTimeout={CONNECT_S}",
            f"Port={address.port}",
        )
        shared = ("ControlMaster=auto", "ControlPersist=60s", f"ControlPath={sockets}/%C")
        self._ssh = [
            "ssh",
            *(() if keys.config is None else ("-F", str(keys.config))),
            *(() if keys.identity is None else ("-i", str(keys.identity))),
            *(word for option in (*SSH, *own, f"User={address.user}", *shared) for word in ("-o", option)),
        ]

    def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
        words = self.get_command(command, *args)
        done = shell.run([*self._ssh, "--", self.hostname, words], check=False, timeout_s=timeout_s)
        result = self.result(done.code, words.encode(), done.stdout.encode(), done.stderr.encode())
        if done.code == NO_CONNECTION:
            raise RuntimeError(result)
        return result

    def close(self) -> None:
        """Close the shared connection."""
        shell.run([*self._ssh, "-O", "exit", "--", self.hostname], check=False, timeout_s=10)


def paramiko_backend(address: SshAddress, keys: SshKeys) -> BaseBackend:
    """paramiko with the known_hosts file loaded and every other key refused."""
    import paramiko  # noqa: PLC0415  half a second
    from testinfra.backend.paramiko import ParamikoBackend  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    class StrictParamikoBackend(ParamikoBackend):
        """testinfra's backend with strict host keys and a time limit."""

        @functools.cached_property
        def client(self) -> paramiko.SSHClient:
            client = paramiko.SSHClient()
            client.load_host_keys(str(keys.known_hosts))
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                address.address,
                port=address.port,
                username=address.user,
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
            """As in testinfra, which has no time limit."""
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

    return StrictParamikoBackend(_spec(address), timeout=CONNECT_S)


class Machines:
    """A Reach that makes each backend at its first use."""

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
    """Machines through a program; `enter` raises a GpuclusterError for a machine that does not exist."""
    return Machines(lambda machine: ArgvBackend(machine, enter))


def by_ssh(addresses: Mapping[str, SshAddress], keys: SshKeys, *, paramiko: bool = False) -> "SshMachines":
    """Machines through ssh, with strict host keys."""
    return SshMachines(addresses, keys, paramiko=paramiko)


class SshMachines(Machines):
    """Machines through ssh, with a temporary folder for the sockets of shared connections."""

    def __init__(self, addresses: Mapping[str, SshAddress], keys: SshKeys, *, paramiko: bool) -> None:
        if not keys.known_hosts.is_file():
            raise GpuclusterError(
                f"{keys.known_hosts} does not exist; validation needs a file of known host keys",
                next_step=f"ssh-keyscan HOST >> {keys.known_hosts}, and compare each key with the machine's own key",
            )
        self._addresses, self._keys, self._paramiko = addresses, keys, paramiko
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        super().__init__(self._backend)

    def close(self) -> None:
        super().close()
        if self._sockets is not None:
            self._sockets.cleanup()

    def _backend(self, machine: str) -> BaseBackend:
        address = self._addresses.get(machine)
        if address is None:
            raise UnreachableError(machine, "the plan has no address for it")
        if self._paramiko:
            return paramiko_backend(address, self._keys)
        if self._sockets is None:
            self._sockets = tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True)
        return OpenSshBackend(address, self._keys, self._sockets.name)


def _spec(address: SshAddress) -> str:
    host = f"[{address.address}]" if ":" in address.address else address.address
    return f"{address.user}@{host}:{address.port}"
