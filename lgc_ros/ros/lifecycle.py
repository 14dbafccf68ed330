"""Transitions of a managed node that neither fail in silence nor end the process."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from lgc_ros.errors import LgcError

Transition = Callable[[LifecycleNode, LifecycleState], TransitionCallbackReturn]


def told(transition: Transition) -> Transition:
    """A transition whose failure is logged; rclpy would keep it to itself.

    What the user can solve leaves the node in the state it was in, so that it can be tried again,
    and becomes `node.idle`, the reason for doing nothing.
    """

    @functools.wraps(transition)
    def telling(node: LifecycleNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except LgcError as error:
            node.idle = f"the node could not {transition.__name__.removeprefix('on_')}: {error}"
            node.get_logger().error(node.idle)
            return TransitionCallbackReturn.FAILURE
        except Exception:
            node.get_logger().error(f"{transition.__name__} failed: {traceback.format_exc()}")
            raise

    return telling


def refuse_impossible_transitions(node: LifecycleNode) -> None:
    """Answer a transition that the state does not allow; rclpy lets it end the process."""
    service = node._service_change_state
    change = service.callback

    def change_or_refuse(
        request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        try:
            return change(request, response)
        except RuntimeError as error:
            node.get_logger().error(f"the transition is not possible now: {error}")
            response.success = False
            return response

    service.callback = change_or_refuse
