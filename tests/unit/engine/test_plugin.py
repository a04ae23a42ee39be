"""A plugin's process ends with the process that started it, whatever the plugin does then."""

import signal
import subprocess
import sys
from pathlib import Path

from support.waiting import eventually

BUSY = "import time; from gpucluster.engine.plugin import serve; serve(lambda server: None, lambda: time.sleep(1000))"
ENGINE = f"""\
import subprocess, sys
plugin = subprocess.Popen([sys.executable, "-c", {BUSY!r}])
print(plugin.pid, file=sys.stderr, flush=True)
plugin.wait()
"""
FIRST = """\
import ctypes, os, sys
from gpucluster.engine.plugin import serve
class Told:
    def write(self, text):
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
        os.write(1, f"{number.value}\\n".encode())
    def flush(self):
        os._exit(0)
sys.stdout = Told()
serve(lambda server: None)
"""


def test_plugin_ends_with_its_engine_also_while_its_main_thread_is_busy() -> None:
    """Its standard output is the engine's too, so it ends when both have ended."""
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None
        assert engine.stderr is not None
        status = Path("/proc", engine.stderr.readline().strip(), "status")
        assert engine.stdout.readline().strip().isdigit()
        eventually("the plugin catches SIGTERM", lambda: catches(status, signal.SIGTERM), poll=0.01)
        engine.kill()
        assert engine.communicate(timeout=300)[0] == ""


def catches(status: Path, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    (line,) = (one for one in status.read_text().splitlines() if one.startswith("SigCgt:"))
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def test_plugin_is_bound_to_its_engine_before_it_tells_its_port() -> None:
    argv = [sys.executable, "-c", FIRST]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n", "")
