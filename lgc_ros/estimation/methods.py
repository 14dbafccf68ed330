"""Names of two-view methods: how matches are rejected, and which estimator gets the rest."""

from __future__ import annotations

from dataclasses import dataclass

from lgc_ros.errors import ConfigError, did_you_mean
from lgc_ros.estimation.estimators import EIGHT_POINT, REFINED_EIGHT_POINT, ROBUST_ESTIMATORS

# Estimator of plain `cn`: the most accurate on the matches that the filter keeps.
FILTER_ESTIMATOR = "poselib"

METHODS = (
    "cn",
    "cn-8pt",
    "cn-8pt-plain",
    *ROBUST_ESTIMATORS,
    *(f"{name}+ratio" for name in ROBUST_ESTIMATORS),
    *(f"{name}+ratio+unique" for name in ROBUST_ESTIMATORS),
    *(f"cn+{name}" for name in ROBUST_ESTIMATORS),
)

# Default rows of evaluation tables: the filter, the baselines as in the paper, and the strongest.
DEFAULT_METHODS = (
    *(m for m in METHODS if not m.startswith("cn+") and not m.endswith("+unique")),
    "poselib+ratio+unique",
)


@dataclass(frozen=True)
class Method:
    """Steps from putative matches to a pose."""

    name: str
    estimator: str  # key of estimators.ESTIMATORS
    filter: bool = False  # estimate from the matches that the network keeps
    ratio: bool = False  # estimate from the matches that pass the ratio test
    unique: bool = False  # keep only the best of the matches that share a keypoint


def parse_method(name: str) -> Method:
    """Parse a name such as `cn`, `cn-8pt`, `cn+magsac`, `ransac` or `ransac+ratio`.

    Neither `cn-8pt` nor `cn-8pt-plain` samples; the latter is the paper's closed form without
    refinement.

    Raises:
        ConfigError: unknown method; the message lists the known ones.
    """
    if name not in METHODS:
        raise ConfigError(_unknown_method(name))
    if name == "cn":
        return Method(name, FILTER_ESTIMATOR, filter=True, unique=True)
    if name == "cn-8pt":
        return Method(name, REFINED_EIGHT_POINT, filter=True, unique=True)
    if name == "cn-8pt-plain":
        return Method(name, EIGHT_POINT, filter=True)
    if name.startswith("cn+"):
        return Method(name, name.removeprefix("cn+"), filter=True, unique=True)
    estimator, *suffixes = name.split("+")
    return Method(name, estimator, ratio="ratio" in suffixes, unique="unique" in suffixes)


def _unknown_method(name: str) -> str:
    hint = did_you_mean(name.lower(), METHODS, otherwise="")
    if name.startswith("cn") and name.endswith("+ratio"):
        hint = "the filter replaces the ratio test"
    hint = f" ({hint})" if hint else ""
    return (
        f"unknown method '{name}'{hint}; known methods: cn, cn-8pt, cn-8pt-plain, "
        f"{', '.join(ROBUST_ESTIMATORS)}; all but the first three also as X+ratio (ratio test "
        "first), X+ratio+unique (and one match per keypoint) and cn+X (filter first)"
    )
