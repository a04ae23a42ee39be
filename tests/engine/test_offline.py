"""The offline planner lists the same resources as the real engine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import planned_programs
from support.builders import a_plan, image_name_of
from support.engine_stack import Cluster, a_cluster
from support.previews import compare

from gpucluster.aws.program import declare
from gpucluster.cli.context import resolve_file
from gpucluster.cli.resources import why_not
from gpucluster.engine import offline, run
from gpucluster.engine.events import EventCollector
from gpucluster.engine.offline import Planned, Resource
from gpucluster.engine.offline.live import query_account
from gpucluster.engine.process import EngineProcess, clean_environment
from gpucluster.plan.model import AwsPlan, SlurmOnAws

ROOT = Path(__file__).parents[2]
PROGRAM = "gpucluster.aws.program:declare"
NAME = "urn:pulumi:burst::gpucluster::gpucluster:aws:Network$aws:ec2/route:Route::burst-internet"
Preview = Mapping[str, Any]


class _Telling(EngineProcess):
    """Read events by the Automation API; a preview's own JSON is on standard output."""

    preview_output: str = ""

    def run(self, args: list[str], *rest: Any, **more: Any) -> Any:
        asked = [*args, "--json", "--show-sames"] if args[0] == "preview" else args
        result = super().run(asked, *rest, **more)
        self.preview_output = result.stdout if args[0] == "preview" else self.preview_output
        return result


def previewed(cluster: Cluster, program: Callable[[], None]) -> Preview:
    run.prepare(cluster.target)
    process = _Telling(cluster.target.pulumi, clean_environment())
    run.drive(
        cluster.target.stack,
        process,
        lambda: run._stack(cluster.target, program, process),
        lambda stack, gather: stack.preview(on_event=gather),
        EventCollector(run.silent),
    )
    return json.loads(process.preview_output)


STACKS = sorted(p for p in (ROOT / "stacks").glob("*.yaml") if why_not(resolve_file(p).plan) is None)

KEEPS_DATA = ("first", "hybrid", "kube", "research")  # a data disk of the head, or a file system


