"""`python -m gpucluster.elastic.inspect.pools [--json]`, on the head: the pools with their nodes by state, and why nothing is launched."""

import json
import sys
from collections.abc import Iterator, Sequence

from gpucluster.elastic.inspect import head, losses
from gpucluster.elastic.inspect.daemon_view import DaemonView
from gpucluster.elastic.inspect.overview import PoolOverview, pools
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.errors import StateError
from gpucluster.plan import codec
from gpucluster.slurm.states import SlurmPhase


def main(argv: Sequence[str] | None = None, clients: head.ReaderClients | None = None) -> int:
    """Exit 0: printed. Exit 2: Slurm does not answer."""
    options = head.parser("inspect.pools").parse_args(argv)

    def work() -> int:
        snapshot, daemon = head.read_with_daemon(head.head_files(options), clients)
        if snapshot.world is None:
            sys.stderr.write("".join(f"{words}\n" for words in losses.of(snapshot)))
            raise StateError(
                f"{snapshot.unanswered} does not answer", next_step="look at its log on the head"
            )
        found, why = pools(snapshot.world), tuple(stops(snapshot, daemon))
        if options.json:
            body = {"schema": 1, "pools": codec.to_json(found), "stops": list(why)}
            sys.stdout.write(json.dumps(body, indent=1, sort_keys=True) + "\n")
        else:
            sys.stdout.write("".join(f"{words}\n" for words in (*map(line, found), *why)))
        return 0

    return head.run(work)


def stops(snapshot: ClusterSnapshot, daemon: DaemonView) -> Iterator[str]:
    """Yield what stops the launches of the whole cluster, as `status` tells it; a stop of one pool is in its line."""
    if daemon.effect:
        yield daemon.effect
    yield from losses.of(snapshot)
    if snapshot.observation.halted:
        yield snapshot.observation.halted


def line(pool: PoolOverview) -> str:
    """Return one pool in one line."""
    nodes = ", ".join(f"{count} {phase}" for phase, count in pool.nodes.items() if phase != SlurmPhase.OFF)
    stopped = f"; launches stop: {pool.stopped}" if pool.stopped else ""
    return f"{pool.name}: at most {pool.size} nodes; {nodes or 'all off'}{stopped}"


if __name__ == "__main__":
    sys.exit(main())
