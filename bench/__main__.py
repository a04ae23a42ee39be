"""`python -m bench [NAME]`: every bench, or one. Exit 1 when a figure is over its limit (baselines never fail)."""

import importlib
import os
import sys
from collections.abc import Sequence

# One module here each; a new one is one more word.
BENCHES = ("hook", "decide", "reconcile", "pacing", "react", "check", "kube", "lint", "diff", "planner")
ROOTS = ("burst",)  # these need root: without it they are left out, and it is said
ASKED = (
    "peer",  # only when named: it needs root, and installs a program of others
    "preview",  # minutes
)


def main(argv: Sequence[str]) -> int:
    names = tuple(argv) or (*BENCHES, *ROOTS)
    unknown = sorted(set(names) - {*BENCHES, *ROOTS, *ASKED})
    if unknown:
        print(
            f"no bench {', '.join(unknown)}; there are: {', '.join((*BENCHES, *ROOTS, *ASKED))}",
            file=sys.stderr,
        )
        return 2
    if os.geteuid() and set(names) & {*ROOTS, "peer"}:
        print(f"left out, for it needs root: {', '.join((*ROOTS, 'peer'))}", file=sys.stderr)
        names = tuple(name for name in names if name not in {*ROOTS, "peer"})
    over = False
    for name in names:
        for figure in importlib.import_module(f"bench.{name}").run():
            print(figure.line, flush=True)
            over = over or (figure.ratio > 1 and "over_bare" not in figure.name)
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
