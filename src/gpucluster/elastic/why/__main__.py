"""`python -m gpucluster.elastic.why JOB|NODE [--json]`, on the head: exit 0 told, 1 no such job or node, 2 could not look."""

import json
import sys
from collections.abc import Sequence

from gpucluster.elastic import head
from gpucluster.elastic.why import Cause, text, why
from gpucluster.plan import codec


def main(argv: Sequence[str] | None = None, asked: head.Asked | None = None) -> int:
    """Print the screen."""
    parser = head.parser("why")
    parser.add_argument("subject", metavar="JOB|NODE")
    options = parser.parse_args(argv)

    def work() -> int:
        sight = head.sight(head.places(options), asked)
        shown = why(sight, options.subject)
        if options.json:
            body = {"schema": 1, "now": sight.now, **_fields(codec.to_json(shown))}
            sys.stdout.write(json.dumps(body, indent=1, sort_keys=True) + "\n")
        else:
            sys.stdout.write(text(shown, sight.now) + "\n")
        return 2 if shown.cause is Cause.UNSEEN else 0 if shown.known else 1

    return head.run(work)


def _fields(value: codec.JSON) -> dict[str, codec.JSON]:
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
