"""The facts T01 to T45 of EC2 and related services: the test that shows each, or why it cannot occur here.

The ids are those of the reference that the traps were gathered in; each test names its source where it has one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.aws.pools import Pools
from gpucluster.cloud import faults
from gpucluster.cloud.port import Fault
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.placement import PlacementGroup
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, Lag, Refusal, SubnetRef, Timing
from gpucluster.sandbox.aws.servicequotas.state import bucket_of, named_vcpus

ROOT = Path(__file__).parents[4]
MODEL, PORT, FACE, FLEETS = (
    f"tests/unit/{name}.py"
    for name in (
        "sandbox/aws/test_instances",
        "sandbox/aws/test_model_cloud",
        "sandbox/aws/test_front_end",
        "sandbox/aws/test_fleets",
    )
)
QUEUE, EVENTS = (f"tests/unit/cloud/test_{name}.py" for name in ("queue", "eventbridge"))
HERE = "tests/unit/sandbox/aws/test_refusals_of_ec2.py"
IMDS, ROLES = "tests/unit/sandbox/metadata/test_metadata.py", "tests/unit/sandbox/aws/test_roles.py"
CLIENT, PROGRAM = "tests/unit/cloud/test_aws.py", "tests/unit/aws/test_program.py"
SERVICER = "tests/unit/sandbox/provider/test_servicer.py"
ROWS = "tests/engine/test_rows.py"
PREMISES, SERVICES = "tests/unit/sandbox/aws/test_network.py", "tests/unit/sandbox/aws/test_services.py"
REQUESTS = "tests/unit/sandbox/aws/test_requests.py"
ASKING = "tests/unit/elastic/test_launch_calls.py"

# Rows that the reference marks so: the real API never does otherwise, so they are on in every rehearsal.
ALWAYS = frozenset(
    f"T{number:02}"
    for number in (
        1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 33, 37, 38,
        39, 40, 42, 43, 44, 45,
    )
)  # fmt: skip
NEVER_HERE = frozenset({"T40"})  # of those: nothing of ours can meet them, and the row says why


@dataclass(frozen=True)
class NotYet:
    """Why none of our requests can meet the fact, and which feature would change that."""

    why: str


Covered = tuple[str, ...] | NotYet

TRAPS: Mapping[str, Covered] = {
    "T01": (
        f"{MODEL}::test_t01_same_token_returns_the_same_ids_and_launches_nothing",
        f"{MODEL}::test_t01_same_token_with_other_parameters_is_refused",
        f"{FACE}::test_t01_same_token_gives_the_same_instance_and_other_parameters_a_mismatch",
    ),
    "T02": (
        f"{MODEL}::test_t02_one_token_in_two_zones_launches_two",
        f"{MODEL}::test_t02_without_a_zone_in_the_request_the_token_is_regional",
        f"{FACE}::test_t02_token_is_zonal_when_the_request_names_a_subnet",
    ),
    "T03": (
        f"{PORT}::test_t03_token_of_terminated_instances_returns_them_or_an_error",
        f"{HERE}::test_t03_daemon_takes_no_dead_instance_for_a_launch",
    ),
    "T04": (f"{MODEL}::test_t04_launch_that_failed_keeps_its_token",),
    "T05": (
        f"{MODEL}::test_t05_fewer_instances_than_requested_is_no_error",
        f"{MODEL}::test_t05_below_the_least_nothing_is_launched",
        f"{PORT}::test_t05_where_fewer_are_of_use_they_come_without_an_error",
    ),
    "T06": (
        f"{MODEL}::test_t06_no_capacity_is_a_server_error_that_names_the_other_zones",
        f"{MODEL}::test_t06_capacity_is_by_market",
        f"{FACE}::test_t06_sdks_own_retries_are_counted",
    ),
    "T07": (
        f"{MODEL}::test_t07_machine_that_the_zone_does_not_sell_is_unsupported",
        f"{FACE}::test_t07_unknown_machine_and_one_that_the_zone_lacks",
    ),
    "T08": (
        f"{PORT}::test_t08_price_below_the_markets_is_refused_with_the_price",
        f"{HERE}::test_t08_one_request_of_more_than_three_thousand_spot_instances_is_refused",
    ),
    "T09": (
        f"{PORT}::test_t09_quota_is_per_market_and_named",
        f"{PORT}::test_t09_idle_reservation_counts_against_the_quota",
        f"{HERE}::test_t09_buckets_are_families_and_count_vcpu",
        f"{SERVICES}::test_t09_quota_is_returned_by_its_code",
    ),
    "T10": (
        f"{MODEL}::test_t10_full_subnet_is_refused_whole",
        f"{PREMISES}::test_t10_twelfth_address_of_a_small_subnet_is_refused_whoever_took_the_others",
    ),
    "T11": (
        f"{MODEL}::test_t11_sixth_launch_within_a_second_is_throttled_and_half_a_second_mends_it",
        f"{MODEL}::test_t11_instances_have_a_bucket_of_their_own",
        f"{FACE}::test_t11_unfiltered_list_has_a_smaller_bucket",
        f"{PORT}::test_t11_fleets_and_launches_share_one_bucket_of_instances",
    ),
    "T12": (
        f"{FACE}::test_t12_lost_reply_leaves_the_instances",
        "tests/unit/sandbox/aws/test_signature.py::test_t12_clock_that_is_off_by_six_minutes_is_refused",
        f"{HERE}::test_t12_clock_that_is_off_is_a_pause_and_a_broken_service_no_answer",
    ),
    "T13": (
        f"{PORT}::test_t13_instances_and_errors_come_side_by_side",
        f"{PORT}::test_t13_fleet_below_minimum_launches_nothing_and_gives_all_errors",
        f"{PORT}::test_t13_untried_machine_type_repeats_an_error",
        f"{FLEETS}::test_t13_minimum_counts_only_for_one_type_or_one_zone",
        f"{FLEETS}::test_t13_at_most_fifty_configs",
    ),
    "T14": (
        f"{FLEETS}::test_t14_fleet_without_a_version_is_refused_whole",
        f"{FLEETS}::test_t14_misspelt_machine_type_is_in_the_errors",
        f"{FLEETS}::test_t14_missing_permission_is_an_error_of_each_override",
        f"{FLEETS}::test_t14_image_by_an_alias_is_refused_at_the_top",
        f"{FLEETS}::test_t14_full_reservation_is_unfulfillable_capacity_with_its_name",
        f"{FLEETS}::test_t14_instances_carry_the_fleets_id_and_no_lifecycle_and_go_with_it",
        f"{PORT}::test_t14_fleet_has_its_own_code_for_types_not_offered",
    ),
    "T15": (
        f"{FACE}::test_t15_template_is_resolved_by_its_explicit_version",
        f"{FLEETS}::test_t15_latest_is_resolved_at_launch_and_may_be_another_at_the_next",
        f"{CLIENT}::test_t15_a_launch_names_its_version_and_asks_all_or_none",
    ),
    "T16": (
        f"{FACE}::test_t16_user_data_has_16_kib",
        f"{FLEETS}::test_t16_template_has_its_own_code_for_too_much_user_data",
    ),
    "T17": (
        f"{FACE}::test_t17_tags_apply_to_named_types_and_extend_the_template",
        f"{CLIENT}::test_t17_owner_tags_reach_all_that_is_made",
        f"{REQUESTS}::test_t17_one_call_takes_so_many",
    ),
    "T18": (
        f"{PORT}::test_t18_image_that_is_gone_stops_the_growth_and_no_node",
        f"{FACE}::test_launch_that_ec2_refuses",
    ),
    "T19": (f"{FACE}::test_launch_that_ec2_refuses", f"{HERE}::test_t19_no_template_of_ours_names_a_key_pair"),
    "T20": (
        f"{PORT}::test_t20_id_tags_and_address_come_each_in_its_time",
        f"{HERE}::test_t20_under_every_lag_a_job_runs_and_nothing_is_launched_twice",
    ),
    "T21": (
        f"{MODEL}::test_t21_one_unknown_id_fails_the_whole_call",
        f"{FACE}::test_t21_ids_fail_together_and_filters_are_silent",
        f"{PORT}::test_t21_failing_zone_fails_the_listing_and_never_empties_it",
        f"{HERE}::test_t21_while_a_zone_fails_nothing_is_concluded",
    ),
    "T22": (
        f"{FACE}::test_t22_pages_cover_all_once",
        f"{PORT}::test_t22_pages_are_short_and_one_is_empty_and_nothing_is_missed",
        f"{REQUESTS}::test_t22_one_call_takes_so_many",
    ),
    "T23": (
        f"{MODEL}::test_t23_one_unknown_id_ends_none",
        f"{MODEL}::test_t23_protected_instance_spares_its_zone_only",
        f"{PORT}::test_t23_protected_node_is_spared_and_others_end",
        f"{REQUESTS}::test_t23_one_call_takes_so_many",
    ),
    "T24": (
        f"{MODEL}::test_t24_terminated_instance_is_seen_for_an_hour_with_tags_and_without_address",
        f"{MODEL}::test_t24_stopped_instance_has_given_up_its_capacity",
        f"{MODEL}::test_t24_start_of_a_stopping_instance_is_refused",
    ),
    "T25": (
        f"{PORT}::test_t25_targeted_reservation_launches_its_capacity_and_is_named",
        f"{PORT}::test_t25_full_open_reservation_gives_ordinary_instances_in_silence",
        f"{PORT}::test_t25_after_a_cancellation_instances_live_on_as_ordinary_ones",
        f"{PORT}::test_t25_missing_reservation_is_a_configuration_fault",
        f"{FLEETS}::test_t25_reserved_capacity_only_if_requested",
        f"{PREMISES}::test_t25_reservation_changes_its_count_and_end_and_nothing_else",
    ),
    "T26": (
        f"{PORT}::test_t26_block_opens_at_its_start_and_takes_only_its_own_market",
        f"{PORT}::test_t26_block_ends_its_instances_half_an_hour_before_it_ends",
        f"{PORT}::test_t26_slot_of_an_ended_instance_is_back_after_minutes_of_cleaning",
        f"{HERE}::test_t26_block_end_warning_comes_40_minutes_before_without_spot_notice",
    ),
    "T27": (
        f"{PREMISES}::test_t27_placement_group_is_made_once_and_goes_when_its_members_have_ended",
        f"{PREMISES}::test_t27_group_is_of_one_zone_and_takes_no_capacity_that_was_reserved_outside_it",
        f"{ASKING}::test_t27_what_was_bought_ahead_is_never_forced_into_a_group",
        f"{HERE}::test_t27_missing_placement_group_is_configuration_fault_and_full_one_no_capacity",
    ),
    "T28": (
        f"{PREMISES}::test_t28_topology_has_layers_of_running_instances_and_leaves_the_others_out",
        f"{PREMISES}::test_t28_at_most_a_hundred_ids_and_no_page_with_them",
    ),
    "T29": (
        f"{PREMISES}::test_t29_every_card_has_its_interface_and_only_those_with_an_address_take_one",
        f"{PREMISES}::test_t29_wrong_mix_of_cards_is_refused",
    ),
    # No network of this host has a fabric that could hang: what is seen here is that EC2 refuses nothing.
    "T30": (
        f"{PREMISES}::test_t30_group_that_is_wrong_for_the_fabric_is_not_refused",
        "tests/unit/aws/test_security_groups.py::test_t30_security_group_of_a_fabric_allows_itself_both_ways",
    ),
    "T31": (
        f"{FACE}::test_launch_that_ec2_refuses",
        f"{PREMISES}::test_t31_several_interfaces_get_no_public_address",
        f"{PREMISES}::test_t31_template_with_interfaces_takes_its_subnet_from_a_fleet_and_not_from_a_launch",
        f"{PREMISES}::test_t31_launch_of_the_daemon_has_interfaces_and_placement_group",
        f"{ASKING}::test_t31_a_launch_with_interfaces_lists_each_in_full_and_names_no_subnet_beside_them",
    ),
    "T32": (
        f"{FLEETS}::test_t32_one_attribute_of_a_vpc_a_call",
    ),
    "T33": (
        f"{IMDS}::test_t33_without_a_token_or_with_a_wrong_one_it_is_a_401",
        f"{IMDS}::test_t33_token_ends_with_its_ttl",
        f"{IMDS}::test_t33_service_that_hangs_takes_connections_and_answers_when_it_is_let_go",
        f"{PROGRAM}::test_t33_metadata_needs_a_token_and_has_hop_limit_one",
    ),
    "T34": (
        f"{HERE}::test_t34_notice_comes_early_late_never_twice_or_after_the_end",
        f"{EVENTS}::test_t34_a_spot_warning_ends_the_instance_two_minutes_after_it_was_said",
        f"{IMDS}::test_t34_spot_notice_is_read_once_it_is_given",
        f"{IMDS}::test_t34_notice_that_is_hidden_is_not_read_and_ends_the_machine_either_way",
        f"{IMDS}::test_t34_rebalance_hint_is_read_once_it_is_given",
    ),
    "T35": (
        f"{FLEETS}::test_t35_scheduled_events_are_listed_and_only_some_can_move",
        f"{IMDS}::test_t35_scheduled_events_and_past_events_have_separate_paths",
        f"{EVENTS}::test_t35_a_scheduled_change_names_its_start_and_its_instances",
    ),
    "T36": (
        f"{HERE}::test_t36_young_profile_is_waited_for_with_the_identical_request",
        f"{SERVICER}::test_t36_creation_waits_for_new_profile",
        f"{ROWS}::test_t36_instance_with_new_profile_is_created_once",
    ),
    "T37": (
        f"{ROLES}::test_t37_profile_needs_the_right_to_pass_its_role",
        f"{SERVICES}::test_t37_role_goes_when_nothing_hangs_on_it",
        f"{REQUESTS}::test_t37_roles_inline_policies_have_ten_kibibytes_together",
        "tests/unit/plan/test_iam_policies.py::test_policies_fit_the_size_limit_of_a_role",
    ),
    "T38": (
        f"{FLEETS}::test_t38_secrets_name_is_taken_until_it_is_gone",
        f"{ROWS}::test_t38_creation_waits_for_name_of_deleted_secret",
    ),
    "T39": (
        "tests/unit/cloud/test_control.py::test_t39_a_race_is_repeated",
        f"{ROWS}::test_t39_creation_waits_for_deleted_bucket",
    ),
    "T40": NotYet("there is no DynamoDB: who may act stands in an object of S3, written on what was read (T39)"),
    "T41": (
        f"{QUEUE}::test_t41_events_come_twice_out_of_order_and_one_is_lost",
        f"{QUEUE}::test_t41_a_name_is_taken_for_a_minute_after_its_queue",
        f"{QUEUE}::test_t41_a_rule_with_targets_stays",
        f"{HERE}::test_t41_message_hides_and_comes_again_until_it_is_deleted",
        f"{PREMISES}::test_t41_state_changes_are_sent_to_matching_rules",
    ),
    "T42": (
        f"{MODEL}::test_t42_interfaces_outlive_the_instance_and_hold_their_address",
        f"{FACE}::test_t42_group_goes_when_the_last_interface_has_gone",
        f"{FACE}::test_t42_groups_that_name_each_other_hold_each_other",
        f"{PREMISES}::test_t42_interface_in_use_or_of_a_service_is_not_deleted_by_hand",
        f"{ROWS}::test_t42_creation_waits_for_address_of_terminating_instance",
        f"{ROWS}::test_t42_address_of_running_instance_is_refused_at_once",
        f"{ROWS}::test_t42_wait_for_address_has_timeout",
    ),
    "T43": (
        f"{FACE}::test_t43_network_goes_from_the_inside_out",
        f"{SERVICER}::test_t43_deletion_waits_for_dependents",
        f"{PREMISES}::test_t43_nat_gateway_ends_late_and_holds_its_address_until_then",
    ),
    "T44": (
        f"{SERVICES}::test_t44_one_mount_target_a_zone_and_it_takes_a_while",
        f"{SERVICES}::test_t44_file_system_in_use_stays_and_a_target_goes_by_and_by",
        f"{SERVICES}::test_t44_token_a_zone_and_a_full_subnet_are_refused_in_its_words",
        f"{ROWS}::test_t44_creation_waits_for_deleted_mount_target",
    ),
    "T45": (
        f"{SERVICES}::test_t45_sizes_throughput_and_subnet_must_fit",
        f"{SERVICES}::test_t45_group_must_let_lustre_through_by_rules_that_are_not_young",
        f"{SERVICES}::test_t45_it_is_creating_for_ten_minutes_grows_only_and_holds_its_network",
        "tests/unit/aws/test_options.py::test_t45_lustre_depends_on_its_security_group_rules",
    ),
}  # fmt: skip
NAMED = [(trap, name) for trap, tests in sorted(TRAPS.items()) if isinstance(tests, tuple) for name in tests]


def test_table_has_every_fact_in_order():
    assert list(TRAPS) == [f"T{number:02}" for number in range(1, 46)]


def test_every_row_that_is_always_on_has_its_test_or_cannot_exist_here():
    assert not ALWAYS - TRAPS.keys()
    assert {trap for trap in ALWAYS if isinstance(TRAPS[trap], NotYet)} == NEVER_HERE
    assert [trap for trap in ALWAYS - NEVER_HERE if not TRAPS[trap]] == []


def test_fact_that_cannot_occur_in_the_sandbox_has_a_reason():
    reasons = {trap: t.why for trap, t in TRAPS.items() if isinstance(t, NotYet)}
    assert reasons.keys() == NEVER_HERE
    assert [why for why in reasons.values() if not re.search(r"\(T\d\d\)", why)] == []


@pytest.mark.parametrize(("trap", "name"), NAMED, ids=[f"{t}-{n.rpartition('::')[2]}" for t, n in NAMED])
def test_each_named_test_exists_and_names_its_fact(trap: str, name: str):
    path, _, function = name.partition("::")
    found = functions(path)
    assert function in found, f"{path} has no {function}"
    assert trap.lower() in function or trap in found[function]


@cache
def functions(path: str) -> Mapping[str, str]:
    """Return the functions of a file with their source, decorators included."""
    found: dict[str, str] = {}
    decorators = ""
    for piece in re.split(r"(?m)^(?=@|def )", (ROOT / path).read_text()):
        name = re.match(r"def (\w+)", piece)
        if name:
            found[name[1]] = decorators + piece
        decorators = "" if name else decorators + piece
    return found


ZONE = "us-east-1a"
PLACE = SubnetRef(id="subnet-a", zone=ZONE, cidr="10.0.0.0/16")


def a_model(**timing: float) -> CloudModel:
    from random import Random

    return CloudModel(Random(7), timing=Timing(**timing))  # noqa: S311 - chance, not secrets


def a_launch(count: int = 1, market: Market = Market.SPOT, reservation: str | None = None) -> InstanceLaunch:
    return InstanceLaunch(
        machine="p5.48xlarge", market=market, subnet=PLACE, min_count=count, max_count=count, token=None,
        fingerprint="", reservation=reservation,
    )  # fmt: skip


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(a_plan(), tmp_path)


def test_t03_daemon_takes_no_dead_instance_for_a_launch(f: Fleet):
    """boto/boto3#4406, aws/aws-sdk-php#387: the token of a terminated instance answers 200 with that instance."""
    f.model.faults.lose_reply("RunInstances")
    job = f.slurm.submit(1)
    f.until(lambda: bool(f.cloud.launches), 60)
    for instance in f.model.wanted(f.now):  # it dies before the repeated call gets its answer
        f.model.mark_ended(instance.id, f.now, "Server.InternalError: host died", "Server.InternalError")
    f.until(lambda: job.state == "RUNNING", 1000)
    assert len({x.token for x in f.cloud.launches}) > 1, "a new life has a new token"
    assert len(f.living()) == 1


