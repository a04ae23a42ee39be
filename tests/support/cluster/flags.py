"""The flags of kubectl and helm that the stand-ins accept: those that the real programs have in these sources, and no other.

kubectl: kubernetes/kubectl dee3483a3d6a64c07fdf746caf80af446dee99ac (v0.37.0-beta.0): pkg/cmd/{apply/apply,get/get,create/create,
replace/replace,delete/delete_flags,exec/exec,version/version,config/view}.go, pkg/cmd/util/helpers.go; global flags:
k8s.io/cli-runtime/pkg/genericclioptions/config_flags.go, as `kubectl options` of v1.32.4 prints them.
helm: helm/helm e9b85e4de16ad45805843fb121748018cf89094b (v4): pkg/cmd/{upgrade,list,rollback,uninstall,get_values,get_manifest,version,flags}.go,
pkg/cli/environment.go. A flag must also be in v3.18.4 (cmd/helm/*.go): of both only the common ones are here.
OPTIONAL: a value only after `=`.
"""

VALUE, SWITCH, OPTIONAL = "value", "switch", "optional"

_FILES = {"filename": VALUE, "kustomize": VALUE, "recursive": SWITCH}
_PRINT = {"output": VALUE, "template": VALUE, "show-managed-fields": SWITCH}
KUBECTL_GLOBAL = {
    "context": VALUE, "cluster": VALUE, "kubeconfig": VALUE, "namespace": VALUE, "request-timeout": VALUE, "server": VALUE,
    "token": VALUE, "user": VALUE, "as": VALUE, "cache-dir": VALUE, "v": VALUE,
}  # fmt: skip
KUBECTL = {
    "config view": {**_PRINT, "raw": SWITCH, "flatten": SWITCH, "minify": SWITCH},
    "version": {"client": SWITCH, "output": VALUE},
    "get": {
        **_FILES, **_PRINT, "raw": VALUE, "ignore-not-found": SWITCH, "all-namespaces": SWITCH, "selector": VALUE,
        "field-selector": VALUE, "watch": SWITCH, "chunk-size": VALUE, "subresource": VALUE,
    },
    "apply": {
        **_FILES, **_PRINT, "server-side": SWITCH, "force-conflicts": SWITCH, "field-manager": VALUE, "validate": OPTIONAL,
        "dry-run": OPTIONAL, "selector": VALUE, "prune": SWITCH, "all": SWITCH, "wait": SWITCH,
    },
    "create": {**_FILES, **_PRINT, "field-manager": VALUE, "validate": OPTIONAL, "dry-run": OPTIONAL, "save-config": SWITCH},
    "exec": {"container": VALUE, "stdin": SWITCH, "tty": SWITCH, "quiet": SWITCH, "pod-running-timeout": VALUE},
    "replace": {**_FILES, **_PRINT, "field-manager": VALUE, "validate": OPTIONAL, "dry-run": OPTIONAL, "force": SWITCH},
    "delete": {
        **_FILES, "output": VALUE, "ignore-not-found": SWITCH, "wait": OPTIONAL, "timeout": VALUE, "selector": VALUE, "now": SWITCH,
        "all": SWITCH, "cascade": OPTIONAL, "grace-period": VALUE, "force": SWITCH,
    },
}  # fmt: skip
HELM_GLOBAL = {
    "namespace": VALUE, "kube-context": VALUE, "kubeconfig": VALUE, "kube-apiserver": VALUE, "kube-token": VALUE, "debug": SWITCH,
    "registry-config": VALUE, "repository-config": VALUE, "repository-cache": VALUE,
}  # fmt: skip
HELM = {
    "list": {
        "all-namespaces": SWITCH, "deployed": SWITCH, "failed": SWITCH, "pending": SWITCH, "superseded": SWITCH,
        "uninstalling": SWITCH, "uninstalled": SWITCH, "filter": VALUE, "selector": VALUE, "output": VALUE, "max": VALUE,
    },
    "version": {"short": SWITCH, "template": VALUE},
    "show crds": {"repo": VALUE, "version": VALUE},
    "get manifest": {"revision": VALUE},
    "get values": {"output": VALUE, "all": SWITCH, "revision": VALUE},
    "upgrade": {
        "install": SWITCH, "repo": VALUE, "version": VALUE, "create-namespace": SWITCH, "values": VALUE, "set": VALUE,
        "labels": VALUE, "wait": OPTIONAL, "timeout": VALUE, "history-max": VALUE, "description": VALUE, "reset-values": SWITCH,
    },
    "rollback": {"timeout": VALUE, "wait": OPTIONAL, "cleanup-on-fail": SWITCH, "no-hooks": SWITCH},
    "uninstall": {"timeout": VALUE, "wait": OPTIONAL, "keep-history": SWITCH, "no-hooks": SWITCH, "cascade": VALUE},
}  # fmt: skip


class UsageError(Exception):
    """The real program would refuse the words."""


def parse(
    words: list[str], verbs: dict[str, dict[str, str]], general: dict[str, str]
) -> tuple[str, list[str], dict[str, str]]:
    """Return the verb, the other words and the flags. A value is never optional after a space, as pflag has it."""
    plain, flags = [], {}
    rest, after = _divided(words)
    known = general | {name: how for table in verbs.values() for name, how in table.items()}
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if word.startswith("-") and word != "-":
                raise UsageError(f"the stand-in takes long flags only: {word}")
            plain.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name not in known:
            raise UsageError(f"unknown flag: --{name}")
        if not equals and known[name] == VALUE:
            if not rest:
                raise UsageError(f"flag needs an argument: --{name}")
            value = rest.pop(0)
        flags[name] = value if equals or known[name] == VALUE else "true"
    plain += after
    verb = next((verb for verb in verbs if plain[: len(verb.split())] == verb.split()), None)
    if verb is None:
        raise UsageError(f"unknown command {' '.join(plain)!r}")
    for name in flags:
        if name not in verbs[verb] and name not in general:
            raise UsageError(f"unknown flag: --{name}")
    return verb, plain[len(verb.split()) :], flags


def _divided(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before `--`, and those after it, which are no flags."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]
