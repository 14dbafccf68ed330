"""Procedural textures of rooms and streets, drawn without image files.

Each function takes a `Brush` and returns a painter, which maps a size in meters to BGR float32
albedo in [0, 1]. Bricks, tiles, wallpaper and windows repeat on purpose: repeated structure gives
outliers that agree with one another, as real buildings do. The order in which a painter draws
random numbers is part of the world: changing it changes every rendered sequence.
"""

from lgc_ros.synthetic.materials.brush import Brush, one_of
from lgc_ros.synthetic.materials.fixtures import bars, door, drawers, facade, slats, window
from lgc_ros.synthetic.materials.printed import book_spines, cardboard, poster, screen
from lgc_ros.synthetic.materials.surfaces import (
    bricks,
    ceiling_panels,
    cobbles,
    concrete,
    fabric,
    foliage,
    planks,
    plaster,
    rug,
    tiles,
    wallpaper,
    wood,
)

__all__ = [
    "Brush",
    "bars",
    "book_spines",
    "bricks",
    "cardboard",
    "ceiling_panels",
    "cobbles",
    "concrete",
    "door",
    "drawers",
    "fabric",
    "facade",
    "foliage",
    "one_of",
    "planks",
    "plaster",
    "poster",
    "rug",
    "screen",
    "slats",
    "tiles",
    "wallpaper",
    "window",
    "wood",
]
