"""NVM models, as VisualSFM writes them."""

from __future__ import annotations

from pathlib import Path

from transforms3d.quaternions import quat2mat

from lgc_ros.errors import DatasetError
from training.data.files import image_size, make_camera, read_lines
from training.data.scene import PosedImage, PosedScene
from training.data.sfm import SHARED_POINTS_ABOVE, centered_camera, sfm_image, sfm_scene


def read_nvm(
    path: Path, images: str = ".", shared_points_above: float = SHARED_POINTS_ABOVE
) -> PosedScene:
    """The first, largest model of an NVM_V3 file; images are relative to the file's folder.

    A camera is a focal length, a quaternion (world to camera), its center and one distortion.
    """
    path = Path(path)
    lines = iter(read_lines(path, "give the path of an .nvm file"))
    try:
        header = next(lines).split()
        if header[0] != "NVM_V3":
            raise ValueError(f"it starts with {header[0]}")
        fixed = [float(token) for token in header[2:6]] if "FixedK" in header else None
        posed_images = [
            _posed_image(path, path.parent / images, next(lines), fixed)
            for _ in range(int(next(lines)))
        ]
        tracks = [_track(next(lines)) for _ in range(int(next(lines)))]
    except (StopIteration, ValueError, IndexError) as error:
        raise DatasetError(
            f"{path} is not a complete NVM_V3 file ({error!r}): export it again"
        ) from error
    return sfm_scene(path.resolve().stem, path, posed_images, tracks, shared_points_above)


def _posed_image(model: Path, folder: Path, line: str, fixed: list[float] | None) -> PosedImage:
    name, *tokens = line.split()
    name = name.replace('"', " ")  # how VisualSFM writes a space
    focal, qw, qx, qy, qz, *center, radial = (float(token) for token in tokens[:9])
    size = image_size(folder / name)
    # VisualSFM undistorts measurements, x_u = x_d (1 + r |x_d|²); the coefficients of the inverse
    # series x_d = x_u (1 + k1 |x_u|² + ...) are what an OpenCV camera takes.
    k1, k2, k3 = -radial, 3 * radial**2, -12 * radial**3
    D = (k1, k2, 0.0, 0.0, k3) if radial else ()
    if fixed is None:
        camera = centered_camera(model, focal, size, D)
    else:
        fx, cx, fy, cy = fixed
        camera = make_camera(model, [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], size, D)
    R_cw = quat2mat([qw, qx, qy, qz])
    return sfm_image(folder, name, camera, R_cw, -R_cw @ center)


def _track(line: str) -> list[int]:
    """Images of a point: `X Y Z R G B count (image feature x y)...`."""
    tokens = line.split()
    count = int(tokens[6])
    track = [int(token) for token in tokens[7 : 7 + 4 * count : 4]]
    if len(track) != count:
        raise ValueError(f"a point with {len(track)} of {count} measurements")
    return track
