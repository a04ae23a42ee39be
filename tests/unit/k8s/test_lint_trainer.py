"""What the webhooks of Kubeflow Trainer 2.3 refuse in runtimes and TrainJobs, and what its controller leaves out."""

import pytest

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read

RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: mine, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {envInjection: {targets: [{jobName: node, containerNames: [check]}]}}}
  template:
    spec:
      replicatedJobs:
        - name: dataset-initializer
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
            spec: {template: {spec: {containers: [{name: dataset-initializer, image: "a:1", volumeMounts: [{name: initializer, mountPath: /workspace}]}], volumes: [{name: initializer, emptyDir: {}}]}}}
        - name: node
          replicas: 1
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {initContainers: [{name: check, image: "a:1"}], containers: [{name: node, image: "a:1"}]}}}
"""
JOB = """---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune}
spec:
  runtimeRef: {name: mine}
  initializer: {dataset: {storageUri: "hf://a/b"}}
  trainer: {numNodes: 2, command: [torchrun, a.py], env: [{name: LEARNING_RATE, value: "1"}]}
  runtimePatches:
    - manager: example.org/admission
      trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, volumeMounts: []}]}}}}}]}}}
"""
BOTH = RUNTIME + JOB
MPI = BOTH.replace("torch: {envInjection: {targets: [{jobName: node, containerNames: [check]}]}}", "mpi: {mpiImplementation: OpenMPI}")  # fmt: skip
FLUX = BOTH.replace("torch: {envInjection: {targets: [{jobName: node, containerNames: [check]}]}}", "flux: {numProcPerNode: 2}")  # fmt: skip
TUNED = JOB.replace("name: mine", "name: torchtune-llama3.2-1b").replace("numNodes: 2, command: [torchrun, a.py]", "command: [tune, run], args: [batch_size=2]")  # fmt: skip

# a sentence, the rule, the sound manifests, what is changed, and to what
REFUSED = [
    ("several jobs of one step", "range", BOTH, "replicas: 1\n", "replicas: 2\n"),
    ("a step without its container", "container", BOTH, "containers: [{name: node, image", "containers: [{name: trainer, image"),
    ("a step of data without its container", "container", BOTH, "containers: [{name: dataset-initializer", "containers: [{name: data"),
    ("a variable that the runtime sets", "variable", BOTH, "name: LEARNING_RATE", "name: PET_NNODES"),
    ("a variable of MPI that the runtime sets", "variable", MPI, "name: LEARNING_RATE", "name: OMPI_MCA_plm_rsh_args"),
    ("a container of another job", "container", BOTH, "containerNames: [check]", "containerNames: [probe]"),
    ("a step that the runtime lacks", "depends-on", BOTH, "dataset: {storageUri", "model: {storageUri"),
    ("a step without its volume", "volume", BOTH, "volumeMounts: [{name: initializer,", "volumeMounts: [{name: data,"),
    ("a patch of no job", "depends-on", BOTH, "replicatedJobs: [{name: node, template", "replicatedJobs: [{name: nodes, template"),
    ("a patch of no container", "container", BOTH, "containers: [{name: node, volumeMounts: []}]", "containers: [{name: trainer, volumeMounts: []}]"),
    ("a patch of variables", "variable", BOTH, "containers: [{name: node, volumeMounts: []}]", "containers: [{name: node, env: [{name: A, value: b}]}]"),
    ("a patch of nobody", "name", BOTH, "manager: example.org/admission", "manager: admission"),
    ("no process of Flux", "range", FLUX, "numNodes: 2, command", "numProcPerNode: 0, command"),
    ("a runtime of another kind", "word", BOTH, "runtimeRef: {name: mine}", "runtimeRef: {name: mine, kind: JobSet}"),
    ("a launcher that is not there", "range", MPI, "mpiImplementation: OpenMPI}", "mpiImplementation: OpenMPI, runLauncherAsNode: true}"),
]  # fmt: skip


def found(written: str) -> list[tuple[str, Severity]]:
    got = read(written, "a.yaml")
    return [(one.rule, one.level) for one in check(got.documents, Facts(kubernetes="1.36", whole=False))]


@pytest.mark.parametrize(("rule", "sound", "old", "new"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])  # fmt: skip
def test_change_that_a_webhook_refuses(rule: str, sound: str, old: str, new: str) -> None:
    assert sound.count(old) == 1
    assert found(sound) == []
    assert (rule, Severity.ERROR) in found(sound.replace(old, new))


def test_runtime_of_the_project_is_known_by_its_name() -> None:
    """The cluster can have another runtime of that name, so it is a warning."""
    of_the_project = JOB.replace("name: mine", "name: torch-distributed").split("  runtimePatches")[0]
    alone = of_the_project.replace('  initializer: {dataset: {storageUri: "hf://a/b"}}\n', "")
    assert found(alone) == []
    assert found(alone.replace("LEARNING_RATE", "PET_NPROC_PER_NODE")) == [("variable", Severity.WARNING)]
    assert found(alone.replace("LEARNING_RATE", "DMLC_TRACKER_URI")) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("command: [tune, run]", "numNodes: 2, command: [tune, run]", "range"),
        ("args: [batch_size=2]", "args: [output_dir=/a]", "one-of"),
    ],
)
def test_job_of_torchtune(old: str, new: str, rule: str) -> None:
    alone = TUNED.split("  runtimePatches")[0].replace('  initializer: {dataset: {storageUri: "hf://a/b"}}\n', "")  # fmt: skip
    assert found(alone) == []
    assert found(alone.replace(old, new)) == [(rule, Severity.WARNING)]


def test_job_without_a_trainer_gets_no_variables_of_its_runtime() -> None:
    """The plugins of torch, JAX and XGBoost set variables only for a job with `trainer`: each node then trains alone."""
    wide = RUNTIME.replace("numNodes: 1", "numNodes: 4")
    without = wide + JOB.replace('  trainer: {numNodes: 2, command: [torchrun, a.py], env: [{name: LEARNING_RATE, value: "1"}]}\n', "")  # fmt: skip
    assert found(without) == [("rendezvous", Severity.WARNING)]
    assert found(without.replace("numNodes: 4", "numNodes: 1")) == []


def test_runtime_without_a_step_of_the_trainer_ignores_the_trainer() -> None:
    other = BOTH.replace("ancestor-step: trainer", "ancestor-step: training")
    assert ("depends-on", Severity.WARNING) in found(other)


QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: f, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q}
spec: {clusterQueue: q}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  runtimeRef: {name: mine}
  trainer: {numNodes: 2, image: "a:1", env: [{name: NCCL_DEBUG, value: INFO}], resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
"""
TRAINER = [
    ("GPUs beyond the quota", "workload-above-quota", "numNodes: 2", "numNodes: 3"),
    ("a resource that the queue does not cover", "quota-uncovered", "gpu: 8}}", "gpu: 8, vpc.amazonaws.com/efa: 4}}"),
    ("GPUs without a limit", "resources", "{limits: {nvidia.com/gpu: 8}}", "{requests: {nvidia.com/gpu: 8}}"),
    ("GPUs in the plural", "device-name", "nvidia.com/gpu: 8}}", "nvidia.com/gpus: 8}}"),
    ("three GPUs", "gpu-count", "nvidia.com/gpu: 8}}", "nvidia.com/gpu: 3}}"),
    ("an image that changes", "image-tag", "a:1", "a:latest"),
    ("a token", "literal-secret", "{name: NCCL_DEBUG, value: INFO}", "{name: HF_TOKEN, value: hf_abcdefghijklmnopqrstuvwxyzABCDEFGH}"),
    ("a variable of NCCL that is misspelt", "fabric-variable", "NCCL_DEBUG", "NCCL_DEBUGG"),
    ("a field of a pod that is misspelt", "variable", "value: INFO", "valueFrom: {fieldRef: {fieldPath: status.podIp}}"),
    ("suspended and in no queue", "suspended", ", labels: {kueue.x-k8s.io/queue-name: q}}\nspec:\n", "}\nspec:\n  suspend: true\n"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new"), [row[1:] for row in TRAINER], ids=[row[0] for row in TRAINER])  # fmt: skip
def test_part_of_a_trainjob_is_read_as_a_container(rule: str, old: str, new: str) -> None:
    """Red before: only the pods of the runtime were read, so that `trainer` could hold anything."""
    assert QUEUE.count(old) == 1
    assert found(QUEUE) == []
    assert rule in {one for one, _ in found(QUEUE.replace(old, new))}


def test_finding_in_the_resources_of_a_node_names_their_field() -> None:
    got = read(QUEUE.replace("{limits: {nvidia.com/gpu: 8}}", "{requests: {nvidia.com/gpu: 8}}"), "a.yaml")
    (one,) = [one for one in check(got.documents, Facts(kubernetes="1.36")) if one.rule == "resources"]
    assert one.path == "spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]"
    assert one.line == 22


def test_nodes_of_a_trainjob_have_the_resources_of_its_runtime() -> None:
    """Kueue counts the pods of the runtime, as many as the job or the runtime has nodes."""
    runtime = RUNTIME.replace(
        '{name: node, image: "a:1"}',
        '{name: node, image: "a:1", resources: {limits: {nvidia.com/gpu: 8}}, volumeMounts: [{name: s, mountPath: /dev/shm}]}',
    ).replace(
        "initContainers: [{name: check",
        "volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}], initContainers: [{name: check",
    )
    job = QUEUE.replace(", resourcesPerNode: {limits: {nvidia.com/gpu: 8}}", "")
    both = f"{runtime}---\n{job}"
    above = ("workload-above-quota", Severity.ERROR)
    assert above not in found(both)
    assert above in found(both.replace("numNodes: 2", "numNodes: 3"))
    silent = both.replace("numNodes: 2, ", "")
    assert above not in found(silent)
    assert above in found(silent.replace("numNodes: 1,", "numNodes: 3,"))
