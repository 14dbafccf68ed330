"""Essential matrices from any number of matches, by the constraints of the five-point algorithm.

The weighted 8-point algorithm takes the one matrix that fits the matches best. Points on a plane
leave a whole space of such matrices, in which that one is arbitrary. Here the four that fit best
span a space, and the polynomial constraints on essential matrices (Nistér, PAMI 2004) find the
essential matrices in it. The polynomials are solved with an action matrix (Stewénius et al., ISPRS
2006). Nothing is sampled.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from lgc_ros.geometry.epipolar import eight_point_solutions

UNKNOWNS = 4  # E = x E0 + y E1 + z E2 + E3, each a solution of the 8-point system
# Exponents of x, y, z: the ten monomials of degree 3, then the ten of lower degree.
MONOMIALS = sorted(
    (e for e in product(range(4), repeat=3) if sum(e) <= 3),
    key=lambda e: (-sum(e), *(-power for power in e)),
)
INDEX = {exponents: index for index, exponents in enumerate(MONOMIALS)}
CUBIC = 10
LINEAR = [INDEX[e] - CUBIC for e in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
CONSTANT = INDEX[0, 0, 0] - CUBIC
TIMES_X = [INDEX[x + 1, y, z] for x, y, z in MONOMIALS[CUBIC:]]
REAL = 1e-8  # largest imaginary part of a real eigenvalue, relative to its magnitude


def _product_to_monomials() -> np.ndarray:
    """(64, 20): the monomial of each product of three of (x, y, z, 1)."""
    factors = np.eye(UNKNOWNS, 3, dtype=int)
    table = np.zeros((UNKNOWNS**3, len(MONOMIALS)))
    for row, (a, b, c) in enumerate(product(range(UNKNOWNS), repeat=3)):
        table[row, INDEX[tuple((factors[a] + factors[b] + factors[c]).tolist())]] = 1
    return table


def _permutation_signs() -> np.ndarray:
    signs = np.zeros((3, 3, 3))
    for i in range(3):
        signs[i, (i + 1) % 3, (i + 2) % 3] = 1
        signs[i, (i + 2) % 3, (i + 1) % 3] = -1
    return signs


PRODUCT_TO_MONOMIALS = _product_to_monomials()
SIGNS = _permutation_signs()


def five_point_solutions(x0: np.ndarray, x1: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(M, 3, 3) unit-norm essential matrices, M at most 10, that fit matches approximately.

    They lie in the space of the four best solutions of the weighted 8-point system, wherever in it
    the constraints put them: refine them, and let the matches decide between them.

    Args:
        x0, x1: (N, 2) normalized coordinates of at least eight matches.
        weights: (N,) positive weights.
    """
    return essential_matrices_in(eight_point_solutions(x0, x1, weights, UNKNOWNS)[::-1])


def essential_matrices_in(basis: np.ndarray) -> np.ndarray:
    """(M, 3, 3) unit-norm essential matrices of the form x B0 + y B1 + z B2 + B3.

    They solve ``det E = 0`` and ``2 E Eᵀ E - tr(E Eᵀ) E = 0``, ten cubic equations. Multiplication
    by x maps the monomials of degree below 3 to combinations of themselves; the eigenvectors of
    that map are the monomials at the solutions.
    """
    determinant = np.einsum("ijk,ai,bj,ck->abc", SIGNS, basis[:, 0], basis[:, 1], basis[:, 2])
    squares = np.einsum("aij,bkj->abik", basis, basis)
    traces = np.einsum("abii->ab", squares)
    cubes = 2 * np.einsum("abik,ckj->ijabc", squares, basis)
    cubes -= np.einsum("ab,cij->ijabc", traces, basis)
    products = np.vstack([cubes.reshape(9, -1), determinant.reshape(1, -1)])
    equations = products @ PRODUCT_TO_MONOMIALS
    try:
        cubic_in_lower = -np.linalg.solve(equations[:, :CUBIC], equations[:, CUBIC:])
    except np.linalg.LinAlgError:  # the constraints leave infinitely many solutions
        return np.empty((0, 3, 3))
    times_x = np.vstack([cubic_in_lower, np.eye(CUBIC)])[TIMES_X]
    values, vectors = np.linalg.eig(times_x)
    real = np.abs(values.imag) <= REAL * np.maximum(np.abs(values), 1)
    monomials = vectors[:, real].real
    unknowns = np.vstack([monomials[LINEAR], monomials[[CONSTANT]]])
    E = np.einsum("an,aij->nij", unknowns, basis)
    return E / np.linalg.norm(E, axis=(1, 2), keepdims=True)
