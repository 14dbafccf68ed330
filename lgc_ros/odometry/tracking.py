"""What tracking finds: a view matched to a keyframe, and its pose from the landmarks seen there.

Two modules find it: keyframe_matching.py matches keypoints, flow_tracking.py follows points of the
keyframe by optical flow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from lgc_ros.estimation.two_view import TwoViewResult
from lgc_ros.odometry.map import Keyframe
from lgc_ros.odometry.motion_search import ReferenceMatches

# Views since the reference that are kept to tell motions apart.
MAX_VIEWS_BETWEEN = 5
# Fewest landmarks that give a pose, and the share of those found that must agree with it.
MIN_LANDMARKS = 15
MIN_AGREEING_SHARE = 0.5
# Share of the matches that a pose from landmarks must explain.
EXPLAINED_SHARE = 0.8
# Samples of the two-view estimator where nearly all matches are true: those that the filter
# trusts, and points that optical flow has followed.
TRUSTED_SAMPLES = 100


@final
@dataclass(frozen=True, eq=False)
class Track:
    """A view matched to a keyframe.

    Attributes:
        reference: the keyframe.
        result: of the two-view solver.
        index0, index1: (M,) one-to-one inliers: keypoints of the keyframe and of the view.
        rows: (M,) their rows among the correspondences of the result.
        candidates: all matches that outlier rejection kept, one to one.
        pose: of the view; None if landmarks did not give one.
    """

    reference: Keyframe
    result: TwoViewResult
    index0: np.ndarray
    index1: np.ndarray
    rows: np.ndarray
    candidates: ReferenceMatches
    pose: Pose | None = None


@dataclass(frozen=True, eq=False)
class Pose:
    """Pose of a view, and the landmarks it rests on."""

    R_cw: np.ndarray
    t_cw: np.ndarray
    covariance: np.ndarray  # (6, 6) of the step on the left, relative to the keyframe
    used: np.ndarray  # (M,) bool over the track's matches: landmarks that agree

    @property
    def center(self) -> np.ndarray:
        """Position of the camera in the world."""
        return -self.R_cw.T @ self.t_cw


@dataclass(eq=False)
class Reference:
    """The keyframe that views are matched to, and what was seen since it took over.

    Attributes:
        most_matches: largest number of matches a view had with it.
        views: matches of the views since then, for initialization.
        runs_out: whether so little of it was left in view that a new keyframe should take over.
            What flow has found out matching cannot: points followed and keypoints matched are not
            counted against each other.
        retry_parallax_deg: no map is initialized from less, since an attempt has failed.
    """

    keyframe: Keyframe
    most_matches: int = 0
    views: list[ReferenceMatches] = field(default_factory=list)
    runs_out: bool = False
    retry_parallax_deg: float = 0.0

    def saw(self, track: Track) -> None:
        """Count the matches of a view."""
        self.most_matches = max(self.most_matches, len(track.index0))

    def remember(self, matches: ReferenceMatches) -> None:
        """Keep the matches of a view; of many views every other one."""
        self.views.append(matches)
        if len(self.views) > MAX_VIEWS_BETWEEN:
            self.views = self.views[1::2]
