"""`python -m gpucluster.elastic.reconcile [--dry-run] [--json]`, on the head.

With --dry-run: what `decide` would do on the cluster as it stands, and nothing is done. Without: the daemon's bell.
"""

import json
import sys
from collections.abc import Sequence

from gpucluster.elastic import head, order
from gpucluster.elastic.decide import decide
from gpucluster.elastic.model import Action, Remember
from gpucluster.elastic.sight import Sight
from gpucluster.elastic.words import describe, told
from gpucluster.errors import StateError
from gpucluster.plan import codec


def main(argv: Sequence[str] | None = None, asked: head.Asked | None = None) -> int:
    """Exit 0 done or told, 2 nobody listens, or Slurm or the cloud did not answer."""
    parser = head.parser("reconcile")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    options = parser.parse_args(argv)
    where = head.places(options)
    if options.dry_run:
        return head.run(lambda: _tell(head.sight(where, asked), as_json=options.json))
    return head.run(lambda: _ring(where, as_json=options.json))


def would_do(sight: Sight) -> tuple[Action, ...]:
    """What the daemon would do now."""
    return decide(sight.plan, sight.bindings, sight.seen, sight.memory, sight.now)


def lines(actions: Sequence[Action]) -> tuple[str, ...]:
    """One a step; of what would only be remembered, one for those that say the same."""
    facts = [
        f"notes {line}"
        for a in actions
        if isinstance(a, Remember)
        for line in told(e.event for e in a.entries)
    ]
    return (*facts, *(describe(action) for action in actions if not isinstance(action, Remember)))


def _tell(sight: Sight, *, as_json: bool) -> int:
    if sight.world is None:
        blind = "slurmctld" if sight.seen.slurm is None else "the cloud"
        raise StateError(f"{blind} does not answer: the daemon would do nothing", next_step="look at its log")
    actions = would_do(sight)
    if as_json:
        body = [
            {"kind": type(action).__name__, "words": describe(action), **_fields(action)}
            for action in actions
        ]
        sys.stdout.write(
            json.dumps({"schema": 1, "now": sight.now, "actions": body}, indent=1, sort_keys=True) + "\n"
        )
        return 0
    sys.stdout.write(
        "\n".join(lines(actions)) + "\n" if actions else "nothing: the cluster is as it should be\n"
    )
    return 0


def _fields(action: Action) -> dict[str, codec.JSON]:
    if isinstance(action, Remember):
        entries = [
            {"at": e.at, "event": type(e.event).__name__, "of": codec.to_json(e.event)}
            for e in action.entries
        ]
        return {"entries": codec.to_json(entries)}
    value = codec.to_json(action)
    return value if isinstance(value, dict) else {}


def _ring(where: head.Places, *, as_json: bool) -> int:
    if not order.ring(where.wake):
        raise StateError("no daemon listens on this head", next_step="systemctl status gpucluster-elastic")
    words = "the daemon was woken: it looks at Slurm and the cloud now"
    sys.stdout.write(json.dumps({"schema": 1, "ok": True, "rung": True}) + "\n" if as_json else words + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
