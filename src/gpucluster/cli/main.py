"""The verbs of `gpucluster`, which `start` runs. One literal table of verbs; only the module of the verb that was asked is imported.

To add a verb: its module, and one line in VERBS.
"""

import errno
import importlib
import os
import sys
from typing import Annotated

import typer

from gpucluster.cli.output import say_error, unsaid
from gpucluster.cli.start import INTERRUPTED
from gpucluster.errors import GpuclusterError, HostError

# verb -> module; the module has a function of the verb's name, or `app` (a Typer with verbs of its own)
VERBS: dict[str, str] = {
    "check": "gpucluster.cli.check",
    "plan": "gpucluster.cli.plan",
    "render": "gpucluster.cli.render",
    "diff": "gpucluster.cli.diff",
    "lint": "gpucluster.cli.lint",
    "validate": "gpucluster.cli.validate",
    "why": "gpucluster.cli.why",
    "timeline": "gpucluster.cli.timeline",
    "pool": "gpucluster.cli.pool",
    "node": "gpucluster.cli.node",
    "reconcile": "gpucluster.cli.reconcile",
    "sandbox": "gpucluster.cli.sandbox",
    "inventory": "gpucluster.cli.inventory",
    "down": "gpucluster.cli.down",
    "image": "gpucluster.cli.image",
    "doctor": "gpucluster.cli.doctor",
}

OF_EXTRAS = frozenset(
    {
        "ClusterShell",
        "ansible",
        "boto3",
        "botocore",
        "cel",
        "grpc",
        "jsonschema",
        "kubernetes_validate",
        "moto",
        "paramiko",
        "pulumi",
        "pulumi_aws",
        "pytest",
        "referencing",
        "testinfra",
        "werkzeug",
        "yaml",
    }
)


def run(argv: list[str]) -> int:
    """Run one command line; the exit code."""
    try:
        code = app_of(argv)(argv, prog_name="gpucluster", standalone_mode=True)
        sys.stdout.flush()
        return int(code or 0)
    except SystemExit as left:
        return _flushed(left)
    except GpuclusterError as error:
        say_error(error)
        return error.exit_code
    except ModuleNotFoundError as error:
        return _without_extra(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        return unsaid(error)


def _without_extra(error: ModuleNotFoundError) -> int:
    """The light install lacks what the cloud's verbs need; anything else that is missing is our own mistake."""
    if (error.name or "").partition(".")[0] not in OF_EXTRAS:
        raise error
    lack = HostError(
        f"this verb needs {error.name}, which the light install leaves out",
        next_step="pip install 'gpucluster[aws,kubernetes,sandbox,validate]', or `make install` in a clone",
    )
    say_error(lack)
    return lack.exit_code


def _flushed(left: SystemExit) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return unsaid(error)
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
    """The verb that was asked for, or all of them for help, completion and mistakes."""
    asked = argv[0] if argv else ""
    return [asked] if asked in VERBS and "_GPUCLUSTER_COMPLETE" not in os.environ else list(VERBS)


def _register(app: typer.Typer, verb: str) -> None:
    module = importlib.import_module(VERBS[verb])
    if hasattr(module, "app"):
        app.add_typer(module.app, name=verb)
    else:
        app.command(verb)(getattr(module, verb))


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