def test_t08_one_request_of_more_than_three_thousand_spot_instances_is_refused():
    model = a_model()
    model.buckets.enabled = False
    with pytest.raises(Refusal, match="RequestResourceCountExceeded"):
        model.run(a_launch(3001), 0)
    assert faults.classify("RequestResourceCountExceeded") is Fault.QUOTA


@pytest.mark.parametrize(
    ("machine", "bucket", "vcpus"),
    [
        ("p5en.48xlarge", "P", 192),
        ("p6-b200.48xlarge", "P", 192),
        ("p4d.24xlarge", "P", 96),
        ("g6e.48xlarge", "G and VT", 192),
        ("vt1.3xlarge", "G and VT", 8),
        ("m7i.large", "Standard", 8),
    ],
)
def test_t09_buckets_are_families_and_count_vcpu(machine: str, bucket: str, vcpus: int):
    assert (bucket_of(machine), named_vcpus(machine)) == (bucket, vcpus)


@pytest.mark.parametrize(
    ("code", "status", "fault"),
    [
        ("RequestExpired", 400, Fault.THROTTLED),
        ("InvalidSecurity.RequestHasExpired", 400, Fault.THROTTLED),
        ("InternalError", 500, Fault.LOST),
        ("NeverHeardOf", 500, Fault.LOST),
        ("NeverHeardOf", 400, Fault.CONFIGURATION),
        ("RequestLimitExceeded", 503, Fault.THROTTLED),
        ("InsufficientInstanceCapacity", 500, Fault.NO_CAPACITY),
    ],
)
def test_t12_clock_that_is_off_is_a_pause_and_a_broken_service_no_answer(
    code: str, status: int, fault: Fault
):
    assert faults.classify(code, "", status=status) is fault


