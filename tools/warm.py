"""Make what tests outside `make check` need, once and before them, side by side: the engine, machine images, promtool."""

import sys
import threading
import time

import promtool

from gpucluster import engine
from gpucluster.errors import GpuclusterError
from gpucluster.sandbox import bare, images

BEGAN = time.monotonic()


def main() -> int:
    failed: list[GpuclusterError] = []

    def build(work) -> None:
        try:
            work(say)
        except GpuclusterError as error:
            failed.append(error)

    builds = [
        threading.Thread(target=build, args=(work,))
        for work in (engine.find_or_build, images.find_or_build, bare.find_or_build, promtool.find_or_fetch)
    ]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()
    for error in failed:
        print(f"warm: {error}", file=sys.stderr)
    return 2 if failed else 0


def say(words: str) -> None:
    print(f"warm: {time.monotonic() - BEGAN:6.1f} s  {words}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
