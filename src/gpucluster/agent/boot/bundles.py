"""The bundle: fetch it, check it, unpack it beside the applied bundle, and apply it by replacing one link.

`bundles/DIGEST/` holds the trees. The link names.BUNDLE_DIR points to the applied tree, so plan, bindings and Slurm's
files change in one rename.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpucluster import artifacts
from gpucluster.agent.boot.boot_state import BootState, Bundle, require
from gpucluster.agent.machine import BundleRefusedError, Machine, NotYetError
from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan.model import Bindings, SlurmPlan

TREES = f"{names.STATE_DIR}/bundles"


def fetch(machine: Machine, state: BootState) -> BootState:
    """Fetch the bundle if the bucket has a newer one. NotYetError while the bucket has none, BundleRefusedError for a damaged one."""
    me, have = require(state.identity), state.offered
    fetched = machine.services(me.region).get_object(
        me.bucket, me.key, if_none_match=have.etag if have else None
    )
    if fetched is None:
        again = bool(have and state.damaged)  # the bucket has the last whole bundle again
        return replace(state, bundle=have, refused="", damaged="") if again else state
    bundle = _unpack(machine, fetched.body, fetched.etag)
    return replace(state, bundle=bundle, offered=bundle, refused="", damaged="")


def fetch_and_apply(machine: Machine, state: BootState) -> BootState:
    """Fetch and apply the bundle. A node needs no check by Slurm's parser first."""
    state = fetch(machine, state)
    apply(machine, require(state.bundle).digest)
    return state


def applied(machine: Machine) -> str | None:
    """Return the digest of the applied bundle; None if there is none."""
    link = machine.path(names.BUNDLE_DIR)
    return link.readlink().name if link.is_symlink() else None


def apply(machine: Machine, digest: str) -> None:
    """Point the link at the tree of `digest`."""
    if applied(machine) == digest:
        return
    link = machine.path(names.BUNDLE_DIR)
    fresh = link.with_name(".bundle.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(f"bundles/{digest}")
    fresh.replace(link)


def stored(machine: Machine, digest: str) -> Bundle | None:
    """Return the bundle of an unpacked tree; None if the tree is missing or incomplete."""
    tree = machine.path(TREES) / digest
    try:
        plan = plan_json.load_slurm((tree / names.PLAN_FILE).read_bytes())
        bindings = _bindings(plan, (tree / names.BINDINGS_FILE).read_bytes)
    except (OSError, ValueError):
        return None
    return Bundle(digest=digest, etag="", tree=tree, plan=plan, bindings=bindings)


def content_digest(bundle: Bundle, *paths: str) -> str:
    """Return one hash over the names and contents of these files and folders of the bundle."""
    seen = hashlib.sha256()
    for path in paths:
        place = bundle.tree / path
        for file in [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file()):
            seen.update(
                f"{file.relative_to(bundle.tree)}\0{file.stat().st_size}\0".encode() + file.read_bytes()
            )
    return seen.hexdigest()


def prune(machine: Machine, keep: Sequence[str | None]) -> None:
    """Remove all other trees."""
    for tree in machine.path(TREES).iterdir():
        if tree.name not in keep:
            shutil.rmtree(tree)


def _unpack(machine: Machine, body: bytes, etag: str) -> Bundle:
    digest = artifacts.digest(body)
    try:
        members = artifacts.unpack(body)
        plan = plan_json.load_slurm(_member(members, names.PLAN_FILE))
        bindings = _bindings(plan, lambda: _member(members, names.BINDINGS_FILE))
    except (ValueError, KeyError) as error:
        # a second fetch returns the same bytes
        raise BundleRefusedError(f"the bundle {digest[:12]} is damaged: {error}", digest) from error
    tree = _write_tree(machine, digest, members)
    return Bundle(digest=digest, etag=etag, tree=tree, plan=plan, bindings=bindings)


def _bindings(plan: SlurmPlan, read: Callable[[], bytes]) -> Bindings | None:
    return None if plan.aws is None else codec.loads(Bindings, read())


def _member(members: Sequence[Artifact], path: str) -> bytes:
    found = next((a.content for a in members if a.path == path), None)
    if found is None:
        raise ValueError(f"it has no {path}")
    return found


def _write_tree(machine: Machine, digest: str, members: Sequence[Artifact]) -> Path:
    """Write the tree, unless it exists and is complete. A crash may leave an incomplete tree."""
    tree = machine.path(TREES) / digest
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
