"""What makes items of expectations. The verb hands in a Stage; pytest alone makes one from its options."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from gpucluster.checks.model import Verdict
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings, ClusterPlan
from gpucluster.validate import reach
from gpucluster.validate.expect import Expectation, expectations, select
from gpucluster.validate.results import Result
from gpucluster.validate.stage import Scene, Stage

STAGE = pytest.StashKey[Stage]()
SELECTION = pytest.StashKey[tuple[Expectation, ...]]()
EXPECTATION = pytest.StashKey[Expectation]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpucluster", "validate a cluster")
    group.addoption("--plan", type=Path, help="plan.json of the cluster")
    group.addoption("--bindings", type=Path, help="bindings.json of the cluster")
    group.addoption("--enter", help="a program that enters a machine: `sandbox exec burst {machine} --`")
    group.addoption("--user-of-jobs", default="researcher", help="the ordinary user who submits jobs")
    group.addoption("--tier", type=int, default=1, help="0: seconds, beside jobs; 1: with jobs of its own")
    group.addoption("--only", default="", help="checks or ids, separated by commas")


def pytest_configure(config: pytest.Config) -> None:
    if STAGE not in config.stash and config.getoption("--plan", None) is not None:
        try:
            _from_options(config)
        except (GpuclusterError, ValueError, OSError) as error:
            raise pytest.UsageError(str(error)) from error


def pytest_unconfigure(config: pytest.Config) -> None:
    stage = config.stash.get(STAGE, None)
    if stage is not None:
        stage.close()


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """One item for each expectation, in their order."""
    if name != "check" or collector.name != "test_cluster.py":
        return None
    return [_item(collector, obj, one) for one in collector.config.stash.get(SELECTION, ())]


@pytest.fixture
def found(request: pytest.FixtureRequest) -> Result:
    """Ask now; an unknown is no test's failure, but an error."""
    result = request.config.stash[STAGE].result(request.node.stash[EXPECTATION])
    for name in ("verdict", "machine", "found", "expected", "remedy", "blocked_by"):
        request.node.user_properties.append((name, str(getattr(result, name))))
    if result.verdict is Verdict.UNKNOWN:
        pytest.fail(
            f"unknown: {result.found}\nexpected: {result.expected}\nremedy: {result.remedy}", pytrace=False
        )
    return result


def _item(collector: pytest.Collector, obj: Any, expectation: Expectation) -> pytest.Item:
    make = cast("Callable[..., pytest.Function]", pytest.Function.from_parent)  # pyright: ignore[reportUnknownMemberType]
    item = make(collector, name=expectation.id, callobj=obj)
    item.stash[EXPECTATION] = expectation
    return item


def _from_options(config: pytest.Config) -> None:
    options: Any = config.option
    if options.enter is None:
        raise ValueError("--enter says how to get into a machine")
    plan = codec.loads(ClusterPlan, options.plan.read_bytes())
    bindings = None if options.bindings is None else codec.loads(Bindings, options.bindings.read_bytes())
    only = [word for word in options.only.split(",") if word]
    chosen = select(expectations(plan, bindings), tier=options.tier, only=only)
    scene = Scene(plan=plan, user=options.user_of_jobs, ec2=_ec2(plan))
    config.stash[SELECTION] = chosen
    config.stash[STAGE] = Stage(scene, reach.by_argv(_entering(options.enter)), chosen)


def _entering(text: str) -> reach.Enter:
    words = shlex.split(text)

    def enter(machine: str) -> Sequence[str]:
        return [word.replace("{machine}", machine) for word in words]

    return enter


def _ec2(plan: ClusterPlan) -> Any:
    """The cloud as the environment names it, when the plan stands on one."""
    if plan.aws is None:
        return None
    region = plan.aws.region

    def client() -> Any:
        import boto3  # noqa: PLC0415  half a second

        made: Any = boto3.client("ec2", region_name=region)  # pyright: ignore[reportUnknownMemberType]
        return made

    return client
