"""`python -m gpucluster.elastic.inspect.reconcile [--dry-run] [--json]`, on the head.

With --dry-run: print what the daemon does now, and do nothing. Without: wake the daemon.
"""

import json
import sys
from collections.abc import Sequence

from gpucluster.elastic import order
from gpucluster.elastic.inspect import head, losses
from gpucluster.elastic.inspect.daemon_view import LOOK, DaemonView
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot, would_do
from gpucluster.elastic.log_lines import describe, event_lines
from gpucluster.elastic.model import Action, RecordEvents
from gpucluster.errors import StateError
from gpucluster.plan import codec


def main(argv: Sequence[str] | None = None, clients: head.ReaderClients | None = None) -> int:
    """Exit 0: done or printed. Exit 2: no daemon listens, or Slurm does not answer."""
    parser = head.parser("inspect.reconcile")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what the daemon would do now, and do nothing"
    )
    options = parser.parse_args(argv)
    where = head.head_files(options)
    if options.dry_run:
        return head.run(lambda: _print(*head.read_with_daemon(where, clients), as_json=options.json))
    return head.run(lambda: _wake(where, as_json=options.json))


def lines(actions: Sequence[Action]) -> tuple[str, ...]:
    """Return one line per action. Facts that are only recorded, and that are the same for many nodes, share a line."""
    facts = [
        f"records {line}"
        for a in actions
        if isinstance(a, RecordEvents)
        for line in event_lines(e.event for e in a.entries)
    ]
    return (*facts, *(describe(action) for action in actions if not isinstance(action, RecordEvents)))


def _print(snapshot: ClusterSnapshot, daemon: DaemonView, *, as_json: bool) -> int:
    lost = losses.of(snapshot)
    if snapshot.unanswered:
        sys.stderr.write("".join(f"{words}\n" for words in lost))
        raise StateError(
            f"{snapshot.unanswered} does not answer: the daemon would do nothing", next_step="look at its log"
        )
    if not daemon.acts:
        sys.stderr.write(f"{_not_done(daemon)}\n")
    actions = would_do(snapshot)
    if as_json:
        body = [
            {"kind": type(action).__name__, "words": describe(action), **_fields(action)}
            for action in actions
        ]
        sys.stdout.write(
            json.dumps(
                {"schema": 1, "now": snapshot.now, "daemon": daemon.acts, "lost": lost, "actions": body},
                indent=1,
                sort_keys=True,
            )
            + "\n"
        )
        return 0
    nothing = "nothing, as long as that lasts" if lost else "nothing: the cluster is in its planned state"
    sys.stdout.write("\n".join((*lost, *(lines(actions) or (nothing,)))) + "\n")
    return 0


def _not_done(daemon: DaemonView) -> str:
    """Return why these actions are not what happens now."""
    if daemon.holder:
        return f"{daemon.state}, and decides with what the nodes report to it: {daemon.remedy}"
    return f"{daemon.state}, so it does none of this now: {daemon.remedy}"


def _fields(action: Action) -> dict[str, codec.JSON]:
    if isinstance(action, RecordEvents):
        entries = [
            {"at": e.at, "event": type(e.event).__name__, "of": codec.to_json(e.event)}
            for e in action.entries
        ]
        return {"entries": codec.to_json(entries)}
    value = codec.to_json(action)
    return value if isinstance(value, dict) else {}


def _wake(where: head.HeadFiles, *, as_json: bool) -> int:
    if not order.wake_daemon(where.wake):
        raise StateError("no daemon listens on this head", next_step=LOOK)
    words = "the daemon was woken: it reads Slurm and the cloud now"
    sys.stdout.write(json.dumps({"schema": 1, "ok": True, "woken": True}) + "\n" if as_json else words + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
