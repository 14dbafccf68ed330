"""A furnished room with shelves, desks, crates and pictures; each seed gives another one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lgc_ros.synthetic import materials as paint
from lgc_ros.synthetic.materials import Brush, one_of
from lgc_ros.synthetic.renderer import ALIGN
from lgc_ros.synthetic.scene import Lamp, Place, Scene, sides

DEPTH_M = 0.62  # maximum depth of furniture along the walls
MARGIN_M = 0.55  # between furniture and the center line of the aisle


def build_room(rng: np.random.Generator, brush: Brush) -> Scene:
    """Furniture along the walls, an island in the middle, an aisle between them."""
    size = rng.uniform((6.0, 5.2, 2.6), (9.0, 7.2, 3.2))
    aisle = size[:2] / 2 - DEPTH_M - MARGIN_M
    scene = Scene(rng, size, aisle, ambient=np.array([0.42, 0.4, 0.38]))
    _shell(scene, brush)
    for wall, length in sides(scene, *size[:2]):
        _furnish_wall(wall, brush, length, size[2])
    _island(scene, brush)
    _corners(scene, brush)
    _lamps(scene, brush)
    return scene


def _shell(scene: Scene, brush: Brush) -> None:
    """Floor, ceiling, four walls, skirting, a rug."""
    rng, (width, depth, height) = scene.rng, scene.size
    floor = one_of(rng, paint.planks, paint.tiles, paint.planks)(brush.finer(0.85))
    ceiling = one_of(rng, paint.ceiling_panels, paint.planks, paint.plaster)(brush.finer(0.65))
    busy = paint.wallpaper, paint.bricks
    walls = one_of(rng, *busy)(brush), one_of(rng, *busy, paint.plaster)(brush)
    foot, foot_height = (
        (paint.tiles(brush), 1.1) if rng.random() < 0.3 else (paint.wood(brush), 0.1)
    )
    whole = Place(scene, np.zeros(3))
    whole.carpet(-width / 2, depth / 2, 0, floor(width, depth), (width, depth))
    under = (-width / 2, -depth / 2, height), (width / 2, depth / 2, height + 0.1)
    whole.box(*under, ceiling, faces="u", solid=False)
    for (wall, length), texture in zip(sides(scene, width, depth), 2 * walls, strict=True):
        wall.panel(0, 0, height, texture(length, height), (length, height))
        wall.box((0, -0.02, 0), (length, 0, foot_height), foot, faces="ft", solid=False)
    rug = scene.aisle * rng.uniform(1.2, 1.7, 2)
    x, y = rng.uniform(-0.3, 0.3, 2)
    rug_at = whole.at(x, y, yaw=rng.normal(0, 0.1))
    rug_at.carpet(-rug[0] / 2, rug[1] / 2, 0.008, paint.rug(brush)(*rug), rug)


def _furnish_wall(wall: Place, brush: Brush, length: float, height: float) -> None:
    """Place furniture and pictures side by side along a wall."""
    rng = wall.scene.rng
    series = paint.poster(brush.finer(1.3))(0.5, 0.7)  # repeated, as a source of ambiguous matches
    x = DEPTH_M + 0.05  # the corner belongs to the previous wall
    for kind in rng.permutation(len(FURNITURE)):
        if x > length - 0.9:
            break
        width = min(rng.uniform(0.9, 1.8), length - x - 0.1)
        FURNITURE[kind](wall.at(x, 0), brush, width, height, series)
        x += width + rng.uniform(0.03, 0.2)


def bookshelf(spot: Place, brush: Brush, width, height, series) -> None:
    """An open shelf with books of uneven depth and boxes."""
    rng = spot.scene.rng
    tall, deep, thick = rng.uniform(1.6, min(2.3, height - 0.2)), 0.3, 0.03
    board = paint.wood(brush)
    levels = np.linspace(0.05, tall, int(tall / rng.uniform(0.3, 0.42)) + 1)
    spot.panel(0, -0.03, tall, 0.6 * board(width, tall), (width, tall))
    for x in (0, width - thick):
        spot.box((x, -deep, 0), (x + thick, 0, tall), board, faces="flrt")
    spines = paint.book_spines(brush.finer(1.25))
    pages = paint.plaster(brush, np.array((0.7, 0.78, 0.8), np.float32))
    for low, high in pairwise(levels):
        spot.box((thick, -deep, low - thick), (width - thick, 0, low), board, faces="ftu")
        x = thick
        while x < width - 0.1:
            reach = min(x + rng.uniform(0.15, 0.6), width - thick)
            if rng.random() < 0.85:
                top = low + (high - low - thick) * rng.uniform(0.65, 0.97)
                front = -deep + rng.uniform(0.01, 0.1)
                ends = (x, front, low), (reach, -0.04, top)
                boxes = rng.random() < 0.15
                side = paint.cardboard(brush) if boxes else pages
                label = side if boxes else spines
                spot.box(*ends, side, front=label, faces="flrt", solid=False)
            x = reach + (rng.uniform(0, 0.12) if rng.random() < 0.4 else 0.0)
    spot.box((0, -deep, tall - thick), (width, 0, tall), board, faces="flrtu")
    _clutter(spot, brush, (0.05, width - 0.05), (-deep + 0.02, -0.02), tall, 1)


def cabinet(spot: Place, brush: Brush, width, height, series) -> None:
    """Drawers with clutter on top and pictures above."""
    rng = spot.scene.rng
    tall, deep = rng.uniform(0.7, 1.1), rng.uniform(0.4, 0.5)
    top = paint.wood(brush)
    spot.box((0, -deep, 0), (width, 0, tall), top, front=paint.drawers(brush), faces="flrt")
    _clutter(spot, brush, (0.05, width - 0.05), (-deep + 0.05, -0.05), tall, 3)
    gallery(spot, brush, width, height, series, low=tall + 0.35)


def desk(spot: Place, brush: Brush, width, height, series) -> None:
    """A table with a monitor, papers and boxes."""
    rng = spot.scene.rng
    board, deep, tall = paint.wood(brush), DEPTH_M, rng.uniform(0.72, 0.78)
    _table(spot.at(0, -deep), board, width, deep, tall)
    wide = min(0.55, width - 0.2)
    x = rng.uniform(0.05, width - wide - 0.05)
    frame = paint.plaster(brush, np.full(3, 0.12, np.float32))
    image = paint.screen(brush.finer(1.3))
    low = tall + 0.1
    spot.box((x, -0.3, low), (x + wide, -0.26, low + 0.34), frame, front=image, faces="flrbt")
    stand = (x + wide / 2 - 0.05, -0.27, tall), (x + wide / 2 + 0.05, -0.24, low)
    spot.box(*stand, frame, faces="flr")
    _papers(spot, brush, (0.05, width - 0.3), (-deep + 0.03, -0.32), tall)
    gallery(spot, brush, width, height, series, low=tall + 0.6)


def _table(spot: Place, board, width, deep, tall) -> None:
    """A board on four legs; `spot` is its near left corner."""
    spot.box((0, 0, tall - 0.04), (width, deep, tall), board, faces="flrbtu")
    for x in (0.03, width - 0.09):
        for y in (0.03, deep - 0.09):
            spot.box((x, y, 0), (x + 0.06, y + 0.06, tall - 0.04), board, faces="flrb")


def _papers(spot: Place, brush: Brush, xs, ys, z) -> None:
    """A few scattered sheets of paper."""
    rng, size = spot.scene.rng, (0.21, 0.297)
    for k in range(rng.integers(1, 4)):
        sheet = spot.at(rng.uniform(*xs), rng.uniform(*ys), z, rng.normal(0, 0.3))
        sheet.carpet(0, 0.2, 0.004 + 0.002 * k, paint.screen(brush.finer(1.5))(*size), size)


def _clutter(spot: Place, brush: Brush, xs, ys, z, count) -> None:
    """Small boxes side by side."""
    rng, slots = spot.scene.rng, np.linspace(xs[0], xs[1], count + 1)
    for x0, x1 in pairwise(slots):
        room = min((x1 - x0) / 2, (ys[1] - ys[0]) / 2)
        if rng.random() < 0.25 or room < 0.05:
            continue
        half = rng.uniform(0.45, 0.7, 2) * room
        tall = rng.uniform(0.08, 0.32)
        texture = one_of(rng, paint.cardboard, paint.poster, paint.fabric, paint.slats)
        place = spot.at((x0 + x1) / 2, sum(ys) / 2, z, rng.normal(0, 0.25))
        place.box((*-half, 0), (*half, tall), texture(brush.finer(1.25)), faces="flrbt")


def crates(spot: Place, brush: Brush, width, height, series) -> None:
    """A stack of crates and cartons."""
    rng, z = spot.scene.rng, 0.0
    for _ in range(rng.integers(1, 4)):
        side = rng.uniform(0.36, 0.55)
        texture = one_of(rng, paint.cardboard, paint.slats)(brush)
        place = spot.at(width / 2 + rng.normal(0, 0.03), -0.3, z, rng.normal(0, 0.08))
        tall = side * rng.uniform(0.6, 1.0)
        half = np.array([side / 2 * rng.uniform(0.9, 1.3), min(side / 2, 0.27)])
        place.box((*-half, 0), (*half, tall), texture, faces="flrbt")
        z += tall
    if z < 1.0:
        gallery(spot, brush, width, height, series, low=z + 0.3)


def radiator(spot: Place, brush: Brush, width, height, series) -> None:
    """A radiator under a window."""
    wide = width * spot.scene.rng.uniform(0.85, 1.0)
    spot.box((0, -0.12, 0.12), (wide, -0.03, 0.7), paint.bars(brush), faces="flrt")
    tall = min(height - 0.25, 2.3) - 0.95
    pane = paint.window(brush)(wide, tall)
    spot.panel(0, -0.03, 0.95 + tall, pane, (wide, tall), emissive=True)
    spot.box((-0.03, -0.16, 0.9), (wide + 0.03, 0, 0.94), paint.wood(brush), faces="flrtu")


def doorway(spot: Place, brush: Brush, width, height, series) -> None:
    """A door with a notice and pictures beside it."""
    wide, tall = 0.92, 2.08
    door = paint.door(brush)
    spot.box((0, -0.05, 0), (wide, 0, tall), paint.wood(brush), front=door, faces="flrt")
    if width > wide + 0.4:
        notice = paint.screen(brush.finer(1.5))(0.3, 0.42)
        spot.panel(wide + 0.06, -0.03, 1.0, notice, (0.3, 0.42))
        gallery(spot.at(wide + 0.02, 0), brush, width - wide, height, series, low=1.05)


def gallery(spot: Place, brush: Brush, width, height, series, low=0.75) -> None:
    """Pictures on the wall: copies of one print, or different ones."""
    rng = spot.scene.rng
    repeated = rng.random() < 0.35
    rows = 2 if height - low > 1.75 and rng.random() < 0.6 else 1
    x = rng.uniform(0.02, 0.1)
    while x < width - 0.5:
        widest = 0.0
        for row in range(rows):
            size = (0.5, 0.7) if repeated else tuple(rng.uniform((0.4, 0.5), (0.8, 0.8)))
            size = min(size[0], width - x), min(size[1], height - low - 0.05)
            picture = series if repeated else paint.poster(brush)(*size)
            z = low + 0.05 + 0.85 * row + size[1]
            if z < height - 0.03:
                frame = (x, -0.025, z - size[1]), (x + size[0], 0, z)
                wood = paint.wood(brush)
                spot.box(*frame, wood, front=lambda w, h, p=picture: p, faces="flrtu", solid=False)
            widest = max(widest, size[0])
        x += widest + rng.uniform(0.06, 0.2)


def lockers(spot: Place, brush: Brush, width, height, series) -> None:
    """A row of identical tall lockers, each with the same sticker."""
    rng = spot.scene.rng
    count = max(int(width / 0.4), 1)
    steel = paint.plaster(brush, brush.color(0.35, 0.7, 0.6))
    sticker = paint.poster(brush.finer(1.5))(0.16, 0.16)
    front, tall = paint.drawers(brush)(0.38, 1.8), rng.uniform(1.7, 1.95)
    for k in range(count):
        x = 0.4 * k
        ends = (x, -0.45, 0), (x + 0.38, 0, tall)
        spot.box(*ends, steel, front=lambda w, h: front, faces="flrt")
        spot.panel(x + 0.11, -0.453, tall - 0.25, sticker, (0.16, 0.16))
    _clutter(spot, brush, (0.05, 0.4 * count - 0.05), (-0.42, -0.05), tall, count)


FURNITURE = (bookshelf, cabinet, desk, crates, radiator, doorway, gallery, lockers)


def _island(scene: Scene, brush: Brush) -> None:
    """A table or boxes inside the aisle."""
    rng = scene.rng
    half = np.minimum((scene.aisle - MARGIN_M) * 0.68, (1.0, 0.6))
    place = Place(scene, np.zeros(3))
    if rng.random() < 0.6:
        tall = rng.uniform(0.7, 0.78)
        width, deep = 2 * half
        _table(place.at(*-half), paint.wood(brush), width, deep, tall)
        (x0, y0), (x1, y1) = -half + 0.08, half - 0.08
        _clutter(place, brush, (x0, x1), (y0, y1), tall, 4)
        _papers(place, brush, (x0, x1 - 0.25), (y0, y1 - 0.2), tall)
        _clutter(place, brush, (x0 / 2, x1 / 2), (y0 / 2, y1 / 2), 0.0, 2)
    else:
        columns = np.linspace(-half[0], half[0], int(rng.integers(2, 4)) + 1)
        for x0, x1 in pairwise(columns):
            texture = one_of(rng, paint.cardboard, paint.slats, paint.fabric)(brush)
            reach, tall = half[1] * rng.uniform(0.5, 1), rng.uniform(0.4, 0.85)
            place.box((x0 + 0.02, -reach, 0), (x1 - 0.02, reach, tall), texture)
            _clutter(place, brush, (x0 + 0.05, x1 - 0.05), (-reach + 0.05, reach - 0.05), tall, 1)


def _corners(scene: Scene, brush: Brush) -> None:
    """Loose crates outside the aisle."""
    rng = scene.rng
    angle = np.linspace(0, 2 * np.pi, 200)
    path = scene.aisle * np.column_stack([np.cos(angle), np.sin(angle)])
    for _ in range(60):
        half = rng.uniform(0.18, 0.32, 2)
        radius = np.linalg.norm(half)
        x, y = rng.uniform(-1, 1, 2) * (scene.size[:2] / 2 - radius - 0.02)
        if np.linalg.norm(path - (x, y), axis=1).min() < radius + 0.42:
            continue
        column = np.array([[x, y, z] for z in np.arange(0.05, 2.0, 0.1)])
        if scene.clearance(column)[1:].min() < radius:
            continue
        texture = one_of(rng, paint.cardboard, paint.slats, paint.fabric)(brush)
        place = Place(scene, np.array([x, y, 0.0]), rng.uniform(0, np.pi))
        place.box((*-half, 0), (*half, rng.uniform(0.3, 0.9)), texture)


def _lamps(scene: Scene, brush: Brush) -> None:
    """Ceiling panels, and light from one side as if through windows."""
    rng, width, height = scene.rng, scene.size[0], scene.size[2]
    glow = np.full((ALIGN, ALIGN, 3), 0.98, np.float32)
    frame = paint.plaster(brush, np.full(3, 0.8, np.float32))
    warm, cool = np.array([0.86, 0.96, 1.0]), np.array([1.0, 0.93, 0.85])
    count = 2 if width < 7.5 else 3
    for x in (np.arange(count) + 0.5) / count * width - width / 2:
        origin = np.array([x - 0.6, -0.15, height - 0.04])
        u, v, down = np.array([1.2, 0, 0]), np.array([0, 0.3, 0]), np.array([0, 0, -1.0])
        scene.lamps.append(Lamp(origin, u, v, down, rng.uniform(4, 5) * warm))
        lamp, end = Place(scene, origin), (1.2, 0.3, 0.04)
        lamp.box((0, 0, 0), end, frame, faces="flrb", solid=False)
        lamp.box((0, 0, 0), end, lambda w, h: glow, faces="u", solid=False, emissive=True)
    side = Place(scene, np.zeros(3), rng.integers(4) * np.pi / 2).vector(0, 1, 0)
    across = np.cross(side, [0, 0, 1.0])
    origin = side * (scene.size / 2 - 0.1) - across + [0, 0, 0.9]
    scene.lamps.append(Lamp(origin, 2 * across, np.array([0, 0, 1.2]), -side, 4.0 * cool))
