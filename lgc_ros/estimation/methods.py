"""Names of two-view methods: which matches go to which estimator."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from lgc_ros.errors import ConfigError
from lgc_ros.estimation.estimators import EIGHT_POINT, REFINED_EIGHT_POINT, ROBUST_ESTIMATORS

# The robust estimator of plain `cn`: the most accurate on the filter's survivors.
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


# What a table shows unless told otherwise: the filter, and the baselines as the paper has them.
DEFAULT_METHODS = tuple(
    m for m in METHODS if not m.startswith("cn+") and not m.endswith("+unique")
)


@dataclass(frozen=True)
class Method:
    """A way from putative matches to a pose."""

    name: str
    estimator: str  # key of estimators.ESTIMATORS
    filter: bool = False  # score the matches with the network, estimate from the survivors
    ratio: bool = False  # estimate from the matches that pass the ratio test
    unique: bool = False  # of the matches that share a keypoint, only the best is used


def parse_method(name: str) -> Method:
    """The method of a name such as `cn`, `cn-8pt`, `cn+magsac`, `ransac` or `ransac+ratio`.

    Both `cn-8pt` and `cn-8pt-plain` sample nothing; the latter is the paper's closed form alone.

    Raises:
        ConfigError: there is no such method; the message lists those there are.
    """
    if name not in METHODS:
        raise ConfigError(_unknown(name))
    if name == "cn":
        return Method(name, FILTER_ESTIMATOR, filter=True, unique=True)
    if name == "cn-8pt":
        return Method(name, REFINED_EIGHT_POINT, filter=True)
    if name == "cn-8pt-plain":
        return Method(name, EIGHT_POINT, filter=True)
    if name.startswith("cn+"):
        return Method(name, name.removeprefix("cn+"), filter=True, unique=True)
    estimator, *suffixes = name.split("+")
    return Method(name, estimator, ratio="ratio" in suffixes, unique="unique" in suffixes)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), METHODS, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    if name.startswith("cn") and name.endswith("+ratio"):
        hint = " (the filter takes the place of the ratio test)"
    return (
        f"unknown method '{name}'{hint}; known methods: cn, cn-8pt, cn-8pt-plain, "
        f"{', '.join(ROBUST_ESTIMATORS)}; each but the first three also as X+ratio (ratio test "
        "first), X+ratio+unique (and one match per keypoint) and cn+X (filter first)"
    )
