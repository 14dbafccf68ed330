"""Camera models and two-view geometry in plain numpy; nothing here logs or reads images.

`camera.Camera` maps pixels to normalized coordinates; `camera_files` reads calibrations of other
programs, `camera_presets` has those of datasets, and `camera_checks` finds unlikely values.
`epipolar` has the essential matrix, the 8-point algorithm, epipolar distances, decomposition,
triangulation and pose errors; `five_point` finds the essential matrices among 8-point solutions.
`trajectory.Trajectory` holds stamped poses; `alignment` fits one trajectory to another.
"""
