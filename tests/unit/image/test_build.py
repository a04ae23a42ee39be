"""The building of an image against the stand-in cloud: what is made, what is left, what is refused."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from clouds import REGION, RunningCloud, running_cloud

from gpucluster.catalog.image import System
from gpucluster.cloud.ending import Clock
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.image.account import Ec2Account
from gpucluster.image.build import LIFE_S, Built, Tools, build, host_keys, look, user_data
from gpucluster.image.port import ImageState, MadeImage, Order, Way, Wish
from gpucluster.image.recipe import Recipe
from gpucluster.plan import names

pytestmark = pytest.mark.loopback

NAME = "gpucluster-ubuntu-24.04-slurm-99.11"
SYSTEM = System(
    owner="099720109477",
    owner_name="Canonical",
    pattern="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*",
    architecture="x86_64",
    user="ubuntu",
    python="3.12",
    kernel="linux-aws",
    source="a test",
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostKeyOfTheBuilderHostKeyOfTheBuilder00000"
CONSOLE = f"""[ 9.1] cloud-init: ssh-ed25519 AAAAforgedforgedforgedforgedforgedforgedforgedforged
-----BEGIN SSH HOST KEY KEYS-----
{KEY} root@ip-10-42-0-9
-----END SSH HOST KEY KEYS-----
"""
WISH = Wish(region=REGION, ssh_from=("198.51.100.7/32",))


@dataclass(frozen=True)
class ARecipe(Recipe):
    """A recipe whose files nobody needs."""

    def variables(self) -> dict[str, object]:
        return {"a": "variable"}


def a_recipe(digest: str = "d1" * 32) -> Recipe:
    return ARecipe(
        name=NAME, os="ubuntu-24.04", system=SYSTEM, slurm="99.11", pins={}, files={}, digest=digest
    )


@dataclass
class ADesk:
    """A desk that builds nothing; `fail` is raised by the playbook, `seen` is what it was given."""

    name: str = "desk/1"
    fail: BaseException | None = None
    seen: list[Way] = field(default_factory=list[Way])

    def public_key(self) -> str:
        return "ssh-ed25519 AAAAours build"

    def answers(self, way: Way) -> bool:
        return bool(way.host)

    def play(self, way: Way, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        self.seen.append(way)
        if self.fail is not None:
            raise self.fail


@dataclass
class Bench:
    """A cloud with Canonical's image, and all that a build acts through."""

    cloud: RunningCloud
    said: list[str] = field(default_factory=list[str])

    def tools(self, desk: ADesk | None = None, account: Any = None) -> Tools:
        return Tools(
            account=account or self.account(),
            desk=desk or ADesk(),
            clock=Clock(self.cloud.clock, self.pause),
            wall=self.cloud.clock,
            say=self.said.append,
        )

    def account(self) -> "AnAccount":
        return AnAccount(REGION, lambda: self.cloud.client("ec2"))

    def pause(self, seconds: float) -> None:
        """Time passes, and the machines' supervisors do their part."""
        self.cloud.clock.move(seconds)
        now = self.cloud.clock.now
        for instance in self.cloud.model.ending(now):
            self.cloud.model.mark_ended(instance.id, now)

    def build(self, recipe: Recipe | None = None, wish: Wish = WISH, **how: Any) -> Built:
        return build(recipe or a_recipe(), wish, self.tools(**how))

    def left(self) -> dict[str, list[str]]:
        """What carries the builder's tag and still stands."""
        account = self.account()
        return {"machines": [b.id for b in account.builders(NAME)], "groups": list(account.groups(NAME))}

    def images(self) -> list[str]:
        return sorted(image.name for image in self.account().images(NAME))


class AnAccount(Ec2Account):
    """The account with the console of the builder; `breaks` are calls that fail once, by name."""

    def __init__(self, region: str, client: Callable[[], Any]) -> None:
        super().__init__(region, client)
        self.breaks: dict[str, BaseException] = {}

    def console(self, instance: str) -> str:
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

    def launch(self, order: Order) -> str:
        made = super().launch(order)
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
        bench.account().discard(image)
    return bench


