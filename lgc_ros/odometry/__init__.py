"""Visual odometry: frames in, poses with covariance and status out; no ROS.

`VisualOdometry` (visual_odometry.py) sends each frame down a path: `flow_path` follows landmarks
by optical flow and leaves keyframes to the `mapper`, `match_path` matches keypoints where that
fails. `unmapped_tracking` serves both where there are no landmarks, and `context` holds what they
share.

Their parts: `flow_tracking` and `keyframe_matching` locate a view, `motion_gate` holds the
pose of a camera at rest, `motion_search` and `initialization` start the `map`, `keyframe_policy`
and `mapping` extend it, `camera_refinement` corrects what the calibration leaves of distortion,
`look_back` locates the frames before, `map_check` drops a map that views contradict,
`metric_scale` scales it to meters, `history` and `covariance` make the states.
Settings are `OdometryOptions` (options.py), results `OdometryState` (state.py). Only `profiles`
reads files.
"""
