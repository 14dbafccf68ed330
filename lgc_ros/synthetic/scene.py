"""Parts of a synthetic scene: textured rectangles, solids that cast shadows, lamps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Quad:
    """A rectangle `origin + u * edge_u + v * edge_v`, u and v in [0, 1], seen from one side.

    It is visible from the side on which `edge_u` points right and `edge_v` down, so that textures
    are never mirrored. `albedo` is BGR float32 in [0, 1] with sides that are multiples of
    `renderer.ALIGN`; emissive quads are not shaded.
    """

    origin: np.ndarray
    edge_u: np.ndarray
    edge_v: np.ndarray
    albedo: np.ndarray
    emissive: bool = False

    @property
    def normal(self) -> np.ndarray:
        """Unit normal on the visible side."""
        n = np.cross(self.edge_v, self.edge_u)
        return n / np.linalg.norm(n)


@dataclass(frozen=True, eq=False)
class Solid:
    """An upright box (center, half extents, yaw in radians) that casts shadows."""

    center: np.ndarray
    half: np.ndarray
    yaw: float

    def to_local(self, vectors: np.ndarray) -> np.ndarray:
        """Rotate world vectors (..., 3) into the axes of the box."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
        return np.stack([c * x + s * y, c * y - s * x, z], -1).astype(vectors.dtype, copy=False)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Distance in meters of world points (N, 3) to the box, 0 inside."""
        outside = np.abs(self.to_local(points - self.center)) - self.half
        return np.linalg.norm(np.maximum(outside, 0.0), axis=-1)


@dataclass(frozen=True, eq=False)
class Lamp:
    """A rectangular light that shines along `direction`; `power` is BGR."""

    origin: np.ndarray
    edge_u: np.ndarray
    edge_v: np.ndarray
    direction: np.ndarray
    power: np.ndarray


@dataclass(eq=False)
class Scene:
    """Everything that is lit and rendered.

    World frame: z up, floor at z = 0, the hull (room or sky) spans x, y in +-size/2 and
    z in [0, size_z]. The camera moves along the ellipse with half axes `aisle`, which stays free.
    """

    rng: np.random.Generator  # for the layout; textures have their own
    size: np.ndarray
    aisle: np.ndarray
    ambient: np.ndarray
    pitch: float = -0.1  # mean camera pitch, radians
    light_points_per_m: float = 9.0
    quads: list[Quad] = field(default_factory=list)
    solids: list[Solid] = field(default_factory=list)
    lamps: list[Lamp] = field(default_factory=list)

    def clearance(self, points: np.ndarray) -> np.ndarray:
        """Distance in meters of world points (N, 3) to the nearest surface; negative outside."""
        half = self.size / 2
        nearest = (half - np.abs(points - [0, 0, half[2]])).min(axis=-1)
        for solid in self.solids:
            nearest = np.minimum(nearest, solid.distance(points))
        return nearest


@dataclass(frozen=True, eq=False)
class Place:
    """A local frame to build in: x right, y away from the viewer, z up, rotated by `yaw`."""

    scene: Scene
    position: np.ndarray
    yaw: float = 0.0

    def at(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Place:
        """A frame at a local position, rotated by a further `yaw` radians."""
        return Place(self.scene, self.point(x, y, z), self.yaw + yaw)

    def point(self, x: float, y: float, z: float) -> np.ndarray:
        """World coordinates of a local point."""
        return self.position + self.vector(x, y, z)

    def vector(self, x: float, y: float, z: float) -> np.ndarray:
        """World direction of a local vector."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([c * x - s * y, s * x + c * y, z])

    def panel(self, x: float, y: float, z: float, albedo: np.ndarray, size, emissive=False):
        """Add an upright picture facing the viewer, top left corner at (x, y, z)."""
        width, height = size
        edges = self.vector(width, 0, 0), self.vector(0, 0, -height)
        self.scene.quads.append(Quad(self.point(x, y, z), *edges, albedo, emissive))

    def carpet(self, x: float, y: float, z: float, albedo: np.ndarray, size):
        """Add a flat picture facing up, far left corner at (x, y, z)."""
        width, depth = size
        edges = self.vector(width, 0, 0), self.vector(0, -depth, 0)
        self.scene.quads.append(Quad(self.point(x, y, z), *edges, albedo))

    def box(
        self, low, high, paint, *, front=None, top=None, faces="flrbt", solid=True, emissive=False
    ):
        """Add a box between two local corners.

        `paint(width, height)` gives the texture of a face; `front` and `top` replace it there.
        `faces` names the sides to show: front, left, right, back, top, under.
        """
        (x0, y0, z0), (x1, y1, z1) = low, high
        dx, dy, dz = x1 - x0, y1 - y0, z1 - z0
        sides = {
            "f": ((x0, y0, z1), (dx, 0, 0), (0, 0, -dz), front or paint),
            "r": ((x1, y0, z1), (0, dy, 0), (0, 0, -dz), paint),
            "b": ((x1, y1, z1), (-dx, 0, 0), (0, 0, -dz), paint),
            "l": ((x0, y1, z1), (0, -dy, 0), (0, 0, -dz), paint),
            "t": ((x0, y1, z1), (dx, 0, 0), (0, -dy, 0), top or paint),
            "u": ((x0, y0, z0), (dx, 0, 0), (0, dy, 0), paint),
        }
        for face in faces:
            corner, u, v, texture = sides[face]
            albedo = texture(np.linalg.norm(u), np.linalg.norm(v))
            quad = Quad(self.point(*corner), self.vector(*u), self.vector(*v), albedo, emissive)
            self.scene.quads.append(quad)
        if solid:
            center = self.point((x0 + x1) / 2, (y0 + y1) / 2, (z0 + z1) / 2)
            self.scene.solids.append(Solid(center, np.array([dx, dy, dz]) / 2, self.yaw))


def sides(scene: Scene, width: float, depth: float) -> list[tuple[Place, float]]:
    """Sides of an upright hull around the origin, seen from inside: lower left frame, length."""
    middle = [Place(scene, np.zeros(3), -np.pi / 2 * k) for k in range(4)]
    extents = [(width, depth), (depth, width)] * 2
    pairs = zip(middle, extents, strict=True)
    return [(place.at(-length / 2, across / 2), length) for place, (length, across) in pairs]
