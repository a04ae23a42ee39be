"""The table of commands. Only the module of the requested command is imported.

To add a command: write its module and add one line to VERBS.
"""

import errno
import importlib
import os
import sys
from keyword import iskeyword
from typing import Annotated

import typer

from gpucluster.cli.output import exit_code_of_failed_write, print_error, print_json_error
from gpucluster.errors import INTERRUPTED, GpuclusterError, HostError

# command -> module; the module has a function of that name (`import_` for a keyword), or `app` (a Typer with subcommands)
VERBS: dict[str, str] = {
    "init": "gpucluster.cli.init",
    "check": "gpucluster.cli.check",
    "schema": "gpucluster.cli.schema",
    "plan": "gpucluster.cli.plan",
    "render": "gpucluster.cli.render",
    "diff": "gpucluster.cli.diff",
    "cost": "gpucluster.cli.cost",
    "review": "gpucluster.cli.review",
    "comment": "gpucluster.cli.comment",
    "lint": "gpucluster.cli.lint",
    "env": "gpucluster.cli.env",
    "jobs": "gpucluster.cli.jobs",
    "validate": "gpucluster.cli.validate",
    "status": "gpucluster.cli.status",
    "logs": "gpucluster.cli.exec",
    "exec": "gpucluster.cli.exec",
    "why": "gpucluster.cli.inspect",
    "timeline": "gpucluster.cli.inspect",
    "k8s": "gpucluster.cli.k8s",
    "pool": "gpucluster.cli.pool",
    "scaling": "gpucluster.cli.scaling",
    "node": "gpucluster.cli.node",
    "accounts": "gpucluster.cli.accounts",
    "bundle": "gpucluster.cli.bundle",
    "reconcile": "gpucluster.cli.inspect",
    "sandbox": "gpucluster.cli.sandbox",
    "import": "gpucluster.cli.import_",
    "inventory": "gpucluster.cli.inventory",
    "down": "gpucluster.cli.down",
    "image": "gpucluster.cli.image",
    "doctor": "gpucluster.cli.doctor",
}

EXTRAS: dict[str, tuple[str, ...]] = {  # imported package -> the extras of pyproject.toml that install it
    "ansible": ("sandbox",),
    "boto3": ("aws", "validate", "sandbox"),
    "botocore": ("aws", "validate", "sandbox"),
    "cel": ("kubernetes",),
    "grpc": ("aws", "sandbox"),
    "jsonschema": ("kubernetes",),
    "kubernetes_validate": ("kubernetes",),
    "moto": ("sandbox",),
    "paramiko": ("validate",),
    "pulumi": ("aws",),
    "pulumi_aws": ("aws",),
    "pytest": ("validate",),
    "referencing": ("kubernetes",),
    "tenacity": ("kubernetes",),
    "testinfra": ("validate",),
    "werkzeug": ("sandbox",),
}


def run(argv: list[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        code = app_of(argv)(argv, prog_name="gpucluster", standalone_mode=True)
        sys.stdout.flush()
        return int(code or 0)
    except SystemExit as left:
        return _flushed(left)
    except GpuclusterError as error:
        print_error(error)
        return error.exit_code
    except ModuleNotFoundError as error:
        return _without_extra(error, argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        return exit_code_of_failed_write(error)


def _without_extra(error: ModuleNotFoundError, argv: list[str]) -> int:
    """Name the missing optional package and the extra that has it. Raise again for a missing module of our own.

    The next step installs from the clone: gpucluster is in no package index.
    """
    extras = EXTRAS.get((error.name or "").partition(".")[0])
    if extras is None:
        raise error
    extra = argv[0] if argv[0] in extras else extras[0]  # the extra of a command has the command's name
    lack = HostError(
        f"this command needs {error.name}, which is not installed",
        next_step=f"in the clone: pip install '.[{extra}]', or `make install` for everything",
    )
    if _wants_json(argv):
        print_json_error(lack)
    else:
        print_error(lack)
    return lack.exit_code


def _wants_json(argv: list[str]) -> bool:
    """Return whether the command line asks for JSON, in any spelling that click accepts."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return any(
        word in {"--output=json", "-ojson"} or (word in {"--output", "-o"} and value == "json")
        for word, value in pairs
    )


def _flushed(left: SystemExit) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return exit_code_of_failed_write(error)
    return left.code if isinstance(left.code, int) else 0


def app_of(argv: list[str]) -> typer.Typer:
    app = typer.Typer(
        help="One typed spec becomes a GPU cluster.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in _wanted(argv):
        _register(app, verb)
    return app


def _wanted(argv: list[str]) -> list[str]:
    """Return the requested command, or all commands for help, completion and unknown words."""
    asked = argv[0] if argv else ""
    return [asked] if asked in VERBS and "_GPUCLUSTER_COMPLETE" not in os.environ else list(VERBS)


def _register(app: typer.Typer, verb: str) -> None:
    module = importlib.import_module(VERBS[verb])
    if hasattr(module, "app"):
        app.add_typer(module.app, name=verb)
    else:
        app.command(verb)(getattr(module, f"{verb}_" if iskeyword(verb) else verb))


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gpucluster {version('gpucluster')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
