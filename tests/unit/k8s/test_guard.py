"""The policy in privileged namespaces: its expressions, evaluated over pods of the level baseline and above it.

The API server evaluates them in the same order: the variables first, then the validations.
"""

from typing import Any

import cel
import pytest
from support.kube import files, objects

POLICY = objects(files())["ValidatingAdmissionPolicy/kube-pod-guard"]["spec"]


def _refused(pod: dict[str, Any]) -> list[str]:
    """Return the messages of the validations that do not hold."""
    known: dict[str, Any] = {}
    context = {"object": {"spec": pod}, "variables": known}
    for variable in POLICY["variables"]:
        known[variable["name"]] = cel.evaluate(variable["expression"], context)
    return [
        one["message"]
        for one in POLICY["validations"]
        if cel.evaluate(one["expression"], context) is not True
    ]


def _pod(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "a", **fields}]}


PROBE, SELINUX = (
    "a probe or a hook asks only its own pod",
    "a container has an SELinux type of containers, and no SELinux user or role",
)
OUT = [{"httpGet": {"port": 80, "host": "169.254.169.254"}}, {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}]


@pytest.mark.parametrize(
    "pod",
    [
        *(_pod(**{kind: action}) for kind in ("livenessProbe", "readinessProbe", "startupProbe") for action in OUT),
        *(_pod(lifecycle={hook: action}) for hook in ("preStop", "postStart") for action in OUT),
        {"containers": [], "initContainers": [{"name": "i", "livenessProbe": OUT[0]}]},
    ],
)  # fmt: skip
def test_probe_and_hook_reach_no_other_host(pod: dict[str, Any]) -> None:
    """Baseline forbids it since 1.34: the kubelet sends these requests from the node."""
    assert _refused(pod) == [PROBE]


@pytest.mark.parametrize(
    "pod",
    [
        _pod(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
        _pod(securityContext={"seLinuxOptions": {"user": "system_u"}}),
        _pod() | {"securityContext": {"seLinuxOptions": {"role": "system_r"}}},
    ],
)
def test_selinux_options_of_the_host_are_refused(pod: dict[str, Any]) -> None:
    assert _refused(pod) == [SELINUX]


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (_pod() | {"hostNetwork": True}, "a pod shares no namespace of its host"),
        (
            _pod() | {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
            "a pod mounts no path of its host",
        ),
        (_pod(ports=[{"hostPort": 80}]), "a pod has no port of its host"),
        (
            _pod(securityContext={"privileged": True}),
            "a container is not privileged, and masks /proc as usual",
        ),
        (
            _pod(securityContext={"windowsOptions": {"hostProcess": True}}),
            "a container is not privileged, and masks /proc as usual",
        ),
        (
            _pod(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
            "a container adds no capability but IPC_LOCK and those of the level baseline",
        ),
        (
            _pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
            "a container keeps its seccomp and AppArmor profiles",
        ),
        (
            _pod() | {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
            "a pod keeps its seccomp and AppArmor profiles, and sets no sysctl",
        ),
    ],
)
def test_policy_refuses_what_baseline_refuses(pod: dict[str, Any], message: str) -> None:
    assert _refused(pod) == [message]


def test_policy_takes_the_pods_that_we_render() -> None:
    found = objects(files())
    gang = found["JobSet/research/tune"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    own = _pod(
        livenessProbe={"httpGet": {"port": 80, "host": ""}},
        lifecycle={"preStop": {"sleep": {"seconds": 1}}},
        securityContext={"seLinuxOptions": {"type": "container_t"}},
    )
    for pod in (gang, found["Deployment/serving/chat"]["spec"]["template"]["spec"], own):
        assert _refused(pod) == []
