"""Edits of stacks with Kubernetes that an auditor tried, and what `diff` must say of each. `audited_edits` has the form."""

from support.audited_edits import STACKS, STAYS, Audited, Change


def _between(stack: str, first: str, last: str) -> Change:
    text = (STACKS / f"{stack}.yaml").read_text()
    return text[text.index(first) : text.index(last)], ""


def _pool(stack: str, name: str) -> Change:
    lines = (STACKS / f"{stack}.yaml").read_text().splitlines(keepends=True)
    return next(line for line in lines if line.startswith(f"  - {{name: {name},")), ""


_BORROWED = "above its smaller quota of {} count as borrowed: Kueue ends them, and queues them again, when another team needs its quota"
_BINDINGS = "pulumi stack output bindings --stack"
_KUBERNETES = _between("hybrid", "kubernetes:\n", "storage:")
_ACCOUNTS = _between("kube", "      service_accounts:\n", "storage:")
_LUSTRE = "storage: [{mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}]"
_SITE_LUSTRE = "storage: [{mount: /data, fsx_lustre: {zone: us-west-2a, id: fs-0123456789abcdef0}}]"
_HYBRID_LUSTRE = _between("hybrid", "storage: ", "pools:")[0].rstrip("\n")
_UNDRIVEN = "those that use /data must end before `pulumi up` deletes the driver of its volumes: after it they stay in Terminating"
_TUNE_RESERVED = (
    "nodes: 4, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]",
    "nodes: 4, capacity: [{from: reservation, id: cr-0123456789abcdef0, machines: [p4de.24xlarge], zones: [us-west-2a]}]",
)
_SERVING = ("    - {name: serving,  quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true, share: 2}\n", "")
_SPARE = _pool("kube", "serve")[0].replace("serve,", "spare,")
_KEY = ("region: us-west-2,", "region: us-west-2, kms_key: alias/research,")
_ANEW = (
    "gpucluster k8s down kube",
    "gpucluster down kube",
    "pulumi up --stack kube",
    "gpucluster k8s up kube",
)

_ADMINS = ("  queueing: kueue\n", "  admins: ['arn:aws:iam::123456789012:role/ops']\n  queueing: kueue\n")
_RANGES = ("  queueing: kueue\n", "  api_from: [198.51.100.0/24, 203.0.113.0/24]\n  queueing: kueue\n")
_SITE = ("control_plane: eks ", "existing: {context: prod, eks_name: prod} ")
_QUEUEING = "  queueing: kueue\n"
_BOTH_BORROW = ("quota: {nvidia.com/gpu: 32}\n", "quota: {nvidia.com/gpu: 32}\n      may_borrow: true\n")
_PREEMPTED = (
    "those that a waiting workload may preempt by the new rules are ended, and queued again, when it waits"
)
_NEVER = ("{within_cluster_queue: lower-or-newer-equal-priority}", "{within_cluster_queue: never}")

