"""A street between house fronts with vans, kiosks and trees; each seed gives another one."""

from __future__ import annotations

import numpy as np

from lgc_ros.synthetic import materials as paint
from lgc_ros.synthetic.materials import Brush, one_of
from lgc_ros.synthetic.renderer import ALIGN
from lgc_ros.synthetic.scene import Lamp, Place, Scene, sides

HALF_LENGTH_M = 17.0
HALF_WIDTH_M = 6.5
RELATIVE_DETAIL = 0.35  # texture resolution relative to a room
LIGHT_POINTS_PER_M = 2.5


def build_street(rng: np.random.Generator, brush: Brush) -> Scene:
    """Houses on all sides, cluttered pavements, a free roadway."""
    size = np.array([2 * HALF_LENGTH_M + 24, 2 * HALF_WIDTH_M + 24, 26.0])
    aisle = np.array([HALF_LENGTH_M - 5.0, 1.3])
    ambient = np.array([0.62, 0.55, 0.48])
    scene = Scene(rng, size, aisle, ambient, pitch=0.06, light_points_per_m=LIGHT_POINTS_PER_M)
    brush = brush.finer(RELATIVE_DETAIL)
    _sky(scene, brush)
    _ground(scene, brush)
    rows = sides(scene, 2 * HALF_LENGTH_M, 2 * HALF_WIDTH_M)
    for row, length in rows:
        _houses(row, brush, length)
    for row, length in rows[::2]:
        _pavement(row, brush, length)
    _sun(scene)
    return scene


def _sky(scene: Scene, brush: Brush) -> None:
    coarse = brush.finer(0.13)
    horizon, zenith = (np.array(c, np.float32) for c in ((0.97, 0.94, 0.9), (0.88, 0.7, 0.5)))
    height = scene.size[2]
    for side, length in sides(scene, *scene.size[:2]):
        rows, columns = coarse.shape(length, height)
        up = np.linspace(1, 0, rows, dtype=np.float32)[:, None, None]
        clouds = 0.5 + 0.5 * np.tanh(coarse.noise((rows, columns), (3, 6)))[..., None]
        blue = horizon + (zenith - horizon) * up
        albedo = blue + (0.98 - blue) * clouds * np.sqrt(4 * up * (1 - up)) * 0.8
        side.panel(0, 0, height, albedo, (length, height), emissive=True)
    lid = (*-scene.size[:2] / 2, height), (*scene.size[:2] / 2, height + 1)
    top = np.broadcast_to(zenith, (ALIGN, ALIGN, 3))
    Place(scene, np.zeros(3)).box(*lid, lambda w, h: top, faces="u", solid=False, emissive=True)


