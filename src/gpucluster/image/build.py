"""Build a machine image: look for an existing one, launch a builder, run the playbook, create the image, end the builder.

After any failure, and after Ctrl-C, the builder is terminated, and its security group and an incomplete image are
deleted. If the build process is killed, the builder remains. It powers off after MAX_AGE_S, or the next build of the
same image terminates it.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpucluster.cloud.port import CloudError, Fault, InstanceState
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.image.port import (
    Account,
    BaseImage,
    Builder,
    BuilderLaunch,
    BuilderSubnet,
    BuildHost,
    BuildOptions,
    ImageState,
    MadeImage,
    SshTarget,
)
from gpucluster.image.recipe import Recipe
from gpucluster.plan import names
from gpucluster.text import short

PAUSE_S = 5.0
BOOT_S = 900.0  # until the console shows the host keys and ssh answers
STOP_S = 900.0
END_S = 1200.0  # large machines terminate slowly
IMAGE_S = 5400.0  # for a first snapshot of 60 GiB
MAX_AGE_S = 6 * 3600.0  # a builder powers off after this time, which is longer than all deadlines together

Progress = Callable[[str], None]
_KEYS = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.DOTALL)
_KEY = re.compile(r"\b((?:ssh-ed25519|ecdsa-sha2-nistp256|ssh-rsa) [A-Za-z0-9+/]{40,2000}={0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The image. `made`: this build has created it."""

    image: MadeImage
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The effects of a build."""

    account: Account
    build_host: BuildHost
    clock: Clock
    wall: Callable[[], float]  # Unix time, to find old builders
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of `inspect`, which is all that `--dry-run` prints."""

    existing: MadeImage | None  # an image with the same content
    base: BaseImage | None
    subnet: BuilderSubnet | None
    left: tuple[Builder, ...]  # leftover builders, to be terminated first
    name: str  # the image's


def inspect(recipe: Recipe, options: BuildOptions, tools: Tools) -> Inspection:
    """Query the account, and refuse a build that cannot succeed. Nothing is created."""
    images = tools.account.images(recipe.name)
    existing = next((i for i in images if i.digest == recipe.digest and i.state in _USABLE), None)
    base, subnet = tools.account.base(recipe.system), tools.account.subnet(options.subnet)
    left = _leftovers(recipe, tools)
    found = Inspection(
        existing=existing, base=base, subnet=subnet, left=left, name=_free_name(recipe, images)
    )
    if existing is None or options.force:
        _check_options(recipe, options, found)
    return found


def build(recipe: Recipe, options: BuildOptions, tools: Tools) -> Built:
    """Return the image of this recipe. Build it if it does not exist."""
    found = inspect(recipe, options, tools)
    existing = None if options.force else found.existing
    if (
        existing is not None and existing.state is ImageState.PENDING
    ):  # left by a killed build, with all its content
        existing = _wait_for_image(existing.id, tools)
    _delete_leftovers(recipe, found, tools)
    if existing is not None:
        return Built(image=existing, made=False)
    if found.base is None or found.subnet is None:
        raise StateError("there is no base image or no subnet")  # `inspect` has refused this already
    with _builder(recipe, options, found.base, found.subnet, tools) as builder:
        _run_playbook(recipe, options, builder, tools)
        return Built(image=_create_image(recipe, found, builder, tools), made=True)


_USABLE = (ImageState.PENDING, ImageState.AVAILABLE)


def _check_options(recipe: Recipe, options: BuildOptions, found: Inspection) -> None:
    system = recipe.system
    if found.base is None:
        raise StateError(
            f"{options.region} has no image of {system.owner_name} ({system.owner}) named {system.pattern}",
            next_step="check the region, and that the account may read public images",
        )
    if found.subnet is None:
        what = "has no default VPC" if options.subnet is None else f"has no subnet {options.subnet}"
        raise StateError(
            f"{options.region} {what}", next_step="--subnet subnet-..., with a route to the internet"
        )
    if not options.ssm and options.group is None and not options.ssh_from:
        raise GpuclusterError(
            "the builder would accept no ssh connection",
            next_step="--ssh-from ADDRESS/32 (the public address of this machine), --security-group sg-..., or --via ssm",
        )
    if options.ssm and options.profile is None:
        raise GpuclusterError(
            "Session Manager needs an instance profile that allows it",
            next_step="--instance-profile NAME, with the policy AmazonSSMManagedInstanceCore",
        )


