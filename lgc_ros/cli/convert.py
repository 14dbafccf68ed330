"""`lgc convert`: any source as a rosbag2."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from lgc_ros.cli.errors import INTERRUPTED
from lgc_ros.cli.options import (
    CameraOption,
    EveryOption,
    FpsOption,
    GroundTruthOption,
    ImageTopicOption,
    InfoTopicOption,
    KindOption,
    LimitOption,
    NewBagArgument,
)
from lgc_ros.cli.output import FrameRate, counted, echo_written, progress_bar

if TYPE_CHECKING:
    from lgc_ros.images.frame import Frame

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("convert")(convert)


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Anything that `lgc run` reads.")
    ],
    out: NewBagArgument,
    camera: CameraOption = None,
    kind: KindOption = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compress images: jpeg (small) or png (lossless)."),
    ] = None,
    every: EveryOption = 1,
    limit: LimitOption = None,
    fps: FpsOption = None,
    gt: GroundTruthOption = None,
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    depth_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Bags: depth topic to write, too. Default: none."),
    ] = None,
) -> None:
    """Write a dataset, video, folder or stream as a rosbag2, for `ros2 bag play`.

    Topics: /camera/image_raw, /camera/camera_info and, where known,
    /camera/depth/image_raw (meters) and /ground_truth (poses of the camera).

    Example:

    lgc convert rgbd_dataset_freiburg1_xyz fr1_xyz.mcap --camera tum-fr1
    """
    from lgc_ros.sources import open_source
    from lgc_ros.sources.bag_writer import write_bag

    opened = open_source(
        source,
        camera,
        kind=kind,
        every=every,
        limit=limit,
        rate_hz=fps,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        depth_topic=depth_topic,
    )
    interrupted = Event()
    with progress_bar(opened.name, FrameRate()) as update:
        update(total=opened.known_length)
        frames = _until_interrupted(counted(opened, update), interrupted)
        write_bag(frames, out, compression, depth=True)
    echo_written(out)
    if interrupted.is_set():
        raise typer.Exit(INTERRUPTED)


def _until_interrupted(frames: Iterable[Frame], interrupted: Event) -> Iterator[Frame]:
    """Frames until Ctrl-C, so that the bag is finished."""
    try:
        yield from frames
    except KeyboardInterrupt:
        interrupted.set()
        log.warning("interrupted: the bag ends here")
