"""Subset of ROS's cv_bridge, used where it is not installed.

Only what the node publishes is converted here; `images.encoding` decodes what it receives, with
and without cv_bridge.
"""

from __future__ import annotations

import numpy as np
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from lgc_ros.images.encoding import DEPTH_ENCODINGS, IMAGE_ENCODINGS

_ENCODINGS = IMAGE_ENCODINGS | DEPTH_ENCODINGS


class CvBridge:
    """Makes image messages."""

    def cv2_to_imgmsg(
        self, cvim: np.ndarray, encoding: str, header: Header | None = None
    ) -> Image:
        """An Image with these pixels, (H, W) or (H, W, channels).

        Raises:
            TypeError: the type or number of channels does not fit the encoding.
        """
        layout = _ENCODINGS[encoding]
        channels = 1 if cvim.ndim == 2 else cvim.shape[2]
        if (cvim.dtype.str[1:], channels) != (layout.dtype, layout.channels):
            raise TypeError(
                f"{channels} channels of {cvim.dtype} do not fit the encoding '{encoding}'"
            )
        height, width = cvim.shape[:2]
        message = Image(
            header=header or Header(),
            height=height,
            width=width,
            encoding=encoding,
            is_bigendian=int(cvim.dtype.str.startswith(">")),
            step=width * channels * cvim.itemsize,
        )
        # Assigning to `data` checks byte by byte and is a thousand times slower.
        message.data.frombytes(np.ascontiguousarray(cvim).view(np.uint8))
        return message
