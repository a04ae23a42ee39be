"""A pytest plugin that makes an item of each expectation. `gpucluster validate` passes a Session; pytest alone makes one."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from gpucluster.checks.check import CheckStatus
from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec, plan_json
from gpucluster.plan.model import Bindings, SlurmPlan
from gpucluster.validate import reach
from gpucluster.validate.expect import expectations, select
from gpucluster.validate.expectation import Expectation
from gpucluster.validate.results import Result
from gpucluster.validate.session import AnySession, RunContext, Session

SESSION = pytest.StashKey[AnySession]()
SELECTION = pytest.StashKey[tuple[Expectation, ...]]()
EXPECTATION = pytest.StashKey[Expectation]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpucluster", "validate a cluster")
    group.addoption("--plan", type=Path, help="plan.json of the cluster")
    group.addoption("--bindings", type=Path, help="bindings.json of the cluster")
    group.addoption("--enter", help="a program that enters a machine: `sandbox exec burst {machine} --`")
    group.addoption("--user-of-jobs", default="researcher", help="the ordinary user who submits jobs")
    group.addoption("--tier", type=int, default=1, help="0: seconds, while jobs run; 1: with jobs of its own")
    group.addoption("--only", default="", help="checks or ids, separated by commas")


def pytest_configure(config: pytest.Config) -> None:
    if SESSION not in config.stash and config.getoption("--plan", None) is not None:
        try:
            _from_options(config)
        except (GpuclusterError, ValueError, OSError) as error:
            raise pytest.UsageError(str(error)) from error


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """One item for each expectation, in their order."""
    if name != "check" or collector.name != "test_cluster.py":
        return None
    return [_item(collector, obj, one) for one in collector.config.stash.get(SELECTION, ())]


@pytest.fixture
def found(request: pytest.FixtureRequest) -> Result:
    """The result of the check. An unknown result is an error of the fixture, not a failure of the test."""
    result = request.config.stash[SESSION].result(request.node.stash[EXPECTATION])
    for name in ("verdict", "machine", "found", "expected", "remedy", "blocked_by"):
        request.node.user_properties.append((name, str(getattr(result, name))))
    if result.verdict is CheckStatus.UNKNOWN:
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
        raise ValueError(
            "--enter is missing; expected a program that enters a machine, such as `sandbox exec burst {machine} --`"
        )
    plan = plan_json.load_slurm(options.plan.read_bytes())
    bindings = None if options.bindings is None else codec.loads(Bindings, options.bindings.read_bytes())
    only = [word for word in options.only.split(",") if word]
    chosen = select(expectations(plan, bindings), tier=options.tier, only=only)
    context = RunContext(plan=plan, user=options.user_of_jobs, aws=_aws(plan))
    config.stash[SELECTION] = chosen
    config.stash[SESSION] = Session(context, reach.by_argv(_entering(options.enter)), chosen)


def _entering(text: str) -> reach.Enter:
    words = shlex.split(text)

    def enter(machine: str) -> Sequence[str]:
        return [word.replace("{machine}", machine) for word in words]

    return enter


def _aws(plan: SlurmPlan) -> Any:
    """A function that creates the client of a service with the credentials of the environment; None for a plan without AWS."""
    if plan.aws is None:
        return None
    region = plan.aws.region

    def client(service: str) -> Any:
        import boto3  # noqa: PLC0415  half a second

        session: Any = boto3.Session(region_name=region)
        return session.client(service)

    return client
