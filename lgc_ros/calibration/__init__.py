"""Camera calibration from views of a chessboard, through OpenCV.

`chessboard` finds the corners and chooses views that differ; `intrinsics.calibrate` estimates the
camera and its reprojection errors.
"""
