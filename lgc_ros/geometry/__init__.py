"""Camera models and two-view geometry in plain numpy; nothing here logs or reads images.

`camera.Camera` holds intrinsics and distortion and maps pixels to normalized coordinates.
`epipolar` has the essential matrix, the 8-point algorithm, epipolar distances, decomposition,
triangulation and pose errors.
"""
