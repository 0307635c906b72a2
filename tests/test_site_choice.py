"""Which sites are chosen, and that nobody else chooses them."""

from __future__ import annotations

import ast
from pathlib import Path

import eyechart
from eyechart.site_choice import gives_answers, some_blocks_with_grid
from tests.measures.staging import anatomy, site

HEAD = site("head", role="head", axes="NC", grid=None)
ROOMS = Path(eyechart.__file__).parent


def test_features_are_no_answers() -> None:
    assert gives_answers(anatomy("vit", [HEAD], cls=0))
    assert not gives_answers(anatomy("features", [HEAD]))
    assert gives_answers(anatomy("squeezenet", [HEAD], architecture="cnn"))
    assert not gives_answers(anatomy("maps", []))


def test_some_blocks_are_spread_evenly_over_those_with_a_fine_enough_grid() -> None:
    blocks = [site(f"block {at}", block=at, grid=(8 - at, 8 - at)) for at in range(6)]
    assert [each.block for each in some_blocks_with_grid(anatomy("cnn", blocks), 3, least_side=4)] == [0, 2, 4]
    assert len(some_blocks_with_grid(anatomy("cnn", blocks), 12)) == 6


def test_rooms_choose_their_sites_by_site_choice_alone() -> None:
    """A function of a room that returns sites combines choosers; it does not walk through an anatomy by itself."""
    own = []
    for path in [*ROOMS.glob("measures/*/*.py"), *ROOMS.glob("methods/*.py")]:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.returns is not None:
                returned = ast.unparse(function.returns)
                walks = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)} & {
                    "pick",
                    "layers",
                }
                if returned in ("Sequence[Site]", "list[Site]", "Site | None", "Site") and walks:
                    own.append(f"{path.parent.name}/{path.name}: {function.name}")
    assert not own
