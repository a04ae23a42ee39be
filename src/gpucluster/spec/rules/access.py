"""Who gets in: login machines, the ways to them, and accounts on AWS."""

import ipaddress
from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.rules.findings import error, or_none, repeated, warning

IMAGES_OWN = ("ubuntu", 1000)  # the image's first account, and its uid
WIDE = 8  # an address range of at most so many fixed bits is most of the world


def login_zone(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    zone, ours = written(spec.login).zone, written(spec.aws).network.places
    if zone is not None and zone not in ours:
        says = f"{quoted(zone)} is not one of the network's zones ({', '.join(ours)})"
        yield error("login", "zone", id="zone-not-in-network", says=says)


def login_reached(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """A login machine that nobody reaches, and a way that leads nowhere."""
    written(spec.aws)
    access, login = spec.access, spec.login
    ways = access is not None and (access.ssh_from or access.ssm)
    if login is not None and not ways:
        says = "nobody can reach a login machine: write `access: {ssh_from: […]}` or `access: {ssm: true}`"
        yield warning("login", id="no-way-in", says=says)
    if access is not None and access.ssh_from and login is None:
        says = "ssh leads to login machines, and there are none: write `login: {machine: …}`"
        yield warning("access", "ssh_from", id="no-login", says=says)
    if login is None or access is None or not access.ssh_from:
        return
    network, zone = written(spec.aws).network, login.zone or written(spec.aws).network.places[0]
    if network.subnets is not None and zone not in (network.public or {}):
        says = f"{zone} has no public subnet in `aws.network.public`: ssh comes only by the site's own ways"
        yield warning("access", "ssh_from", id="login-not-public", says=says)


def accounts(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Whoever comes by ssh needs an account with a key."""
    written(spec.login)
    written(written(spec.access).ssh_from or None)
    if spec.directory is None and not any(user.keys for user in spec.users):
        says = "nobody has an account that ssh opens: write `users` with `keys`, or `directory`"
        yield warning("access", "ssh_from", id="nobody-to-log-in", says=says)


def ranges(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    found = written(spec.access).ssh_from
    yield from repeated(found, ("access", "ssh_from"), "the range")
    for index, one in enumerate(found):
        if ipaddress.IPv4Network(one).prefixlen <= WIDE:
            says = f"{one} lets most of the world try: name the site's own addresses"
            yield warning("access", "ssh_from", index, id="open-to-all", says=says)


def one_of_both(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.directory)
    if spec.users:
        says = "people come from `users` or from `directory`: two lists would give a name two uids"
        yield error("directory", id="users-or-directory", says=says)


def images_own(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """The account that comes with the image."""
    written(spec.aws)
    name, uid = IMAGES_OWN
    for index, user in enumerate(spec.users):
        if or_none(lambda user=user: user.name) == name:
            yield error("users", index, "name", id="reserved-name", says=f"'{name}' is the image's own user")
        if or_none(lambda user=user: user.uid) == uid:
            says = f"{uid} is the image's own user, '{name}'; take a higher one"
            yield error("users", index, "uid", id="out-of-range", says=says)
