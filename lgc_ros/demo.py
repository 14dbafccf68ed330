"""The demonstration: two views of a synthetic room, matched without and with the filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lgc_ros.evaluation import score_result
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.two_view import TwoViewPipeline, right_matches
from lgc_ros.viz import draw_two_view, write_image

ROOM, FRAMES = 4, 200
FIRST, SECOND = 20, 50
METHODS = ("ransac", "cn")


def run_demo(out: Path) -> Iterator[str]:
    """Match the views with each method; yields lines to show, writes the views and pictures."""
    source = SyntheticSource("walk", FRAMES, seed=ROOM, noise=4.0)
    frame0, frame1 = source[FIRST], source[SECOND]
    T_10 = np.linalg.inv(frame1.T_wc) @ frame0.T_wc
    true_pose = T_10[:3, :3], T_10[:3, 3]
    out.mkdir(parents=True, exist_ok=True)
    frame0.camera.to_yaml(out / "camera.yaml")
    np.savetxt(out / "T_10.txt", T_10)
    write_image(out / "image0.png", frame0.image)
    write_image(out / "image1.png", frame1.image)
    pictures = []
    for method in METHODS:
        pipeline = TwoViewPipeline(method)
        result = pipeline(frame0.image, frame1.image, frame0.camera, frame1.camera)
        right = right_matches(result.correspondences, *true_pose)
        line = (
            f"{method}: {result.inliers.sum()} inliers, "
            f"{(result.inliers & right).sum()} of them right, "
            f"pose error {score_result(result, *true_pose).error_deg:.2f} degrees"
        )
        pictures.append(draw_two_view(frame0.image, frame1.image, result, true_pose, [line]))
        yield line
    yield f"({len(right)} matches, {right.sum()} of them right)"
    write_image(out / "demo.jpg", np.vstack(pictures))
    yield f"Look at {out / 'demo.jpg'}. The same by hand:"
    yield (
        f"lgc match {out / 'image0.png'} {out / 'image1.png'} --camera {out / 'camera.yaml'} "
        f"--gt {out / 'T_10.txt'} --out matches.png"
    )
