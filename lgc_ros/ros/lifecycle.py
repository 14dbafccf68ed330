"""Lifecycle transitions that log their failures and never end the process."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from lgc_ros.errors import LgcError

Transition = Callable[[Any, LifecycleState], TransitionCallbackReturn]


def log_failure(transition: Transition) -> Transition:
    """Decorator that logs why a transition failed; rclpy does not.

    An error that the user can fix leaves the node in its previous state, so that the transition
    can be repeated, and is stored in `node.idle`, the reason why the node is idle.
    """

    @functools.wraps(transition)
    def logged(node: Any, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except LgcError as error:
            node.idle = f"the node could not {transition.__name__.removeprefix('on_')}: {error}"
            node.get_logger().error(node.idle)
            return TransitionCallbackReturn.FAILURE
        except Exception:
            node.get_logger().error(f"{transition.__name__} failed: {traceback.format_exc()}")
            raise

    return logged


def refuse_impossible_transitions(node: LifecycleNode) -> None:
    """Reject transitions that the current state does not allow; rclpy ends the process instead."""
    service = node._service_change_state
    change = service.callback

    def change_or_refuse(
        request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        try:
            return change(request, response)
        except RuntimeError as error:
            node.get_logger().error(f"transition rejected in the current state: {error}")
            response.success = False
            return response

    service.callback = change_or_refuse
