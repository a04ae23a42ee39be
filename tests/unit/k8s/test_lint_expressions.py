"""Expressions in CEL of webhooks, mutating policies, claims of devices and definitions of kinds, which the API server parses."""

import pytest
from support.lint_errors import assert_refused, errors_of

HOOK = """apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: a}
webhooks:
  - name: a.example.org
    clientConfig: {url: "https://a.example.org"}
    sideEffects: None
    admissionReviewVersions: [v1]
    matchConditions:
      - {name: leases, expression: "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"}
      - {name: names, expression: "object.?metadata.?labels['a'].orValue('') == '' || authorizer.group('').resource('pods').check('get').allowed()"}
"""
CLASS = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: a}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}
"""
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a}
spec:
  spec:
    devices:
      requests:
        - name: g
          exactly: {deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"}}]}
        - name: h
          firstAvailable: [{name: i, deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')"}}]}]
"""
FLAT = """apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: a}
spec: {devices: {requests: [{name: g, deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "cel.bind(a, device.attributes['a'], a.b && a.c)"}}]}]}}
"""
MUTATION = """apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  variables: [{name: team, expression: "object.metadata.namespace"}]
  mutations:
    - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'team': variables.team}}}"}}
    - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.org/a'), value: 'b'}]"}}
"""
KIND = """apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.org}
spec:
  group: example.org
  names: {plural: foos, kind: Foo}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties: {a: {type: integer}, b: {type: array, items: {type: integer, x-kubernetes-validations: [{rule: "self > 0"}]}}}
              x-kubernetes-validations: [{rule: "!has(self.a) || self.a <= size(self.b)", messageExpression: "'a is ' + string(self.a)"}]
"""

# a sentence, the rule, the manifest that is taken, what is changed, and to what
ROWS = [
    ("a condition of a hook that does not parse", "cel-syntax", HOOK, "== 'leases')", "= 'leases')"),
    ("a condition of a hook with a variable of a policy", "cel-variable", HOOK, "object.?metadata", "params.?metadata"),
    ("a condition of a hook without an expression", "schema", HOOK, ", expression: \"!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')\"", ""),
    ("a class of devices that does not parse", "cel-syntax", CLASS, "== 'gpu.nvidia.com' &&", "== 'gpu.nvidia.com' and"),
    ("a class of devices with a variable of a policy", "cel-variable", CLASS, "device.driver", "object.driver"),
    ("a request that does not parse", "cel-syntax", CLAIM, ">= 0", "=> 0"),
    ("a choice that does not parse", "cel-syntax", CLAIM, "'^.*a100.*$')", "'^.*a100.*$'"),
    ("a request of an older version that does not parse", "cel-syntax", FLAT, "a.b && a.c", "a.b && "),
    ("a patch that does not parse", "cel-syntax", MUTATION, "value: 'b'}]", "value: 'b']"),
    ("a mutation that does not parse", "cel-syntax", MUTATION, "variables.team}}}", "variables.team}}"),
    ("a mutation with a variable that is not there", "cel-variable", MUTATION, "variables.team}}}", "variables.teams}}}"),
    ("a rule of a definition that does not parse", "cel-syntax", KIND, "self.a <= size", "self.a =< size"),
    ("a rule of an entry that does not parse", "cel-syntax", KIND, "self > 0", "self > "),
    ("a message of a definition that does not parse", "cel-syntax", KIND, "'a is ' + string", "'a is  + string"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "taken", "old", "new"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])  # fmt: skip
def test_change_is_refused_by_its_rule(rule: str, taken: str, old: str, new: str) -> None:
    assert_refused(rule, taken, old, new)


def test_macro_can_bind_the_name_of_a_variable() -> None:
    """`object` is then an entry of the list."""
    bound = "device.attributes['a'].list.all(object, object > 0)"
    assert errors_of(CLASS.replace("device.driver == 'gpu.nvidia.com'", bound)) == set()
