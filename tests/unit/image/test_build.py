"""Image builds against the sandbox's AWS: what is created, what is left, what is refused."""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from support.clouds import REGION, RunningCloud, running_cloud

from gpucluster.catalog.image import System
from gpucluster.cli.image import app
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.image.build import MAX_AGE_S, Built, Tools, build, host_keys, inspect, user_data
from gpucluster.image.ec2 import Ec2Account
from gpucluster.image.port import BuilderLaunch, BuildOptions, ImageState, MadeImage, SshTarget
from gpucluster.image.recipe import Recipe
from gpucluster.plan import names

pytestmark = pytest.mark.loopback

NAME = "gpucluster-ubuntu-24.04-slurm-99.11"
COMMAND: Any = typer.main.get_command(app)
OPTION_NAMES = {name for one in COMMAND.commands["build"].params for name in one.opts}  # of `image build`
SYSTEM = System(
    owner="099720109477",
    owner_name="Canonical",
    pattern="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*",
    architecture="x86_64",
    user="ubuntu",
    python="3.12",
    kernel="linux-aws",
    lustre_series=("6.8",),
    source="a test",
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostKeyOfTheBuilderHostKeyOfTheBuilder00000"
CONSOLE = f"""[ 9.1] cloud-init: ssh-ed25519 AAAAforgedforgedforgedforgedforgedforgedforgedforged
-----BEGIN SSH HOST KEY KEYS-----
{KEY} root@ip-10-42-0-9
-----END SSH HOST KEY KEYS-----
"""
OPTIONS = BuildOptions(region=REGION, ssh_from=("198.51.100.7/32",))


@dataclass(frozen=True)
class ARecipe(Recipe):
    """A recipe without files."""

    def variables(self) -> dict[str, object]:
        return {"a": "variable"}


def a_recipe(digest: str = "d1" * 32) -> Recipe:
    return ARecipe(
        name=NAME, os="ubuntu-24.04", system=SYSTEM, slurm="99.11", pins={}, files={}, digest=digest
    )


@dataclass
class FakeBuildHost:
    """A build host that builds nothing. The playbook raises `fail`; `seen` records its targets."""

    name: str = "desk/1"
    fail: BaseException | None = None
    seen: list[SshTarget] = field(default_factory=list[SshTarget])

    def public_key(self) -> str:
        return "ssh-ed25519 AAAAours build"

    def accepts_key(self, target: SshTarget) -> bool:
        return bool(target.host)

    def run_playbook(self, target: SshTarget, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        self.seen.append(target)
        if self.fail is not None:
            raise self.fail


@dataclass
class Bench:
    """A cloud with Canonical's image, and the effects of a build."""

    cloud: RunningCloud
    said: list[str] = field(default_factory=list[str])

    def tools(self, build_host: FakeBuildHost | None = None, account: Any = None) -> Tools:
        return Tools(
            account=account or self.account(),
            build_host=build_host or FakeBuildHost(),
            clock=Clock(self.cloud.clock, self.pause),
            wall=self.cloud.clock,
            progress=self.said.append,
        )

    def account(self) -> "FaultyAccount":
        return FaultyAccount(REGION, lambda: self.cloud.client("ec2"))

    def pause(self, seconds: float) -> None:
        """Advance the time and the states of the instances."""
        self.cloud.clock.move(seconds)
        now = self.cloud.clock.now
        for instance in self.cloud.model.ending(now):
            self.cloud.model.mark_ended(instance.id, now)

    def build(self, recipe: Recipe | None = None, options: BuildOptions = OPTIONS, **how: Any) -> Built:
        return build(recipe or a_recipe(), options, self.tools(**how))

    def left(self) -> dict[str, list[str]]:
        """Return the existing resources with the builder's tag."""
        account = self.account()
        return {"machines": [b.id for b in account.builders(NAME)], "groups": list(account.groups(NAME))}

    def images(self) -> list[str]:
        return sorted(image.name for image in self.account().images(NAME))


class FaultyAccount(Ec2Account):
    """The account with the console of the builder. Calls named in `breaks` fail once."""

    def __init__(self, region: str, client: Callable[[], Any]) -> None:
        super().__init__(region, client)
        self.breaks: dict[str, BaseException] = {}

    def console_output(self, instance: str) -> str:
        return CONSOLE

    def create_image(self, instance: str, name: str, tags: Mapping[str, str]) -> str:
        self._break("create_image")
        return super().create_image(instance, name, tags)

    def image(self, image_id: str) -> MadeImage | None:
        self._break("image")
        return super().image(image_id)

    def stop(self, instance: str) -> None:
        self._break("stop")
        super().stop(instance)

    def launch(self, launch: BuilderLaunch) -> str:
        made = super().launch(launch)
        self._break("launch")  # its answer is lost: the machine is there
        return made

    def _break(self, call: str) -> None:
        if call in self.breaks:
            raise self.breaks.pop(call)


@pytest.fixture(scope="module")
def running() -> Generator[RunningCloud]:
    with running_cloud() as cloud:
        name = SYSTEM.pattern.replace("*", "20260901")
        image = cloud.api.moto.register_image(name)
        cloud.api.moto._ec2.amis[image].owner_id = SYSTEM.owner
        impostor = cloud.api.moto.register_image(SYSTEM.pattern.replace("*", "29990101"))
        cloud.api.moto._ec2.amis[impostor].owner_id = "999988887777"
        cloud.api.moto._ec2.amis[impostor].creation_date = "2999-01-01T00:00:00.000Z"
        yield cloud


@pytest.fixture
def bench(running: RunningCloud) -> Bench:
    bench = Bench(running.fresh())
    for image in bench.account().images(NAME):
        bench.account().delete_image(image)
    return bench


def test_build_creates_a_named_and_tagged_image_and_leaves_nothing_else(bench: Bench) -> None:
    built = bench.build()
    (row,) = bench.cloud.client("ec2").describe_images(ImageIds=[built.image.id])["Images"]
    tags = {t["Key"]: t["Value"] for t in row["Tags"]}
    assert (built.made, row["Name"]) == (True, NAME)
    assert tags[names.TAG_IMAGE_DIGEST] == a_recipe().digest
    assert tags[names.TAG_IMAGE] == NAME
    assert tags[names.TAG_BUILT_FROM].endswith(
        "20260901"
    )  # the maker's, not the newer one of another account
    assert bench.left() == {"machines": [], "groups": []}


def test_same_content_is_built_again_only_with_force(bench: Bench) -> None:
    first, build_host = bench.build(), FakeBuildHost()
    again = bench.build(build_host=build_host)
    assert (again.made, again.image.id, build_host.seen) == (False, first.image.id, [])
    forced = bench.build(options=BuildOptions(region=REGION, ssh_from=("198.51.100.7/32",), force=True))
    assert forced.made
    assert forced.image.id != first.image.id


def test_other_content_gets_another_name_and_the_older_image_stays(
    bench: Bench,
) -> None:
    bench.build()
    bench.build(a_recipe("e2" * 32))
    assert bench.images() == [NAME, f"{NAME}-e2e2e2e2e2e2"]


def test_builder_is_trusted_only_by_host_keys_of_its_console(bench: Bench) -> None:
    build_host = FakeBuildHost()
    bench.build(build_host=build_host)
    assert build_host.seen[0].host_keys == (KEY,)
    assert host_keys("no marks " + KEY) == ()


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("play", GpuclusterError("the playbook failed")),
        ("play", KeyboardInterrupt()),
        ("stop", CloudError(Fault.CONFIGURATION, "UnauthorizedOperation", "no")),
        ("create_image", CloudError(Fault.CONFIGURATION, "UnauthorizedOperation", "no")),
        ("create_image", KeyboardInterrupt()),
        ("image", KeyboardInterrupt()),
        ("image", CloudError(Fault.LOST, "Lost", "no answer")),
        ("launch", CloudError(Fault.LOST, "Lost", "no answer")),
        ("launch", KeyboardInterrupt()),
    ],
)
def test_after_any_fault_no_builder_group_or_incomplete_image_is_left(
    bench: Bench, call: str, fault: BaseException
) -> None:
    account, build_host = bench.account(), FakeBuildHost()
    if call == "play":
        build_host.fail = fault
    else:
        account.breaks[call] = fault
    with pytest.raises(type(fault)):
        bench.build(account=account, build_host=build_host)
    assert bench.left() == {"machines": [], "groups": []}
    assert bench.images() == []
    assert bench.build().made  # and the same command goes on from there


