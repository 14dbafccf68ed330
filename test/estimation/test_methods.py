"""Names of methods and their steps."""

import pytest

from lgc_ros.errors import ConfigError
from lgc_ros.estimation.estimators import ESTIMATORS, ROBUST_ESTIMATORS
from lgc_ros.estimation.methods import METHODS, Method, parse_method


def test_cn_filters_and_then_estimates_robustly():
    method = parse_method("cn")
    assert method.filter
    assert not method.ratio
    assert method.estimator in ROBUST_ESTIMATORS


def test_name_determines_rejection_and_estimator():
    assert parse_method("cn-8pt") == Method("cn-8pt", "8pt-refined", filter=True, unique=True)
    assert parse_method("cn-8pt-plain") == Method("cn-8pt-plain", "8pt", filter=True)
    assert parse_method("cn+magsac") == Method("cn+magsac", "magsac", filter=True, unique=True)
    assert parse_method("ransac") == Method("ransac", "ransac")
    assert parse_method("gms+ratio") == Method("gms+ratio", "gms", ratio=True)
    unique = parse_method("gms+ratio+unique")
    assert unique == Method("gms+ratio+unique", "gms", ratio=True, unique=True)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_estimator(name):
    method = parse_method(name)
    assert method.name == name
    assert method.estimator in ESTIMATORS


@pytest.mark.parametrize("name", ["ransac", "lmeds", "mlesac", "magsac", "usac", "poselib", "gms"])
def test_baselines_are_available_alone_with_ratio_test_and_after_the_filter(name):
    assert {name, f"{name}+ratio", f"{name}+ratio+unique", f"cn+{name}"} <= set(METHODS)


def test_error_for_an_unknown_method_lists_the_known_ones_and_suggests_one():
    with pytest.raises(ConfigError, match=r"'ransack'.*did you mean 'ransac'.*cn-8pt.*poselib"):
        parse_method("ransack")


@pytest.mark.parametrize("name", ["cn+ratio", "cn-8pt+ratio"])
def test_ratio_test_before_the_filter_is_rejected_with_the_reason(name):
    with pytest.raises(ConfigError, match="replaces the ratio test"):
        parse_method(name)


@pytest.mark.parametrize(
    "name", ["", "8pt", "+ratio", "ratio", "cn+", "cn+cn", "ransac+ratio+ratio"]
)
def test_malformed_names_are_rejected(name):
    with pytest.raises(ConfigError, match="known methods"):
        parse_method(name)
