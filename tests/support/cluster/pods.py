"""The kubelets of the stand-in: pods of validation run on the node that they ask for, and answer as agnhost does.

A healthy network: pods of one namespace reach each other, and nobody else; a pod outside the teams' namespaces also reaches the API
server. `values["exec"]` has other answers: `[end of the pod's name, what the words have, code, text]`.
"""

from typing import Any

Object = dict[str, Any]
REFUSED = "TIMEOUT"


def run_pod(pod: Object) -> None:
    """Set the node and the status of a pod."""
    if "affinity" not in pod["spec"] or pod.get("status"):
        return
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]  # fmt: skip
    (field,) = term["matchFields"]
    (pod["spec"]["nodeName"],) = field["values"]
    number = int(pod["metadata"]["uid"].rpartition("-")[2])
    pod["status"] = {
        "phase": "Running",
        "podIP": f"10.244.{number // 250}.{number % 250 + 1}",
        "containerStatuses": [{"name": "agnhost", "state": {"running": {}}}],
    }


def execute(
    objects: dict[str, Object], planted: list[list[Any]], pod: Object, argv: list[str]
) -> tuple[int, str]:
    """Return the exit code and the words of the program."""
    line = " ".join(argv)
    for name, words, code, text in planted:
        if pod["metadata"]["name"].endswith(name) and words in line:
            return code, text
    program, verb, *rest = argv
    assert program == "/agnhost", program
    if verb == "mounttest":
        (path,) = rest
        if path.startswith("--file_mode="):  # mt_utils.go of agnhost. The nodes give no GPU without a request
            file = path.removeprefix("--file_mode=")
            return 1, f'error from Stat("{file}"): stat {file}: no such file or directory'
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert path.removeprefix("--fs_type=") in [one["mountPath"] for one in mounts]
        return 0, f'mount type of "{path.removeprefix("--fs_type=")}": nfs'
    assert verb == "connect"
    assert set(rest[1:]) == {"--timeout=3s", "--protocol=tcp"}
    host, _, port = rest[0].rpartition(":")
    target = next((one for one in objects.values() if one.get("status", {}).get("podIP") == host), None)
    if target is None:
        free = pod["metadata"]["namespace"].startswith("gpucluster-validate-")
        return (0, "") if free and host == "kubernetes.default.svc" else (1, REFUSED)
    assert port == "8080"
    same = target["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return (0, "") if same else (1, REFUSED)
