"""Jobs of the Training operator, the MPI operator and Volcano, of which lint has no schema: what their webhooks refuse."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

PODS = "template: {spec: {containers: [{name: pytorch, image: 'a:1', command: [torchrun, a.py], resources: {limits: {nvidia.com/gpu: 8}}, volumeMounts: [{name: s, mountPath: /dev/shm}]}], volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]}}"
TORCH = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: a}}
spec:
  nprocPerNode: "8"
  elasticPolicy: {{rdzvBackend: c10d}}
  pytorchReplicaSpecs:
    Master: {{replicas: 1, {PODS}}}
    Worker: {{replicas: 3, {PODS.replace("'a:1'", "'b:1'")}}}
"""
TENSORS = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {tfReplicaSpecs: {Evaluator: {replicas: 2, template: {spec: {containers: [{name: tensorflow, image: 'a:1'}]}}}}}\n"
MPI = f"""apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: a}}
spec:
  slotsPerWorker: 8
  runLauncherAsWorker: false
  mpiReplicaSpecs:
    Launcher: {{replicas: 1, template: {{spec: {{containers: [{{name: l, image: 'a:1', command: [mpirun, -np, "16", a]}}]}}}}}}
    Worker: {{replicas: 2, restartPolicy: Never, {PODS}}}
"""
VOLCANO = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec:
  minAvailable: 5
  tasks:
    - {name: m, replicas: 1, template: {spec: {containers: [{name: c, image: 'a:1'}]}}}
    - {name: w, replicas: 4, minAvailable: 4, template: {spec: {containers: [{name: c, image: 'a:1'}]}}}
"""

ERROR, WARNING = Severity.ERROR, Severity.WARNING
# a sentence, the rule and its level, the sound manifest, what is changed, and to what
ROWS = [
    ("two masters", "range", ERROR, TORCH, "Master: {replicas: 1", "Master: {replicas: 2"),
    ("no worker", "range", ERROR, TORCH, "Worker: {replicas: 3", "Worker: {replicas: 0"),
    ("a container of another name", "container", ERROR, TORCH, "[{name: pytorch, image: 'a:1'", "[{name: trainer, image: 'a:1'"),
    ("a role that is none", "word", ERROR, TORCH, "Master:", "Chief:"),
    ("a name that begins with a digit", "name", ERROR, TORCH, "{name: a}", "{name: 1-a}"),
    ("elastic without workers", "one-of", ERROR, TORCH.partition("    Worker")[0].replace("elasticPolicy: {rdzv", "elastic: {rdzv"), "elastic: {rdzv", "elasticPolicy: {rdzv"),
    ("processes in two places", "one-of", ERROR, TORCH, "rdzvBackend: c10d", "nProcPerNode: 8"),
    ("another number of processes", "rendezvous", WARNING, TORCH, 'nprocPerNode: "8"', 'nprocPerNode: "4"'),
    ("a container of another framework", "container", ERROR, TENSORS, "name: tensorflow", "name: tf"),
    ("two launchers", "range", ERROR, MPI, "Launcher: {replicas: 1", "Launcher: {replicas: 2"),
    ("no worker of MPI", "range", ERROR, MPI.replace('"16"', '"1"'), "Worker: {replicas: 2", "Worker: {replicas: 0"),
    ("a restart of MPI", "word", ERROR, MPI, "restartPolicy: Never", "restartPolicy: Always"),
    ("no launcher", "one-of", ERROR, MPI, "Launcher:", "launcher:"),
    ("more processes than slots", "rendezvous", WARNING, MPI, '"16"', '"32"'),
    ("more processes than slots in a script", "rendezvous", WARNING, MPI.replace('mpirun, -np, "16", a', 'sh, -c, "mpirun -np 16 a"'), "-np 16", "-x A=b --map-by node -np 32"),
    ("more processes of two programs than slots", "rendezvous", WARNING, MPI.replace('mpirun, -np, "16", a', 'sh, -c, "/opt/amazon/openmpi/bin/mpirun --mca btl ^openib -np 8 a : -n 8 b"'), "-n 8 b", "-n 9 b"),
    ("more pods than there are", "replicas", ERROR, VOLCANO, "minAvailable: 5", "minAvailable: 6"),
    ("more pods than a task has", "replicas", ERROR, VOLCANO, "minAvailable: 4", "minAvailable: 5"),
    ("two tasks of one name", "container", ERROR, VOLCANO, "name: m", "name: w"),
]  # fmt: skip


def found(written: str) -> list[tuple[str, Severity]]:
    got = read(written, "a.yaml")
    return [(one.rule, one.level) for one in check(got.documents, Facts(kubernetes="1.36", whole=False))]


@pytest.mark.parametrize(("rule", "level", "sound", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_change_is_reported(rule: str, level: Severity, sound: str, old: str, new: str) -> None:
    assert sound.count(old) == 1
    assert found(sound) == []
    assert (rule, level) in found(sound.replace(old, new))


FINE = [
    ("a launcher that works, too", MPI.replace('"16"', '"24"').replace("runLauncherAsWorker: false", "runLauncherAsWorker: true")),
    ("processes on purpose", MPI.replace('"16"', '--oversubscribe, "-np=32"')),
    ("an option of the program", MPI.replace('"16", a', '"16", -N, "8", all_reduce_perf, -b, 8M, -g, "1", -n, "50"')),
    ("an option of the program without a number of processes", MPI.replace('-np, "16", a', "-x, A, --mca, btl, ^openib, --bind-to, none, all_reduce_perf, -n, '50'")),
    ("an option of the program in a script", MPI.replace('mpirun, -np, "16", a', 'sh, -c, "sleep 1; mpirun -np 16 \\\n  --hostfile /etc/mpi/hostfile a -n 50 && b -np 64"')),
    ("an option of the program after one that lint does not know", MPI.replace('-np, "16", a', "--new-option, a, -n, '50'")),
    ("an option of a program that mpirun does not start", MPI.replace('mpirun, -np, "16", a', "python3, launch.py, -n, '50'")),
    ("as many processes as GPUs", TORCH.replace('nprocPerNode: "8"', "nprocPerNode: gpu")),
    ("a job of another version", "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: a}\nspec: {mpiReplicaSpecs: {Worker: {replicas: 1}}}\n"),
]  # fmt: skip


@pytest.mark.parametrize("written", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_near_miss_is_fine(written: str) -> None:
    assert found(written) == []
