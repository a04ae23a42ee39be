"""This machine's part: a key of the build's own, ssh that knows the builder's host keys, and Ansible."""

import hashlib
import json
import platform
import re
import shlex
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpucluster import shell, shipment
from gpucluster.errors import GpuclusterError, HostError
from gpucluster.files import shipped
from gpucluster.image.port import Way

PLAY_S = 3 * 3600.0  # Slurm and a kernel module are compiled
_TASK = re.compile(r"\| TASK \[([A-Za-z0-9 ,.:;'/&-]{3,200})\] \*")
_TAIL = 25  # lines of a playbook's end
# Session Manager carries plain ssh; %h is the instance's id
_PROXY = "aws ssm start-session --target %h --document-name AWS-StartSSHSession --parameters portNumber=%p --region {region}"


class SshDesk:
    """`scratch` is the build's own folder: key, known hosts, archives; it goes with the build."""

    def __init__(
        self,
        scratch: Path,
        cache: Path,
        *,
        region: str,
        python: str,
        ssm: bool,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._scratch, self._cache, self._python, self._say = scratch, cache, python, say
        self._proxy = _PROXY.format(region=region) if ssm else None

    @property
    def name(self) -> str:
        """Host and installation: two desks of one host name are two."""
        machine = Path("/etc/machine-id")
        told = machine.read_text(encoding="ascii", errors="replace") if machine.is_file() else ""
        return f"{platform.node()}/{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    def public_key(self) -> str:
        """As the port says."""
        if not self._key.exists():
            argv = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "gpucluster-image-build",
                "-f",
                str(self._key),
            ]
            try:
                shell.run(argv)
            except shell.CommandError as error:
                raise HostError(str(error), next_step="apt-get install openssh-client") from error
        return self._key.with_suffix(".pub").read_text(encoding="ascii").strip()

    def answers(self, way: Way) -> bool:
        """As the port says; a host with other keys than its console showed is never taken."""
        self._know(way)
        argv = ["ssh", *self.ssh_options(), "-o", "ConnectTimeout=10", f"{way.user}@{way.host}", "true"]
        done = shell.run(argv, timeout_s=60, check=False)
        if (
            "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr
            or "Host key verification failed" in done.stderr
        ):
            raise GpuclusterError(
                f"{way.host} shows other host keys than its console does: somebody may stand between",
                next_step="build in another network, or with --via ssm",
            )
        return done.code == 0

    def play(self, way: Way, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        """As the port says."""
        self._know(way)
        file = self._scratch / "variables.json"
        file.write_text(json.dumps({**variables, **self._archives()}, sort_keys=True))
        config = self._scratch / "ansible.cfg"
        config.touch()  # this desk's own must not change an image
        env = {
            "ANSIBLE_CONFIG": str(config),
            "ANSIBLE_HOME": str(self._scratch / "ansible"),
            "ANSIBLE_NOCOWS": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_LOG_PATH": str(self._log),
            "LC_ALL": "C.UTF-8",
        }
        with self._telling():
            done = shell.run(self.argv(way, file, tags), env=env, timeout_s=PLAY_S, check=False)
        if done.code != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_TAIL:])
            raise GpuclusterError(
                f"the image's playbook failed on {way.host}:\n{tail}", next_step="mend that, then again"
            )

    def argv(self, way: Way, variables: Path, tags: Sequence[str]) -> list[str]:
        """Ansible over ssh, as root by sudo."""
        return [
            str(Path(sys.executable).parent / "ansible-playbook"),
            f"--inventory={way.host},",
            f"--user={way.user}",
            "--become",
            f"--private-key={self._key}",
            f"--ssh-common-args={_quoted(self.ssh_options())}",
            f"--extra-vars=@{variables}",
            f"--tags={','.join(tags)}",
            str(shipped("playbooks") / "image.yml"),
        ]

    def ssh_options(self) -> list[str]:
        """Our key, the keys that we know, no password, nothing of the user's settings."""
        options = [
            "-F", "none",
            "-i", str(self._key),
            "-o", "IdentitiesOnly=yes",
            "-o", "BatchMode=yes",
            "-o", "StrictHostKeyChecking=yes",
            "-o", f"UserKnownHostsFile={self._known}",
            "-o", "GlobalKnownHostsFile=none",
            "-o", "ServerAliveInterval=30",
        ]  # fmt: skip
        return options if self._proxy is None else [*options, "-o", f"ProxyCommand={self._proxy}"]

    @contextmanager
    def _telling(self) -> Generator[None]:
        """Say each task as it begins: Slurm alone is a quarter of an hour."""
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(over,), daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join(timeout=5)

    def _tell(self, over: threading.Event) -> None:
        told = 0
        while True:
            last = over.wait(2.0)
            names = tasks_in(self._log.read_text(errors="replace")) if self._log.exists() else ()
            for name in names[told:]:
                self._say(f"  {name}")
            told = len(names)
            if last:
                return

    def _know(self, way: Way) -> None:
        self._known.write_text("".join(f"{way.host} {key}\n" for key in way.host_keys))

    def _archives(self) -> dict[str, object]:
        wheels, code = self._scratch / "wheels.tar", self._scratch / "code.tar"
        found = shipment.sources()
        if not wheels.exists():
            shipment.wheels_archive(found, cache=self._cache / "wheels", python=self._python, out=wheels)
        ours = shipment.code_archive(found, scratch=self._scratch, out=code)
        return {
            "wheels_archive": str(wheels),
            "code_archive": str(code),
            "our_wheel": ours,
            "code_digest": found.digest(),
        }

    @property
    def _log(self) -> Path:
        return self._scratch / "playbook.log"

    @property
    def _key(self) -> Path:
        return self._scratch / "key"

    @property
    def _known(self) -> Path:
        return self._scratch / "known_hosts"


def tasks_in(log: str) -> tuple[str, ...]:
    """Names of the tasks that began, as Ansible writes its log; the names are our own, what they print is not taken."""
    return tuple(_TASK.findall(log))


def _quoted(options: Sequence[str]) -> str:
    """Ansible splits the string as a shell does."""
    return shlex.join(options)