def test_builder_that_ends_while_it_boots_tells_the_reason_of_ec2(bench: Bench) -> None:
    """Regression: with a key of EBS that it may not use, the message named no reason."""
    reason = "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"

    class Ending(FaultyAccount):
        def launch(self, launch: BuilderLaunch) -> str:
            made = super().launch(launch)
            now = bench.cloud.clock.now
            bench.cloud.model.mark_ended(made, now, reason, "Client.InvalidKMSKey.InvalidState")
            return made

    account = Ending(REGION, lambda: bench.cloud.client("ec2"))
    with pytest.raises(GpuclusterError, match=re.escape(f"terminated while it booted: {reason}")) as caught:
        bench.build(account=account)
    assert "default key of EBS" in (caught.value.next_step or "")
    assert bench.left() == {"machines": [], "groups": []}


def test_next_build_terminates_leftover_builders(bench: Bench) -> None:
    account = bench.account()
    ground = account.subnet(None)
    assert ground is not None
    tags = {names.TAG_BUILDER: NAME, f"{names.TAG_BUILDER}-desk": "desk/1"}
    group = account.create_group("left", ground.vpc, ("198.51.100.7/32",), tags)
    base = account.base(SYSTEM)
    assert base is not None
    launch = BuilderLaunch(
        image=base.id, machine="m7i.2xlarge", subnet=ground.subnet, groups=(group,), user_data="",
        profile=None, root_gib=60, tags=tags,
    )  # fmt: skip
    left = account.launch(launch)
    assert [b.id for b in inspect(a_recipe(), OPTIONS, bench.tools()).left] == [left]
    with pytest.raises(
        StateError, match=f"'desk/1' builds {NAME} on {left}"
    ):  # another build host treats it as active
        bench.build(build_host=FakeBuildHost(name="desk/2"))
    bench.build()
    assert bench.left() == {"machines": [], "groups": []}
    assert f"terminating leftover builders: {left}" in bench.said


