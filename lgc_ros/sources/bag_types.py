"""Message types that are read from bags, and topic names with a meaning."""

RAW_IMAGE_TYPE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE_TYPE = "sensor_msgs/msg/CompressedImage"
IMAGE_TYPES = (RAW_IMAGE_TYPE, COMPRESSED_IMAGE_TYPE)
INFO_TYPES = ("sensor_msgs/msg/CameraInfo",)
ODOM_TYPES = ("nav_msgs/msg/Odometry",)
POSE_TYPES = (
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "geometry_msgs/msg/TransformStamped",
    *ODOM_TYPES,
)
TF_TYPES = ("tf2_msgs/msg/TFMessage",)
READ_TYPES = {*IMAGE_TYPES, *INFO_TYPES, *POSE_TYPES, *TF_TYPES}

GROUND_TRUTH_TOPIC = "/ground_truth"
# In place of a topic name: find the only topic of the required type.
FIND = "auto"
