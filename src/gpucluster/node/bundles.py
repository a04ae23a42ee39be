"""The bundle: fetched, checked, written beside the applied one, and applied by swapping one link.

`bundles/DIGEST/` holds trees, `bundle` (names.BUNDLE_DIR) points to the applied one. Plan, bindings and
Slurm's files so change in one rename.
"""

import hashlib
import shutil
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpucluster import artifacts
from gpucluster.artifacts import Artifact
from gpucluster.node.known import Bundle, Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings, ClusterPlan

TREES = f"{names.STATE_DIR}/bundles"


def fetch(machine: Machine, known: Known) -> Known:
    """Get the bundle if it is another than the one that is known. NotYetError while there is none."""
    me, have = of(known.identity), known.offered
    fetched = machine.store(me.region).get(me.bucket, me.key, unless=have.etag if have else None)
    if fetched is None:
        return known
    bundle = _unpacked(machine, fetched.body, fetched.etag)
    return replace(known, bundle=bundle, offered=bundle, refused="")


def fetch_and_apply(machine: Machine, known: Known) -> Known:
    """What a node does: there is nothing to try out first."""
    known = fetch(machine, known)
    apply(machine, of(known.bundle).digest)
    return known


def applied(machine: Machine) -> str | None:
    """The digest of the applied bundle."""
    link = machine.place(names.BUNDLE_DIR)
    return link.readlink().name if link.is_symlink() else None


def apply(machine: Machine, digest: str) -> None:
    """Point the link at the tree of `digest`."""
    if applied(machine) == digest:
        return
    link = machine.place(names.BUNDLE_DIR)
    fresh = link.with_name(".bundle.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(f"bundles/{digest}")
    fresh.replace(link)


def stored(machine: Machine, digest: str) -> Bundle | None:
    """The bundle of a tree that stands here; None if there is none, or not a whole one."""
    tree = machine.place(TREES) / digest
    try:
        plan = codec.loads(ClusterPlan, (tree / names.PLAN_FILE).read_bytes())
        bindings = _bindings(plan, (tree / names.BINDINGS_FILE).read_bytes)
    except (OSError, ValueError):
        return None
    return Bundle(digest=digest, etag="", tree=tree, plan=plan, bindings=bindings)


def mark(bundle: Bundle, *paths: str) -> str:
    """One hash over the names and contents of these files and folders of the bundle."""
    seen = hashlib.sha256()
    for path in paths:
        place = bundle.tree / path
        for file in [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file()):
            seen.update(
                f"{file.relative_to(bundle.tree)}\0{file.stat().st_size}\0".encode() + file.read_bytes()
            )
    return seen.hexdigest()


def prune(machine: Machine, keep: Sequence[str | None]) -> None:
    """Remove every tree but these."""
    for tree in machine.place(TREES).iterdir():
        if tree.name not in keep:
            shutil.rmtree(tree)


def _unpacked(machine: Machine, body: bytes, etag: str) -> Bundle:
    digest = artifacts.digest(body)
    try:
        members = artifacts.unpack(body)
        plan = codec.loads(ClusterPlan, _member(members, names.PLAN_FILE))
        bindings = _bindings(plan, lambda: _member(members, names.BINDINGS_FILE))
    except (ValueError, KeyError, EOFError, OSError, tarfile.TarError, zlib.error) as error:
        # StepError on purpose: the same bytes will not become right
        raise StepError(f"the bundle {digest[:12]} is not whole: {error}") from error
    tree = _written(machine, digest, members)
    return Bundle(digest=digest, etag=etag, tree=tree, plan=plan, bindings=bindings)


def _bindings(plan: ClusterPlan, read: Callable[[], bytes]) -> Bindings | None:
    return None if plan.aws is None else codec.loads(Bindings, read())


def _member(members: Sequence[Artifact], path: str) -> bytes:
    found = next((a.content for a in members if a.path == path), None)
    if found is None:
        raise ValueError(f"it has no {path}")
    return found


def _written(machine: Machine, digest: str, members: Sequence[Artifact]) -> Path:
    """The tree, written again if a crash left it other than it must be."""
    tree = machine.place(TREES) / digest
    wanted = {a.path: a.content for a in members}
    if {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()} == wanted:
        return tree
    fresh = tree.with_name(f".{digest}.new")
    for stale in (fresh, tree):
        shutil.rmtree(stale, ignore_errors=True)
    artifacts.write_tree(members, fresh)
    try:
        fresh.rename(tree)
    except OSError as error:
        raise NotYetError(f"{tree}: {error.strerror}", limit_s=30) from error
    return tree