def _ground(scene: Scene, brush: Brush) -> None:
    """A cobbled or marked asphalt roadway up to the houses."""
    half = np.array([HALF_LENGTH_M, HALF_WIDTH_M])
    asphalt = scene.rng.random() < 0.5
    road = (paint.concrete if asphalt else paint.cobbles)(brush)(*(2 * half))
    if asphalt:
        rows, columns = road.shape[:2]
        dash, line = int(1.5 * brush.density), max(int(0.12 * brush.density), 2)
        for x in range(0, columns, 2 * dash):
            road[rows // 2 - line // 2 : rows // 2 + line // 2, x : x + dash] = 0.85
    Place(scene, np.zeros(3)).carpet(-half[0], half[1], 0, road, 2 * half)


def _houses(row: Place, brush: Brush, length: float) -> None:
    """House fronts side by side, each with ledges and a door."""
    rng, x = row.scene.rng, 0.0
    while x < length - 0.1:
        width = rng.uniform(5.0, 9.0)
        width = length - x if length - x - width < 4 else width
        stories, step = int(rng.integers(2, 4)), rng.uniform(2.9, 3.4)
        tall, y = stories * step, rng.uniform(-0.4, 0.0)
        front = paint.facade(brush)
        stone, roof = paint.concrete(brush), paint.bricks(brush)
        row.box((x, y, 0), (x + width, 4.0, tall), stone, front=front, faces="flr")
        row.box((x, y + 0.3, tall), (x + width, 4.0, tall + 1.2), roof, faces="flr", solid=False)
        for story in range(1, stories + 1):
            z = story * step
            row.box((x, y - 0.15, z - 0.12), (x + width, y, z + 0.06), stone, faces="flrtu")
        at = x + rng.uniform(0.3, width - 1.5)
        leaf = paint.door(brush.finer(1.5))
        row.box((at, y - 0.06, 0.12), (at + 1.1, y, 2.4), stone, front=leaf, faces="flrt")
        if rng.random() < 0.5:
            cloth = paint.fabric(brush.finer(1.2))
            wide = rng.uniform(1.5, 3.0)
            low = rng.uniform(2.5, 2.7)
            at = x + rng.uniform(0, max(width - wide, 0.1))
            row.box((at, y - 0.7, low), (at + wide, y, low + 0.35), cloth, faces="flrtu")
        x += width


def _pavement(row: Place, brush: Brush, length: float) -> None:
    """A raised pavement with vans, kiosks, trees and crates, clear of the roadway."""
    rng = row.scene.rng
    row.box((0, -2.4, 0), (length, 0, 0.12), paint.cobbles(brush), faces="ft")
    fine, x = brush.finer(1.6), rng.uniform(1, 3)
    while x < length - 5.5:
        one_of(rng, _van, _kiosk, _tree, _tree, _boxes)(row.at(x, -2.2, 0.12), fine)
        x += rng.uniform(3.5, 7.0)


def _van(spot: Place, brush: Brush) -> None:
    body = paint.plaster(brush, brush.color(0.35, 0.9, 0.8))
    sign = paint.poster(brush)
    tire = paint.plaster(brush, np.full(3, 0.1, np.float32))
    glass = paint.plaster(brush, np.array((0.3, 0.25, 0.2), np.float32))
    spot.box((0, 0, 0.3), (3.2, 1.7, 2.0), body, front=sign)
    spot.box((3.2, 0, 0.3), (4.2, 1.7, 1.1), body)
    spot.box((3.2, 0.08, 1.1), (3.8, 1.62, 1.9), glass)
    for x in (0.4, 3.2):
        spot.box((x, -0.02, 0), (x + 0.6, 1.72, 0.6), tire, faces="flrb")


def _kiosk(spot: Place, brush: Brush) -> None:
    """An advertising column with posters on every side."""
    wide = spot.scene.rng.uniform(0.9, 1.4)
    turned = spot.at(0.8, 0.9, 0, spot.scene.rng.uniform(-0.3, 0.3))
    half = wide / 2
    turned.box((-half, -half, 0), (half, half, 2.3), paint.poster(brush))
    turned.box((-half - 0.1, -half - 0.1, 2.3), (half + 0.1, half + 0.1, 2.5), paint.wood(brush))


def _tree(spot: Place, brush: Brush) -> None:
    bark, leaves = paint.wood(brush), paint.foliage(brush)
    spot.box((0.7, 0.7, 0), (0.92, 0.92, 2.3), bark, faces="flrb")
    for low, half in ((2.2, 0.95), (2.9, 1.05), (3.6, 0.7)):
        crown = spot.at(0.8, 0.8, 0, spot.scene.rng.uniform(0, 1.5))
        crown.box((-half, -half, low), (half, half, low + 0.75), leaves, faces="flrbtu")


def _boxes(spot: Place, brush: Brush) -> None:
    for x in (0.4, 1.3):
        texture = one_of(spot.scene.rng, paint.slats, paint.cardboard)(brush)
        half = spot.scene.rng.uniform(0.3, 0.45)
        place = spot.at(x, 0.9, 0, spot.scene.rng.normal(0, 0.15))
        place.box((-half, -half, 0), (half, half, spot.scene.rng.uniform(0.5, 1.2)), texture)


def _sun(scene: Scene) -> None:
    """A distant strong lamp, high enough to light the street."""
    rng = scene.rng
    azimuth, height = rng.uniform(0, 2 * np.pi), np.radians(rng.uniform(50, 70))
    toward = np.array(
        [np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), np.sin(height)]
    )
    u = np.cross(toward, [0, 0, 1.0])
    far, v = 120.0, np.cross(u, toward)
    power = np.array([0.8, 0.92, 1.0]) * far**2
    scene.lamps.append(Lamp(far * toward - u - v, 2 * u, 2 * v, -toward, power))
