"""Who works on the cluster, and how they reach it. Pure."""

from collections.abc import Iterable

from gpucluster.plan.model import Access, Directory, User
from gpucluster.spec.aws import Access as AccessSpec
from gpucluster.spec.hosts import User as UserSpec
from gpucluster.spec.people import Directory as DirectorySpec


def users(wishes: Iterable[UserSpec]) -> tuple[User, ...]:
    """In the order of their uids, which is theirs for good."""
    found = (User(name=wish.name, uid=wish.uid, keys=wish.keys) for wish in wishes)
    return tuple(sorted(found, key=lambda user: user.uid))


def directory(wish: DirectorySpec | None) -> Directory | None:
    """LDAP, if it was wished."""
    if wish is None:
        return None
    return Directory(uri=wish.ldap.uri, base=wish.ldap.base, secret=wish.ldap.secret)


def access(wish: AccessSpec | None) -> Access:
    """Nobody until named."""
    return Access() if wish is None else Access(ssh_from=wish.ssh_from, ssm=wish.ssm)
