"""What `import lgc_ros` offers, and what it costs."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import lgc_ros

HEAVY = {"cv2", "numba", "numpy", "rclpy", "torch"}

# As a user would write it; the wrong assignments must be errors, so nothing here is `Any`.
TYPED_USE = """
import numpy as np
from lgc_ros import Camera, TwoViewPipeline, VisualOdometry, open_source, read_image

camera = Camera.from_K(np.diag([500.0, 500.0, 1.0]), 640, 480)
result = TwoViewPipeline()(read_image("0.png"), read_image("1.png"), camera, camera)
odometry = VisualOdometry()
messages: list[str] = [odometry.process(frame).message for frame in open_source("folder")]
print(result.parallax_deg + 1.0, messages)
wrong_camera: int = camera.width / 2
wrong_image: str = read_image("0.png")
wrong_result: str = result.parallax_deg
wrong_source: int = open_source("folder")
wrong_state: int = odometry.process(next(iter(open_source("folder")))).status
"""


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_no_heavy_dependency():
    assert modules_after("import lgc_ros") & HEAVY == set()


def test_using_a_camera_loads_neither_torch_nor_ros():
    assert modules_after("from lgc_ros import Camera") & {"rclpy", "torch"} == set()


@pytest.mark.parametrize("name", lgc_ros.__all__)
def test_every_public_name_resolves_to_the_object_of_its_module(name):
    public = getattr(lgc_ros, name)
    assert getattr(import_module(public.__module__), name) is public
    assert name in dir(lgc_ros)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Kamera'"):
        _ = lgc_ros.Kamera


@pytest.mark.slow
def test_a_type_checker_sees_the_types_of_the_public_names(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(TYPED_USE)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports"]
    options = ["--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [*command, *options, program],
        env={**os.environ, "MYPYPATH": str(Path(lgc_ros.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    wrong = [n for n, line in enumerate(TYPED_USE.splitlines(), 1) if line.startswith("wrong")]
    reported = [int(line.split(":")[1]) for line in done.stdout.splitlines() if "error:" in line]
    assert reported == wrong, done.stdout + done.stderr
