"""What must hold of a node whatever it is sent."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from nav_msgs.msg import Odometry


def exceptions(log: str) -> Counter[str]:
    """How often each exception is in a log with its traceback, whatever numbers it names."""
    lines = re.findall(r"Traceback \(most.*\n(?:[ \t].*\n)*(.*)", log)
    return Counter(re.sub(r"\d+", "#", line) for line in lines)


def rss_mb(process: subprocess.Popen, peak: bool = False) -> float:
    """Resident memory of a process now, or at its highest."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:" if peak else "VmRSS:")[2].split()[0]) / 1024


def violations(answers: Sequence[Odometry]) -> str:
    """What is wrong with odometry, how often, and where first; empty if nothing is.

    Everything is finite, rotations are rotations, and covariances are positive definite.
    """
    found = []
    for message in answers:
        pose, twist = message.pose.pose, message.twist.twist
        p, q, v, w = pose.position, pose.orientation, twist.linear, twist.angular
        numbers = [p.x, p.y, p.z, v.x, v.y, v.z, w.x, w.y, w.z]
        if not np.isfinite(numbers).all():
            found.append(("position or velocity not finite", numbers))
        quaternion = [q.x, q.y, q.z, q.w]
        if not abs(np.linalg.norm(quaternion) - 1) < 1e-6:
            found.append(("quaternion not of length 1", quaternion))
        for name in ("pose", "twist"):
            covariance = np.reshape(getattr(message, name).covariance, (6, 6))
            if not covariance.any():
                found.append((f"covariance of {name} zero", covariance))
            elif not is_positive_definite(covariance):
                found.append((f"covariance of {name} not positive definite", covariance))
    first = dict(reversed(found))
    often = Counter(what for what, _ in found)
    return "\n".join(
        f"{often[what]} of {len(answers)} answers, {what}: {value}"
        for what, value in first.items()
    )


def is_positive_definite(covariance: np.ndarray) -> bool:
    """Tells so whatever the units are: the matrix is scaled to ones on its diagonal before."""
    deviations = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (deviations > 0).all()):
        return False
    correlation = covariance / np.outer(deviations, deviations)
    return np.allclose(correlation, correlation.T) and np.linalg.eigvalsh(correlation)[0] > 0