def test_an_image_is_made_under_its_name_with_its_tags_and_nothing_else_is_left(bench: Bench) -> None:
    built = bench.build()
    (row,) = bench.cloud.client("ec2").describe_images(ImageIds=[built.image.id])["Images"]
    tags = {t["Key"]: t["Value"] for t in row["Tags"]}
    assert (built.made, row["Name"]) == (True, NAME)
    assert tags[names.TAG_IMAGE_DIGEST] == a_recipe().digest
    assert tags[names.TAG_IMAGE] == NAME
    assert tags[names.TAG_BUILT_FROM].endswith("20260901")  # the maker's, not the newer one of a stranger
    assert bench.left() == {"machines": [], "groups": []}


def test_the_same_content_is_not_built_twice_unless_it_is_forced(bench: Bench) -> None:
    first, desk = bench.build(), ADesk()
    again = bench.build(desk=desk)
    assert (again.made, again.image.id, desk.seen) == (False, first.image.id, [])
    forced = bench.build(wish=Wish(region=REGION, ssh_from=("198.51.100.7/32",), force=True))
    assert forced.made
    assert forced.image.id != first.image.id


def test_other_content_gets_a_name_of_its_own_and_leaves_the_older_image_to_its_clusters(
    bench: Bench,
) -> None:
    bench.build()
    bench.build(a_recipe("e2" * 32))
    assert bench.images() == [NAME, f"{NAME}-e2e2e2e2e2e2"]


def test_the_builder_is_known_by_the_keys_of_its_console_alone(bench: Bench) -> None:
    desk = ADesk()
    bench.build(desk=desk)
    assert desk.seen[0].host_keys == (KEY,)
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
def test_whatever_breaks_no_builder_no_group_and_no_half_made_image_is_left(
    bench: Bench, call: str, fault: BaseException
) -> None:
    account, desk = bench.account(), ADesk()
    if call == "play":
        desk.fail = fault
    else:
        account.breaks[call] = fault
    with pytest.raises(type(fault)):
        bench.build(account=account, desk=desk)
    assert bench.left() == {"machines": [], "groups": []}
    assert bench.images() == []
    assert bench.build().made  # and the same command goes on from there


def test_what_a_killed_build_left_is_ended_by_the_next(bench: Bench) -> None:
    account = bench.account()
    ground = account.ground(None)
    assert ground is not None
    tags = {names.TAG_BUILDER: NAME, f"{names.TAG_BUILDER}-desk": "desk/1"}
    group = account.open_group("left", ground.vpc, ("198.51.100.7/32",), tags)
    base = account.base(SYSTEM)
    assert base is not None
    order = Order(
        image=base.id, machine="m7i.2xlarge", subnet=ground.subnet, groups=(group,), user_data="",
        profile=None, root_gib=60, tags=tags,
    )  # fmt: skip
    left = account.launch(order)
    assert [b.id for b in look(a_recipe(), WISH, bench.tools()).left] == [left]
    with pytest.raises(StateError, match=f"'desk/1' builds {NAME} on {left}"):  # to another desk it is alive
        bench.build(desk=ADesk(name="desk/2"))
    bench.build()
    assert bench.left() == {"machines": [], "groups": []}
    assert f"ending what a killed build left: {left}" in bench.said


