"""The building of an image, from the look for one that is there to the end of the builder.

Whatever happens (a failure, Ctrl-C), the builder ends, its group goes and no half made image stays. A killed desk leaves
a builder: it ends itself after LIFE_S, and the next build of that image ends it sooner.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpucluster.cloud.ending import Clock
from gpucluster.cloud.port import CloudError, Fault, InstanceState
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.image.port import (
    Account,
    BaseImage,
    Builder,
    Desk,
    Ground,
    ImageState,
    MadeImage,
    Order,
    Way,
    Wish,
)
from gpucluster.image.recipe import Recipe
from gpucluster.plan import names

PAUSE_S = 5.0
BOOT_S = 900.0  # until the console shows the host's keys and ssh answers
STOP_S = 900.0
END_S = 1200.0  # large machines end slowly
IMAGE_S = 5400.0  # 60 GiB of first snapshot
LIFE_S = (
    6 * 3600.0
)  # a builder ends itself then, longer than all deadlines together; an older one is nobody's

Say = Callable[[str], None]
_KEYS = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.DOTALL)
_KEY = re.compile(r"\b((?:ssh-ed25519|ecdsa-sha2-nistp256|ssh-rsa) [A-Za-z0-9+/]{40,2000}={0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The image, and whether it was there before."""

    image: MadeImage
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a build acts through."""

    account: Account
    desk: Desk
    clock: Clock
    wall: Callable[[], float]  # seconds since the epoch: of builders that others left
    say: Say


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there before anything is made: all that `--dry-run` needs to say what would be done."""

    standing: MadeImage | None  # of this very content
    base: BaseImage | None
    ground: Ground | None
    left: tuple[Builder, ...]  # to be ended first
    name: str  # the image's


def look(recipe: Recipe, wish: Wish, tools: Tools) -> Found:
    """Read, and refuse what cannot end well; nothing is made."""
    images = tools.account.images(recipe.name)
    standing = next((i for i in images if i.digest == recipe.digest and i.state in _LIVING), None)
    base, ground = tools.account.base(recipe.system), tools.account.ground(wish.subnet)
    left = _left_over(recipe, tools)
    found = Found(standing=standing, base=base, ground=ground, left=left, name=_free_name(recipe, images))
    if standing is None or wish.force:
        _ready(recipe, wish, found)
    return found


def build(recipe: Recipe, wish: Wish, tools: Tools) -> Built:
    """Return the image of this recipe, made if it is not there."""
    found = look(recipe, wish, tools)
    standing = None if wish.force else found.standing
    if (
        standing is not None and standing.state is ImageState.PENDING
    ):  # a killed desk's: its content is complete
        standing = _awaited(standing.id, tools)
    _sweep(recipe, found, tools)
    if standing is not None:
        return Built(image=standing, made=False)
    if found.base is None or found.ground is None:
        raise StateError("there is nothing to build from")  # `look` refused it
    with _builder(recipe, wish, found.base, found.ground, tools) as builder:
        _fill(recipe, wish, builder, tools)
        return Built(image=_imaged(recipe, found, builder, tools), made=True)


_LIVING = (ImageState.PENDING, ImageState.AVAILABLE)


def _ready(recipe: Recipe, wish: Wish, found: Found) -> None:
    system = recipe.system
    if found.base is None:
        raise StateError(
            f"{wish.region} has no image of {system.owner_name} ({system.owner}) named {system.pattern}",
            next_step="see that the region is right and that the account may read public images",
        )
    if found.ground is None:
        what = "has no default VPC" if wish.subnet is None else f"has no subnet {wish.subnet}"
        raise StateError(
            f"{wish.region} {what}", next_step="--subnet subnet-..., one that reaches the internet"
        )
    if not wish.ssm and wish.group is None and not wish.ssh_from:
        raise GpuclusterError(
            "nobody could reach the builder by ssh",
            next_step="--ssh-from ADDRESS/32 (this desk's, as the internet sees it), --group sg-..., or --via ssm",
        )
    if wish.ssm and wish.profile is None:
        raise GpuclusterError(
            "Session Manager reaches only machines whose role allows it",
            next_step="--instance-profile NAME, one with the policy AmazonSSMManagedInstanceCore",
        )