def test_t19_no_template_of_ours_names_a_key_pair():
    """AWS returns the private half once, and a machine gets the public half only at its first boot. We need no key pair."""
    assert "key_name" not in Path(str(__import__(Pools.__module__, fromlist=["x"]).__file__)).read_text()


def test_t20_under_every_lag_a_job_runs_and_nothing_is_launched_twice(f: Fleet):
    """aws/karpenter-provider-aws#564, aws-parallelcluster#7265: a new instance that is not listed yet is not terminated."""
    f.model.switches.lag = Lag(id_s=8, address_s=8, tags_s=8)
    jobs = [f.slurm.submit(count) for count in (1, 2, 4)]
    f.until(lambda: all(job.state == "RUNNING" for job in jobs), 300)
    assert len(f.living()) == 7
    assert sum(x.count for x in f.cloud.launches) == 7


def test_t21_while_a_zone_fails_nothing_is_concluded(f: Fleet):
    job = f.slurm.submit(2, lasts=5000)
    f.until(lambda: job.state == "RUNNING", 60)
    f.model.switches.failing_zones.add("us-east-2b")
    f.run(1000)
    assert [c for c in f.model.trail if c.code == "Unavailable"], "it was asked, and failed"
    assert job.state == "RUNNING"
    assert len(f.cloud.launches) == 1
    f.model.switches.failing_zones.clear()
    f.run(100)
    assert (job.state, len(f.living())) == ("RUNNING", 2)


