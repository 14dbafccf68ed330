"""Keypoints and descriptors of one image.

`base.make_extractor` returns an extractor by name: SIFT, RootSIFT, ORB, AKAZE (`opencv`) or a
learned one (`onnx`, which runs files with `onnx_network` and reads their outputs with `heads`, if
they are maps, or with `keypoint_outputs`).
`stored.read_features` reads features from files. All of them give `keypoints.Features`.
`image_sharpness` measures how motion blur affects keypoint precision.
"""
