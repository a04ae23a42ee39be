"""`sandbox up`: create a sandbox from a plan until the head is ready, or remove everything.

Until the last step the capsule ends with this process.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from gpucluster import engine
from gpucluster.engine.error_attribution import explainer
from gpucluster.engine.spec_source import source_of
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import names
from gpucluster.plan.model import AwsPlan, ImageByName, SlurmOnAws, eks_of
from gpucluster.plan.spec_source import SpecSource
from gpucluster.sandbox import differences, paths, preexisting, state_dir
from gpucluster.sandbox import host_checks as host
from gpucluster.sandbox.capsule import process
from gpucluster.sandbox.host_checks import Host
from gpucluster.sandbox.images import layers
from gpucluster.sandbox.images.layers import Image
from gpucluster.sandbox.name_lock import claimed
from gpucluster.sandbox.state_dir import SandboxDir
from gpucluster.sandbox.status import control

T = TypeVar("T")
Progress = Callable[[str], None]
Program = Callable[[], None]

_READY_S = 120.0  # a head is ready within 5 s of its launch; a loaded machine takes longer
_LOOK_S = 0.3
_TAIL = 25  # lines of the console in the message of a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSandbox:
    """A sandbox that is up."""

    home: SandboxDir
    plan: SlurmOnAws
    port: int
    outputs: Mapping[str, Any]
    differences: tuple[str, ...]
    room: int
    seconds: Mapping[str, float]


def up(
    plan: SlurmOnAws,
    *,
    gpus: Mapping[str, int],
    program: Callable[[SlurmOnAws, SpecSource], None],
    progress: Progress,
    spec: Path,
    real_times: bool = False,
    cloud_only: bool = False,
    root: Path = paths.STATE_ROOT,
) -> RunningSandbox:
    """Create the plan's cluster; `gpus` is by machine type, `program` declares the plan's resources.

    Beside `spec` is the folder with the site's boot scripts, which the sandbox finds by their hashes and puts into S3. If EKS runs
    beside Slurm, the waves of the spec are applied to it.
    `cloud_only` leaves the cloud empty: the first `pulumi up` is typed in `sandbox shell`.

    Raise HostError before anything is made, StateError if it is up already. Whatever else is raised leaves nothing.
    """
    found = host.check(host.observe(root))
    scripts, source = spec.parent / preexisting.SCRIPTS, source_of(spec, plan)
    options = _Options(
        plan=differences.apply(plan, found.cgroup, real_times=real_times),
        host=found,
        gpus=gpus,
        home=SandboxDir(name=plan.name, root=root),
        spec=spec,
        scripts=scripts,
        real_times=real_times,
        cloud_only=cloud_only,
        differences=(
            *differences.explain(plan, found.cgroup, real_times=real_times),
            *(differences.of_kubernetes() if eks_of(plan) is not None else ()),
            *preexisting.explain(plan, scripts),
        ),
    )
    with claimed(options.home, found.trees, progress) as lock:
        return _up(options, lock, lambda: program(options.plan, source), progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    plan: SlurmOnAws
    host: Host
    gpus: Mapping[str, int]
    home: SandboxDir
    differences: tuple[str, ...]
    spec: Path
    scripts: Path
    real_times: bool
    cloud_only: bool


def _up(options: _Options, lock: int, program: Program, progress: Progress) -> RunningSandbox:
    watch, home = Watch(), options.home
    home.begin(options.plan, options.spec, real_times=options.real_times)
    write_operator(home)
    pulumi = _Background(lambda: engine.find_or_build(progress))
    kubernetes = _kubernetes(options.plan, progress)
    image = layers.find_or_build(progress, slurm=options.plan.slurm.version)
    watch.lap("image")
    running = _start(options, lock, image, nodes=0 if kubernetes is None else kubernetes.nodes)
    try:
        watch.lap("capsule")
        make_preexisting(options.plan, home, options.scripts)
        found = pulumi.result()
        outputs: Mapping[str, Any] = {}
        if not options.cloud_only:
            outputs = engine_up(options.plan, home, found, program, progress)
            watch.lap("engine")
            await_head(home, str(outputs["bucket"]), str(outputs["head"]), progress)
            watch.lap("head")
            if kubernetes is not None:
                kubernetes.apply(home, options.spec, str(outputs["bindings"]), progress)
                watch.lap("waves")
        running.keep()
    except BaseException:
        running.kill()
        raise
    return RunningSandbox(
        home=home,
        plan=options.plan,
        port=running.port,
        outputs=outputs,
        differences=options.differences,
        room=options.host.machines,
        seconds=watch.laps,
    )


def await_cluster(name: str, progress: Progress, *, root: Path = paths.STATE_ROOT) -> None:
    """Wait until the head of a sandbox is ready; StateError if it has none."""
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    home = state_dir.living(name, root)
    found = {
        (one.type, one.name): one.id
        for one in run.deployed_resources(home.target(engine.find_or_build(progress)))
    }
    head = found.get(("aws:ec2/instance:Instance", f"{name}-{names.ROLE_HEAD}"))
    bucket = next(
        (identifier for (kind, _), identifier in found.items() if kind == "aws:s3/bucket:Bucket"), None
    )
    if head is None or bucket is None:
        raise StateError(
            f"the sandbox '{name}' has no cluster yet",
            next_step=f"gpucluster sandbox shell {name}, then: pulumi up",
        )
    await_head(home, bucket, head, progress)


def await_head(home: SandboxDir, bucket: str, head: str, progress: Progress) -> None:
    """Wait until the head reports ready; a GpuclusterError has its failed step and its console."""
    client, deadline, reported = home.client("s3"), time.monotonic() + _READY_S, ""
    while True:
        status = _status(client, bucket)
        if status.get("ready") is True:
            return
        waits = _waits_for(status)
        if waits != reported:
            progress(reported := waits)
        if time.monotonic() > deadline:
            raise _not_ready(home, head, waits)
        time.sleep(_LOOK_S)


def console_tail(home: SandboxDir, instance: str, lines: int = _TAIL) -> str:
    """The last lines of a machine's console."""
    try:
        text = (home.console / instance).read_text(errors="replace")
    except OSError:
        return "(it has written nothing)"
    return "\n".join(text.strip().splitlines()[-lines:])