def test_t26_block_end_warning_comes_40_minutes_before_without_spot_notice():
    model = a_model(ending_s=5)
    block = model.reserve("p5.48xlarge", ZONE, 1, block=True, starts_at=0, ends_at=7200)
    (one,) = model.run(a_launch(1, Market.CAPACITY_BLOCK, block), 10)
    assert model.take_events(7200 - 2401) == ()
    model.describe((), 7200 - 2400)
    (told,) = model.take_events(7200 - 2400)
    assert "Capacity Block Reservation Expiration Warning" in told
    assert model.instance(one.id, 7200 - 1801).state.value == "running"
    ended = model.instance(one.id, 7200 - 1800)
    assert (ended.state.value, ended.notice_at) == ("shutting-down", None)
    assert model.take_events(7200) == ()


def test_t27_missing_placement_group_is_configuration_fault_and_full_one_no_capacity():
    assert faults.classify("InvalidPlacementGroup.Unknown") is Fault.CONFIGURATION
    assert "InvalidPlacementGroup.Unknown" in faults.CONFIGURATION
    assert faults.classify("InvalidPlacementGroup.InUse") is Fault.THROTTLED
    model = a_model()
    with pytest.raises(Refusal, match=r"InvalidPlacementGroup\.Unknown"):
        model.run(replace(a_launch(), placement_group="gone"), 0)
    model.placements.add(PlacementGroup(id="pg-1", name="g"))
    model.set_capacity(free=0)
    with pytest.raises(Refusal, match="InsufficientInstanceCapacity"):
        model.run(replace(a_launch(), placement_group="g"), 0)


