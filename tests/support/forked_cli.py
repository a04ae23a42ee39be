"""`gpucluster` in a process that is forked from one which has imported its modules.

A start of `validate` takes 1.5 s of CPU, nearly all of it for imports, and the tests of validation start it a hundred times.
Each run is a process of its own, with its own arguments, output and exit code.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "gpucluster.cli.main",
        "gpucluster.cli.validate",
        "gpucluster.validate.run",
        "boto3",
        "gpucluster.cli.checked",
        "gpucluster.cli.comment",
        "gpucluster.cli.review",
        "gpucluster.gitops.diff",
        "gpucluster.gitops.report",
    ]
)


def run(
    argv: tuple[str, ...], *, folder: Path, timeout: float, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run one command line in this folder, as `subprocess.run` does with captured text.

    `environment` replaces the environment of this process. Threads may call it at the same time.
    subprocess.TimeoutExpired if it takes longer than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory() as outputs:
        paths = Path(outputs, "out"), Path(outputs, "err")
        child = _CONTEXT.Process(target=_main, args=(argv, folder, environment, *paths))
        child.start()
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise subprocess.TimeoutExpired(argv, timeout)
        out, err = (path.read_text(errors="replace") for path in paths)
        return subprocess.CompletedProcess(argv, child.exitcode, out, err)


def _main(
    argv: tuple[str, ...], folder: Path, environment: Mapping[str, str] | None, out: Path, err: Path
) -> None:
    from gpucluster.cli.__main__ import main

    os.chdir(folder)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    sys.argv = ["gpucluster", *argv]
    main()
