"""Bundler models: `bundle.out` with the list of images it was made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from training.data.files import image_size, read_lines
from training.data.scene import PosedScene
from training.data.sfm import SHARED_POINTS_ABOVE, centered_camera, sfm_image, sfm_scene

# Bundler's camera looks along -z with y up; ours along z with y down.
_FLIP = np.diag([1.0, -1.0, -1.0])


def read_bundler(
    path: Path,
    image_list: str = "list.txt",
    images: str = ".",
    shared_points_above: float = SHARED_POINTS_ABOVE,
) -> PosedScene:
    """A `.out` file (v0.3); list and folder of images are relative to the file's folder.

    A camera with focal length 0 was not registered and is left out.
    """
    path = Path(path)
    names = [
        line.split()[0]
        for line in read_lines(path.parent / image_list, "name the list of images of this model")
    ]
    tokens = _tokens(path)
    try:
        camera_count, point_count = int(next(tokens)), int(next(tokens))
        if camera_count != len(names):
            raise DatasetError(
                f"{path} has {camera_count} cameras but {path.parent / image_list} lists "
                f"{len(names)} images: give the list this model was made from"
            )
        cameras = [[float(next(tokens)) for _ in range(15)] for _ in range(camera_count)]
        tracks = [_read_track(tokens) for _ in range(point_count)]
    except (StopIteration, ValueError) as error:
        raise DatasetError(
            f"{path} is not a complete Bundler v0.3 file ({error!r}): export it again"
        ) from error

    index, posed_images = {}, []
    for number, (name, (focal, k1, k2, *pose)) in enumerate(zip(names, cameras, strict=True)):
        if focal == 0:
            continue
        index[number] = len(posed_images)
        R_cw, t_cw = _FLIP @ np.reshape(pose[:9], (3, 3)), _FLIP @ pose[9:]
        camera = centered_camera(
            path, focal, image_size(path.parent / images / name), (k1, k2, 0.0, 0.0)
        )
        posed_images.append(sfm_image(path.parent / images, name, camera, R_cw, t_cw))
    seen = ([index[number] for number in track if number in index] for track in tracks)
    return sfm_scene(path.resolve().parent.name, path, posed_images, seen, shared_points_above)


def _tokens(path: Path):
    lines = read_lines(path, "give the path of a Bundler .out file")
    return iter(" ".join(lines).split())


def _read_track(tokens) -> list[int]:
    """Images that see the next point; position, color, key and pixel are not needed."""
    for _ in range(6):
        next(tokens)
    track = []
    for _ in range(int(next(tokens))):
        track.append(int(next(tokens)))
        for _ in range(3):
            next(tokens)
    return track
