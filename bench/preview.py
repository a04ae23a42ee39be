"""Preview and up with the real engine for 1, 10 and 50 pools, and the same for a program that only declares components.

The other program declares the same number of components, which send no request to a cloud. Both run alternately, so the
ratio shows the cost of our program, of the stand-in provider and of the sandbox's cloud beside the engine's own.
"""

import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pulumi

from bench.figure import Figure, figure
from bench.pools import plan_of
from gpucluster.aws.program import declare
from gpucluster.engine import find_or_build
from gpucluster.engine import run as engine
from gpucluster.engine.events import Outcome
from gpucluster.engine.target import Target
from gpucluster.plan.model import ImageByName, SlurmOnAws
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.cloud import Listener, start
from gpucluster.sandbox.state_dir import ENGINE_PLUGINS

POOLS = (1, 10, 50)
OPERATOR = ("AKIAOPERATORKEY00001", "operator-secret-of-the-bench")
Program = Callable[[], None]


def run() -> Iterator[Figure]:
    """Two rows for each size: the preview of an empty stack, and `up`."""
    pulumi_cli = find_or_build(lambda line: print(line, file=sys.stderr))
    for pools in POOLS:
        plan = plan_of(pools)
        with tempfile.TemporaryDirectory() as folder, _cloud() as environment:
            target = _target(Path(folder) / "ours", pulumi_cli, environment)
            ours, made = _both(target, partial(declare, plan))
            equal = _target(Path(folder) / "equal", pulumi_cli, environment)
            engines, _ = _both(equal, partial(trivial, sum(made.counts.values())))
        for verb in ("preview", "up"):
            name = f"engine.{verb}.pools_{pools}.over_bare_engine"
            yield figure(name, ours[verb], "ms", engines[verb])


def trivial(count: int) -> None:
    """Return a program with `count` resources, including the stack and one component."""
    box = pulumi.ComponentResource("bench:index:Box", "box")
    for number in range(count - 2):
        pulumi.ComponentResource(
            "bench:index:Thing", f"thing-{number}", None, pulumi.ResourceOptions(parent=box)
        )


def _both(target: Target, program: Program) -> tuple[dict[str, float], Outcome]:
    taken: dict[str, float] = {}
    began = time.perf_counter()
    engine.preview(target, program)
    taken["preview"] = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
    made = engine.up(target, program)
    taken["up"] = (time.perf_counter() - began) * 1000
    return taken, made


def _target(folder: Path, pulumi_cli: Path, environment: dict[str, str]) -> Target:
    return Target(
        stack="burst", state_dir=folder, pulumi=pulumi_cli, environment=environment, plugins=ENGINE_PLUGINS
    )


@contextmanager
def _cloud() -> Generator[dict[str, str]]:
    """Run the sandbox's API on loopback, with machines that boot at once."""
    plan = plan_of(1)
    assert isinstance(plan, SlurmOnAws)
    assert isinstance(plan.image, ImageByName)
    timing = Timing(pending_s=0.1, ending_s=0.1, linger_s=0.1, gateway_s=0.1)
    model = CloudModel(random.Random(1), timing=timing, region=plan.aws.region)  # noqa: S311
    image = plan.image.name
    with socket.create_server(("127.0.0.1", 0), backlog=64) as bound:
        api = start(model, [Listener(bound)], None, clock=time.time, images=[image], operator=OPERATOR)
        try:
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bound.getsockname()[1]}",
                "AWS_ACCESS_KEY_ID": OPERATOR[0],
                "AWS_SECRET_ACCESS_KEY": OPERATOR[1],
            }
        finally:
            api.close()