def _free_name(recipe: Recipe, images: tuple[MadeImage, ...]) -> str:
    """Return a free name: image names are unique in an account. Newer content gets its digest in the name; clusters use ids (T18)."""
    taken = {image.name for image in images}
    wanted = [recipe.name, f"{recipe.name}-{recipe.digest[:12]}"]
    wanted += [f"{wanted[1]}-{n}" for n in range(2, len(images) + 3)]
    return next(name for name in wanted if name not in taken)


def _leftovers(recipe: Recipe, tools: Tools) -> tuple[Builder, ...]:
    """Return the leftover builders. StateError if another machine builds this image now.

    The lock of this machine is held, so its own builders are leftovers.
    """
    found = tools.account.builders(recipe.name)
    for builder in found:
        young = tools.wall() - builder.launched_at < MAX_AGE_S
        if builder.build_host != tools.build_host.name and young:
            raise StateError(
                f"{builder.build_host!r} builds {recipe.name} on {builder.id}",
                next_step="wait for its end; if that machine no longer builds, terminate the instance and try again",
            )
    return found


def _delete_leftovers(recipe: Recipe, found: Inspection, tools: Tools) -> None:
    if found.left:
        ids = [builder.id for builder in found.left]
        tools.progress(f"terminating leftover builders: {', '.join(ids)}")
        _end(ids, tools)
    for group in tools.account.groups(recipe.name):
        _delete_group(group, tools)
    for image in tools.account.images(recipe.name):
        if image.state is ImageState.FAILED:
            tools.progress(f"removing the failed image {image.id}")
            tools.account.delete_image(image)


@contextmanager
def _builder(
    recipe: Recipe, options: BuildOptions, base: BaseImage, subnet: BuilderSubnet, tools: Tools
) -> Generator[Builder]:
    group, ids = options.group, list[str]()
    tags = {
        names.TAG_BUILDER: recipe.name,
        f"{names.TAG_BUILDER}-desk": tools.build_host.name,
        "Name": f"{recipe.name}-builder",
    }
    try:
        group = group or tools.account.create_group(
            f"{recipe.name}-builder", subnet.vpc, () if options.ssm else options.ssh_from, tags
        )
        tools.progress(
            f"launching a builder: {options.machine} in {subnet.zone}, from {base.name} ({base.id})"
        )
        launch = BuilderLaunch(
            image=base.id,
            machine=options.machine,
            subnet=subnet.subnet,
            groups=(group,),
            user_data=user_data(tools.build_host.public_key()),
            profile=options.profile,
            root_gib=options.root_gib,
            tags={**tags, names.TAG_BUILT_FROM: base.name},
            root_device=base.root_device,
        )
        ids.append(tools.account.launch(launch))
        yield _wait_until_running(ids[0], tools)
    finally:
        _clean_up(recipe, ids, None if options.group else group, tools)


def user_data(public_key: str) -> str:
    """Return user data with the key of this build and a timer that powers off a forgotten builder.

    The playbook removes both before the image is created.
    """
    minutes = round(MAX_AGE_S / 60)
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


def _clean_up(recipe: Recipe, ids: list[str], group: str | None, tools: Tools) -> None:
    """Terminate the builder and delete its group. A launch without an answer has no id here, so builders are found by tag, too."""
    with suppress(CloudError):
        mine = [b.id for b in tools.account.builders(recipe.name) if b.build_host == tools.build_host.name]
        ids = sorted({*ids, *mine})
    if ids:
        tools.progress(f"terminating the builder {', '.join(ids)}")
        _end(ids, tools)
    if group is not None:
        _delete_group(group, tools)


def _end(ids: list[str], tools: Tools) -> None:
    tools.account.terminate(ids)

    def over() -> bool:
        found = [tools.account.builder(one) for one in ids]
        return all(b is None or b.state is InstanceState.TERMINATED for b in found)

    _wait_until(over, END_S, f"{', '.join(ids)} did not terminate", tools)


def _delete_group(group: str, tools: Tools) -> None:
    """Delete the group. The interface of a terminated machine may use it for minutes (T42)."""

    def gone() -> bool:
        try:
            tools.account.delete_group(group)
        except CloudError as error:
            if error.fault is not Fault.THROTTLED:
                raise
            return False
        return True

    _wait_until(gone, END_S, f"the security group {group} is still in use", tools)


