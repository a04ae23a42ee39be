"""A machine on a folder: the same effects as `node.effects.this_machine()`, recorded, with refusals set by the test.

`kill_after` ends the agent (with `Killed`) after that many effects, as a kill -9 would.
"""

import hashlib
import itertools
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpucluster import agent, artifacts
from gpucluster.agent.boot import boot_state
from gpucluster.agent.machine import Machine, NotYetError, Reply, StoredObject, TemporaryCredentials
from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import (
    Aws,
    AwsHead,
    AwsPool,
    Bindings,
    ImageByName,
    JobSizes,
    LaunchTemplate,
    Leaf,
    Market,
    NodeShape,
    OwnNetwork,
    Partition,
    SlotRange,
    Slurm,
    SlurmOnAws,
    Source,
    Subnet,
    Times,
)
from gpucluster.shell import CommandError, Result

ZONE, SECRET = "us-east-1a", "arn:aws:secretsmanager:us-east-1:1:secret:k"
UNITS = Path(agent.__file__).parent / "units"
CONF = "ClusterName=trial\nStateSaveLocation=/var/spool/slurmctld\nSlurmctldLogFile=/var/log/slurm/ctld.log\n"


class Killed(BaseException):
    """The agent was killed."""


SLOTS = (SlotRange(zone=ZONE, prefix="h200-1a-", first=1, last=4),)
HEAD = AwsHead(
    name="head",
    machine="m7i.2xlarge",
    zone=ZONE,
    address="10.42.0.10",
    controller_port=6817,
    registration_port=6890,
)
PARTITION = Partition(
    name="gpu",
    pools=("h200",),
    default=True,
    max_time_s=None,
    default_time_s=3600,
    sizes=JobSizes(memory_of_cpu_mib=1000, cpus_of_gpu=24),
)
TIMES = Times(
    suspend_timeout_s=5,
    cred_expire_s=10,
    poll_s=1,
    reconcile_s=3,
    heartbeat_s=2,
    orphan_grace_s=30,
    refusal_s=10,
    refusal_max_s=60,
    self_termination_s=300,
)


def a_pool(*, gpus: int, always_on: int) -> AwsPool:
    """Four slots in one zone."""
    machine = "p5en.48xlarge"
    return AwsPool(
        name="h200",
        min=always_on,
        max=4,
        idle_s=60,
        boot_timeout_s=120,
        shape=NodeShape(
            sockets=1,
            cores_per_socket=2,
            threads_per_core=1,
            real_memory_mib=1000,
            gpu_model="h200",
            gpu_count=gpus,
        ),
        sources=(Source(position=0, market=Market.SPOT, machines=(machine,), zones=(ZONE,), max=None),),
        slots=SLOTS,
        templates=(
            LaunchTemplate(key=f"h200-spot-{machine}", source=0, machine=machine, market=Market.SPOT),
        ),
    )


def a_small_plan(*, gpus: int = 2, always_on: int = 0, name: str = "trial") -> SlurmOnAws:
    """One pool of four slots in one zone."""
    network = OwnNetwork(cidr="10.42.0.0/16", subnets=(Subnet(zone=ZONE, cidr="10.42.0.0/20"),))
    return SlurmOnAws(
        schema=1,
        name=name,
        aws=Aws(region="us-east-1", network=network),
        image=ImageByName(os="debian-13", name="gpucluster-debian-13-slurm-24.11"),
        head=HEAD,
        slurm=Slurm(version="24.11"),
        kubernetes=None,
        storage=(),
        pools=(a_pool(gpus=gpus, always_on=always_on),),
        partitions=(PARTITION,),
        leaves=(Leaf(name="leaf", slots=SLOTS),),
        times=TIMES,
    )


def a_bundle(plan: SlurmOnAws, *, conf: str = CONF, more: Mapping[str, str] | None = None) -> bytes:
    """Return the archive that `pulumi up` would put in the bucket."""
    bindings = Bindings(
        schema=1, region=plan.aws.region, bucket="bkt", secret=SECRET, subnets={}, templates={}
    )
    texts = {
        names.PLAN_FILE: codec.dumps(plan),
        names.BINDINGS_FILE: codec.dumps(bindings),
        f"{names.SLURM_DIR}/slurm.conf": conf,
        f"{names.SLURM_DIR}/gres.conf": "Name=gpu\n",
        names.HOSTS_FILE: "10.42.0.21 h200-1a-1\n",
        **(more or {}),
    }
    return artifacts.pack(Artifact(path, text.encode()) for path, text in texts.items())