EDITS = (
    Audited(
        id="name-of-the-site's-cluster-in-eks",
        stack="kube",
        base=(_ACCOUNTS, _SITE),
        changes=(("eks_name: prod", "eks_name: other"),),
        worst="live",
        is_exactly={
            "running": "go on; those on Karpenter's nodes: it lists the machines whose tag has the name of the cluster in EKS,"
            " and deletes a node of another name when it is not ready",
            "queued": "stay in the queue; no machine starts for them unless other is the name of this cluster in EKS",
            "sessions": "stay open",
        },
        steps=("gpucluster k8s up kube",),
        no_steps=("pulumi up",),
    ),
    Audited(
        id="name-in-eks-without-elastic-pools",
        stack="kube",
        base=(_ACCOUNTS, _SITE, ("{min: 1, max: 6}", "1"), ("28}", "7}")),
        changes=((", eks_name: prod", ""),),
        worst="live",
        is_exactly={"running": "go on", "queued": "stay in the queue"},
    ),
    Audited(
        id="admin-of-kubernetes-leaves",
        stack="kube",
        base=(_ADMINS,),
        changes=((_ADMINS[1], _ADMINS[0]),),
        worst="live",
        is_exactly={
            "running": "go on",
            "sessions": "stay open; `kubectl` of arn:aws:iam::123456789012:role/ops loses rights at `pulumi up`",
        },
        steps=("pulumi up --stack kube",),
    ),
    Audited(
        id="admin-of-kubernetes-arrives",
        stack="kube",
        changes=(_ADMINS,),
        worst="live",
        is_exactly={"sessions": "stay open"},
    ),
    Audited(
        id="range-of-the-api-server-leaves",
        stack="kube",
        base=(_RANGES,),
        changes=((", 203.0.113.0/24]", "]"),),
        worst="live",
        is_exactly={"sessions": "stay open; `kubectl` from 203.0.113.0/24 does not reach the API server"},
        steps=("pulumi up --stack kube",),
    ),
    Audited(
        id="preemption-of-the-own-team-arrives",
        stack="kube",
        base=(_NEVER,),
        changes=((_NEVER[1], _NEVER[0]),),
        worst="live",
        is_exactly={
            "running": "go on; those that a waiting workload may preempt by the new rules are ended, and queued again, when it waits",
            "queued": "stay in the queue",
        },
        steps=("pulumi up --stack kube", _BINDINGS, "gpucluster k8s up kube --bindings bindings.json"),
    ),
    Audited(
        id="preemption-of-the-own-team-leaves",
        stack="kube",
        changes=(_NEVER,),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="preemption-of-equal-priorities-leaves",
        stack="kube",
        changes=((_NEVER[0], "{within_cluster_queue: lower-priority}"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="fair-sharing-arrives",
        stack="kube",
        base=(_BOTH_BORROW, (", share: 2}", "}"), (_QUEUEING, f"{_QUEUEING}  fair_sharing: false\n")),
        changes=(("  fair_sharing: false\n", ""),),
        worst="live",
        is_exactly={"running": f"go on; {_PREEMPTED}"},
    ),
    Audited(
        id="fair-sharing-leaves",
        stack="kube",
        base=(_BOTH_BORROW, (", share: 2}", "}")),
        changes=((_QUEUEING, f"{_QUEUEING}  fair_sharing: false\n"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="share-of-one-team",
        stack="kube",
        base=(_BOTH_BORROW,),
        changes=(("share: 2", "share: 5"),),
        worst="live",
        is_exactly={"running": f"go on; {_PREEMPTED}"},
    ),
    Audited(
        id="shares-of-all-teams-alike",
        stack="kube",
        base=(_BOTH_BORROW,),
        changes=(
            ("share: 2", "share: 4"),
            ("      may_borrow: true\n", "      may_borrow: true\n      share: 2\n"),
        ),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="share-of-the-only-team-that-borrows",
        stack="kube",
        changes=(("share: 2", "share: 5"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="second-team-may-borrow",
        stack="kube",
        changes=(_BOTH_BORROW,),
        worst="live",
        is_exactly={"running": f"go on; {_PREEMPTED}"},
    ),
    Audited(
        id="priority-falls-below-that-of-gangs",
        stack="kube",
        changes=(("priority: 10000", "priority: 500"),),
        worst="live",
        is_exactly={"running": f"go on; {_PREEMPTED}"},
    ),
    Audited(
        id="priority-stays-above-the-others",
        stack="kube",
        changes=(("priority: 10000", "priority: 20000"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="machine-of-the-nodes-of-the-add-ons",
        stack="kube",
        base=((_QUEUEING, f"{_QUEUEING}  system: {{machine: m7i.xlarge}}\n"),),
        changes=(("system: {machine: m7i.xlarge}", "system: {machine: m7i.2xlarge}"),),
        worst="drain",
        is_exactly={
            "running": "go on; those on always-on nodes of the add-ons are evicted when `pulumi up` deletes the node group",
            "queued": "stay in the queue",
            "sessions": "stay open",
        },
    ),
    Audited(
        id="preemption-beside-slurm-arrives",
        stack="hybrid",
        base=(("  queueing: kueue\n", "  queueing: kueue\n  preemption: {within_cluster_queue: never}\n"),),
        changes=(("  preemption: {within_cluster_queue: never}\n", ""),),
        is_exactly={
            "running": "go on; pods that a waiting workload may preempt by the new rules are ended, and queued again, when it waits"
        },
    ),
    Audited(
        id="kubernetes-removed",
        stack="hybrid",
        changes=(_KUBERNETES, _pool("hybrid", "tune"), _pool("hybrid", "serve")),
        worst="data-loss",
        says={
            "running": "go on; pods end: `gpucluster k8s down hybrid` deletes gangs, services and the machines of Karpenter",
            "queued": "waiting pods are deleted with their queues",
            "sessions": "`kubectl` loses its API server",
            "data": "Secrets and all other objects are lost with the control plane",
        },
        steps=("kubectl get pvc", "gpucluster k8s down hybrid", "pulumi up --stack hybrid"),
        no_steps=("gpucluster k8s up", _BINDINGS),
    ),
    Audited(
        id="eks-becomes-a-cluster-of-the-site",
        stack="kube",
        base=(_ACCOUNTS,),
        changes=(("control_plane: eks ", "existing: {context: prod, eks_name: prod} "),),
        says={"running": "end: `gpucluster k8s down kube` deletes", "data": "file systems stay"},
        never=("back up",),
        steps=("gpucluster k8s down kube", "gpucluster down kube", "gpucluster k8s up kube"),
        no_steps=("pulumi up", "kubectl exec POD -- tar -C /"),
    ),
    Audited(
        id="kms-added-to-eks",
        stack="kube",
        base=((f"{_LUSTRE}\n", ""),),
        changes=(_KEY,),
        worst="replace",
        says={
            "running": "end: `gpucluster k8s down kube` deletes gangs, services",
            "data": "file systems stay; Secrets and all other objects are lost with the control plane",
        },
        steps=_ANEW,
        no_steps=("kubectl exec POD -- tar -C /",),
    ),
    Audited(
        id="kms-added-to-eks-with-data",
        stack="kube",
        changes=(_KEY,),
        worst="data-loss",
        says={
            "refused": "is protected: /data",
            "data": "on /data is lost: an empty one replaces it; other data stays where it is; Secrets and all other objects are lost",
        },
        steps=("kubectl exec POD -- tar -C /", *_ANEW[:2], "pulumi state unprotect", *_ANEW[2:]),
    ),
    Audited(
        id="another-range-of-eks",
        stack="kube",
        base=((f"{_LUSTRE}\n", ""),),
        changes=(("10.60.0.0/16", "10.61.0.0/16"),),
        worst="replace",
        says={"running": "end: `gpucluster k8s down kube`", "sessions": "`kubectl` loses its API server"},
        steps=_ANEW,
    ),
    Audited(
        id="another-range-of-slurm-and-eks",
        stack="hybrid",
        changes=(("10.60.0.0/16", "10.61.0.0/16"),),
        worst="data-loss",
        says={
            "refused": "is protected: /data, hybrid, hybrid-lustre and hybrid-us-west-2a",
            "data": "of pods: Secrets and all other objects are lost with the control plane",
        },
        never=("file systems stay",),
        steps=(
            "tar -C /",
            "gpucluster k8s down hybrid",
            "pulumi up --stack hybrid    # with the old spec without kubernetes",
            "pulumi up --stack hybrid",
            "gpucluster k8s up hybrid",
        ),
    ),
    Audited(
        id="another-region-of-eks-with-data",
        stack="kube",
        changes=(
            ("region: us-west-2", "region: us-east-2"),
            ("zones: [us-west-2a]", "zones: [us-east-2a]"),
            ("zone: us-west-2a", "zone: us-east-2a"),
        ),
        worst="data-loss",
        says={"refused": "is protected: /data", "data": "on /data is lost: an empty one replaces it"},
        never=("file systems stay",),
        steps=(
            "kubectl exec POD -- tar -C /",
            "gpucluster k8s down kube",
            "pulumi state unprotect",
            "pulumi up --stack kube",
        ),
    ),
    Audited(
        id="kubernetes-older",
        stack="kube",
        changes=(('"1.36"', '"1.35"'),),
        worst="replace",
        says={"running": "creates those of workloads/kube.yaml again"},
        steps=(
            "gpucluster k8s down kube",
            "gpucluster down kube",
            "pulumi up --stack kube",
            "aws eks update-kubeconfig --name kube --region us-west-2",
            "gpucluster k8s up kube --bindings bindings.json",
        ),
        no_steps=("kubectl exec POD -- tar -C /",),
    ),
    Audited(
        id="quota-beside-slurm",
        stack="hybrid",
        changes=(("nvidia.com/gpu: 32", "nvidia.com/gpu: 16"),),
        worst="live",
        is_exactly={
            "running": f"go on; pods of the team research {_BORROWED.format('tune')}",
            "queued": "stay in the queue; waiting pods of the team research that need more than 16 nvidia.com/gpu in one pool are not admitted any more:"
            " the team can have no more, also borrowed",
            "data": STAYS,
        },
        steps=("pulumi up --stack hybrid", _BINDINGS, "gpucluster k8s up hybrid --bindings bindings.json"),
    ),
    Audited(
        id="pool-of-slurm-beside-kubernetes",
        stack="hybrid",
        changes=(("default: true}", "default: true, max_time: 1d}"),),
        steps=("pulumi up --stack hybrid",),
        no_steps=("gpucluster k8s up", _BINDINGS),
    ),
    Audited(
        id="always-on-nodes-of-another-machine",
        stack="kube",
        changes=(
            (
                "{name: tune,  nodes: 4, capacity: [{from: on-demand, machines: [p4de.24xlarge]",
                "{name: tune,  nodes: 4, capacity: [{from: on-demand, machines: [p5.48xlarge]",
            ),
        ),
        worst="drain",
        says={
            "running": "those on always-on nodes of tune are evicted when `pulumi up` deletes the node group"
        },
        steps=("pulumi up --stack kube", _BINDINGS, "gpucluster k8s up kube"),
    ),
    Audited(
        id="other-slices-of-gpus",
        stack="kube",
        base=(_SERVING,),
        changes=(("mig: {1g.10gb: 7}", "mig: {3g.40gb: 2}"),),
        worst="drain",
        says={
            "running": "those on always-on nodes of serve are evicted when `pulumi up` deletes the node group"
        },
        steps=("pulumi up --stack kube", _BINDINGS, "gpucluster k8s up kube"),
    ),
    Audited(
        id="reserved-pool-of-another-name",
        stack="kube",
        base=(_TUNE_RESERVED,),
        changes=(("{name: tune, ", "{name: train, "),),
        worst="drain",
        steps=(
            "pulumi up --stack kube    # with the new spec without the pool train: the old node group has cr-0123456789abcdef0",
            "pulumi up --stack kube",
            "gpucluster k8s up kube",
        ),
    ),
    Audited(
        id="reserved-pool-of-another-size",
        stack="kube",
        base=(_TUNE_RESERVED,),
        changes=(("{name: tune,  nodes: 4", "{name: tune,  nodes: 5"),),
        no_steps=("pulumi up --stack kube    # with the new spec",),
    ),
    Audited(
        id="fewer-always-on-nodes",
        stack="kube",
        changes=(("{name: tune,  nodes: 4", "{name: tune,  nodes: {min: 2, max: 4}"),),
        worst="drain",
        says={"running": "of tune, those on the always-on nodes that EKS ends are evicted: it chooses which"},
    ),
    Audited(
        id="kubernetes-newer",
        stack="kube",
        base=(('"1.36"', '"1.35"'),),
        changes=(('"1.35"', '"1.36"'),),
        worst="restart",
        says={
            "running": "those on always-on nodes of the add-ons, tune and serve are evicted, node after node, when `pulumi up` updates the node group"
        },
    ),
    Audited(
        id="tags-of-node-groups",
        stack="kube",
        changes=(("aws: {region: us-west-2,", "aws: {region: us-west-2, tags: {team: a},"),),
        worst="drain",
        says={
            "running": "those on always-on nodes of the add-ons, tune and serve are evicted, node after node"
        },
    ),
    Audited(
        id="nodes-of-the-add-ons-of-another-machine",
        stack="kube",
        changes=(
            ("  control_plane: eks ", "  system: {nodes: 2, machine: m7i.2xlarge}\n  control_plane: eks "),
        ),
        worst="drain",
        says={"running": "those on always-on nodes of the add-ons are evicted when `pulumi up` deletes"},
    ),
    Audited(
        id="lustre-of-pods-removed",
        stack="kube",
        changes=((_LUSTRE, ""),),
        worst="data-loss",
        says={
            "refused": "is protected: /data and kube-lustre",
            "running": "those that use /data hang or fail",
            "queued": "those that need /data do not start",
        },
        is_exactly={"data": "on /data is lost: it is deleted; other data stays where it is"},
        steps=(
            "kubectl exec POD -- tar -C /",
            "pulumi state unprotect URN --stack kube",
            "pulumi up --stack kube",
            _BINDINGS,
        ),
        no_steps=("kubectl delete pvc",),
    ),
    Audited(
        id="lustre-of-the-site-removed",
        stack="kube",
        base=((_LUSTRE, _SITE_LUSTRE),),
        changes=((f"{_SITE_LUSTRE}\n", ""),),
        worst="drain",
        says={"running": _UNDRIVEN, "data": STAYS},
        is_exactly={
            "queued": "stay in the queue; on nodes that are launched later they have the change; those that need /data do not start"
        },
        steps=("kubectl describe pvc", "pulumi up --stack kube", "gpucluster k8s up kube"),
    ),
    Audited(
        id="lustre-of-the-site-becomes-nfs",
        stack="kube",
        base=((_LUSTRE, _SITE_LUSTRE),),
        changes=((_SITE_LUSTRE, "storage: [{mount: /data, nfs: {server: 192.0.2.5, export: /data}}]"),),
        worst="drain",
        says={"running": _UNDRIVEN, "queued": "those that need /data start with the new file system"},
        never=("do not start",),
        steps=(
            "kubectl describe pvc",
            "pulumi up --stack kube",
            "kubectl delete pvc data --namespace serving",
        ),
    ),
    Audited(
        id="one-of-two-lustres-of-the-site-removed",
        stack="kube",
        base=(
            (
                _LUSTRE,
                _SITE_LUSTRE.replace(
                    "]", ", {mount: /sets, fsx_lustre: {zone: us-west-2a, id: fs-0fedcba9876543210}}]"
                ),
            ),
        ),
        changes=((", {mount: /sets, fsx_lustre: {zone: us-west-2a, id: fs-0fedcba9876543210}}", ""),),
        never=("Terminating",),
        no_steps=("kubectl describe pvc",),
    ),
    Audited(
        id="lustre-of-the-site-removed-beside-slurm",
        stack="hybrid",
        base=((_HYBRID_LUSTRE, _SITE_LUSTRE),),
        changes=((f"{_SITE_LUSTRE}\n", ""),),
        says={"running": f"pods {_UNDRIVEN.removeprefix('those ')}"},
        steps=("kubectl describe pvc", "pulumi up --stack hybrid"),
    ),
    Audited(
        id="lustre-of-pods-smaller",
        stack="kube",
        changes=(("2400GiB", "1200GiB"),),
        worst="data-loss",
        says={
            "refused": "is protected: /data.",
            "running": "those that use /data must end before its claims can be deleted",
            "queued": "those that need /data start with the new file system",
        },
        steps=(
            "pulumi state unprotect",
            "pulumi up --stack kube",
            "kubectl delete pvc data --namespace serving; kubectl delete pv kube-serving.data",
            "kubectl delete pvc data --namespace research; kubectl delete pv kube-research.data",
            _BINDINGS,
            "gpucluster k8s up kube",
        ),
    ),
    Audited(
        id="lustre-of-pods-larger",
        stack="kube",
        changes=(("2400GiB", "4800GiB"),),
        is_exactly={
            "running": "go on; those that use /data wait while it changes",
            "queued": "stay in the queue",
            "data": STAYS,
        },
        no_steps=("kubectl delete", "pulumi state"),
    ),
    Audited(
        id="nfs-server-of-pods-changed",
        stack="kube",
        base=((_LUSTRE, "storage: [{mount: /data, nfs: {server: 192.0.2.5, export: /data}}]"),),
        changes=(("192.0.2.5", "192.0.2.6"),),
        says={"running": "those that use /data must end before its claims can be deleted"},
        steps=("pulumi up", "kubectl delete pvc data --namespace serving", "gpucluster k8s up kube"),
        no_steps=("pulumi state",),
    ),
    Audited(
        id="smaller-pool-of-pods-beside-slurm",
        stack="hybrid",
        changes=(("max: 6", "max: 3"), ("mig-1g.10gb: 28", "mig-1g.10gb: 14")),
        worst="new-nodes",
        is_exactly={
            "running": "go on; pods go on: only nodes that are launched later have the change; "
            f"those of the team serving {_BORROWED.format('serve')}",
            "queued": "stay in the queue; waiting pods stay in the queue; on nodes that are launched later they have the change",
        },
        steps=("pulumi up", _BINDINGS, "gpucluster k8s up hybrid"),
    ),
    Audited(
        id="team-removed",
        stack="kube",
        changes=(_SERVING,),
        worst="drain",
        is_exactly={
            "running": "go on; those of the team serving go on until `gpucluster k8s up kube --prune` deletes their workloads",
            "data": "stays where it is; namespaces and claims of the team serving stay, also with --prune",
        },
        never=("lost",),
        steps=(
            "pulumi up",
            _BINDINGS,
            "gpucluster k8s up kube",
            "gpucluster k8s up kube --bindings bindings.json --prune",
        ),
        no_steps=("kubectl exec POD -- tar -C /", "kubectl delete nodepools"),
    ),
    Audited(
        id="place-that-a-service-account-loses",
        stack="kube",
        changes=(("s3://example-runs/tune", "s3://example-runs/other"),),
        worst="live",
        is_exactly={
            "running": "go on; those of the service account research/trainer lose their access at `pulumi up`: write s3://example-runs/tune",
            "queued": "stay in the queue",
        },
        steps=("pulumi up --stack kube",),
    ),
    Audited(
        id="service-account-leaves",
        stack="kube",
        changes=(("{name: trainer,", "{name: runner,"),),
        says={
            "running": "research/trainer lose their access at `pulumi up`: read s3://example-data and write s3://"
        },
    ),
    Audited(
        id="place-of-a-service-account-grows",
        stack="kube",
        changes=(("s3://example-runs/tune", "s3://example-runs"),),
        worst="live",
        is_exactly={"running": "go on"},
    ),
    Audited(
        id="team-and-last-elastic-pool-removed",
        stack="kube",
        changes=(_SERVING, _pool("kube", "serve")),
        worst="drain",
        says={
            "running": "those on always-on nodes of serve are evicted when `pulumi up` deletes the node group"
        },
        never=("lost",),
        steps=("kubectl delete nodepools", "pulumi up", "gpucluster k8s up kube"),
        no_steps=("kubectl exec POD -- tar -C /",),
    ),
    Audited(
        id="one-of-two-elastic-pools-removed",
        stack="kube",
        base=(("pools:\n", f"pools:\n{_SPARE}"),),
        changes=((_SPARE, ""),),
        worst="drain",
        says={"running": "those on Karpenter's nodes of spare are evicted when the NodePools are deleted"},
        steps=("pulumi up", "gpucluster k8s up kube --bindings bindings.json --prune"),
        no_steps=("kubectl delete nodepools",),
    ),
    Audited(
        id="team-removed-beside-slurm",
        stack="hybrid",
        changes=(("    - {name: serving,  quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true}\n", ""),),
        worst="drain",
        is_exactly={
            "running": "go on; pods of the team serving go on until `gpucluster k8s up hybrid --prune` deletes their workloads",
            "queued": "stay in the queue; waiting pods of other teams can be admitted for nodes that the pods of serving have, and then wait for them:"
            " the queue of serving keeps its quota until `gpucluster k8s up hybrid --prune`; those of the team serving stay in its queue until `gpucluster k8s up hybrid --prune` deletes it",
        },
        steps=("pulumi up", "gpucluster k8s up hybrid"),
        no_steps=("kubectl exec POD -- tar -C /",),
    ),
)