def _wait_until_running(instance: str, tools: Tools) -> Builder:
    last: list[Builder] = []

    def runs() -> bool:
        found = tools.account.builder(instance)
        if found is not None and found.state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED):
            raise GpuclusterError(
                f"the builder {instance} terminated while it booted: {short(found.reason or 'EC2 gives no reason')}",
                next_step=_after_its_end(found.reason),
            )
        if found is None or found.state is not InstanceState.RUNNING or found.address is None:
            return False
        last.append(found)
        return True

    _wait_until(runs, BOOT_S, f"the builder {instance} does not run", tools)
    return last[-1]


def _after_its_end(reason: str) -> str:
    """Return what to do after the builder ended for this reason."""
    if "KMSKey" in reason:
        return "check that the builder's operator may use the account's default key of EBS, or the key of the image, and try again"
    return "correct this, and try again"


def _run_playbook(recipe: Recipe, options: BuildOptions, builder: Builder, tools: Tools) -> None:
    keys: list[tuple[str, ...]] = []

    def shown() -> bool:
        found = host_keys(tools.account.console_output(builder.id))
        keys.extend([found] if found else [])
        return bool(found)

    tools.progress(f"{builder.id} runs; waiting for its host keys on the console")
    _wait_until(shown, BOOT_S, f"the console of {builder.id} shows no host keys", tools)
    host = builder.id if options.ssm else builder.address or ""
    target = SshTarget(host=host, user=recipe.system.user, host_keys=keys[-1])
    _wait_until(
        lambda: tools.build_host.accepts_key(target), BOOT_S, f"{host} does not accept our ssh key", tools
    )
    tools.progress(f"running playbooks/image.yml: {', '.join(recipe.tags())}")
    tools.build_host.run_playbook(target, recipe.variables(), recipe.tags())


def host_keys(console: str) -> tuple[str, ...]:
    """Return the host keys between cloud-init's marks. Other console text is not trusted."""
    blocks: list[str] = _KEYS.findall(console)
    return tuple(dict.fromkeys(_KEY.findall(blocks[-1]))) if blocks else ()


def _create_image(recipe: Recipe, found: Inspection, builder: Builder, tools: Tools) -> MadeImage:
    tools.progress(f"stopping {builder.id}")
    tools.account.stop(builder.id)

    def stopped() -> bool:
        now = tools.account.builder(builder.id)
        return now is not None and now.state is InstanceState.STOPPED

    _wait_until(stopped, STOP_S, f"the builder {builder.id} did not stop", tools)
    tags = {
        names.TAG_IMAGE: recipe.name,
        names.TAG_IMAGE_DIGEST: recipe.digest,
        names.TAG_BUILT_FROM: found.base.name if found.base else "",
        "Name": found.name,
    }
    image = tools.account.create_image(builder.id, found.name, tags)
    try:
        return _wait_for_image(image, tools)
    except BaseException:
        half = tools.account.image(image)
        if half is not None:
            tools.progress(f"removing the incomplete image {image}")
            tools.account.delete_image(half)
        raise


def _wait_for_image(image: str, tools: Tools) -> MadeImage:
    tools.progress(f"waiting until {image} is available; a first snapshot takes many minutes")
    last: list[MadeImage] = []

    def available() -> bool:
        found = tools.account.image(image)
        if found is not None and found.state not in _USABLE:
            raise GpuclusterError(
                f"the image {image} is {found.state.value}: {found.reason or 'EC2 gives no reason'}",
                next_step="repeat the command",
            )
        last.extend([found] if found else [])
        return found is not None and found.state is ImageState.AVAILABLE

    _wait_until(available, IMAGE_S, f"the image {image} is not available", tools)
    return last[-1]


def _wait_until(done: Callable[[], bool], deadline_s: float, otherwise: str, tools: Tools) -> None:
    end = tools.clock.now() + deadline_s
    while not done():
        if tools.clock.now() >= end:
            raise GpuclusterError(
                f"{otherwise} after {deadline_s / 60:.0f} min", next_step="repeat the command"
            )
        tools.clock.pause(PAUSE_S)
