"""`python -m gpucluster.elastic.inspect.status [--json]`, on the head: the overview of the cluster. Exit 0 shown, 2 could not look."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gpucluster.cloud import bundle_status
from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.inspect import head
from gpucluster.elastic.inspect.daemon_view import UNKNOWN
from gpucluster.elastic.inspect.overview import Overview, overview, text
from gpucluster.plan import codec, names

Look = Callable[[str, str], Published]  # region and bucket; both are empty on an existing host


def main(
    argv: Sequence[str] | None = None, clients: head.ReaderClients | None = None, look: Look | None = None
) -> int:
    """Print the overview. `look` reads the published bundle; None: from the bucket, or from the folder of an existing host."""
    parser = head.parser("inspect.status")
    parser.add_argument("--machine", type=Path, default=Path(names.USER_DATA_FILE), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    where = head.head_files(options)

    def work() -> int:
        shown, now = _overview(where, options.machine, clients, look or _look)
        if options.json:
            sys.stdout.write(json.dumps(status_values(shown, now), indent=1, sort_keys=True) + "\n")
        else:
            sys.stdout.write(text(shown, now) + "\n")
        return 0

    return head.run(work)


def _overview(
    where: head.HeadFiles, machine: Path, clients: head.ReaderClients | None, look: Look
) -> tuple[Overview, float]:
    """Return the overview and its time. A head that boots has no plan yet: then the agent's status is all that there is."""
    booting = head.read_booting(where, machine)
    if booting is not None:
        me, now = booting
        found = look(me.region, me.bucket)
        shown = Overview(
            cluster=me.cluster,
            applied="",
            published=found,
            daemon=False,
            daemon_state=UNKNOWN.effect,
            unanswered="slurmctld",
        )
        return shown, now
    snapshot, daemon = head.read_with_daemon(where, clients)
    of = look(snapshot.bindings.region, snapshot.bindings.bucket)
    return overview(snapshot, _applied(where), of, daemon), snapshot.now


def status_values(shown: Overview, now: float) -> dict[str, codec.JSON]:
    """Return what `--json` prints."""
    values = codec.to_json(shown)
    found = values if isinstance(values, dict) else {}
    return {"schema": 1, "now": now, "settled": shown.settled, **found}


def _look(region: str, bucket: str) -> Published:
    return bundle_status.of_bucket(region, bucket) if region else bundle_status.of_folder()


def _applied(where: head.HeadFiles) -> str:
    try:
        return where.bundle.readlink().name
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
