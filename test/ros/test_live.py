"""ROS domains that runs reserve for themselves."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from lgc_ros.ros import live


def test_a_process_reserves_distinct_domains_but_only_a_few(monkeypatch):
    monkeypatch.setattr(live, "_reservations", {})
    monkeypatch.setattr(live, "RESERVATION_PORT", 21_000)  # other processes use the usual ones
    domains = [live.free_domain() for _ in range(3 * live.MAX_RESERVED)]
    latest = domains[-live.MAX_RESERVED :]
    assert len(set(latest)) == live.MAX_RESERVED
    assert list(live._reservations) == latest
    for held in live._reservations.values():
        held.close()