def test_builder_older_than_its_life_is_a_leftover(bench: Bench) -> None:
    account = bench.account()
    ground, base = account.subnet(None), account.base(SYSTEM)
    assert ground is not None
    assert base is not None
    launch = BuilderLaunch(
        image=base.id, machine="m7i.2xlarge", subnet=ground.subnet, groups=(), user_data="", profile=None,
        root_gib=60, tags={names.TAG_BUILDER: NAME, f"{names.TAG_BUILDER}-desk": "desk/9"},
    )  # fmt: skip
    account.launch(launch)
    bench.cloud.clock.move(MAX_AGE_S + 60)
    assert bench.build().made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BuildOptions(region=REGION), "the builder would accept no ssh connection"),
        (BuildOptions(region=REGION, ssm=True), "needs an instance profile"),
        (
            BuildOptions(region=REGION, subnet="subnet-404", ssh_from=("198.51.100.7/32",)),
            "has no subnet subnet-404",
        ),
    ],
)
def test_build_that_cannot_succeed_is_refused_before_anything_is_created(
    bench: Bench, options: BuildOptions, words: str
) -> None:
    with pytest.raises(GpuclusterError, match=words) as told:
        bench.build(options=options)
    named = set(re.findall(r"--[a-z-]+", told.value.next_step or ""))
    assert named
    assert named <= OPTION_NAMES
    assert bench.left() == {"machines": [], "groups": []}


def test_region_without_base_image_is_named_in_the_error(bench: Bench) -> None:
    elsewhere = System(**{**_fields(SYSTEM), "pattern": "ubuntu/none-*"})
    recipe = ARecipe(name=NAME, os="x", system=elsewhere, slurm="99.11", pins={}, files={}, digest="f" * 64)
    with pytest.raises(StateError, match=r"no image of Canonical \(099720109477\) named ubuntu/none-\*"):
        bench.build(recipe)


def test_inspect_creates_nothing(bench: Bench) -> None:
    found = inspect(a_recipe(), OPTIONS, bench.tools())
    assert (found.existing, found.name) == (None, NAME)
    assert bench.left() == {"machines": [], "groups": []}
    assert bench.images() == []


def test_failed_image_is_deleted_and_its_reason_reported(bench: Bench) -> None:
    class Failing(FaultyAccount):
        def image(self, image_id: str) -> MadeImage | None:
            found = super().image(image_id)
            return found and MadeImage(
                id=found.id, name=found.name, state=ImageState.FAILED, digest=found.digest,
                created=found.created, reason="Client.InternalError",
            )  # fmt: skip

    with pytest.raises(GpuclusterError, match=r"is failed: Client\.InternalError"):
        bench.build(account=Failing(REGION, lambda: bench.cloud.client("ec2")))
    assert bench.images() == []


def test_builder_has_encrypted_disk_imdsv2_and_powers_off_itself(bench: Bench) -> None:
    seen: list[Any] = []

    class Watching(FaultyAccount):
        def launch(self, launch: BuilderLaunch) -> str:
            made = super().launch(launch)
            seen.append(bench.cloud.model.describe((made,), bench.cloud.clock.now)[0])
            return made

    bench.build(account=Watching(REGION, lambda: bench.cloud.client("ec2")))
    assert "OnBootSec=360min" in user_data("ssh-ed25519 AAAA")
    assert len(user_data("ssh-ed25519 AAAA")) < 16384
    assert "PRIVATE" not in user_data("ssh-ed25519 AAAA")
    assert seen


def _fields(system: System) -> dict[str, Any]:
    return {name: getattr(system, name) for name in system.__slots__}


def test_files_of_a_build_are_only_in_its_folder(tmp_path: Path) -> None:
    from gpucluster.image.ssh import SshBuildHost

    build_host = SshBuildHost(tmp_path, tmp_path, region=REGION, python="3.12", ssm=False)
    target = SshTarget(host="192.0.2.4", user="ubuntu", host_keys=(KEY,))
    argv = build_host.argv(target, tmp_path / "v.json", ("system",))
    assert "StrictHostKeyChecking=yes" in " ".join(argv)
    assert not [word for word in argv if "PRIVATE" in word]
    public = build_host.public_key()
    assert public.startswith("ssh-ed25519 ")
    assert build_host.public_key() == public


def test_progress_reports_task_names_and_no_output_of_the_machine() -> None:
    from gpucluster.image.ssh import tasks_in

    log = (
        "2026-11-21 22:58:14,173 p=4 u=root n=ansible INFO| TASK [Build the packages, as many as can be] ******\n"
        'changed: [192.0.2.4] => {"msg": "TASK [evil] ***"}\n'
        "2026-11-21 22:58:15,173 p=4 u=root n=ansible INFO| TASK [slurm : \x1b[31mred] ***\n"
    )
    assert tasks_in(log) == ("Build the packages, as many as can be",)
