"""The `gpucluster` command on the machines of a cluster: the same words as on an operator's machine, for this cluster only.

The head runs the programs of `gpucluster.elastic`. On other machines `why JOB` prints what slurmctld says of a job; every
other command exits with 2 and says where to type it. Standard library only: the machines have no typer.
"""

import argparse
import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gpucluster.elastic import machine_verbs
from gpucluster.elastic.inspect import job_in_slurm, machine_file
from gpucluster.elastic.inspect.answers import answer_values
from gpucluster.elastic.inspect.machine_file import MachineFile
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import names

WHY = ("why",)
Program = Callable[[Sequence[str]], int]
Load = Callable[[str], Program]


def main(argv: Sequence[str], machine: Path = Path(names.USER_DATA_FILE), load: Load | None = None) -> int:
    """Run one command line and return its exit code. `load` returns the program of a module; None: `load_program`."""
    try:
        if argv and argv[0] in machine_verbs.DESK_ONLY:
            raise StateError(
                f"the machines of a cluster have no `gpucluster {argv[0]}`",
                next_step="type it on your own machine, where the spec is",
            )
        options = machine_verbs.parser().parse_args(argv)
        return _run(options, _here(options, machine), load or load_program)
    except GpuclusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _here(options: argparse.Namespace, machine: Path) -> MachineFile:
    """Return this machine, if it belongs to the cluster that the command line names."""
    found = machine_file.read(machine)
    if found is None:
        raise StateError(
            f"this machine belongs to no cluster: {machine} cannot be read", next_step="type it on a head"
        )
    verb = machine_verbs.VERBS[options.words]
    named = options.cluster or (options.subject if verb.subject == "cluster" else None)
    if named not in (None, found.cluster):
        raise StateError(
            f"this machine is of the cluster {found.cluster}, not of {named!r}",
            next_step="type it on your own machine, or name no cluster",
        )
    return found


def _run(options: argparse.Namespace, here: MachineFile, load: Load) -> int:
    if here.role in names.HEAD_ROLES:
        return _on_head(options, here, load)
    if options.words == WHY and options.subject.isdecimal():
        return job_in_slurm.show(int(options.subject), as_json=options.output == "json")
    words = " ".join(options.words)
    raise StateError(
        f"`gpucluster {words}` needs the head: this is a {here.role} machine of {here.cluster}",
        next_step=f"type it on the head as root, or on your own machine; `gpucluster why JOB -c {here.cluster}` works here",
    )


def _on_head(options: argparse.Namespace, here: MachineFile, load: Load) -> int:
    verb = machine_verbs.VERBS[options.words]
    program = load(verb.module)
    if options.output == "text":
        return program(_arguments(options))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = program(["--json", *_arguments(options)])
    if code in (0, 1):
        values = answer_values(here.cluster, code, printed.getvalue())
        sys.stdout.write(json.dumps({"schema": 1, **values}, indent=1, sort_keys=True) + "\n")
        return 0 if values["ok"] else 1
    return code


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the program. What follows `--` is never read as an option."""
    verb, given = machine_verbs.VERBS[options.words], vars(options)
    flags = [option for option in verb.options if given[option] is True]
    values = [f"{option}={given[option]}" for option in verb.options if not isinstance(given[option], bool)]
    subject = () if verb.subject in ("", "cluster") else (str(options.subject),)
    positional = (*verb.fixed, *subject)
    return [*flags, *values, *(("--", *positional) if positional else ())]


def load_program(module: str) -> Program:
    """Return the `main` of a module below gpucluster.elastic. Only the module of the command is imported."""
    found: Program = importlib.import_module(f"gpucluster.elastic.{module}").main
    return found
