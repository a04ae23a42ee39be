"""`sandbox up` for existing hosts: plain Debian machines at the names and addresses of the plan.

They have no gpucluster software: the playbook installs everything.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.sandbox import differences, paths, scale
from gpucluster.sandbox import host_checks as host
from gpucluster.sandbox.capsule import process as capsule
from gpucluster.sandbox.capsule.process import PLAIN_SUPERVISOR, PlainMachine
from gpucluster.sandbox.host_checks import Host
from gpucluster.sandbox.images import bare
from gpucluster.sandbox.images.layers import Image, Progress
from gpucluster.sandbox.machines.hosts import plain_of, reach_argv
from gpucluster.sandbox.name_lock import claimed
from gpucluster.sandbox.state_dir import SandboxDir

_ANSWER_S = 60.0  # sshd answers within 2 s; a loaded machine takes longer
_LOOK_S = 0.2
_SHARED = "/mnt/sandbox-nfs"
_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningHosts:
    """PlainMachine machines that answer ssh."""

    home: SandboxDir
    plan: SlurmOnHosts  # with the lines of a rehearsal
    known_hosts: bytes
    private_key: Path
    differences: tuple[str, ...]
    seconds: Mapping[str, float]


def up(
    plan: SlurmOnHosts,
    file: Path,
    *,
    progress: Progress,
    hosts: int | None = None,
    write_inventory: Callable[[RunningHosts], None] = lambda _: None,
    root: Path = paths.STATE_ROOT,
) -> RunningHosts:
    """Start the machines; `write_inventory` writes Ansible's input. A failure leaves nothing.

    `file`: the spec of the plan; `hosts`: most of each pool.
    """
    found = host.check(host.observe(root))
    plan, scaled = scale.fit(plan, room=found.machines, hosts=hosts)
    machines = plain_of(plan)
    home = SandboxDir(name=plan.name, root=root)
    with claimed(home, found.trees, progress) as lock:
        applied = differences.apply(plan, found.cgroup, real_times=True)
        options = _Options(plan=applied, file=file, host=found, home=home, scaled=scaled)
        return _up(options, machines, lock, progress, write_inventory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    plan: SlurmOnHosts
    file: Path
    host: Host
    home: SandboxDir
    scaled: tuple[str, ...]  # sentences about what is smaller than the plan


def _up(
    options: _Options,
    machines: tuple[PlainMachine, ...],
    lock: int,
    progress: Progress,
    write_inventory: Callable[[RunningHosts], None],
) -> RunningHosts:
    began, plan, home = time.monotonic(), options.plan, options.home
    home.begin(plan, options.file, real_times=True)
    image = bare.find_or_build(progress, slurm=plan.slurm.version, admin=plan.hosts.ssh_user)
    built = time.monotonic()
    key = _make_key(home.site)
    for machine in machines:
        _write_identity(home.instances / machine.name / "u", machine, image, key)
    running = capsule.start(
        home,
        lock,
        region="",
        image="",
        layers=image.layers,
        trees=options.host.trees,
        gpus={},
        room=options.host.machines,
        module=PLAIN_SUPERVISOR,
        plain=machines,
        shares=_shares(home, image),
    )
    try:
        _await_ssh(home, machines, plan.hosts.ssh_port)
        done = RunningHosts(
            home=home,
            plan=plan,
            known_hosts="".join(_known_hosts(home, machines, plan.hosts.ssh_port)).encode(),
            private_key=key,
            differences=(
                *options.scaled,
                *differences.explain(plan, options.host.cgroup, real_times=True),
            ),
            seconds={"image": round(built - began, 2), "machines": round(time.monotonic() - built, 2)},
        )
        write_inventory(done)
        running.keep()
    except BaseException:
        running.kill()
        raise
    return done


def _make_key(site: Path) -> Path:
    site.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = site / "id_ed25519"
    shell.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", str(key)])
    return key


def _write_identity(upper: Path, machine: PlainMachine, image: Image, key: Path) -> None:
    """The files that identify the machine: host keys, host name in the form of Debian's installer, authorized keys."""
    os.umask(0o022)  # the machine's own files, whatever the caller's mask is
    ssh = upper / "etc/ssh"
    ssh.mkdir(parents=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", machine.name, "-f", str(upper / _HOST_KEY)]
    shell.run(argv)
    (upper / "etc/hostname").write_text(f"{machine.name}\n")
    (upper / "etc/hosts").write_text(f"127.0.0.1\tlocalhost\n127.0.1.1\t{machine.name}\n")
    home = upper / bare.ADMIN_HOME.lstrip("/")
    owner = (image.layers[0] / bare.ADMIN_HOME.lstrip("/")).stat()
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys").write_text(key.with_suffix(".pub").read_text())
    for path, mode in ((home, 0o700), (home / ".ssh", 0o700), (home / ".ssh/authorized_keys", 0o600)):
        path.chmod(mode)
        os.chown(path, owner.st_uid, owner.st_gid)


def _shares(home: SandboxDir, image: Image) -> tuple[str, ...]:
    shared = home.path / "nfs"
    shared.mkdir()
    return (f"--bind-ro={bare.repository(image)}:{bare.REPOSITORY}", f"--bind={shared}:{_SHARED}")


def _known_hosts(home: SandboxDir, machines: tuple[PlainMachine, ...], port: int) -> Iterator[str]:
    for machine in machines:
        words = (home.instances / machine.name / "u" / f"{_HOST_KEY}.pub").read_text().split()
        name = machine.address if port == 22 else f"[{machine.address}]:{port}"
        yield f"{name} {words[0]} {words[1]}\n"


def _await_ssh(home: SandboxDir, machines: tuple[PlainMachine, ...], port: int) -> None:
    """Wait until each sends `SSH-` on its port, read from inside the capsule."""
    capsule = home.read_capsule()
    deadline = time.monotonic() + _ANSWER_S
    waiting = list(machines)
    while waiting and capsule is not None:
        argv = ["bash", "-c", 'exec 3<>"/dev/tcp/$0/$1" && head -c 4 <&3', waiting[0].address, str(port)]
        banner = shell.run(reach_argv(capsule.init, tuple(argv)), check=False, timeout_s=10)
        if banner.stdout.startswith("SSH-"):
            waiting.pop(0)
        elif time.monotonic() > deadline:
            raise GpuclusterError(
                f"{waiting[0].name} does not answer ssh after {_ANSWER_S:g} s: {banner.stderr.strip()}"
            )
        else:
            time.sleep(_LOOK_S)
