"""`python -m gpucluster.elastic.scaling show|start|stop`, on the head: whether the daemon may launch, for the whole cluster.

The control object in the bucket has it, which the daemon reads before each launch. Exit 0 done, 1 refused, 2 it could not be read
or written.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpucluster.cloud.control import DOWN, DOWN_ENDED, S3Control
from gpucluster.cloud.port import CloudError, Control, ControlPort, Fault, Scaling, malformed
from gpucluster.elastic.inspect import head
from gpucluster.elastic.order import WORDS, said_by
from gpucluster.errors import StateError
from gpucluster.text import short

_TRIES = 8
Connect = Callable[[str, str], ControlPort]  # region and bucket


def main(argv: Sequence[str] | None = None, connect: Connect = S3Control) -> int:
    """Run one verb. `connect` makes the client of the control object."""
    parser = head.parser("scaling")
    parser.add_argument("verb", choices=("show", "start", "stop"))
    parser.add_argument("--because", default="", help="for people: shown in `status` and `why`")
    parser.add_argument("--by", default="", help="who says it; default: the login name")
    parser.add_argument(
        "--after-killed-down",
        dest="killed",
        action="store_true",
        help="the `down` that stopped launches was killed",
    )
    options = parser.parse_args(argv)
    because = short(options.because, WORDS)
    by = said_by(options.by) + (f": {because}" if because else "")

    def work() -> int:
        where = head.head_files(options)
        plan = head.read_plan(where)
        if plan.aws is None:
            raise StateError(
                f"{plan.name} runs on existing hosts: no daemon launches machines", next_step="sinfo"
            )
        bindings = head.read_bindings(where)
        head.use_endpoint(where)
        port = connect(bindings.region, bindings.bucket)
        try:
            return _run(port, plan.name, options.verb, by, killed=options.killed, as_json=options.json)
        except CloudError as error:
            raise StateError(
                f"the control object cannot be used: {error}", next_step=f"gpucluster status {plan.name}"
            ) from error

    return head.run(work)


def _run(port: ControlPort, cluster: str, verb: str, by: str, *, killed: bool, as_json: bool) -> int:
    """Read, decide and write one version of the object, so that no write of somebody else is undone."""
    for _ in range(_TRIES):
        seen = port.stamped()
        if seen.malformed:
            raise malformed(seen.malformed)
        before = seen.control
        if verb == "start" and not killed and (words := refusal(before)):
            return _refuse(cluster, words, as_json=as_json)
        now = before
        if verb == "start" and before.scaling is Scaling.STOP:
            now = replace(before, scaling=Scaling.RUN, by=by)
        elif verb == "stop" and (before.scaling is Scaling.RUN or refusal(before)):
            now = replace(before, scaling=Scaling.STOP, by=by)  # it stays, if the `down` is refused
        if now is before or port.write(now, seen.etag) is not None:
            return _say(cluster, verb, now, changed=now is not before, as_json=as_json)
    raise CloudError(Fault.LOST, "ConditionalRequestConflict", "the object is written by others all the time")


def _refuse(cluster: str, words: str, *, as_json: bool) -> int:
    step = f"wait for its end; if it was killed: gpucluster scaling start {cluster} --after-killed-down"
    problem = {"message": words, "next": step, "exit_code": 1}
    head.print_answer(as_json, {"ok": False, "error": problem}, f"error: {words}\n  next: {step}", error=True)
    return 1


def _say(cluster: str, verb: str, now: Control, *, changed: bool, as_json: bool) -> int:
    answer = {"ok": True, "scaling": now.scaling.value, "by": now.by, "changed": changed}
    as_before = "" if verb == "show" or changed else ", as before"
    head.print_answer(as_json, answer, f"{cluster}: {sentence(now)}{as_before}")
    return 0


def refusal(control: Control) -> str:
    """Return why launches stay stopped: a `down` destroys the cluster. Empty if none does."""
    running = (
        control.scaling is Scaling.STOP
        and control.by.startswith(DOWN)
        and not control.by.endswith(DOWN_ENDED)
    )
    return (
        f"{control.by} destroys this cluster: it stopped launches, and they stay stopped" if running else ""
    )


def sentence(control: Control) -> str:
    """Return what the daemon may do, and who said so."""
    who = f" (by {control.by})" if control.by else ""
    if control.scaling is Scaling.STOP:
        return f"launches are stopped{who}; running nodes and jobs continue"
    return f"launches are allowed{who}"


if __name__ == "__main__":
    sys.exit(main())
