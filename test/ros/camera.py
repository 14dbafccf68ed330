"""A camera in its own process, which can be killed: shows a few frames over and over.

Called with a folder that holds frames.npz (images, K) and the stamp of the first frame; the later
ones follow in steps of a second, ten of them in a second of real time.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import rclpy
from ros.processes import image_message, info_message
from sensor_msgs.msg import CameraInfo, Image

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame


def main() -> None:
    folder, start_ns = Path(sys.argv[1]), int(sys.argv[2])
    data = np.load(folder / "frames.npz")
    height, width = data["images"].shape[1:3]
    camera = Camera.from_K(data["K"], width, height)
    views = itertools.cycle(data["images"])
    counter = itertools.count()
    rclpy.init()
    node = rclpy.create_node("camera")
    images = node.create_publisher(Image, "image", 10)
    infos = node.create_publisher(CameraInfo, "camera_info", 10)

    def show() -> None:
        index = next(counter)
        frame = Frame(index, start_ns + index * 10**9, next(views), camera)
        infos.publish(info_message(frame))
        images.publish(image_message(frame))

    node.create_timer(0.1, show)
    rclpy.spin(node)


if __name__ == "__main__":
    main()
