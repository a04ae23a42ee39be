"""`python -m gpucluster.elastic.inspect.why JOB|NODE [--json]`, on the head: exit 0 found, 1 no such job or node, 2 could not look."""

import json
import sys
from collections.abc import Sequence

from gpucluster.elastic.inspect import head
from gpucluster.elastic.inspect.why import Cause, text, why
from gpucluster.plan import codec


def main(argv: Sequence[str] | None = None, clients: head.ReaderClients | None = None) -> int:
    """Print the screen."""
    parser = head.parser("inspect.why")
    parser.add_argument("subject", metavar="JOB|NODE")
    options = parser.parse_args(argv)

    def work() -> int:
        snapshot, daemon = head.read_with_daemon(head.head_files(options), clients)
        shown = why(snapshot, options.subject, daemon)
        if options.json:
            body = {"schema": 1, "now": snapshot.now, **_fields(codec.to_json(shown))}
            sys.stdout.write(json.dumps(body, indent=1, sort_keys=True) + "\n")
        else:
            sys.stdout.write(text(shown, snapshot.now) + "\n")
        return 2 if shown.cause is Cause.UNSEEN else 0 if shown.known else 1

    return head.run(work)


def _fields(value: codec.JSON) -> dict[str, codec.JSON]:
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