def _image_name(plan: SlurmOnAws) -> str:
    """The name of the image of the sandbox's cloud; empty for an image that the plan knows by id."""
    return plan.image.name if isinstance(plan.image, ImageByName) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kubernetes:
    """What a plan with EKS beside Slurm needs more. `nodes` is the room for its nodes."""

    nodes: int
    apply: Callable[[SandboxDir, Path, str, Progress], None]  # the spec, the output `bindings`


def _kubernetes(plan: SlurmOnAws, progress: Progress) -> _Kubernetes | None:
    """Build the control plane's programs if the plan has EKS."""
    if plan.kubernetes is None or eks_of(plan) is None:
        return None
    from gpucluster.sandbox.kubernetes import access  # noqa: PLC0415  most plans do without

    built = access.programs_of(plan.kubernetes, progress)

    def apply(home: SandboxDir, spec: Path, bindings: str, progress: Progress) -> None:
        access.write_kubeconfig(home, built)
        access.apply_waves(home, built, spec, bindings, progress)

    return _Kubernetes(nodes=access.nodes_of(plan.kubernetes), apply=apply)


def _start(options: _Options, lock: int, image: Image, *, nodes: int) -> process.RunningCapsule:
    running = process.start(
        options.home,
        lock,
        region=options.plan.aws.region,
        image=_image_name(options.plan),
        layers=image.layers,
        trees=options.host.trees,
        gpus=options.gpus,
        room=options.host.machines,
        nodes=nodes,
    )
    write_endpoint(options.home, running.port, options.plan.aws.region)
    return running


def write_endpoint(home: SandboxDir, port: int, region: str) -> None:
    """Write where the sandbox's AWS answers."""
    record = {"endpoint": f"http://127.0.0.1:{port}", "region": region}
    home.endpoint.write_text(json.dumps(record, indent=1) + "\n")


def make_preexisting(plan: AwsPlan, home: SandboxDir, scripts: Path) -> None:
    """Make what the plan names and the account has: VPC, key, reservations, buckets, people."""
    preexisting.make(plan, control(home))
    if preexisting.buckets(plan):
        preexisting.make_buckets(plan, home.client("s3"), scripts)
    if preexisting.people(plan):
        preexisting.make_people(plan, home.client("iam"))


def engine_up(
    plan: AwsPlan, home: SandboxDir, pulumi: Path, program: Program, progress: Progress
) -> Mapping[str, Any]:
    """Run the program against the sandbox's AWS; return its outputs."""
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    where = json.loads(home.endpoint.read_text())["endpoint"]
    progress(f"running the Pulumi program against {where}")
    done = run.up(
        home.target(pulumi), program, report=lambda step: progress(str(step)), explain=explainer(plan)
    )
    return done.outputs


def write_operator(home: SandboxDir) -> None:
    """Write the keys of the operator, for its owner alone."""
    keys = {"access_key": f"AKIA{secrets.token_hex(8).upper()}", "secret": secrets.token_urlsafe(30)}
    descriptor = os.open(home.operator, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(keys, file)


def _status(client: Any, bucket: str) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        body = client.get_object(Bucket=bucket, Key=names.STATUS_KEY)["Body"].read(64 * 1024)
        found = json.loads(body)
    except (BotoCoreError, ClientError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _waits_for(status: Mapping[str, Any]) -> str:
    if not status:
        return "waiting for the head to boot and to apply its bundle"
    steps: list[Mapping[str, Any]] = status.get("steps") or []
    failed = [step for step in steps if not step.get("ok")]
    if failed:
        return f"the head's step '{failed[-1].get('name')}' has not succeeded: {failed[-1].get('detail')}"
    return f"waiting for the head: {status.get('detail') or 'not ready yet'}"


def _not_ready(home: SandboxDir, head: str, waits: str) -> GpuclusterError:
    return GpuclusterError(
        f"the head was not ready after {_READY_S:g} s: {waits}\nlast lines of its console:\n{console_tail(home, head)}",
        next_step="run the same command again; nothing of this try is left",
    )


class _Background(Generic[T]):
    """One call in a thread that does not keep the program alive."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._done = (
            threading.Event()
        )  # not join: an interrupt in it makes Python 3.11 treat the thread as ended
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def result(self) -> T:
        """Wait for its end; raise its exception."""
        while not self._done.wait(0.2):
            continue  # in slices, so that Ctrl-C is handled
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._value.append(work())
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits
            self._error = error
        finally:
            self._done.set()


class Watch:
    """The duration of each part."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 2)
        self._last = now
