"""`python -m bench [NAME]`: every bench, or one. Exit 1 when a figure is over its limit (baselines never fail)."""

import importlib
import sys
from collections.abc import Sequence

BENCHES = ("hook", "decide", "check")  # one module here each; a new one is one more word


def main(argv: Sequence[str]) -> int:
    names = argv or BENCHES
    unknown = sorted(set(names) - set(BENCHES))
    if unknown:
        print(f"no bench {', '.join(unknown)}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    over = False
    for name in names:
        for figure in importlib.import_module(f"bench.{name}").run():
            print(figure.line, flush=True)
            over = over or (figure.ratio > 1 and "over_bare" not in figure.name)
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
