"""The node's publishers: motion for every frame, views for RViz only while subscribed to."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from nav_msgs.msg import Odometry, Path
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from visualization_msgs.msg import MarkerArray

from lgc_ros.odometry.map import Keyframe
from lgc_ros.ros import compat, messages
from lgc_ros.ros.markers import inlier_markers, matches_picture
from lgc_ros.ros.message_odometry import TrackedFrame
from lgc_ros.ros.node_parameters import NodeParameters
from lgc_ros.ros.qos import OVERRIDABLE, checked_overrides, output_qos


class Outputs:
    """Lifecycle publishers, which send nothing while the node is inactive."""

    def __init__(self, node: LifecycleNode) -> None:
        with ExitStack() as opened:  # no publisher stays if a later one cannot be created

            def publisher(kind: type, topic: str):
                with checked_overrides(node.resolve_topic_name(topic)):
                    made = node.create_lifecycle_publisher(
                        kind, topic, output_qos(), qos_overriding_options=OVERRIDABLE
                    )
                opened.callback(node.destroy_lifecycle_publisher, made)
                return made

            self._odometry = publisher(Odometry, "~/odometry")
            self._pose = publisher(PoseWithCovarianceStamped, "~/pose")
            self._relative = publisher(PoseStamped, "~/relative_pose")
            self._path = publisher(Path, "~/path")
            self._inliers = publisher(MarkerArray, "~/inliers")
            self._picture = publisher(Image, "~/matches_image")
            self._publishers = opened.pop_all()
        self._node = node
        self._bridge = compat.CvBridge()
        self._broadcaster = compat.tf2_ros and compat.tf2_ros.TransformBroadcaster(node)
        if self._broadcaster is None:
            node.get_logger().info(f"{compat.ABSENT['tf2_ros']}: the transform is not published")
        self._poses: deque[PoseStamped] = deque()

    def destroy(self) -> None:
        self._publishers.close()
        if self._broadcaster is not None:
            self._node.destroy_publisher(self._broadcaster.pub_tf)

    def clear_path(self) -> None:
        """Start a new path."""
        self._poses.clear()

    def publish_motion(
        self, image_header: Header, tracked: TrackedFrame, T_bc: np.ndarray, p: NodeParameters
    ) -> None:
        """Publish the motion of the base, with the camera mounted at T_bc; TF comes first."""
        camera = tracked.frame.camera
        assert camera is not None  # of the image's camera_info
        spread = messages.twist_covariance(
            tracked.state, tracked.last, camera.focal, p.odometry.sigma_px
        )
        motion = messages.base_motion(tracked.state, T_bc, spread)
        header = Header(stamp=image_header.stamp, frame_id=p.odom_frame)
        if p.publish_tf and self._broadcaster is not None:
            self._broadcaster.sendTransform(
                messages.transform_message(header, p.base_frame, motion, p.invert_tf)
            )
        self._odometry.publish(messages.odometry_message(header, p.base_frame, motion))
        self._pose.publish(messages.pose_with_covariance(header, motion))
        relative = tracked.state.relative
        if relative is not None and relative.pose is not None:
            self._relative.publish(messages.relative_pose(image_header, relative.pose))
        self._poses.append(PoseStamped(header=header, pose=messages.pose_message(motion.T_ob)))
        while len(self._poses) > p.path_length:
            self._poses.popleft()

    def publish_views(
        self,
        header: Header,
        tracked: TrackedFrame,
        keyframes: list[Keyframe],
        on_failure: Callable[[str, str], None],
    ) -> None:
        """Publish path, markers and image of the matches.

        Call it after `publish_motion`: RViz hides messages that are newer than TF.

        Args:
            header: of the image.
            tracked: the frame and its odometry state.
            keyframes: keyframes of the map.
            on_failure: called with an error message and a traceback if a view cannot be drawn.
        """
        views = {
            self._path: self._draw_path,
            self._inliers: lambda: inlier_markers(header, tracked.state, keyframes),
            self._picture: lambda: self._draw_matches(header, tracked),
        }
        for publisher, draw in views.items():
            if not publisher.get_subscription_count():
                continue
            try:
                view = draw()
                if view is not None:
                    publisher.publish(view)
            except Exception as error:
                message = (
                    f"{publisher.topic_name} cannot be drawn: {type(error).__name__}: {error}"
                )
                on_failure(message, traceback.format_exc())

    def _draw_path(self) -> Path | None:
        return (
            Path(header=self._poses[-1].header, poses=list(self._poses)) if self._poses else None
        )

    def _draw_matches(self, header: Header, tracked: TrackedFrame) -> Image:
        picture = matches_picture(tracked.frame.image, tracked.state)
        return self._bridge.cv2_to_imgmsg(picture, "bgr8", header)
