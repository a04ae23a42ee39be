"""Ways into machines: testinfra backends, each of which gets argv lists, quoted only at the last step.

- argv: any program that takes a command after it (`sandbox exec`, `nsenter`, `docker exec`);
- ssh: OpenSSH, host keys strictly from a known_hosts file, one connection a machine, closed at the end;
- paramiko: the same in Python. testinfra's own backend loads no known_hosts and takes any key; ours takes none other.
"""

import functools
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testinfra.backend.base import BaseBackend, CommandResult  # pyright: ignore[reportMissingTypeStubs] -- it ships none
from testinfra.backend.ssh import SshBackend  # pyright: ignore[reportMissingTypeStubs] -- it ships none
from testinfra.host import Host  # pyright: ignore[reportMissingTypeStubs] -- it ships none

from gpucluster import shell
from gpucluster.checks.model import Answer, short
from gpucluster.errors import GpuclusterError

CONNECT_S = 10

Enter = Callable[[str], Sequence[str]]  # machine -> argv that runs what stands after it there, as root


class UnreachableError(GpuclusterError):
    """There is no way into the machine now; nothing that is asked there can be judged."""


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
    host = reach.host(machine)
    try:
        done = host.run(" ".join(["%s"] * len(whole)), *whole)
    except GpuclusterError:
        raise
    except Exception as error:  # testinfra lets through whatever its transport raises
        raise UnreachableError(f"{machine} cannot be reached: {_words(error)}") from error
    out, err = done.stdout_bytes, done.stderr_bytes
    return Answer(code=done.rc, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"))


def _as(user: str | None) -> tuple[str, ...]:
    if user is None:
        return ()
    # a login, so that the folder, HOME and groups are the user's; not --command: argv stays argv
    return ("runuser", "--login", user, "--session-command", 'exec "$@"', "--", "sh")


def _words(error: Exception) -> str:
    result = error.args[0] if error.args and isinstance(error.args[0], CommandResult) else None
    return short(result.stderr if result is not None else f"{type(error).__name__}: {error}")


class ArgvBackend(BaseBackend):
    """Enter by a program: `enter` and then `sh -c COMMAND`."""

    NAME = "argv"

    def __init__(self, hostspec: str, enter: Enter) -> None:
        super().__init__(hostspec)
        self._enter = enter

    def run(self, command: str, *args: str, **_options: Any) -> CommandResult:
        argv = [*self._enter(self.hostname), "sh", "-c", self.get_command(command, *args)]
        done = shell.run(argv, check=False, timeout_s=600)
        return self.result(done.code, command.encode(), done.stdout.encode(), done.stderr.encode())


class StrictSshBackend(SshBackend):
    """OpenSSH without a question: an unknown or changed host key ends it."""

    def __init__(self, place: SshPlace, keys: SshKeys, sockets: str) -> None:
        options = (
            *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
            *("-o", f"UserKnownHostsFile={keys.known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", "UpdateHostKeys=no", "-o", "LogLevel=ERROR"),
            *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
        )
        super().__init__(
            _spec(place),
            ssh_config=None if keys.config is None else str(keys.config),
            ssh_identity_file=None if keys.identity is None else str(keys.identity),
            timeout=CONNECT_S,
            controlpath=f"{sockets}/%%C",
            ssh_extra_args=shlex.join(options),
        )
        self._place, self._sockets = place, sockets

    def close(self) -> None:
        """End the shared connection."""
        where = ["-p", str(self._place.port), "-l", self._place.user, self._place.address]
        config = [] if self.ssh_config is None else ["-F", self.ssh_config]
        argv = ["ssh", *config, "-o", f"ControlPath={self._sockets}/%C", "-O", "exit", *where]
        shell.run(argv, check=False, timeout_s=10)


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
        self._sockets = tempfile.TemporaryDirectory(prefix="gpc-", ignore_cleanup_errors=True)
        super().__init__(self._backend)

    def close(self) -> None:
        super().close()
        self._sockets.cleanup()

    def _backend(self, machine: str) -> BaseBackend:
        place = self._places.get(machine)
        if place is None:
            raise UnreachableError(f"no address is known for {machine}")
        if self._paramiko:
            return paramiko_backend(place, self._keys)
        return StrictSshBackend(place, self._keys, self._sockets.name)


def _spec(place: SshPlace) -> str:
    address = f"[{place.address}]" if ":" in place.address else place.address
    return f"{place.user}@{address}:{place.port}"
