"""Visual odometry: frames in, poses with covariance and status out; no files, no ROS.

`VisualOdometry` (visual_odometry.py) is the loop. Its parts: `tracking` matches a view to a
keyframe, `motion_gate` holds what did not move, `keyframe_policy` and `mapping` grow the `map`,
`motion_search` and `initialization` start it, `map_check` gives it up when views refute it,
`metric_scale` puts it in metres, `history` remembers, `covariance` says how certain all of it is.
Settings are `OdometryOptions` (options.py), results `OdometryState` (state.py).
"""
