"""Visual odometry: frames in, poses with covariance and status out; no files, no ROS.

`VisualOdometry` (visual_odometry.py) sends each frame down a path: `flow_path` follows landmarks
by optical flow and leaves keyframes to the `mapper`, `match_path` matches keypoints where that
fails. `unmapped_tracking` serves both where there are no landmarks, and `context` holds what they
share.

Their parts: `flow_tracking` and `keyframe_matching` locate a view, `motion_gate` holds what did
not move, `keyframe_policy` and `mapping` grow the `map`, `motion_search` and `initialization`
start it, `look_back` locates the frames before, `map_check` gives the map up when views refute it,
`metric_scale` puts it in metres, `history` remembers, `covariance` says how certain all of it is.
Settings are `OdometryOptions` (options.py), results `OdometryState` (state.py).
"""
