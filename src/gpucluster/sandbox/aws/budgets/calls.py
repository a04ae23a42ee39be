"""The calls of AWS Budgets."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.sandbox.aws.budgets.state import Budget
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_COSTS = {
    "IncludeTax": True, "IncludeSubscription": True, "UseBlended": False, "IncludeRefund": True, "IncludeCredit": True,
    "IncludeUpfront": True, "IncludeRecurring": True, "IncludeOtherSubscription": True, "IncludeSupport": True,
    "IncludeDiscount": True, "UseAmortized": False,
}  # fmt: skip
_END = 3706473600.0  # 2087-06-15: the end that the service sets by default


def calls(model: CloudModel) -> Calls:
    """Calls of this module by operation name."""
    here = _Budgets(model)
    return {
        "CreateBudget": here.create,
        "DescribeBudget": here.describe,
        "DescribeBudgets": here.all,
        "UpdateBudget": here.update,
        "DeleteBudget": here.delete,
        "CreateNotification": here.notify,
        "DescribeNotificationsForBudget": here.notices,
        "DescribeSubscribersForNotification": here.subscribers,
        "DeleteNotification": here.silence,
        "TagResource": here.tag,
        "UntagResource": here.untag,
        "ListTagsForResource": here.tags,
    }


# The rights of AWS Budgets are not those of its calls (service authorization reference).
_VIEWS = ("DescribeBudget", "DescribeNotificationsForBudget", "DescribeSubscribersForNotification")
_TAGS = frozenset({"ListTagsForResource", "TagResource", "UntagResource"})


def rights(request: ApiRequest, _model: CloudModel, _moto: Moto, _now: float) -> Iterable[Need]:
    """ViewBudget or ModifyBudget on the budget; tags have their own actions."""
    asked = json_body(request.body)
    budget: Mapping[str, Any] = asked.get("Budget") or asked.get("NewBudget") or {}
    name = str(asked.get("BudgetName") or budget.get("BudgetName", "*"))
    arn = str(asked.get("ResourceARN") or f"arn:aws:budgets::{ACCOUNT}:budget/{name}")
    if request.operation in _TAGS:
        yield need(request, arn, {})
        return
    views = request.operation in _VIEWS
    yield need(replace(request, operation="ViewBudget" if views else "ModifyBudget"), arn, {})
    if asked.get("ResourceTags"):
        yield need(replace(request, operation="TagResource"), arn, {})


class _Budgets:
    def __init__(self, model: CloudModel) -> None:
        self._model, self._budgets = model, model.budgets

    def create(self, call: ServiceCall) -> Result:
        _check_account(call)
        content: Mapping[str, Any] = call.asked["Budget"]
        notices = [
            (n["Notification"], list(n["Subscribers"]))
            for n in call.asked.get("NotificationsWithSubscribers", ())
        ]
        tags = {str(t["Key"]): str(t["Value"]) for t in call.asked.get("ResourceTags", ())}
        self._budgets.add(str(content["BudgetName"]), Budget(_whole(content, call.now), notices, tags))
        return {}

    def describe(self, call: ServiceCall) -> Result:
        _check_account(call)
        return {"Budget": self._budgets.get(str(call.asked["BudgetName"])).content}

    def all(self, call: ServiceCall) -> Result:
        _check_account(call)
        return {"Budgets": [b.content for b in self._budgets.all()]}

    def update(self, call: ServiceCall) -> Result:
        _check_account(call)
        content: Mapping[str, Any] = call.asked["NewBudget"]
        self._budgets.get(str(content["BudgetName"])).content = _whole(content, call.now)
        return {}

    def delete(self, call: ServiceCall) -> Result:
        _check_account(call)
        self._budgets.remove(str(call.asked["BudgetName"]))
        return {}

    def notify(self, call: ServiceCall) -> Result:
        _check_account(call)
        budget = self._budgets.get(str(call.asked["BudgetName"]))
        if any(n == call.asked["Notification"] for n, _ in budget.notices):
            raise Refusal("DuplicateRecordException", "Notification already exists.")
        budget.notices.append((call.asked["Notification"], list(call.asked["Subscribers"])))
        return {}

    def notices(self, call: ServiceCall) -> Result:
        _check_account(call)
        found = self._budgets.get(str(call.asked["BudgetName"])).notices
        return {
            "Notifications": [
                {"ThresholdType": "PERCENTAGE", **n, "NotificationState": "OK"} for n, _ in found
            ]
        }

    def subscribers(self, call: ServiceCall) -> Result:
        _check_account(call)
        return {"Subscribers": self._notice(call)[1]}

    def silence(self, call: ServiceCall) -> Result:
        _check_account(call)
        self._budgets.get(str(call.asked["BudgetName"])).notices.remove(self._notice(call))
        return {}

    def tag(self, call: ServiceCall) -> Result:
        self._tagged(call).tags |= {str(t["Key"]): str(t["Value"]) for t in call.asked["ResourceTags"]}
        return {}

    def untag(self, call: ServiceCall) -> Result:
        budget = self._tagged(call)
        budget.tags = {k: v for k, v in budget.tags.items() if k not in call.asked["ResourceTagKeys"]}
        return {}

    def tags(self, call: ServiceCall) -> Result:
        return {"ResourceTags": views.tag_list(self._tagged(call).tags)}

    def _notice(self, call: ServiceCall) -> Any:
        wanted = {k: v for k, v in call.asked["Notification"].items() if k != "NotificationState"}
        wanted.setdefault("ThresholdType", "PERCENTAGE")
        for pair in self._budgets.get(str(call.asked["BudgetName"])).notices:
            if {"ThresholdType": "PERCENTAGE", **pair[0]} == wanted:
                return pair
        raise Refusal("NotFoundException", "Unable to get notification: it does not exist.")

    def _tagged(self, call: ServiceCall) -> Budget:
        return self._budgets.get(str(call.asked["ResourceARN"]).rpartition("/")[2])


def _whole(content: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    """Add the defaults of the service: start of the month, end, cost types."""
    start = views.when(now).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    period = {"Start": start, "End": views.when(_END), **content.get("TimePeriod", {})}
    if "BudgetLimit" not in content:
        raise Refusal("InvalidParameterException", "Budget Limit is required for COST budgets.")
    spent = {"ActualSpend": {"Amount": "0.0", "Unit": content["BudgetLimit"]["Unit"]}}
    costs = {**_COSTS, **content.get("CostTypes", {})}
    return {"CostFilters": {}, **content, "CostTypes": costs, "TimePeriod": period, "CalculatedSpend": spent}


def _check_account(call: ServiceCall) -> None:
    if call.asked["AccountId"] != ACCOUNT:
        raise Refusal("AccessDeniedException", f"the sandbox has only the account {ACCOUNT}")