def _free_name(recipe: Recipe, images: tuple[MadeImage, ...]) -> str:
    """The image's name is the account's only once: a later content has its digest in it, and clusters keep the older by id (T18)."""
    taken = {image.name for image in images}
    wanted = [recipe.name, f"{recipe.name}-{recipe.digest[:12]}"]
    wanted += [f"{wanted[1]}-{n}" for n in range(2, len(images) + 3)]
    return next(name for name in wanted if name not in taken)


def _left_over(recipe: Recipe, tools: Tools) -> tuple[Builder, ...]:
    """Builders that nobody waits for; StateError while another desk builds. We hold this desk's lock, so its own are dead."""
    found = tools.account.builders(recipe.name)
    for builder in found:
        young = tools.wall() - builder.launched_at < LIFE_S
        if builder.desk != tools.desk.name and young:
            raise StateError(
                f"{builder.desk!r} builds {recipe.name} on {builder.id}",
                next_step="wait for its end; if that desk is gone, end the instance and try again",
            )
    return found


def _sweep(recipe: Recipe, found: Found, tools: Tools) -> None:
    if found.left:
        ids = [builder.id for builder in found.left]
        tools.say(f"ending what a killed build left: {', '.join(ids)}")
        _end(ids, tools)
    for group in tools.account.groups(recipe.name):
        _delete_group(group, tools)
    for image in tools.account.images(recipe.name):
        if image.state is ImageState.FAILED:
            tools.say(f"removing the failed image {image.id}")
            tools.account.discard(image)


@contextmanager
def _builder(recipe: Recipe, wish: Wish, base: BaseImage, ground: Ground, tools: Tools) -> Generator[Builder]:
    group, ids = wish.group, list[str]()
    tags = {
        names.TAG_BUILDER: recipe.name,
        f"{names.TAG_BUILDER}-desk": tools.desk.name,
        "Name": f"{recipe.name}-builder",
    }
    try:
        group = group or tools.account.open_group(
            f"{recipe.name}-builder", ground.vpc, () if wish.ssm else wish.ssh_from, tags
        )
        tools.say(f"launching a builder: {wish.machine} in {ground.zone}, from {base.name} ({base.id})")
        order = Order(
            image=base.id,
            machine=wish.machine,
            subnet=ground.subnet,
            groups=(group,),
            user_data=user_data(tools.desk.public_key()),
            profile=wish.profile,
            root_gib=wish.root_gib,
            tags={**tags, names.TAG_BUILT_FROM: base.name},
            root_device=base.root_device,
        )
        ids.append(tools.account.launch(order))
        yield _running(ids[0], tools)
    finally:
        _clean(recipe, ids, None if wish.group else group, tools)


def user_data(public_key: str) -> str:
    """The key of this build, and the end of a builder whose desk was killed; both are removed before the image is taken."""
    minutes = round(LIFE_S / 60)
    return f"""#cloud-config
ssh_authorized_keys: ["{public_key}"]
write_files:
  - path: /etc/systemd/system/gpucluster-builder.service
    content: |
      [Service]
      Type=oneshot
      ExecStart=/usr/bin/systemctl poweroff
  - path: /etc/systemd/system/gpucluster-builder.timer
    content: |
      [Timer]
      OnBootSec={minutes}min
      [Install]
      WantedBy=timers.target
runcmd:
  - [systemctl, enable, --now, gpucluster-builder.timer]
"""


def _clean(recipe: Recipe, ids: list[str], group: str | None, tools: Tools) -> None:
    """A launch whose answer was lost has no id here: what has the tag of ours ends, too."""
    with suppress(CloudError):
        mine = [b.id for b in tools.account.builders(recipe.name) if b.desk == tools.desk.name]
        ids = sorted({*ids, *mine})
    if ids:
        tools.say(f"ending the builder {', '.join(ids)}")
        _end(ids, tools)
    if group is not None:
        _delete_group(group, tools)


