"""Who may use the cluster: local users, the directory, ssh and Session Manager. Pure."""

from collections.abc import Iterable

from gpucluster.plan.model import Access, Directory, User
from gpucluster.spec.aws import Access as AccessSpec
from gpucluster.spec.hosts import User as UserSpec
from gpucluster.spec.people import Directory as DirectorySpec


def users(requested_parts: Iterable[UserSpec]) -> tuple[User, ...]:
    """Sorted by uid, which never changes."""
    found = (
        User(name=requested.name, uid=requested.uid, keys=requested.keys) for requested in requested_parts
    )
    return tuple(sorted(found, key=lambda user: user.uid))


def directory(requested: DirectorySpec | None) -> Directory | None:
    """LDAP, if the spec has it."""
    if requested is None:
        return None
    return Directory(uri=requested.ldap.uri, base=requested.ldap.base, secret=requested.ldap.secret)


def access(requested: AccessSpec | None) -> Access:
    """No access unless the spec names it."""
    return Access() if requested is None else Access(ssh_from=requested.ssh_from, ssm=requested.ssm)
