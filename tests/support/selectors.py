"""Label selectors, the same in the words of `kubectl --selector`, and the pods that they match."""

from typing import Any

PODS = {"chat": {"app": "chat", "tier": "1"}, "web": {"app": "web"}, "bare": {}}


def _one(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]
    }


ROWS: list[tuple[dict[str, Any], str, set[str]]] = [
    ({}, "", {"chat", "web", "bare"}),
    ({"matchLabels": {"app": "chat"}}, "app=chat", {"chat"}),
    ({"matchLabels": {"app": "chat", "tier": "2"}}, "app=chat,tier=2", set()),
    (_one("app", "In", "chat", "web"), "app in (chat,web)", {"chat", "web"}),
    (_one("app", "NotIn", "chat"), "app notin (chat)", {"web", "bare"}),
    (_one("tier", "Exists"), "tier", {"chat"}),
    (_one("tier", "DoesNotExist"), "!tier", {"web", "bare"}),
    ({"matchLabels": {"app": "chat"}, **_one("tier", "DoesNotExist")}, "app=chat,!tier", set()),
]