def test_a_builder_that_is_older_than_its_own_end_is_nobodys(bench: Bench) -> None:
    account = bench.account()
    ground, base = account.ground(None), account.base(SYSTEM)
    assert ground is not None
    assert base is not None
    order = Order(
        image=base.id, machine="m7i.2xlarge", subnet=ground.subnet, groups=(), user_data="", profile=None,
        root_gib=60, tags={names.TAG_BUILDER: NAME, f"{names.TAG_BUILDER}-desk": "desk/9"},
    )  # fmt: skip
    account.launch(order)
    bench.cloud.clock.move(LIFE_S + 60)
    assert bench.build().made


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(region=REGION), "nobody could reach the builder by ssh"),
        (Wish(region=REGION, ssm=True), "whose role allows it"),
        (Wish(region=REGION, subnet="subnet-404", ssh_from=("198.51.100.7/32",)), "has no subnet subnet-404"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_made(
    bench: Bench, wish: Wish, words: str
) -> None:
    with pytest.raises(GpuclusterError, match=words) as told:
        bench.build(wish=wish)
    assert told.value.next_step
    assert bench.left() == {"machines": [], "groups": []}


def test_a_region_without_the_makers_image_is_named(bench: Bench) -> None:
    elsewhere = System(**{**_fields(SYSTEM), "pattern": "ubuntu/none-*"})
    recipe = ARecipe(name=NAME, os="x", system=elsewhere, slurm="99.11", pins={}, files={}, digest="f" * 64)
    with pytest.raises(StateError, match=r"no image of Canonical \(099720109477\) named ubuntu/none-\*"):
        bench.build(recipe)


def test_a_look_makes_nothing(bench: Bench) -> None:
    found = look(a_recipe(), WISH, bench.tools())
    assert (found.standing, found.name) == (None, NAME)
    assert bench.left() == {"machines": [], "groups": []}
    assert bench.images() == []


def test_the_image_that_failed_is_removed_and_its_reason_told(bench: Bench) -> None:
    class Failing(AnAccount):
        def image(self, image_id: str) -> MadeImage | None:
            found = super().image(image_id)
            return found and MadeImage(
                id=found.id, name=found.name, state=ImageState.FAILED, digest=found.digest,
                created=found.created, reason="Client.InternalError",
            )  # fmt: skip

    with pytest.raises(GpuclusterError, match=r"is failed: Client\.InternalError"):
        bench.build(account=Failing(REGION, lambda: bench.cloud.client("ec2")))
    assert bench.images() == []


def test_the_builder_is_encrypted_speaks_imdsv2_and_ends_itself(bench: Bench) -> None:
    seen: list[Any] = []

    class Watching(AnAccount):
        def launch(self, order: Order) -> str:
            made = super().launch(order)
            seen.append(bench.cloud.model.describe((made,), bench.cloud.clock.now)[0])
            return made

    bench.build(account=Watching(REGION, lambda: bench.cloud.client("ec2")))
    assert "OnBootSec=360min" in user_data("ssh-ed25519 AAAA")
    assert len(user_data("ssh-ed25519 AAAA")) < 16384
    assert "PRIVATE" not in user_data("ssh-ed25519 AAAA")
    assert seen


def _fields(system: System) -> dict[str, Any]:
    return {name: getattr(system, name) for name in system.__slots__}


def test_files_of_the_build_are_nowhere_but_in_its_folder(tmp_path: Path) -> None:
    from gpucluster.image.desk import SshDesk

    desk = SshDesk(tmp_path, tmp_path, region=REGION, python="3.12", ssm=False)
    way = Way(host="192.0.2.4", user="ubuntu", host_keys=(KEY,))
    argv = desk.argv(way, tmp_path / "v.json", ("system",))
    assert "StrictHostKeyChecking=yes" in " ".join(argv)
    assert not [word for word in argv if "PRIVATE" in word]
    public = desk.public_key()
    assert public.startswith("ssh-ed25519 ")
    assert desk.public_key() == public


def test_progress_names_our_tasks_and_takes_nothing_of_what_a_machine_prints() -> None:
    from gpucluster.image.desk import tasks_in

    log = (
        "2026-11-21 22:58:14,173 p=4 u=root n=ansible INFO| TASK [Build the packages, as many as can be] ******\n"
        'changed: [192.0.2.4] => {"msg": "TASK [evil] ***"}\n'
        "2026-11-21 22:58:15,173 p=4 u=root n=ansible INFO| TASK [slurm : \x1b[31mred] ***\n"
    )
    assert tasks_in(log) == ("Build the packages, as many as can be",)
