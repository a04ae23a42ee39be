"""`sandbox up`: from a plan to a head that is ready, or to nothing at all.

Until the last step everything hangs on this process: whatever ends it ends the capsule too.
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
from gpucluster.engine.blame import blamer
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.sandbox import bought, capsule, differences, host, images, ledger, places
from gpucluster.sandbox.claimed import claimed
from gpucluster.sandbox.host import Host
from gpucluster.sandbox.images import Image
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.status import control

T = TypeVar("T")
Progress = Callable[[str], None]
Program = Callable[[], None]

_READY_S = 120.0  # a head is ready within 5 s of its launch; a loaded machine takes longer
_LOOK_S = 0.3
_TAIL = 25  # lines of the console that a failure shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A sandbox that is up."""

    home: Home
    plan: ClusterPlan
    port: int
    outputs: Mapping[str, Any]
    differences: tuple[str, ...]
    room: int
    seconds: Mapping[str, float]


def up(
    plan: ClusterPlan,
    *,
    gpus: Mapping[str, int],
    program: Callable[[ClusterPlan], None],
    progress: Progress,
    real_times: bool = False,
    cloud_only: bool = False,
    root: Path = places.STATE_ROOT,
) -> Up:
    """Bring the plan's cluster up; `gpus` is by machine type, `program` declares the plan's resources.

    `cloud_only` leaves the cloud empty: the first `pulumi up` is typed in `sandbox shell`.

    Raise HostError before anything is made, StateError if it is up already. Whatever else is raised leaves nothing.
    """
    found = host.check(host.observe(root))
    wish = _Wish(
        plan=differences.apply(plan, found.cgroup, real_times=real_times),
        host=found,
        gpus=gpus,
        home=Home(name=plan.name, root=root),
        real_times=real_times,
        cloud_only=cloud_only,
        differences=(*differences.explain(plan, found.cgroup, real_times=real_times), *bought.explain(plan)),
    )
    with claimed(wish.home, found.trees, progress) as lock:
        return _up(wish, lock, lambda: program(wish.plan), progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    plan: ClusterPlan
    host: Host
    gpus: Mapping[str, int]
    home: Home
    differences: tuple[str, ...]
    real_times: bool
    cloud_only: bool


def _up(wish: _Wish, lock: int, program: Program, progress: Progress) -> Up:
    watch, home = _Watch(), wish.home
    home.plan.write_text(codec.dumps(wish.plan))
    home.rehearsal.write_text(json.dumps({"real_times": wish.real_times}) + "\n")
    _write_operator(home)
    pulumi = _Background(lambda: engine.find_or_build(progress))
    image = images.find_or_build(progress)
    watch.lap("image")
    running = _start(wish, lock, image)
    try:
        watch.lap("capsule")
        bought.make(wish.plan, control(home))
        if bought.buckets(wish.plan):
            bought.make_buckets(wish.plan, home.client("s3"))
        found = pulumi.result()
        outputs: Mapping[str, Any] = {}
        if not wish.cloud_only:
            progress(f"running the Pulumi program against http://127.0.0.1:{running.port}")
            outputs = _engine_up(wish, found, program, progress)
            watch.lap("engine")
            await_head(home, str(outputs["bucket"]), str(outputs["head"]), progress)
            watch.lap("head")
        running.keep()
    except BaseException:
        running.kill()
        raise
    return Up(
        home=home,
        plan=wish.plan,
        port=running.port,
        outputs=outputs,
        differences=wish.differences,
        room=wish.host.machines,
        seconds=watch.laps,
    )


def await_cluster(name: str, progress: Progress, *, root: Path = places.STATE_ROOT) -> None:
    """Wait until the head of a sandbox is ready, however it was brought up; StateError when it has none."""
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    home = ledger.living(name, root)
    found = {
        (one.type, one.name): one.id for one in run.standing(home.target(engine.find_or_build(progress)))
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


def await_head(home: Home, bucket: str, head: str, progress: Progress) -> None:
    """Wait until the head says that it is ready; a GpuclusterError shows its failed step and its console."""
    client, deadline, told = home.client("s3"), time.monotonic() + _READY_S, ""
    while True:
        status = _status(client, bucket)
        if status.get("ready") is True:
            return
        waits = _waits_for(status)
        if waits != told:
            progress(told := waits)
        if time.monotonic() > deadline:
            raise _not_ready(home, head, waits)
        time.sleep(_LOOK_S)


def console_tail(home: Home, instance: str, lines: int = _TAIL) -> str:
    """The last lines that a machine wrote to its console."""
    try:
        text = (home.console / instance).read_text(errors="replace")
    except OSError:
        return "(it has written nothing)"
    return "\n".join(text.strip().splitlines()[-lines:])


def _start(wish: _Wish, lock: int, image: Image) -> capsule.Running:
    running = capsule.start(
        wish.home,
        lock,
        region=there(wish.plan.aws).region,
        image=there(there(there(wish.plan.aws).image).name),
        layers=image.layers,
        trees=wish.host.trees,
        gpus=wish.gpus,
        room=wish.host.machines,
    )
    record = {"endpoint": f"http://127.0.0.1:{running.port}", "region": there(wish.plan.aws).region}
    wish.home.endpoint.write_text(json.dumps(record, indent=1) + "\n")
    return running


def _engine_up(wish: _Wish, pulumi: Path, program: Program, progress: Progress) -> Mapping[str, Any]:
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    target = wish.home.target(pulumi)
    done = run.up(target, program, report=lambda step: progress(str(step)), explain=blamer(wish.plan))
    return done.outputs


def _write_operator(home: Home) -> None:
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


def _not_ready(home: Home, head: str, waits: str) -> GpuclusterError:
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
        )  # not join: an interrupt in it makes Python 3.11 take the thread for dead
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def result(self) -> T:
        """Wait for its end; raise what it raised."""
        while not self._done.wait(0.2):
            continue  # in slices, so that Ctrl-C is heard
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


class _Watch:
    """How long each part took."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 2)
        self._last = now
