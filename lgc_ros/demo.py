"""The demonstration: a synthetic pair with known truth, matched with and without the filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lgc_ros.evaluation import score_result
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.two_view import TwoViewPipeline
from lgc_ros.viz import draw_two_view, write_image

FRAMES = 120
FIRST, SECOND = 40, 70
METHODS = ("cn", "cn-8pt", "ransac")


def run_demo(out: Path) -> Iterator[str]:
    """Match two views of a room with each method; yields lines to show and writes pictures."""
    source = SyntheticSource("walk", FRAMES, noise=4.0)
    frame0, frame1 = source[FIRST], source[SECOND]
    T_10 = np.linalg.inv(frame1.T_wc) @ frame0.T_wc
    true_pose = T_10[:3, :3], T_10[:3, 3]
    out.mkdir(parents=True, exist_ok=True)
    frame0.camera.to_yaml(out / "camera.yaml")
    np.savetxt(out / "T_10.txt", T_10)
    write_image(out / "image0.png", frame0.image)
    write_image(out / "image1.png", frame1.image)
    for method in METHODS:
        pipeline = TwoViewPipeline(method)
        result = pipeline(frame0.image, frame1.image, frame0.camera, frame1.camera)
        score = score_result(result, *true_pose)
        line = (
            f"{method}: {result.inliers.sum()} inliers of {len(result.inliers)} matches, "
            f"{100 * score.inlier_precision:.0f} % of them right, "
            f"pose error {score.error_deg:.2f} degrees, "
            f"{result.ms['filter'] + result.ms['estimate']:.0f} ms after matching"
        )
        picture = out / f"matches_{method}.png"
        write_image(picture, draw_two_view(frame0.image, frame1.image, result, true_pose, [line]))
        yield line
        yield f"  {picture}"
    yield "the same by hand:"
    yield (
        f"  lgc match {out}/image0.png {out}/image1.png --camera {out}/camera.yaml "
        f"--gt {out}/T_10.txt --out matches.png"
    )
