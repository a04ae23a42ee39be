"""The machine that runs a build: a key of the build, ssh with the builder's known host keys, and Ansible."""

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
from gpucluster.image.port import SshTarget

PLAYBOOK_S = 3 * 3600.0  # the playbook compiles Slurm and a kernel module
_TASK = re.compile(r"\| TASK \[([A-Za-z0-9 ,.:;'/&-]{3,200})\] \*")
_TAIL = 25  # last lines of the playbook's output
# ssh through Session Manager; %h is the instance id
_PROXY = "aws ssm start-session --target %h --document-name AWS-StartSSHSession --parameters portNumber=%p --region {region}"


class SshBuildHost:
    """`scratch` is the folder of the build for key, known hosts and archives. The caller deletes it."""

    def __init__(
        self,
        scratch: Path,
        cache: Path,
        *,
        region: str,
        python: str,
        ssm: bool,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._scratch, self._cache, self._python, self._progress = scratch, cache, python, progress
        self._proxy = _PROXY.format(region=region) if ssm else None

    @property
    def name(self) -> str:
        """Return host name and machine id, because two machines may have one host name."""
        machine = Path("/etc/machine-id")
        reported = machine.read_text(encoding="ascii", errors="replace") if machine.is_file() else ""
        return f"{platform.node()}/{hashlib.sha256(reported.encode()).hexdigest()[:8]}"

    def public_key(self) -> str:
        """See the port."""
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

    def accepts_key(self, target: SshTarget) -> bool:
        """See the port. GpuclusterError if the host keys differ from those on the console."""
        self._write_known_hosts(target)
        argv = ["ssh", *self.ssh_options(), "-o", "ConnectTimeout=10", f"{target.user}@{target.host}", "true"]
        done = shell.run(argv, timeout_s=60, check=False)
        if (
            "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr
            or "Host key verification failed" in done.stderr
        ):
            raise GpuclusterError(
                f"{target.host} has other host keys than its console shows: the connection may be intercepted",
                next_step="build from another network, or with --via ssm",
            )
        return done.code == 0

    def run_playbook(self, target: SshTarget, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        """See the port."""
        self._write_known_hosts(target)
        file = self._scratch / "variables.json"
        file.write_text(json.dumps({**variables, **self._archives()}, sort_keys=True))
        config = self._scratch / "ansible.cfg"
        config.touch()  # the settings of this machine must not change an image
        env = {
            "ANSIBLE_CONFIG": str(config),
            "ANSIBLE_HOME": str(self._scratch / "ansible"),
            "ANSIBLE_NOCOWS": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_LOG_PATH": str(self._log),
            "LC_ALL": "C.UTF-8",
        }
        with self._report_tasks():
            done = shell.run(self.argv(target, file, tags), env=env, timeout_s=PLAYBOOK_S, check=False)
        if done.code != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_TAIL:])
            raise GpuclusterError(
                f"the image's playbook failed on {target.host}:\n{tail}",
                next_step="correct the cause, then build again",
            )

    def argv(self, target: SshTarget, variables: Path, tags: Sequence[str]) -> list[str]:
        """Ansible ended ssh, as root by sudo."""
        return [
            str(Path(sys.executable).parent / "ansible-playbook"),
            f"--inventory={target.host},",
            f"--user={target.user}",
            "--become",
            f"--private-key={self._key}",
            f"--ssh-common-args={_quoted(self.ssh_options())}",
            f"--extra-vars=@{variables}",
            f"--tags={','.join(tags)}",
            str(shipped("playbooks") / "image.yml"),
        ]

    def ssh_options(self) -> list[str]:
        """Return options for ssh: the key and the known hosts of the build, no password, none of the user's settings."""
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
    def _report_tasks(self) -> Generator[None]:
        """Report each task as it begins, because the build of Slurm alone takes 15 minutes."""
        ended = threading.Event()
        reporter = threading.Thread(target=self._follow_log, args=(ended,), daemon=True)
        reporter.start()
        try:
            yield
        finally:
            ended.set()
            reporter.join(timeout=5)

    def _follow_log(self, ended: threading.Event) -> None:
        reported = 0
        while True:
            last = ended.wait(2.0)
            names = tasks_in(self._log.read_text(errors="replace")) if self._log.exists() else ()
            for name in names[reported:]:
                self._progress(f"  {name}")
            reported = len(names)
            if last:
                return

    def _write_known_hosts(self, target: SshTarget) -> None:
        self._known.write_text("".join(f"{target.host} {key}\n" for key in target.host_keys))

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
    """Return the names of the started tasks from Ansible's log, without any output of a task."""
    return tuple(_TASK.findall(log))


def _quoted(options: Sequence[str]) -> str:
    """Ansible splits the string as a shell does."""
    return shlex.join(options)
