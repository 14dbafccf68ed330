"""A folder of photos without poses: structure from motion, then read like any COLMAP model.

The poses are only as good as the reconstruction, so its quality is checked before anything is
trained on it. A doubtful reconstruction is rejected with its figures.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.features.base import make_extractor
from lgc_ros.images.header import declared_size
from lgc_ros.runtime.output_files import write_file
from lgc_ros.runtime.result_folders import locked_folder
from lgc_ros.sources.files import IMAGE_SUFFIXES
from training.data.colmap import read_colmap
from training.data.labels import label_pair
from training.data.scene import PosedScene, relative_pose

log = logging.getLogger(__name__)

CAMERAS = {"shared": "SINGLE", "own": "PER_IMAGE"}
SHARED_POINTS_ABOVE = 50
"""The paper's 100 suit hundreds of photos. Below 40, poses of tourist photos are unreliable: fresh
matches had a median epipolar distance of 1.4 px, against 0.5 px above 100 shared points."""

QUALITY_FILE = "quality.json"
CHECKED_PAIRS = 10
DISTINCTIVE_RATIO = 0.8
FAR_PX = 10.0
"""Matches farther from their epipolar line are outliers and tell nothing about the pose."""


@dataclass(frozen=True)
class Quality:
    """Quality figures of a reconstruction.

    Attributes:
        photos, registered: photos in the folder, and in the largest model.
        reprojection_px: mean reprojection error of the model's points.
        epipolar_px: median over pairs of the median distance of fresh matches, which the
            reconstruction has not seen, to the epipolar lines of its poses.
        agreeing: mean share of the distinctive fresh matches that are within 10 px of them.
    """

    photos: int
    registered: int
    reprojection_px: float
    epipolar_px: float
    agreeing: float


def read_photos(
    folder: Path,
    models: str | None = None,
    camera: str = "shared",
    keypoints: int = 3000,
    shared_points_above: float = SHARED_POINTS_ABOVE,
    min_registered: float = 0.5,
    max_reprojection_px: float = 1.5,
    max_epipolar_px: float = 1.5,
    min_agreeing: float = 0.2,
) -> PosedScene:
    """The photos of a folder with poses from structure from motion.

    A finished reconstruction is reused; an interrupted one continues from the keypoints and
    matches it already has.

    Args:
        folder: of the photos.
        models: folder for the reconstructions, one subfolder each; default `sparse` inside the
            folder of the photos.
        camera: `shared` if all photos are of one camera and zoom, `own` if each has its own.
        keypoints: SIFT keypoints per photo, for the reconstruction only.
        shared_points_above: minimum number of shared 3D points of a pair, exclusive.
        min_registered: minimum share of the photos in the model.
        max_reprojection_px, max_epipolar_px, min_agreeing: limits of :class:`Quality`.
    """
    if camera not in CAMERAS:
        raise ConfigError(f"camera is {camera!r}, it must be one of {', '.join(CAMERAS)}")
    folder = Path(folder)
    place = Path(models) / folder.resolve().name if models else folder / "sparse"
    done = place / QUALITY_FILE
    if not done.is_file():
        if place.exists():
            raise DatasetError(
                f"{place} exists but was not made by the reader 'photos', which would replace it: "
                "read it with the reader 'colmap', or name another folder with the option "
                "'models'"
            )
        photos = _photos(folder)
        if camera == "shared":
            _warn_of_other_sizes(folder, photos)
        work = _work_folder(place)
        with locked_folder(work):
            found, model = _reconstruct(folder, photos, work, camera, keypoints)
            scene = read_colmap(folder, ".", str(found.resolve()), shared_points_above)
            quality = _check(scene, len(photos), model.compute_mean_reprojection_error())
            write_file(found / QUALITY_FILE, json.dumps(asdict(quality), indent=1))
            found.rename(place)
            shutil.rmtree(work)
    quality = Quality(**json.loads(done.read_text(encoding="utf-8")))
    log.info("%s: %s", folder.name, quality)
    limits = min_registered, max_reprojection_px, max_epipolar_px, min_agreeing
    problems = _problems(quality, *limits)
    if problems:
        raise DatasetError(
            f"the reconstruction of {folder} is doubtful ({'; '.join(problems)}): take more "
            "photos that overlap, set 'camera' to what they were taken with, or raise the limits "
            f"if {done} is good enough for you"
        )
    return read_colmap(folder, ".", str(place.resolve()), shared_points_above)


def _problems(
    quality: Quality,
    min_registered: float,
    max_reprojection_px: float,
    max_epipolar_px: float,
    min_agreeing: float,
) -> list[str]:
    """The limits that a reconstruction violates, as clauses of a sentence."""
    problems = []
    if quality.registered < min_registered * quality.photos:
        problems.append(f"only {quality.registered} of {quality.photos} photos are registered")
    if quality.reprojection_px > max_reprojection_px:
        problems.append(f"the mean reprojection error is {quality.reprojection_px:.2f} px")
    if quality.epipolar_px > max_epipolar_px:
        problems.append(
            f"the median epipolar distance of fresh matches is {quality.epipolar_px:.2f} px"
        )
    if quality.agreeing < min_agreeing:
        problems.append(f"only {quality.agreeing:.0%} of the fresh matches agree with it")
    return problems


def _photos(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder: name one that holds photos")
    names = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    if len(names) < 3:
        raise DatasetError(
            f"{folder} holds {len(names)} photos: structure from motion needs at least 3, "
            "better 20, that overlap"
        )
    return names


def _warn_of_other_sizes(folder: Path, photos: list[str]) -> None:
    """Photos of another size cannot share the camera, and structure from motion drops them."""
    sizes = Counter(declared_size((folder / name).read_bytes()) for name in photos)
    (usual, count), *others = sizes.most_common()
    if usual and others:
        log.warning(
            "%s: %d of %d photos are not of the usual size %dx%d and will be left out; for photos "
            "of several cameras or orientations set the option 'camera' to 'own'",
            folder,
            len(photos) - count,
            len(photos),
            *usual,
        )


def _work_folder(place: Path) -> Path:
    """Folder beside the place of a reconstruction, for the one that is not finished."""
    work = place.with_name(f"{place.name}.work")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(
            f"the reconstruction cannot be written to {work} ({error}): name a folder for it "
            "with the option 'models'"
        ) from error
    return work


def _reconstruct(folder: Path, photos: list[str], work: Path, camera: str, keypoints: int):
    """Folder and content of the largest model of the photos; `work` also keeps the database."""
    try:
        import pycolmap
    except ImportError as error:
        raise ConfigError(
            "structure from motion needs pycolmap: install the 'training' extra"
        ) from error

    database = work / "database.db"
    extraction = pycolmap.FeatureExtractionOptions()
    extraction.sift.max_num_features = keypoints
    mapping = pycolmap.IncrementalPipelineOptions()
    mapping.random_seed = 0
    mapping.min_model_size = 3
    log.info("%s: structure from motion of %d photos", folder.name, len(photos))
    pycolmap.logging.minloglevel = pycolmap.logging.Level.ERROR.value
    pycolmap.extract_features(
        database,
        folder,
        image_names=photos,
        camera_mode=pycolmap.CameraMode.__members__[CAMERAS[camera]],
        extraction_options=extraction,
    )
    pycolmap.match_exhaustive(database)
    attempts = work / "models"
    shutil.rmtree(attempts, ignore_errors=True)
    attempts.mkdir()
    found = pycolmap.incremental_mapping(database, folder, attempts, mapping)
    if not found:
        raise DatasetError(
            f"structure from motion cannot initialize from any two photos of {folder}: "
            "they must overlap and be taken from different places"
        )
    number, model = max(found.items(), key=lambda item: item[1].num_reg_images())
    return attempts / str(number), model


def _check(scene: PosedScene, photos: int, reprojection_px: float) -> Quality:
    """Compare fresh matches of some pairs, with our own keypoints, with the poses of the scene."""
    chosen = np.linspace(0, len(scene.pairs) - 1, min(CHECKED_PAIRS, len(scene.pairs)))
    extract = make_extractor("sift", 2000)
    medians, agreeing = [], []
    for i, j in scene.pairs[chosen.round().astype(int)]:
        image0, image1 = scene.images[i], scene.images[j]
        pair = label_pair(
            extract(image0.load()),
            extract(image1.load()),
            image0.camera,
            image1.camera,
            *relative_pose(image0, image1),
        )
        if pair is None:
            continue
        distinctive = (pair.ratio < DISTINCTIVE_RATIO) & (pair.mutual > 0)
        focal = (pair.K0[0, 0] + pair.K1[0, 0]) / 2
        distance = focal * np.sqrt(pair.ys[distinctive] / 2)
        near = distance < FAR_PX
        if near.any():
            medians.append(np.median(distance[near]))
            agreeing.append(near.mean())
    return Quality(
        photos=photos,
        registered=len(scene.images),
        reprojection_px=float(reprojection_px),
        epipolar_px=float(np.median(medians)) if medians else float("inf"),
        agreeing=float(np.mean(agreeing)) if agreeing else 0.0,
    )
