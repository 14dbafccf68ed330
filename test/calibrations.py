"""The same camera as the files of several programs describe it."""

EUROC = """
# General sensor definitions.
sensor_type: camera
comment: VI-Sensor cam0 (MT9M034)
T_BS:
  cols: 4
  rows: 4
  data: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
rate_hz: 20
resolution: [752, 480]
camera_model: pinhole
intrinsics: [458.654, 457.296, 367.215, 248.375] #fu, fv, cu, cv
distortion_model: radial-tangential
distortion_coefficients: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
"""
KALIBR = """
cam0:
  cam_overlaps: [1]
  camera_model: pinhole
  distortion_coeffs: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
  distortion_model: radtan
  intrinsics: [458.654, 457.296, 367.215, 248.375]
  resolution: [752, 480]
  rostopic: /cam0/image_raw
cam1:
  T_cn_cnm1:
  - [1.0, 0.0, 0.0, -0.11]
  - [0.0, 1.0, 0.0, 0.0]
  - [0.0, 0.0, 1.0, 0.0]
  - [0.0, 0.0, 0.0, 1.0]
  camera_model: pinhole
  distortion_coeffs: [0.0034823894, 0.0007150348, -0.0020532361, 0.0002029367]
  distortion_model: equidistant
  intrinsics: [190.0, 191.0, 254.0, 256.0]
  resolution: [512, 512]
"""
ORB_SLAM3 = """%YAML:1.0

#--------------------------------------------------------------------------------------------
# Camera Parameters. Adjust them!
#--------------------------------------------------------------------------------------------
File.version: "1.0"

Camera.type: "PinHole"
Camera1.fx: 458.654
Camera1.fy: 457.296
Camera1.cx: 367.215
Camera1.cy: 248.375
Camera1.k1: -0.28340811
Camera1.k2: 0.07395907
Camera1.p1: 0.00019359
Camera1.p2: 1.76187114e-05
Camera.width: 752
Camera.height: 480
Camera.fps: 20
IMU.T_b_c1: !!opencv-matrix
   rows: 4
   cols: 4
   dt: f
   data: [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1.]
ORBextractor.nFeatures: 1000
"""
ORB_SLAM2 = "\n".join(
    line
    for line in ORB_SLAM3.replace("Camera1.", "Camera.").splitlines()
    if not line.startswith(("File.version", "Camera.type", "Camera.width", "Camera.height"))
)
OPENCV = """%YAML:1.0
---
calibration_time: "Tue 17 Nov 2026"
image_width: 752
image_height: 480
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 458.654, 0., 367.215, 0., 457.296, 248.375, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 4
   cols: 1
   dt: d
   data: [ -0.28340811, 0.07395907, 1.9359e-04, 1.76187114e-05 ]
avg_reprojection_error: 2.1e-01
"""
FILES = {"EuRoC": EUROC, "Kalibr": KALIBR, "ORB-SLAM3": ORB_SLAM3, "OpenCV": OPENCV}
