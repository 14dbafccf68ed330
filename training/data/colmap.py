"""COLMAP models, binary or text, read by pycolmap."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.geometry.camera import Camera
from training.data.files import make_camera
from training.data.scene import PosedScene
from training.data.sfm import SHARED_POINTS_ABOVE, sfm_image, sfm_scene

# COLMAP's distortion parameters come in OpenCV's order; what it leaves out is zero there.
_MODELS = {
    "SIMPLE_PINHOLE": ("pinhole", 0),
    "PINHOLE": ("pinhole", 0),
    "SIMPLE_RADIAL": ("plumb_bob", 4),
    "RADIAL": ("plumb_bob", 4),
    "OPENCV": ("plumb_bob", 4),
    "FULL_OPENCV": ("rational_polynomial", 8),
    "SIMPLE_FISHEYE": ("equidistant", 4),
    "FISHEYE": ("equidistant", 4),
    "SIMPLE_RADIAL_FISHEYE": ("equidistant", 4),
    "RADIAL_FISHEYE": ("equidistant", 4),
    "OPENCV_FISHEYE": ("equidistant", 4),
}


def read_colmap(
    folder: Path,
    images: str = "images",
    model: str | None = None,
    shared_points_above: float = SHARED_POINTS_ABOVE,
) -> PosedScene:
    """A model and its images; both folders are relative to `folder`.

    Without `model`, the usual places are tried: `sparse/0`, `sparse`, the folder itself.
    """
    try:
        import pycolmap
    except ImportError as error:
        raise ConfigError(
            "reading COLMAP models needs pycolmap: install the 'training' extra"
        ) from error

    folder = Path(folder)
    model_path = _find_model(folder, model)
    try:
        reconstruction = pycolmap.Reconstruction(str(model_path))
    except Exception as error:  # pycolmap turns a failed check into various types
        raise DatasetError(
            f"{model_path} is not a readable COLMAP model ({error}): export it again"
        ) from error
    posed = [image for _, image in sorted(reconstruction.images.items()) if image.has_pose]
    index = {image.image_id: number for number, image in enumerate(posed)}
    posed_images = []
    for image in posed:
        pose = image.cam_from_world()
        camera = _camera(image.camera, model_path)
        R_cw = pose.rotation.matrix()
        posed_images.append(
            sfm_image(folder / images, image.name, camera, R_cw, np.array(pose.translation))
        )
    tracks = (
        [index[element.image_id] for element in point.track.elements if element.image_id in index]
        for point in reconstruction.points3D.values()
    )
    return sfm_scene(folder.resolve().name, model_path, posed_images, tracks, shared_points_above)


def _find_model(folder: Path, model: str | None) -> Path:
    places = [folder / model] if model else [folder / "sparse" / "0", folder / "sparse", folder]
    for place in places:
        if any((place / f"cameras.{ending}").exists() for ending in ("bin", "txt")):
            return place
    raise DatasetError(
        f"no cameras.bin or cameras.txt in {', '.join(map(str, places))}: "
        "name the folder of the COLMAP model (option 'model')"
    )


def _camera(camera, model_path: Path) -> Camera:
    name = camera.model_name
    if name not in _MODELS:
        raise DatasetError(
            f"{model_path}: camera model {name} is not supported; undistort the images with "
            f"`colmap image_undistorter`, or use one of {', '.join(_MODELS)}"
        )
    model, size = _MODELS[name]
    extra = np.asarray(camera.params)[list(camera.extra_params_idxs())]
    K = np.array(camera.calibration_matrix())
    K[:2, 2] -= 0.5  # COLMAP puts the center of the first pixel at 0.5, OpenCV at 0
    D = np.pad(extra, (0, size - len(extra)))
    return make_camera(model_path, K, (camera.width, camera.height), D, model)
