"""A rendered world with exact poses and depth, for tests, training and the demo.

`World(seed).render(camera, T_wc)` gives an image and its depth. `room` and `street` lay out the
scene, `materials` paints it, `lighting` bakes the light and `renderer` draws. `motion` has the
camera trajectories. Everything follows from the seed; there are no image files.
"""

from lgc_ros.synthetic.world import World, build_scene

__all__ = ["World", "build_scene"]
