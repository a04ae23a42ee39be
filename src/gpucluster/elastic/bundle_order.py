"""`python -m gpucluster.elastic.bundle_order show|apply`, on the head: the bundle that the agent holds.

`apply DIGEST --now` writes names.BUNDLE_RELEASE, as root. The agent then applies the bundle of that digest, and no other, at
its next check. Exit 0: shown, ordered or applied already; 1: the order does not fit the held bundle; 2: it could not be given.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpucluster.elastic.inspect import head
from gpucluster.elastic.order import NAME, login
from gpucluster.elastic.status_endpoint import read_held
from gpucluster.errors import StateError
from gpucluster.plan import codec
from gpucluster.plan.messages import BundleRelease, HeldBundle
from gpucluster.slurm import hostlist
from gpucluster.text import short

DIGEST = re.compile(r"[0-9a-f]{12,64}")
SHORT = 12


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = head.parser("bundle_order")
    parser.add_argument("verb", choices=["show", "apply"])
    parser.add_argument("digest", nargs="?", default="", help="of the held bundle, at least 12 characters")
    parser.add_argument("--now", action="store_true", help="do not wait for jobs: Slurm ends them")
    parser.add_argument("--by", default="", help="who gives the order; default: the login name")
    options = parser.parse_args(argv)
    where = head.head_files(options)
    if options.verb == "show":
        return head.run(lambda: _show(where, as_json=options.json))
    return head.run(lambda: _apply(where, options))


def refusal(held: HeldBundle, digest: str, *, now: bool) -> str:
    """Return why the order does not fit the held bundle; empty if it fits."""
    if not DIGEST.fullmatch(digest):
        return f"{digest[:64]!r} is not a digest of a bundle; expected at least {SHORT} of its characters 0-9, a-f"
    if not held.bundle:
        return "no bundle is held: the head applies a new bundle by itself"
    if not held.bundle.startswith(digest):
        return f"the head holds bundle {held.bundle[:SHORT]}, not {digest[:SHORT]}"
    if not now:
        return f"the head applies bundle {held.bundle[:SHORT]} by itself when its jobs have ended; --now does not wait for them"
    return ""


def _show(where: head.HeadFiles, *, as_json: bool) -> int:
    held, applied = _held(where), _applied(where)
    values = {
        "ok": True,
        "applied": applied,
        "held": held.bundle or None,
        "nodes": hostlist.fold(held.nodes),
        "waits_for": held.waits_for or None,
    }
    head.print_answer(
        as_json, values, held.waits_for or f"no bundle is held; the head has applied {applied[:SHORT]}"
    )
    return 0


def _apply(where: head.HeadFiles, options: argparse.Namespace) -> int:
    held, applied = _held(where), _applied(where)
    if DIGEST.fullmatch(options.digest) and applied.startswith(options.digest):
        head.print_answer(
            options.json,
            {"ok": True, "bundle": applied, "applied": True},
            f"bundle {applied[:SHORT]} is applied",
        )
        return 0
    if words := refusal(held, options.digest, now=options.now):
        problem = {
            "message": words,
            "next": f"gpucluster bundle show -c {head.read_plan(where).name}",
            "exit_code": 1,
        }
        head.print_answer(options.json, {"ok": False, "error": problem}, f"error: {words}", error=True)
        return 1
    by = short(options.by, NAME) or login(os.environ)
    _write(where.release, BundleRelease(bundle=held.bundle, by=by, at=time.time()))
    within = head.read_plan(where).times.reconcile_s
    head.print_answer(
        options.json,
        {"ok": True, "bundle": held.bundle, "applied": False, "by": by},
        f"the head applies bundle {held.bundle[:SHORT]} within {within:g} s; Slurm ends the jobs that it waited for",
    )
    return 0


def _held(where: head.HeadFiles) -> HeldBundle:
    held = read_held(where.held)
    if held is None:
        raise StateError(f"{where.held} cannot be read", next_step="be root, on the cluster's head")
    return held


def _applied(where: head.HeadFiles) -> str:
    try:
        return where.bundle.readlink().name
    except OSError as error:
        raise StateError(
            f"{where.bundle} cannot be read: {error.strerror}", next_step="run it on the cluster's head"
        ) from error


def _write(path: Path, release: BundleRelease) -> None:
    """Write the whole order, or none. The folder belongs to root, so only root can give it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(codec.dumps(release))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise StateError(
            f"{path} cannot be written: {error.strerror}", next_step="be root, on the head"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
