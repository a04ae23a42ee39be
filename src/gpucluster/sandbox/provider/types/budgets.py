"""AWS budgets: an alarm that does not depend on the daemon."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    Property,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import AMOUNT, FLAG, FRACTION, TEXT, TEXTS, Field, Many, Record

Seen = Mapping[str, Value] | None

_TIME = "%Y-%m-%d_%H:%M"  # the format of the upstream provider, UTC
_COSTS = (
    "includeCredit",
    "includeDiscount",
    "includeOtherSubscription",
    "includeRecurring",
    "includeRefund",
    "includeSubscription",
    "includeSupport",
    "includeTax",
    "includeUpfront",
    "useAmortized",
    "useBlended",
)
_COST_TYPES = Record({name: Field(name[0].upper() + name[1:], FLAG, from_cloud=True) for name in _COSTS})
_FILTER = Record({"name": Field("Name", TEXT), "values": Field("Values", TEXTS)})
_NOTICE = Record(
    {
        "comparisonOperator": Field("ComparisonOperator", TEXT),
        "threshold": Field("Threshold", FRACTION),
        "thresholdType": Field("ThresholdType", TEXT, default="PERCENTAGE"),
        "notificationType": Field("NotificationType", TEXT),
        "subscriberEmailAddresses": Field("EMAIL", TEXTS),
        "subscriberSnsTopicArns": Field("SNS", TEXTS),
    }
)
_BUDGET: Mapping[str, Property] = {
    "budgetType": updates("BudgetType"),
    "limitAmount": updates("Amount", AMOUNT),
    "limitUnit": updates("Unit"),
    "timeUnit": updates("TimeUnit"),
    "timePeriodStart": updates("Start", from_cloud=True),
    "timePeriodEnd": updates("End", from_cloud=True),
    "costFilters": updates("CostFilters", Many(_FILTER)),
    "costTypes": updates("CostTypes", _COST_TYPES, from_cloud=True),
}
_NOTICE_KEYS = ("ComparisonOperator", "Threshold", "ThresholdType", "NotificationType")


def _create(call: Call) -> str:
    account = _account(call)
    call.cloud.budgets.create_budget(
        AccountId=account,
        Budget=_budget(call),
        NotificationsWithSubscribers=[
            {"Notification": one, "Subscribers": subscribers}
            for one, subscribers in _notices(call.inputs, call)
        ],
        **({"ResourceTags": call.tags} if call.tags else {}),
    )
    return f"{account}:{call.inputs['name']}"


def _account(call: Call) -> str:
    return call.inputs.get("accountId") or call.cloud.account


def _budget(call: Call) -> dict[str, Any]:
    flat = call.api(*_BUDGET)
    budget: dict[str, Any] = {"BudgetName": call.inputs["name"]}
    budget |= {key: flat[key] for key in ("BudgetType", "TimeUnit", "CostTypes") if key in flat}
    if "Amount" in flat:
        budget["BudgetLimit"] = {"Amount": flat["Amount"], "Unit": flat["Unit"]}
    if "CostFilters" in flat:
        budget["CostFilters"] = {one["Name"]: one["Values"] for one in flat["CostFilters"]}
    period = {key: _parsed(flat[key]) for key in ("Start", "End") if key in flat}
    return budget | ({"TimePeriod": period} if period else {})


def _parsed(text: str) -> datetime:
    return datetime.strptime(f"{text} +0000", f"{_TIME} %z")


def _notices(
    inputs: Mapping[str, Value], call: Call
) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    shape = call.kind.properties["notifications"].shape
    for one in shape.to_api(inputs.get("notifications") or []):
        notice = {"ThresholdType": "PERCENTAGE"} | {key: one[key] for key in _NOTICE_KEYS if key in one}
        subscribers = [
            {"SubscriptionType": kind, "Address": address}
            for kind in ("EMAIL", "SNS")
            for address in one.get(kind, [])
        ]
        yield notice, subscribers


def _read(cloud: Cloud, identifier: str, _: Values) -> Seen:
    account, name = identifier.split(":", 1)
    named = {"AccountId": account, "BudgetName": name}
    seen = cloud.budgets.describe_budget(**named)["Budget"]
    arn = f"arn:aws:budgets::{account}:budget/{name}"
    period = seen.get("TimePeriod", {})
    return {
        **{key: seen.get(key) for key in ("BudgetName", "BudgetType", "TimeUnit", "CostTypes")},
        **seen.get("BudgetLimit", {}),
        **{key: value.strftime(_TIME) for key, value in period.items()},
        "AccountId": account,
        "Arn": arn,
        "CostFilters": [{"Name": k, "Values": v} for k, v in sorted(seen.get("CostFilters", {}).items())],
        "Notifications": [*_standing_notices(cloud, named)],
        "Tags": cloud.budgets.list_tags_for_resource(ResourceARN=arn).get("ResourceTags", []),
    }


def _standing_notices(cloud: Cloud, named: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    pages = cloud.budgets.get_paginator("describe_notifications_for_budget").paginate(**named)
    for one in (notice for page in pages for notice in page.get("Notifications", [])):
        notice = {key: one[key] for key in _NOTICE_KEYS if key in one}
        answer = cloud.budgets.describe_subscribers_for_notification(**named, Notification=notice)
        found: dict[str, Any] = {"EMAIL": [], "SNS": []}
        for subscriber in answer.get("Subscribers", []):
            found[subscriber["SubscriptionType"]].append(subscriber["Address"])
        yield notice | found


def _update(call: Call, changed: frozenset[str]) -> None:
    named = {"AccountId": _account(call), "BudgetName": call.inputs["name"]}
    if changed & _BUDGET.keys():
        call.cloud.budgets.update_budget(AccountId=named["AccountId"], NewBudget=_budget(call))
    if "notifications" in changed:
        for notice in [
            {k: n[k] for k in _NOTICE_KEYS if k in n} for n in _standing_notices(call.cloud, named)
        ]:
            call.cloud.budgets.delete_notification(**named, Notification=notice)
        for notice, subscribers in _notices(call.inputs, call):
            call.cloud.budgets.create_notification(**named, Notification=notice, Subscribers=subscribers)
    _retag(call)


def _retag(call: Call) -> None:
    arn = f"arn:aws:budgets::{_account(call)}:budget/{call.inputs['name']}"
    gone = call.lost_tags()
    if gone:
        call.cloud.budgets.untag_resource(ResourceARN=arn, ResourceTagKeys=gone)
    if call.tags:
        call.cloud.budgets.tag_resource(ResourceARN=arn, ResourceTags=call.tags)


def _delete(call: Call) -> None:
    call.cloud.budgets.delete_budget(AccountId=_account(call), BudgetName=call.inputs["name"])


BUDGET = ResourceType(
    name="aws:budgets/budget:Budget",
    properties={
        "name": replaces("BudgetName"),
        "accountId": replaces("AccountId", from_cloud=True),
        **_BUDGET,
        "notifications": updates("Notifications", Many(_NOTICE)),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    autoname=Autoname("name", 100),
)

ROWS = (BUDGET,)