@dataclass
class Sites:
    """One cloud at a time, with the images and keys of the stacks in its Region: moto belongs to the process."""

    folder: Path
    pulumi: Path
    living: ExitStack = field(default_factory=ExitStack)
    site: Cluster | None = None

    def at(self, region: str) -> Cluster:
        """No test creates a resource in it."""
        if self.site is not None and self.site.plan.aws.region == region:
            return self.site
        self.living.close()
        plans = [plan for file in STACKS if isinstance(plan := resolve_file(file).plan, AwsPlan)]
        here = [plan for plan in plans if plan.aws.region == region]
        first, *others = (
            plan for plan in here if isinstance(plan, SlurmOnAws)
        )  # nodes of EKS have AWS's image
        self.site = self.living.enter_context(a_cluster(self.folder / region, self.pulumi, first))
        for name in sorted({image_name_of(plan) for plan in others} - {image_name_of(first)}):
            self.site.api.moto.register_image(name)
        for key in sorted({plan.aws.kms_key for plan in others if plan.aws.kms_key is not None}):
            self.site.api.moto.make_key(key)
        return self.site


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, pulumi: Path) -> Generator[Sites]:
    found = Sites(tmp_path_factory.mktemp("stacks"), pulumi)
    with found.living:
        yield found


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_offline_plan_of_every_stack_equals_engine(
    sites: Sites, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With recorded answers of the account, the machine image and the key are equal, too."""
    plan = resolve_file(file).plan
    assert isinstance(plan, AwsPlan)
    site = sites.at(plan.aws.region)
    for name, value in site.target.environment.items():
        monkeypatch.setenv(name, value)
    asked = offline.run(PROGRAM, plan).lookups
    answers = query_account(plan.aws.region, asked)
    found = {one.token: one.answer for one in answers if one.answer}
    if isinstance(plan, SlurmOnAws):
        assert found["aws:ec2/getAmi:getAmi"]["name"] == image_name_of(plan)
    assert ("aws:kms/getKey:getKey" in found) is (plan.aws.kms_key is not None)
    planned = offline.run(PROGRAM, plan, answers=answers)
    target = replace(site.target, stack=plan.name)
    seen = previewed(replace(site, target=target, plan=plan), partial(declare, plan))
    assert compare(planned, seen, looked_up=frozenset()) == []
    assert any(protected.protect for protected in planned.resources) is (file.stem in KEEPS_DATA)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, pulumi: Path) -> Generator[Preview]:
    with a_cluster(tmp_path_factory.mktemp("engine") / "state", pulumi) as cluster:
        yield previewed(cluster, cluster.program)


@pytest.fixture(scope="module")
def planners() -> Planned:
    return offline.run(PROGRAM, a_plan())


def test_planner_equals_engine(planners: Planned, engines: Preview) -> None:
    assert compare(planners, engines) == []
    assert len(planners.resources) > 50
    assert sum(len(r.dependencies) for r in planners.resources) > 60, "the comparison compared something"


def with_one(planned: Planned, urn: str, change: Callable[[Resource], Resource]) -> Planned:
    assert urn in {r.urn for r in planned.resources}
    return replace(planned, resources=tuple(change(r) if r.urn == urn else r for r in planned.resources))


def with_property(resource: Resource, **properties: Any) -> Resource:
    return replace(resource, properties={**resource.properties, **properties})


def without_property(resource: Resource, name: str) -> Resource:
    return replace(resource, properties={k: v for k, v in resource.properties.items() if k != name})


PLANTED: Mapping[str, tuple[Callable[[Resource], Resource], str]] = {
    "another parent": (lambda r: replace(r, parent=None), "parent"),
    "a lost dependency": (lambda r: replace(r, dependencies=r.dependencies[1:]), "dependencies:"),
    "one dependency more": (lambda r: replace(r, dependencies=(*r.dependencies, r.urn)), "dependencies:"),
    "a lost link of a property": (lambda r: replace(r, property_dependencies={}), "dependencies by property"),
    "protection": (lambda r: replace(r, protect=True), "protect"),
    "kept when removed": (lambda r: replace(r, retain_on_delete=True), "retain on delete"),
    "another provider": (lambda r: replace(r, provider=None), "provider"),
    "no custom resource": (lambda r: replace(r, custom=False), "custom"),
    "another type": (lambda r: replace(r, type="aws:ec2/vpc:Vpc"), "type"),
    "another name": (lambda r: replace(r, name="other"), "name"),
    "secret outputs": (lambda r: replace(r, secret_outputs=("id",)), "secret outputs"),
    "a timeout": (lambda r: replace(r, timeouts=replace(r.timeouts, create="5m")), "timeouts"),
    "a change that is ignored": (
        lambda r: replace(r, ignore_changes=("gatewayId",)), "ignores changes of"),
    "a change that replaces": (
        lambda r: replace(r, replace_on_changes=("gatewayId",)), "replaced on changes of"),
    "a hidden change": (lambda r: replace(r, hide_diffs=("gatewayId",)), "hides changes of"),
    "another's end": (lambda r: replace(r, deleted_with=r.urn), "deleted with"),
    "somebody else's": (lambda r: replace(r, external=True), "external"),
    "an adoption": (lambda r: replace(r, import_id="r-1"), "import id"),
    # regression: a planner with only unknown values was equal to the engine
    "a known value called unknown": (
        lambda r: with_property(r, destinationCidrBlock="[unknown]"), "property destinationCidrBlock"),
    "a value called secret": (
        lambda r: with_property(r, destinationCidrBlock="[secret]"), "property destinationCidrBlock"),
    "another property": (
        lambda r: with_property(r, destinationCidrBlock="10.0.0.0/8"), "property destinationCidrBlock"),
    "one property more": (lambda r: with_property(r, natGatewayId="nat-1"), "property natGatewayId"),
    "a lost property": (lambda r: without_property(r, "gatewayId"), "property gatewayId"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), list(PLANTED.values()), ids=list(PLANTED))
def test_planted_difference_is_found(
    planners: Planned, engines: Preview, change: Callable[[Resource], Resource], words: str
) -> None:
    found = compare(with_one(planners, NAME, change), engines)
    assert len(found) == 1
    assert found[0].startswith(f"{NAME}: {words}")


def test_missing_and_extra_resources_are_found(planners: Planned, engines: Preview) -> None:
    (first, *others) = planners.resources
    extra = replace(first, urn=f"{first.urn}-2", name=f"{first.name}-2")
    assert compare(replace(planners, resources=tuple(others)), engines) == [
        f"{first.urn}: the engine has it, the planner does not"
    ]
    assert compare(replace(planners, resources=(*planners.resources, extra)), engines) == [
        f"{extra.urn}: the planner has it, the engine does not"
    ]


def test_aliases_equal_those_of_engine(cluster: Cluster) -> None:
    """Aliases: a component with a new type and name, its child, a renamed resource, and a moved one."""
    plan = cluster.plan
    run.up(cluster.target, lambda: planned_programs.before(plan))
    engines = previewed(cluster, lambda: planned_programs.after(plan))
    planned = offline.run("support.planned_programs:after", plan)
    assert {s["op"] for s in engines["steps"]} <= {"same", "update"}, "nothing is made anew"
    moved = {s["urn"]: s["oldState"]["urn"] for s in engines["steps"] if s["oldState"]["urn"] != s["urn"]}
    assert len(moved) == 4
    assert compare(planned, engines) == []
    for urn, was in moved.items():
        changed = with_one(planned, urn, lambda r: replace(r, aliases=()))
        assert compare(changed, engines) == [f"{urn}: aliases: the engine took it for {was}, planned ()"]


LOOP = 'for s; do "$0" -m gpucluster.cli plan "$s" --resources --output markdown || exit; done'


def test_offline_plan_needs_no_network_home_or_environment() -> None:
    """Return a command in a network namespace without loopback."""
    argv = ["unshare", "--map-root-user", "--net", "sh", "-c", LOOP, sys.executable]
    files = sorted(f"stacks/{path.name}" for path in (ROOT / "stacks").glob("*.yaml"))
    strange = {"AWS_PROFILE": "nobody", "PULUMI_CONFIG": "{", "HOME": "/nowhere"}
    first, second = (
        subprocess.run(
            [*argv, *names], env={"PATH": os.defpath, **more}, cwd=ROOT, capture_output=True, check=True
        ).stdout.decode()
        for names, more in ((files, {}), (files[:1], strange))
    )
    assert second
    assert first.startswith(second), "the environment changes nothing"
    assert first.count("<!-- gpucluster:resources:") == len(STACKS)
    for sentence in ("lab: Pulumi creates nothing for this spec: it has no \\`aws:\\`",):
        assert sentence in first