@pytest.mark.parametrize(
    ("sentence", "after_s", "silent", "late_s", "messages"),
    [
        ("two minutes", 120, (), 0, (2, 0)),
        ("twenty seconds", 20, (), 0, (2, 0)),
        ("none: the machine is gone", 0, ("queue", "metadata"), 0, (0, 0)),
        ("the event comes after the death", 20, (), 600, (0, 2)),
    ],
)
def test_t34_notice_comes_early_late_never_twice_or_after_the_end(
    sentence: str, after_s: float, silent: tuple[str, ...], late_s: float, messages: tuple[int, int]
):
    """Each message comes twice: before and after the termination."""
    model = a_model(ending_s=1)
    (one,) = model.run(a_launch(), 0)
    model.set_delivery(late_s=late_s, twice_every=1)
    model.interrupt(one.id, 10, after_s, silent=silent)
    at_once = len(model.take_events(10))
    if after_s:
        assert model.instance(one.id, 10 + after_s - 1).state.value == "running"
    assert model.instance(one.id, 10 + after_s + 2).state.value == "terminated"
    assert (at_once, len(model.take_events(10 + 700))) == messages, sentence


def test_t36_young_profile_is_waited_for_with_the_identical_request(f: Fleet):
    """aws/karpenter-provider-aws#7849: an InvalidParameterValue that is only temporary."""
    f.model.switches.profile_lag_until = f.now + 60
    job = f.slurm.submit(2)
    f.until(lambda: job.state == "RUNNING", 300)
    assert [c for c in f.model.trail if c.code == "InvalidParameterValue"], "it was refused at first"
    assert len({x.token for x in f.cloud.launches}) == 1
    assert not f.journal.memory.refusals


def test_t41_message_hides_and_comes_again_until_it_is_deleted():
    model = a_model()
    model.events.put("body", 0)
    ((handle, _),) = model.events.receive(0)
    assert model.events.receive(29) == ()
    assert model.events.receive(30) == ((handle, "body"),)
    model.events.delete([handle, "unknown"])
    assert model.events.receive(100) == ()
