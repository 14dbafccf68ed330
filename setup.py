from pathlib import Path

from setuptools import find_packages, setup

NAME = "lgc_ros"

OPENCV = ["opencv-contrib-python-headless>=4.6"]
HDF5 = ["h5py>=3.7"]
PLOT = ["matplotlib>=3.6"]

EXTRAS = {
    # A wheel of OpenCV would shadow apt's python3-opencv on a ROS machine: only on request.
    "opencv": OPENCV,
    # ROS 2 itself from wheels, for machines without a ROS install; these versions fit together.
    "jazzy": [
        *OPENCV,
        "ros-jazzy-rclpy[fastrtps]==7.1.6",
        "ros-jazzy-diagnostic-msgs==5.3.6",
        "ros-jazzy-geometry-msgs==5.3.6",
        "ros-jazzy-nav-msgs==5.3.6",
        "ros-jazzy-sensor-msgs==5.3.6",
        "ros-jazzy-std-msgs==5.3.6",
        "ros-jazzy-std-srvs==5.3.6",
        "ros-jazzy-visualization-msgs==5.3.6",
    ],
    "exif": ["pillow>=9.0"],
    "features": HDF5,
    "bags": ["rosbags>=0.11"],
    "onnx": ["onnx>=1.15", "onnxruntime>=1.17"],
    "openvino": ["onnx>=1.15", "openvino>=2024.0"],
    "eval": [*PLOT, "evo>=1.30"],
    "training": [
        *HDF5,
        *PLOT,
        "dask[distributed]>=2024.1",
        "pycolmap>=3.12",
        "tensorboard>=2.14",
    ],
    # Its API changes with every minor version.
    "view": ["rerun-sdk==0.41.*"],
    # colcon runs pytest only when it finds it in this extra.
    "test": [
        "catkin_pkg>=1.0",
        "hypothesis>=6.80",
        "packaging>=22",
        "pytest>=7.0",
        "pytest-xdist>=3.5",
        "scipy>=1.11",
    ],
    "lint": ["import-linter>=2.1", "mypy>=1.11", "ruff>=0.6", "types-PyYAML>=6.0"],
}
EXTRAS["dev"] = sorted({requirement for extra in EXTRAS.values() for requirement in extra})


def files(pattern: str) -> list[str]:
    """Files of the checkout, relative to it as setuptools wants them."""
    return sorted(str(path) for path in Path().glob(pattern) if path.is_file())


setup(
    name=NAME,
    version="0.1.0",
    description="Visual odometry with learned correspondence filtering for ROS 2 and plain Python",
    license="Apache-2.0",
    maintainer="lgc_ros maintainers",
    maintainer_email="maintainers@lgc-ros.example",
    python_requires=">=3.10",
    # `training` stays in the checkout: it is run there, and its name is too common to install.
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        NAME: [
            "models/*.md",
            "models/*.safetensors",
            "py.typed",
            "visualization/report*.html",
        ]
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", files("launch/*")),
        (f"share/{NAME}/config", files("config/*")),
    ],
    # Lower bounds admit what apt brings on Ubuntu 24.04, so that pip replaces none of it.
    install_requires=[
        "numba>=0.59",
        "numpy>=1.26",
        "poselib>=2.0.4",
        "PyYAML>=6.0",
        "rich>=13.0",
        "safetensors>=0.4",
        "threadpoolctl>=3.8",
        "torch>=2.1",
        "transforms3d>=0.4.1",
        "typer>=0.12",
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "lgc = lgc_ros.cli.main:main",
            "odometry_node = lgc_ros.cli.ros:odometry_node",
        ]
    },
    zip_safe=False,
)
