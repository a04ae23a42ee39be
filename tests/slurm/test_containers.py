"""Containers of jobs on real Slurm: plugstack.conf with Pyxis, and Apptainer.

plugstack.conf: daemons and commands take the file, and a step's options come from the plugin. The plugin is a stand-in, compiled here: SPANK loads it as it loads Pyxis, by the path and arguments of the rendered file, and it
refuses other arguments. Enroot and Pyxis are in no suite of Debian, so no container starts here. Pyxis 0.24.0 itself, compiled
against 24.11's headers, was loaded once by hand (docs/facts/slurm.md, S25).

Apptainer is the real one, of Debian unstable: a job of an ordinary user starts a container from a folder, and the check `ctr.run`
starts its own.
"""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest
from asking import expected
from real_slurm import ROOT, USER, VERSIONS, RealSlurm, tree_or_skip
from slurm_lab import apptainer
from support.builders import a_lab_plan

from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.plan.model import Containers, SlurmOnHosts
from gpucluster.slurm.config.render import render

NUMBERS = {
    "24.11": "0x180b00",
    "26.05": "0x1a0500",
}  # SLURM_VERSION_NUM(major, minor, micro) of slurm/slurm_version.h
# The declarations are those of slurm/spank.h, as far as the stand-in uses them.
SOURCE = """
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
const char plugin_name[] = "pyxis";
const char plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
const unsigned int spank_plugin_version = 1;
typedef struct spank_handle *spank_t;
struct spank_option { char *name; char *arginfo; char *usage; int has_arg; int val; int (*cb)(int, const char *, int); };
extern int spank_option_register(spank_t, struct spank_option *);
extern int spank_remote(spank_t);
extern void slurm_error(const char *, ...);
static char image[256];
static int take(int val, const char *arg, int remote) { snprintf(image, sizeof image, "%s", arg ? arg : ""); return 0; }
static struct spank_option option = {"container-image", "IMAGE", "[pyxis] the image", 1, 0, take};
int slurm_spank_init(spank_t spank, int count, char **arguments)
{
  for (int i = 0; i < count; i++)
    if (strcmp(arguments[i], "container_scope=job")) { slurm_error("pyxis: unknown configuration option: %s", arguments[i]); return -1; }
  if (count != 1) { slurm_error("pyxis: %d arguments", count); return -1; }
  return spank_option_register(spank, &option);
}
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
  if (spank_remote(spank) && image[0] && strcmp(image, "ubuntu")) { slurm_error("pyxis: no image %s", image); return -1; }
  return 0;
}
"""


@pytest.fixture
def plugin(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return _compiled(tmp_path, request.getfixturevalue("version"))


def _compiled(folder: Path, version: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this host: apt-get install gcc libc6-dev")
    tree_or_skip(version)
    (folder / "pyxis.c").write_text(SOURCE)
    built = folder / "spank_pyxis.so"
    argv = [compiler, "-shared", "-fPIC", f"-DVERSION={NUMBERS[version]}", "-o", built, folder / "pyxis.c"]
    subprocess.run(argv, check=True)
    return built


def _install(slurm: RealSlurm, plugin: Path) -> None:
    at = slurm.path(names.PYXIS_PLUGIN)
    at.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(plugin, at)


def a_plan(kind: Containers = Containers.PYXIS) -> SlurmOnHosts:
    plan = a_lab_plan()
    return dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, containers=kind))


@pytest.mark.parametrize("version", VERSIONS)
def test_daemons_and_steps_take_the_rendered_plugstack(version: str, plugin: Path) -> None:
    with RealSlurm(version, a_plan()) as slurm:
        _install(slurm, plugin)
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "gpu01", "-o", "%t").split() == ["idle"], "an idle node"
        )
        assert "--container-image=IMAGE" in slurm.must("srun", "--help")
        ran = slurm.run("srun", "-w", "gpu01", "--container-image=ubuntu", "echo", "inside", user=USER)
        assert (ran.code, ran.out) == (0, "inside\n"), ran.err
        assert slurm.errors() == []
        refused = slurm.run("srun", "-w", "gpu01", "--container-image=none", "echo", "outside", user=USER)
        assert refused.code != 0
        assert "outside" not in refused.out, "`required`: the step does not run outside of its container"


