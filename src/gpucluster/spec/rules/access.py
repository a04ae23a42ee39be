"""Access: login machines, the connections to them, and accounts on AWS."""

import ipaddress
from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import error, or_none, repeated, security_warning, warning
from gpucluster.text import quoted

IMAGE_USER = ("ubuntu", 1000)  # the image's first account, and its uid
WIDE = 8  # an address range with this prefix length, or a shorter one, is a large part of the internet


def login_zone(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    zone, ours = require(spec.login).zone, require(spec.aws).network.places
    if zone is not None and zone not in ours:
        message = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
        yield error("login", "zone", id="zone-not-in-network", message=message)


def login_reached(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Warn about a cluster or a login machine without a connection, and about access without a login machine."""
    require(spec.aws)
    access, login = spec.access, spec.login
    ways = access is not None and (access.ssh_from or access.ssm)
    if login is None and not ways and spec.slurm is not None and spec.head is not None:
        message = "no connection reaches this cluster: write `access: {ssm: true}`, or `login: {machine: …}` with `access: {ssh_from: […]}`"
        yield warning("head", id="no-way-in", message=message)
    if login is not None and not ways:
        message = "no connection reaches the login machine: write `access: {ssh_from: […]}` or `access: {ssm: true}`"
        yield warning("login", id="no-way-in", message=message)
    if access is not None and access.ssh_from and login is None:
        message = "'ssh_from' opens login machines, and there are none: write `login: {machine: …}`"
        yield warning("access", "ssh_from", id="no-login", message=message)
    if login is None or access is None or not access.ssh_from:
        return
    network, zone = require(spec.aws).network, login.zone or require(spec.aws).network.places[0]
    if network.subnets is not None and zone not in (network.public or {}):
        message = f"{zone} has no public subnet in `aws.network.public`: ssh works only through the site's own network"
        yield warning("access", "ssh_from", id="login-not-public", message=message)


def accounts(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Warn if no account can log in by ssh."""
    require(spec.login)
    require(require(spec.access).ssh_from or None)
    if spec.directory is None and not any(user.keys for user in spec.users):
        message = "no account can log in by ssh: write `users` with `keys`, or `directory`"
        yield warning("access", "ssh_from", id="no-account", message=message)
        return
    for index, user in enumerate(spec.users):
        if or_none(lambda user=user: user.keys) == ():
            message = "this user cannot log in by ssh: write `keys: [ssh-ed25519 …]`"
            yield warning("users", index, id="user-without-key", message=message)


def ranges(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    found = require(spec.access).ssh_from
    yield from repeated(found, ("access", "ssh_from"), "the range")
    for index, one in enumerate(found):
        if ipaddress.IPv4Network(one).prefixlen <= WIDE:
            message = f"{one} is a large part of the internet: write the site's own address ranges"
            yield security_warning("access", "ssh_from", index, id="open-to-all", message=message)


def one_of_both(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.directory)
    if spec.users:
        message = "write `users` or `directory`, not both: two lists could give one name two uids"
        yield error("directory", id="users-or-directory", message=message)


def image_user(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse the uid of the image's own account. `hosts.people` refuses its name."""
    require(spec.aws)
    name, uid = IMAGE_USER
    for index, user in enumerate(spec.users):
        if or_none(lambda user=user: user.uid) == uid:
            message = f"{uid} is the uid of the image's own user '{name}'; choose a higher one"
            yield error("users", index, "uid", id="out-of-range", message=message)
