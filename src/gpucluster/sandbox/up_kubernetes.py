"""`sandbox up` for Kubernetes on EKS: the program makes the cluster, a real API server serves it, and the waves are applied.

The pods' lives are kwok's. `aws` and `kubectl` reach the cluster with the words of a real one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucluster import engine
from gpucluster.plan.model import KubernetesOnAws
from gpucluster.sandbox import differences, paths, preexisting
from gpucluster.sandbox import host_checks as host
from gpucluster.sandbox.capsule import process
from gpucluster.sandbox.images.layers import Progress
from gpucluster.sandbox.kubernetes.access import apply_waves, nodes_of, programs_of, write_kubeconfig
from gpucluster.sandbox.name_lock import claimed
from gpucluster.sandbox.state_dir import SandboxDir
from gpucluster.sandbox.up import Watch, engine_up, make_preexisting, write_endpoint, write_operator


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningKubernetes:
    """A rehearsal with Kubernetes alone."""

    home: SandboxDir
    plan: KubernetesOnAws
    port: int
    differences: tuple[str, ...]
    seconds: Mapping[str, float]


def up(
    plan: KubernetesOnAws,
    file: Path,
    *,
    program: Callable[[KubernetesOnAws], None],
    progress: Progress,
    cloud_only: bool = False,
    root: Path = paths.STATE_ROOT,
) -> RunningKubernetes:
    """Create the plan's cluster and apply the waves of `file`, its spec. Whatever is raised leaves nothing.

    `cloud_only` leaves the cloud empty: the first `pulumi up` is typed in `sandbox shell`.
    """
    found = host.check(host.observe(root))
    scripts = file.parent / preexisting.SCRIPTS
    home = SandboxDir(name=plan.name, root=root)
    with claimed(home, found.trees, progress) as lock:
        watch = Watch()
        home.begin(plan, file, real_times=False)
        write_operator(home)
        built = programs_of(plan.kubernetes, progress)
        pulumi = engine.find_or_build(progress)
        watch.lap("programs")
        running = process.start(
            home, lock, region=plan.aws.region, image="", layers=(), trees=found.trees, gpus={},
            room=0, nodes=nodes_of(plan.kubernetes),
        )  # fmt: skip
        try:
            write_endpoint(home, running.port, plan.aws.region)
            watch.lap("capsule")
            make_preexisting(plan, home, scripts)
            if not cloud_only:
                outputs = engine_up(plan, home, pulumi, lambda: program(plan), progress)
                watch.lap("engine")
                write_kubeconfig(home, built)
                apply_waves(home, built, file, str(outputs["bindings"]), progress)
                watch.lap("waves")
            running.keep()
        except BaseException:
            running.kill()
            raise
    said = (*differences.of_kubernetes(), *preexisting.explain(plan, scripts))
    return RunningKubernetes(home=home, plan=plan, port=running.port, differences=said, seconds=watch.laps)
