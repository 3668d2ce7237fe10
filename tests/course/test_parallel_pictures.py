"""The pictures of lessons 15 and 23: a split matrix, a mesh."""

import numpy as np
import pytest

from distlab.lessons.mesh_pictures import draw_mesh
from distlab.lessons.split_matrix import split_matrix


@pytest.mark.parametrize("split", ["columns", "rows", "both"])
@pytest.mark.parametrize("sizes", [[5, 5], [4, 3, 3], [1, 1, 1, 1, 1, 1]])
def test_a_split_matrix_says_who_holds_what(split, sizes):
    picture = split_matrix(split, sizes)
    collective = "all-gather" if split == "columns" else "all-reduce"
    assert collective in picture.alt and f"device 0 {sizes[0]}" in picture.alt
    assert f"{collective} →" in picture.svg and f">on device {len(sizes) - 1}<" in picture.svg
    assert picture.png().startswith(b"\x89PNG")


def test_a_split_matrix_draws_pieces_in_proportion():
    """Three quarters of the columns on device 0, of W (100 wide) as of y."""
    svg = split_matrix("columns", [3, 1]).svg
    assert svg.count("<path") >= 3 + 2 + 2 + 2  # key, W, y and the two whole ones
    alt = split_matrix("rows", [392, 392]).alt
    assert "device 0 392, device 1 392" in alt


def test_a_mesh_says_which_device_is_where():
    picture = draw_mesh(np.arange(8).reshape(2, 2, 2), ("data", "pipeline", "tensor"))
    assert "data 0 and data 1" in picture.alt and "stages of pipeline" in picture.alt
    assert all(f">GPU {rank}<" in picture.svg for rank in range(8))
    assert picture.svg.count(">pipeline 1<") == picture.svg.count(">tensor 0<") == 4