@dataclass
class FakeServices:
    """A bucket and a secret. `answers_at` counts calls: before that call a key raises NotYetError."""

    objects: dict[str, bytes] = field(default_factory=dict)
    value: bytes | None = None
    tokens: dict[str, bytes] = field(default_factory=dict)
    missing_for: dict[str, int] = field(default_factory=dict)  # key -> how many calls still fail
    puts: list[str] = field(default_factory=list)
    assumed: list[tuple[str, str, int]] = field(default_factory=list)
    sts_refuses: bool = False
    credentials_until: float = 0.0  # of the wall clock

    def get_object(self, bucket: str, key: str, *, if_none_match: str | None) -> StoredObject | None:
        if self.missing_for.get(key, 0) > 0 or key not in self.objects:
            self.missing_for[key] = self.missing_for.get(key, 0) - 1
            raise NotYetError(f"s3://{bucket}/{key}: NoSuchKey")
        body = self.objects[key]
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return None if etag == if_none_match else StoredObject(body, etag)

    def put_object(self, bucket: str, key: str, body: bytes) -> None:
        self.puts.append(key)
        self.objects[key] = body

    def get_secret(self, arn: str) -> bytes | None:
        assert arn == SECRET
        return self.value

    def get_secret_version(self, arn: str) -> tuple[bytes | None, str]:
        return self.get_secret(arn), f"v{len(self.tokens)}"

    def put_secret(self, arn: str, value: bytes, *, token: str) -> None:
        assert arn == SECRET
        if token in self.tokens:
            return
        self.tokens[token] = value
        self.value = value

    def assume_role(self, role: str, session: str, seconds: int) -> TemporaryCredentials:
        self.assumed.append((role, session, seconds))
        if self.sts_refuses:
            raise NotYetError("the role for jobs: AccessDenied")
        number = len(self.assumed)
        return TemporaryCredentials(
            access_key=f"ASIA{number}",
            secret="secret",
            token="token",
            expiration=datetime.fromtimestamp(self.credentials_until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            until=self.credentials_until,
        )


@dataclass
class FakeMachine:
    """Create it, then give `machine()` to the agent's functions."""

    root: Path
    services: FakeServices = field(default_factory=FakeServices)
    controller: Callable[[str, bytes], Reply] = lambda _path, _body: Reply(503, b"")
    role: str = names.ROLE_NODE
    instance: str = "i-1"
    address: str = "10.42.0.21"
    clock: float = 1000.0
    kill_after: int | None = None
    refuses: dict[str, str] = field(default_factory=dict)  # first words of a command -> its output
    answers: dict[str, str] = field(default_factory=dict)  # the same -> its output, with code 0
    calls: list[tuple[str, ...]] = field(default_factory=list)
    posts: list[tuple[str, bytes]] = field(default_factory=list)
    active: dict[str, int] = field(default_factory=dict)  # unit -> number of its restarts
    owners: dict[str, str] = field(default_factory=dict)
    hostname: str = "localhost"
    hung: bool = False  # slurmctld runs, answers `scontrol ping`, and no other request
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.boot("boot-1")
        self.put("/etc/hosts", "127.0.0.1 localhost\n")
        for number in range(2):
            self.put(f"/dev/nvidia{number}", "")
        self.told(self.role)

    def told(self, role: str) -> None:
        told = {
            "cluster": "trial",
            "region": "us-east-1",
            "bucket": "bkt",
            "key": names.BUNDLE_KEY,
            "role": role,
        }
        self.put(names.USER_DATA_FILE, codec.dumps(told))

    def boot(self, boot_id: str) -> None:
        """Boot the machine: nothing runs, and /run is empty."""
        self.put("/proc/sys/kernel/random/boot_id", f"{boot_id}\n")
        self.active.clear()
        shutil.rmtree(self.root / names.AGENT_RUN.lstrip("/"), ignore_errors=True)

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def machine(self) -> Machine:
        return Machine(
            root=self.root,
            run=self._run,
            metadata=self._metadata,
            services=self._services,
            post=self._post,
            listening=lambda _host, _port: "gpucluster-elastic.service" in self.active,
            chown=self._chown,
            now=lambda: self.clock,
            pause=self._pause,
        )

    def commands(self, program: str) -> list[tuple[str, ...]]:
        return [argv for argv in self.calls if argv[0] == program]

    def snapshot(self) -> dict[str, bytes]:
        """Every file and link of the machine, without the agent's records of times."""
        skip = {names.AGENT_STATE.lstrip("/"), boot_state.RUN_STATE.lstrip("/")}
        paths = (p for p in self.root.rglob("*") if p.is_symlink() or p.is_file())
        return {
            name: str(p.readlink()).encode() if p.is_symlink() else p.read_bytes()
            for p in paths
            if (name := str(p.relative_to(self.root))) not in skip and not name.startswith("tmp/")
        }

    def _effect(self) -> None:
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                raise Killed

    def _run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        self._effect()
        words = tuple(argv)
        self.calls.append(words)
        code, out = self._outcome(words, stdin, env)
        result = Result(words, code, out if code == 0 else "", "" if code == 0 else out)
        if check and code:
            raise CommandError(result)
        return result

    def _outcome(
        self, argv: tuple[str, ...], stdin: str | bytes | None, env: Mapping[str, str] | None
    ) -> tuple[int, str]:
        """Return exit code and text."""
        told = [(1, self.refuses), (0, self.answers)]
        for code, start, text in ((code, *item) for code, texts in told for item in texts.items()):
            if " ".join(argv).startswith(start):
                return code, text
        if argv[0] == "munge":
            return 0, "MUNGE:" + (str(stdin) if "-n" not in argv else "")
        if argv[0] == "hostname":
            self.hostname = argv[1]
            self.put("/proc/sys/kernel/hostname", f"{argv[1]}\n")
            return 0, ""
        if argv == ("/usr/sbin/sshd", "-T"):
            return 0, "port 22\nusepam yes\n"
        if argv[0] == "systemctl":
            return self._systemctl(*argv[1:])
        return self._scontrol(argv, env or {}) if argv[0] == "scontrol" else _copied(argv)

    def _systemctl(self, verb: str, *rest: str) -> tuple[int, str]:
        if verb == "kill":
            self.active.pop(rest[-1], None)
            self.hung = False
            return 0, ""
        if verb == "stop":
            self.active.pop(rest[-1], None)
        if verb == "is-active":
            return (0 if rest[-1] in self.active else 3), ""
        if verb == "restart" or (verb == "start" and rest[0] not in self.active):
            self.active[rest[0]] = self.active.get(rest[0], 0) + 1
            if rest[0] == "gpucluster-elastic.service":
                self._make_folders()
        return 0, ""

    def _make_folders(self) -> None:
        """Make the folders of tmpfiles.d, as the unit does before the daemon starts."""
        for line in (UNITS / "etc/tmpfiles.d/gpucluster.conf").read_text().splitlines():
            (self.root / line.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _scontrol(self, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str]:
        """The parser accepts every key except Bogus; slurmctld accepts every file except one with `nosuch` in it."""
        if argv[1] == "ping":
            return (
                0,
                f"Slurmctld(primary) at head is {'UP' if 'slurmctld.service' in self.active else 'DOWN'}",
            )
        if argv[1:3] == ("show", "job"):
            silent = self.hung or "slurmctld.service" not in self.active
            return 1, "Socket timed out on send/recv operation" if silent else "Invalid job id specified"
        if argv[1:3] == ("show", "reservations"):
            return 0, '{"reservations": []}'
        if argv[1] == "show":
            return (
                (1, "unrecognized key: Bogus") if "Bogus" in Path(env["SLURM_CONF"]).read_text() else (0, "x")
            )
        return (1, "refused") if "nosuch" in self.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf") else (0, "")

    def _metadata(self, path: str) -> str:
        self._effect()
        return {"meta-data/instance-id": self.instance, "meta-data/local-ipv4": self.address}[path]

    def _services(self, region: str) -> FakeServices:
        assert region == "us-east-1"
        self._effect()
        return self.services

    def _post(self, address: str, port: int, path: str, body: bytes) -> Reply:
        assert (address, port) == ("10.42.0.10", 6890)
        self._effect()
        self.posts.append((path, body))
        return self.controller(path, body)

    def _chown(self, descriptor: int, user: str) -> None:
        self.owners[Path(f"/proc/self/fd/{descriptor}").readlink().name] = user

    def _pause(self, seconds: float) -> None:
        self._effect()
        self.pauses.append(seconds)
        self.clock += seconds


def an_answer(
    *,
    node: str = "h200-1a-1",
    incarnation: int = 1,
    hosts: tuple[str, ...] = (),
    batch_jobs: tuple[int, ...] = (),
    ends: bool = False,
) -> Reply:
    """The daemon's answer to a node of its own."""
    answer = NodeAnswer(
        node=node, incarnation=incarnation, controller="10.42.0.10:6817", heartbeat_s=2.0, hosts=hosts,
        batch_jobs=batch_jobs, ends=ends,
    )  # fmt: skip
    return Reply(200, codec.dumps(answer).encode())


def answers(*replies: Reply | OSError) -> Callable[[str, bytes], Reply]:
    """Return the answers in order; the last one repeats."""
    queue = itertools.chain(replies, itertools.repeat(replies[-1]))

    def answer(_path: str, _body: bytes) -> Reply:
        reply = next(queue)
        if isinstance(reply, OSError):
            raise reply
        return reply

    return answer


def _copied(argv: Sequence[str]) -> tuple[int, str]:
    """Run a copy as the machine does; every other program does nothing."""
    if argv[0] != "cp":
        return 0, ""
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr
