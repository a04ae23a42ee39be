"""Prepare in parallel what tests need: `python tools/warm.py gate|all|kubernetes`, by default `all`.

`gate`: the engine and the image of `make test`. `all`: the engine, all images, and promtool. `kubernetes`: the control plane,
Karpenter's core, Flux's controller, helm and a node's programs.
"""

import runpy
import sys
import threading
import time
from pathlib import Path

import promtool

from gpucluster import engine
from gpucluster.sandbox.images import bare, layers
from gpucluster.sandbox.kubernetes import programs, trainer

BEGAN = time.monotonic()


def main() -> int:
    failed: list[Exception] = []

    def build(work) -> None:
        try:
            work(report)
        except Exception as error:  # noqa: BLE001  of every kind: a build that ended early is no build
            failed.append(error)

    wanted = WORK.get(*sys.argv[1:] or ["all"])
    if wanted is None:
        print(f"usage: warm.py {'|'.join(WORK)}", file=sys.stderr)
        return 2
    builds = [threading.Thread(target=build, args=(work,)) for work in wanted]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()
    for error in failed:
        print(f"warm: error: {error or error!r}", file=sys.stderr)
    return 2 if failed else 0


def image(progress: layers.Progress) -> None:
    """The image of stacks/burst.yaml."""
    layers.find_or_build(progress, slurm="24.11")


def images(progress: layers.Progress) -> None:
    """The images of the stacks that the tests bring up, one after the other: one build at a time has the lock."""
    for version in layers.RELEASES:
        layers.find_or_build(progress, slurm=version)
    bare.find_or_build(progress, slurm="24.11")  # stacks/lab.yaml


def control_plane(progress: layers.Progress) -> None:
    """The control plane, and the charts' programs that not every cluster needs."""
    trainer.find_or_build(progress, programs.find_or_build(progress))


def of_tests(progress: layers.Progress) -> None:
    """Karpenter's core, Flux's controller, helm and a node's programs: only tests use them, so they have their builds."""
    tests = Path(__file__).parent.parent / "tests" / "kubernetes"
    for name in ("karpenter_core.py", "real_flux.py", "real_helm.py", "node_programs.py"):
        runpy.run_path(str(tests / name))["find_or_build"](progress)


WORK = {
    "gate": (engine.find_or_build, image),
    "all": (engine.find_or_build, images, promtool.find_or_fetch),
    "kubernetes": (control_plane, of_tests),
}


def report(words: str) -> None:
    print(f"warm: {time.monotonic() - BEGAN:6.1f} s  {words}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
