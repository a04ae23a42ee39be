"""The table of the commands that `gpucluster` has on the machines of a cluster.

A row names the program of the head that the command runs. Words and options are those of the same command on an operator's
machine (`gpucluster.cli`); a test holds them together. Standard library only: the machines have no typer.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.text import DURATION_FORMS, parse_duration

KEEP_S = 7200


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineVerb:
    """One command. `module` is below gpucluster.elastic; `fixed` are its first arguments, before `subject`."""

    module: str
    about: str
    fixed: tuple[str, ...] = ()
    subject: str = ""  # a key of SUBJECTS; empty: none
    options: tuple[str, ...] = ()  # keys of OPTIONS


def seconds(text: str) -> int:
    """Convert `2h` to 7200 seconds."""
    found = parse_duration(text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write {DURATION_FORMS}")
    return found


SUBJECTS: Mapping[str, Mapping[str, Any]] = {  # keywords of add_argument
    "cluster": {"metavar": "NAME", "nargs": "?", "help": "the cluster of this machine"},
    "job-or-node": {"metavar": "JOB|NODE", "help": "a job id, or a Slurm node name"},
    "job": {"metavar": "JOB", "type": int, "help": "a job id"},
    "pool": {"metavar": "POOL", "help": "a pool name"},
    "node": {"metavar": "NODE", "help": "a Slurm node name"},
    "digest": {
        "metavar": "DIGEST",
        "help": "the digest of the held bundle, at least its first 12 characters",
    },
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--because": {"default": "", "help": "the reason: `why` and the journal show it"},
    "--after-killed-down": {
        "action": "store_true",
        "help": "the `down` that stopped launches was killed",
    },
    "--now": {"action": "store_true", "help": "do not wait for jobs"},
    "--for": {"type": seconds, "default": KEEP_S, "help": "duration: 90s, 30m, 2h, 3d; default 2h"},
    "--dry-run": {"action": "store_true", "help": "only print what the daemon would do now"},
}
VERBS: Mapping[tuple[str, ...], MachineVerb] = {
    ("status",): MachineVerb(
        module="inspect.status", about="show the overview of the cluster", subject="cluster"
    ),
    ("why",): MachineVerb(
        module="inspect.why.__main__",
        about="show why a job waits, or the state of a node",
        subject="job-or-node",
    ),
    ("timeline",): MachineVerb(module="inspect.timeline", about="show the events of a job", subject="job"),
    ("reconcile",): MachineVerb(
        module="inspect.reconcile", about="start a reconcile of the daemon now", options=("--dry-run",)
    ),
    ("pool", "list"): MachineVerb(module="inspect.pools", about="list the pools"),
    ("pool", "pause"): MachineVerb(
        module="order",
        about="stop launches of the pool",
        fixed=("pool-pause",),
        subject="pool",
        options=("--because",),
    ),
    ("pool", "drain"): MachineVerb(
        module="order",
        about="stop launches of the pool, and power down its nodes when they are idle",
        fixed=("pool-drain",),
        subject="pool",
        options=("--because",),
    ),
    ("pool", "resume"): MachineVerb(
        module="order",
        about="allow launches again",
        fixed=("pool-resume",),
        subject="pool",
        options=("--because",),
    ),
    ("pool", "confirm"): MachineVerb(
        module="order",
        about="permit launches after the journal and its copy were lost",
        fixed=("orders-confirm", "all"),
        options=("--because",),
    ),
    ("scaling", "show"): MachineVerb(
        module="scaling",
        about="show whether the daemon may launch, and who said so",
        fixed=("show",),
        subject="cluster",
    ),
    ("scaling", "start"): MachineVerb(
        module="scaling",
        about="allow launches of the whole cluster again",
        fixed=("start",),
        subject="cluster",
        options=("--after-killed-down", "--because"),
    ),
    ("scaling", "stop"): MachineVerb(
        module="scaling",
        about="stop launches of the whole cluster; running nodes and jobs continue",
        fixed=("stop",),
        subject="cluster",
        options=("--because",),
    ),
    ("node", "replace"): MachineVerb(
        module="order",
        about="replace the node's machine when its jobs are done",
        fixed=("node-replace",),
        subject="node",
        options=("--now", "--because"),
    ),
    ("node", "keep"): MachineVerb(
        module="order",
        about="keep the node's machine for a time",
        fixed=("node-keep",),
        subject="node",
        options=("--for", "--because"),
    ),
    ("node", "release"): MachineVerb(
        module="order",
        about="cancel a keep or a replace",
        fixed=("node-release",),
        subject="node",
        options=("--because",),
    ),
    ("node", "drain"): MachineVerb(
        module="order",
        about="let the node take no new jobs; the drain is a person's",
        fixed=("node-drain",),
        subject="node",
        options=("--because",),
    ),
    ("node", "undrain"): MachineVerb(
        module="order",
        about="lift a person's drain",
        fixed=("node-undrain",),
        subject="node",
        options=("--because",),
    ),
    ("bundle", "show"): MachineVerb(
        module="bundle_order", about="show which bundle the head holds", fixed=("show",)
    ),
    ("bundle", "apply"): MachineVerb(
        module="bundle_order",
        about="apply the held bundle now",
        fixed=("apply",),
        subject="digest",
        options=("--now",),
    ),
    ("accounts", "diff"): MachineVerb(
        module="accounts",
        about="show what `accounts apply` would change",
        fixed=("diff",),
        subject="cluster",
    ),
    ("accounts", "apply"): MachineVerb(
        module="accounts", about="apply the accounts of the head's plan", fixed=("apply",), subject="cluster"
    ),
}
DESK_ONLY = frozenset(  # they need the spec, or they reach machines from outside
    {
        "init", "check", "schema", "plan", "render", "diff", "cost", "review", "comment", "lint", "env", "jobs",
        "validate", "logs", "exec", "sandbox", "import", "inventory", "k8s", "down", "image", "doctor",
    }
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. `words` of the result is a key of VERBS."""
    made = argparse.ArgumentParser(
        prog="gpucluster",
        description="Commands on the machines of a cluster. The head answers them as root.",
        allow_abbrev=False,
    )
    top = made.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, Any] = {}  # argparse has no public name for the type of `top`
    for words, verb in VERBS.items():
        place: Any = top
        for word in words[:-1]:
            if word not in groups:
                group = top.add_parser(word, help=f"commands of {word}s", allow_abbrev=False)
                groups[word] = group.add_subparsers(required=True, metavar="COMMAND")
            place = groups[word]
        _add(place.add_parser(words[-1], help=verb.about, allow_abbrev=False), words, verb)
    return made


def _add(made: argparse.ArgumentParser, words: tuple[str, ...], verb: MachineVerb) -> None:
    made.set_defaults(words=words, subject=None)
    made.add_argument("--cluster", "-c", metavar="NAME", help="the cluster of this machine")
    made.add_argument("--output", "-o", choices=["text", "json"], default="text", help="output format")
    for option in verb.options:
        made.add_argument(option, dest=option, **OPTIONS[option])
    if verb.subject:
        made.add_argument("subject", **SUBJECTS[verb.subject])