PLUGSTACK = "/etc/slurm/plugstack.conf"
CACHED = "/var/spool/slurmd/conf-cache/plugstack.conf"  # a slurmd's copy, which srun on the node reads
NEEDS_ITS_CONTAINER = "--container-image=ubuntu"


def test_pyxis_arrives_on_machines_without_it() -> None:
    """As `diff` says: slurmd ends, a running job starts no further step and stays, and sbatch fails."""
    with RealSlurm("24.11", a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(lambda: _state(slurm) == "idle", "an idle node")
        job = _submit(
            slurm, "sleep 300 & echo begun; while ! test -e /tmp/go; do sleep 0.1; done; srun echo step"
        )
        slurm.wait(lambda: "begun" in _output(slurm, job), "the job runs")
        (text,) = [
            one.content for one in render(a_plan()) if one.path.endswith(PLUGSTACK.removeprefix("/etc/"))
        ]
        slurm.write(PLUGSTACK, text.decode())
        slurm.must("scontrol", "reconfigure")
        slurm.wait(lambda: "slurmd initialization failed" in slurm.node_log("gpu01"), "slurmd has ended")
        slurm.write("/tmp/go", "")
        slurm.wait(lambda: "Plug-in initialization failed" in _output(slurm, job), "srun in the job fails")
        slurm.wait(lambda: slurm.must("squeue", "-h", "-o", "%T").split() == ["COMPLETING"], "the job stays")
        assert "step" not in _output(slurm, job).split()
        refused = slurm.run("sbatch", "--wrap", "true", user=USER)
        assert (refused.code, "Failed to initialize plugin stack" in refused.err) == (1, True), refused.err


def test_pyxis_leaves_a_queue(tmp_path: Path) -> None:
    """As `diff` says: a queued job starts outside of its container, a running one cannot start one, and sbatch refuses."""
    with RealSlurm("24.11", a_plan()) as slurm:
        _install(slurm, _compiled(tmp_path, "24.11"))
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        slurm.wait(lambda: _state(slurm) == "idle", "an idle node")
        asks = f"srun {NEEDS_ITS_CONTAINER} echo inside"
        running = _submit(slurm, f"echo begun; while test -e {CACHED}; do sleep 0.1; done; {asks}")
        slurm.wait(lambda: "begun" in _output(slurm, running), "the job runs")
        queued = _submit(slurm, "echo began; srun echo outside", "--hold", NEEDS_ITS_CONTAINER)
        slurm.path(PLUGSTACK).unlink()
        slurm.must("scontrol", "reconfigure")
        slurm.wait(
            lambda: f"unrecognized option '{NEEDS_ITS_CONTAINER}'" in _output(slurm, running), "srun refuses"
        )
        slurm.must("scontrol", "release", queued)
        slurm.wait(lambda: "outside" in _output(slurm, queued), "the queued job runs its step")
        refused = slurm.run("sbatch", NEEDS_ITS_CONTAINER, "--wrap", "true", user=USER)
        assert (refused.code, "unrecognized option" in refused.err) == (255, True), refused.err


def _state(slurm: RealSlurm) -> str:
    return slurm.must("sinfo", "-h", "-n", "gpu01", "-o", "%t").strip()


def _submit(slurm: RealSlurm, script: str, *options: str) -> str:
    argv = ("sbatch", "--parsable", "-N1", "-D", "/tmp", "-o", "/tmp/%j.txt", *options, "--wrap", script)
    return slurm.must(*argv, user=USER).strip()


def _output(slurm: RealSlurm, job: str) -> str:
    at = slurm.path(f"/tmp/{job}.txt")
    return at.read_text() if at.exists() else ""


def test_node_without_the_plugin_does_not_join() -> None:
    """An image without the part: slurmd ends with the path of the plugin, so no job is lost on that node."""
    with RealSlurm("24.11", a_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(lambda: "slurmd initialization failed" in slurm.node_log("gpu01"), "slurmd has ended")
        assert f"Failed to load plugin {names.PYXIS_PLUGIN}" in slurm.node_log("gpu01")


IMAGE = "/srv/image"
STARTER = "/usr/lib/x86_64-linux-gnu/apptainer/bin/starter"
STREAMS = ("stdin", "stdout", "stderr")  # of /dev, which the laboratory leaves out
LIBRARIES = {
    "ld-linux-x86-64.so.2": "lib64",
    "libc.so.6": "lib/x86_64-linux-gnu",
}  # -> its folder in the image


class WithApptainer(RealSlurm):
    """Nodes with the files of Apptainer. Their root is the tree: the kernel gives no user namespace to a process in a chroot."""

    def _into_tree(self) -> str:
        links = "".join(f"ln -s /proc/self/fd/{at} dev/{name}; " for at, name in enumerate(STREAMS))
        terminals = "mknod -m 666 dev/tty c 5 0; mkdir dev/pts; mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts"
        root = f"pivot_root . old; umount -l /old; mount --rbind / {ROOT}"  # commands on the node look there
        return f"mkdir -p {ROOT}/old {ROOT}{ROOT}; cd {ROOT}; {links}{terminals}; {root}; exec"

    def install(self, package: Path) -> None:
        subprocess.run(["/usr/bin/cp", "--archive", f"{package}/.", self.path("/")], check=True)

    def make_image(self) -> None:
        """A folder with two programs of the tree, their libraries and a file."""
        for program in ("dash", "cat"):
            self.copy(f"/usr/bin/{program}", f"{IMAGE}/bin/{program}")
        for library, folder in LIBRARIES.items():
            self.copy(f"/usr/lib/x86_64-linux-gnu/{library}", f"{IMAGE}/{folder}/{library}")
        self.path(f"{IMAGE}/bin/sh").symlink_to("dash")
        for folder in ("dev", "etc", "home", "proc", "root", "sys", "tmp", "usr", "var/tmp"):
            self.path(f"{IMAGE}/{folder}").mkdir(parents=True)
        self.write(f"{IMAGE}/etc/marker", "of the image\n")

    def copy(self, start: str, to: str) -> None:
        self.path(to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.path(start), self.path(to))

    def job(self, *argv: str) -> QueryOutput:
        """A job of an ordinary user on gpu01."""
        done = self.run("srun", "-w", "gpu01", "-D", "/", *argv, user=USER)
        return QueryOutput(code=done.code, stdout=done.out, stderr=done.err)

    def finding(self) -> CheckResult:
        """What ctr.run says of gpu01."""
        one = expected(self, "ctr.run", "gpu01")
        (query,) = one.of.query(one.want)
        assert query.as_user
        return one.of.evaluate(one.of.parse((self.job(*query.argv),)), one.want)


def test_a_job_starts_a_container_and_a_broken_apptainer_is_found_and_healed() -> None:
    """Real Apptainer. Without its starter and without user namespaces each job with a container would fail."""
    try:
        package = apptainer.folder()
    except GpuclusterError as error:
        pytest.skip(f"Apptainer of Debian unstable cannot be had: {str(error)[-300:]}")
    with WithApptainer("24.11", a_plan(Containers.APPTAINER)) as slurm:
        slurm.install(package)
        slurm.make_image()
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(
            lambda: slurm.must("sinfo", "-h", "-n", "gpu01", "-o", "%t").split() == ["idle"], "an idle node"
        )
        ran = slurm.job("apptainer", "--quiet", "exec", IMAGE, "cat", "/etc/marker")
        assert (ran.code, ran.stdout) == (0, "of the image\n"), ran.stderr
        good = slurm.finding()
        assert (good.verdict, "apptainer version 1." in good.found) == (CheckStatus.PASS, True), good

        slurm.path(STARTER).unlink()
        broken = slurm.finding()
        assert broken.verdict is CheckStatus.FAIL
        assert broken.remedy.startswith("install apptainer on {machine}")
        slurm.install(package)
        assert slurm.finding().verdict is CheckStatus.PASS

        one = expected(slurm, "ctr.run", "gpu01")
        (query,) = one.of.query(one.want)
        refused = slurm.run(*query.argv, user=USER)  # in a chroot
        told = QueryOutput(code=refused.code, stdout=refused.out, stderr=refused.err)
        found = one.of.evaluate(one.of.parse((told,)), one.want)
        assert "Failed to create user namespace: not allowed to create user namespace" in found.found
        assert found.remedy.startswith("let ordinary users make user namespaces on {machine}")