def _end(ids: list[str], tools: Tools) -> None:
    tools.account.terminate(ids)

    def over() -> bool:
        found = [tools.account.builder(one) for one in ids]
        return all(b is None or b.state is InstanceState.TERMINATED for b in found)

    _until(over, END_S, f"{', '.join(ids)} did not end", tools)


def _delete_group(group: str, tools: Tools) -> None:
    """An ended machine's interface may hang on it for minutes (T42)."""

    def gone() -> bool:
        try:
            tools.account.delete_group(group)
        except CloudError as error:
            if error.fault is not Fault.THROTTLED:
                raise
            return False
        return True

    _until(gone, END_S, f"the group {group} is in use", tools)


def _running(instance: str, tools: Tools) -> Builder:
    last: list[Builder] = []

    def runs() -> bool:
        found = tools.account.builder(instance)
        if found is not None and found.state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED):
            raise GpuclusterError(
                f"the builder {instance} ended while it booted",
                next_step="see its reason in EC2, and try again",
            )
        if found is None or found.state is not InstanceState.RUNNING or found.address is None:
            return False
        last.append(found)
        return True

    _until(runs, BOOT_S, f"the builder {instance} does not run", tools)
    return last[-1]


def _fill(recipe: Recipe, wish: Wish, builder: Builder, tools: Tools) -> None:
    keys: list[tuple[str, ...]] = []

    def shown() -> bool:
        found = host_keys(tools.account.console(builder.id))
        keys.extend([found] if found else [])
        return bool(found)

    tools.say(f"{builder.id} runs; waiting for its host keys on the console")
    _until(shown, BOOT_S, f"the console of {builder.id} shows no host keys", tools)
    host = builder.id if wish.ssm else builder.address or ""
    way = Way(host=host, user=recipe.system.user, host_keys=keys[-1])
    _until(lambda: tools.desk.answers(way), BOOT_S, f"{host} does not take our key by ssh", tools)
    tools.say(f"running playbooks/image.yml: {', '.join(recipe.tags())}")
    tools.desk.play(way, recipe.variables(), recipe.tags())


def host_keys(console: str) -> tuple[str, ...]:
    """Between cloud-init's own marks; the rest of a console is anybody's words."""
    blocks: list[str] = _KEYS.findall(console)
    return tuple(dict.fromkeys(_KEY.findall(blocks[-1]))) if blocks else ()


def _imaged(recipe: Recipe, found: Found, builder: Builder, tools: Tools) -> MadeImage:
    tools.say(f"stopping {builder.id}")
    tools.account.stop(builder.id)

    def stopped() -> bool:
        now = tools.account.builder(builder.id)
        return now is not None and now.state is InstanceState.STOPPED

    _until(stopped, STOP_S, f"the builder {builder.id} did not stop", tools)
    tags = {
        names.TAG_IMAGE: recipe.name,
        names.TAG_IMAGE_DIGEST: recipe.digest,
        names.TAG_BUILT_FROM: found.base.name if found.base else "",
        "Name": found.name,
    }
    image = tools.account.create_image(builder.id, found.name, tags)
    try:
        return _awaited(image, tools)
    except BaseException:
        half = tools.account.image(image)
        if half is not None:
            tools.say(f"removing the half made image {image}")
            tools.account.discard(half)
        raise


def _awaited(image: str, tools: Tools) -> MadeImage:
    tools.say(f"waiting until {image} is available; the first takes many minutes")
    last: list[MadeImage] = []

    def available() -> bool:
        found = tools.account.image(image)
        if found is not None and found.state not in _LIVING:
            raise GpuclusterError(
                f"the image {image} is {found.state.value}: {found.reason or 'EC2 gives no reason'}",
                next_step="give the same command again",
            )
        last.extend([found] if found else [])
        return found is not None and found.state is ImageState.AVAILABLE

    _until(available, IMAGE_S, f"the image {image} is not available", tools)
    return last[-1]


def _until(done: Callable[[], bool], deadline_s: float, otherwise: str, tools: Tools) -> None:
    end = tools.clock.now() + deadline_s
    while not done():
        if tools.clock.now() >= end:
            raise GpuclusterError(
                f"{otherwise} after {deadline_s / 60:.0f} min", next_step="give the same command again"
            )
        tools.clock.pause(PAUSE_S)
