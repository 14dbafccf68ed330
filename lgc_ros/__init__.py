"""Visual odometry with learned correspondence filtering, for ROS 2 and for plain Python."""

from os import environ

__version__ = "0.1.0"

# Idle threads of numpy's BLAS would spin for a tenth of a second, on a core that the filter needs
# (10 ms become 120 on two cores). They are told here because they ask once, when numpy is loaded.
environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
# A compressed image of a few bytes may claim gigabytes. OpenCV asks once, too; its own limit is
# eight times as high. 134 megapixels are more than cameras of robots have.
environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(2**27))
