"""`python -m bench [NAME]`: run every benchmark, or one. Exit 1 if a ratio is over its limit. A base in milliseconds is not a limit."""

import importlib
import os
import sys
from collections.abc import Sequence

# one module of this package for each name
BENCHES = (
    "hook",
    "decide",
    "reconcile",
    "pacing",
    "react",
    "check",
    "kube",
    "lint",
    "diff",
    "planner",
    "review",
    "render",
)
ROOTS = ("burst",)  # these need root; without root they are skipped with a message
ASKED = (
    "peer",  # only by name: it needs root and installs a program from PyPI
    "preview",  # these take minutes
    "gangs",  # it builds the control plane of Kubernetes the first time
    "observer",
    "validate",
)
ROOTS_ASKED = ("peer", "validate")


def main(argv: Sequence[str]) -> int:
    names = tuple(argv) or (*BENCHES, *ROOTS)
    unknown = sorted(set(names) - {*BENCHES, *ROOTS, *ASKED})
    if unknown:
        print(
            f"no bench {', '.join(unknown)}; there are: {', '.join((*BENCHES, *ROOTS, *ASKED))}",
            file=sys.stderr,
        )
        return 2
    if os.geteuid() and set(names) & {*ROOTS, *ROOTS_ASKED}:
        print(f"left out, for it needs root: {', '.join((*ROOTS, *ROOTS_ASKED))}", file=sys.stderr)
        names = tuple(name for name in names if name not in {*ROOTS, *ROOTS_ASKED})
    over = False
    for name in names:
        for figure in importlib.import_module(f"bench.{name}").run():
            print(figure.line, flush=True)
            over = over or figure.over
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
