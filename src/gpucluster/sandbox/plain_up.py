"""`sandbox up` of a plan on hosts that exist: plain Debian machines at the plan's names and addresses, and nothing more.

No cloud made them, and nothing of ours is on them: the playbook has all the work before it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.sandbox import bare, capsule, differences, host, places
from gpucluster.sandbox.capsule import PLAIN_SUPERVISOR, Plain
from gpucluster.sandbox.claimed import claimed
from gpucluster.sandbox.host import Host
from gpucluster.sandbox.images import Image, Progress
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.plain import plain_of, reach_argv

_ANSWER_S = 60.0  # sshd answers within 2 s; a loaded machine takes longer
_LOOK_S = 0.2
_SHARED = "/mnt/sandbox-nfs"
_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainUp:
    """Plain machines that answer ssh."""

    home: Home
    plan: ClusterPlan  # with the lines of a rehearsal in it
    known_hosts: bytes
    private_key: Path
    differences: tuple[str, ...]
    seconds: Mapping[str, float]


def up(
    plan: ClusterPlan,
    *,
    progress: Progress,
    furnish: Callable[[PlainUp], None] = lambda _: None,
    root: Path = places.STATE_ROOT,
) -> PlainUp:
    """Bring the machines up; `furnish` writes what Ansible is given. What fails leaves nothing."""
    found = host.check(host.observe(root))
    machines = plain_of(plan)
    _room(found, machines)
    home = Home(name=plan.name, root=root)
    with claimed(home, found.trees, progress) as lock:
        wish = _Wish(plan=differences.apply(plan, found.cgroup, real_times=True), host=found, home=home)
        return _up(wish, machines, lock, progress, furnish)


def _room(found: Host, machines: tuple[Plain, ...]) -> None:
    if len(machines) > found.machines:
        raise GpuclusterError(
            f"the plan has {len(machines)} hosts, and this machine has room for {found.machines}",
            next_step="sysctl -w fs.inotify.max_user_instances=512, or rehearse a spec with fewer hosts",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    plan: ClusterPlan
    host: Host
    home: Home


def _up(
    wish: _Wish,
    machines: tuple[Plain, ...],
    lock: int,
    progress: Progress,
    furnish: Callable[[PlainUp], None],
) -> PlainUp:
    began, plan, home = time.monotonic(), wish.plan, wish.home
    home.plan.write_text(codec.dumps(plan))
    image = bare.find_or_build(progress, admin=there(plan.hosts).ssh_user)
    built = time.monotonic()
    key = _make_key(home.site)
    for machine in machines:
        _furnish(home.instances / machine.name / "u", machine, image, key)
    running = capsule.start(
        home,
        lock,
        region="",
        image="",
        layers=image.layers,
        trees=wish.host.trees,
        gpus={},
        room=wish.host.machines,
        module=PLAIN_SUPERVISOR,
        plain=machines,
        shares=_shares(home, image),
    )
    try:
        _await_ssh(home, machines, there(plan.hosts).ssh_port)
        done = PlainUp(
            home=home,
            plan=plan,
            known_hosts="".join(_known_hosts(home, machines, there(plan.hosts).ssh_port)).encode(),
            private_key=key,
            differences=differences.explain(plan, wish.host.cgroup, real_times=True),
            seconds={"image": round(built - began, 2), "machines": round(time.monotonic() - built, 2)},
        )
        furnish(done)
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


def _furnish(upper: Path, machine: Plain, image: Image, key: Path) -> None:
    """What makes the machine this one: its host keys, its name as Debian's installer writes it, and whom it lets in."""
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


def _shares(home: Home, image: Image) -> tuple[str, ...]:
    shared = home.path / "nfs"
    shared.mkdir()
    return (f"--bind-ro={bare.repository(image)}:{bare.REPOSITORY}", f"--bind={shared}:{_SHARED}")


def _known_hosts(home: Home, machines: tuple[Plain, ...], port: int) -> Iterator[str]:
    for machine in machines:
        words = (home.instances / machine.name / "u" / f"{_HOST_KEY}.pub").read_text().split()
        name = machine.address if port == 22 else f"[{machine.address}]:{port}"
        yield f"{name} {words[0]} {words[1]}\n"


def _await_ssh(home: Home, machines: tuple[Plain, ...], port: int) -> None:
    """Until each says `SSH-` on its port, asked from inside the capsule."""
    capsule = home.read_capsule()
    deadline = time.monotonic() + _ANSWER_S
    waiting = list(machines)
    while waiting and capsule is not None:
        argv = ["bash", "-c", 'exec 3<>"/dev/tcp/$0/$1" && head -c 4 <&3', waiting[0].address, str(port)]
        said = shell.run(reach_argv(capsule.init, tuple(argv)), check=False, timeout_s=10)
        if said.stdout.startswith("SSH-"):
            waiting.pop(0)
        elif time.monotonic() > deadline:
            raise GpuclusterError(
                f"{waiting[0].name} does not answer ssh after {_ANSWER_S:g} s: {said.stderr.strip()}"
            )
        else:
            time.sleep(_LOOK_S)
