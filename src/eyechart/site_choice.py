"""Which sites measures look at. Each function takes an anatomy and names the sites, in execution order."""

from __future__ import annotations

from collections.abc import Sequence

from eyechart.sites import Anatomy, Site

PLAIN_LAYOUTS = ("NTC", "NCT", "NCYX", "NYXC")
"""One vector of channels for each image and position: no windows, no heads."""


def has_grid(site: Site, least_side: int = 1) -> bool:
    """Whether its output is a plain grid of positions, with sides of at least so many cells."""
    return site.layout.axes in PLAIN_LAYOUTS and site.grid is not None and min(site.grid) >= least_side


def has_several_positions(site: Site) -> bool:
    return has_grid(site) and site.grid is not None and site.grid[0] * site.grid[1] > 1


def by_image(site: Site) -> bool:
    """Whether images can be told apart at its output."""
    return site.layout.axes.startswith("N")


def blocks(anatomy: Anatomy) -> Sequence[Site]:
    return [site for site in anatomy.pick("block") if by_image(site)]


def blocks_with_prefix(anatomy: Anatomy) -> Sequence[Site]:
    """Blocks that hold tokens before the grid: a class token, registers."""
    return [site for site in blocks(anatomy) if site.layout.prefix and site.grid]


def blocks_with_grid(anatomy: Anatomy, least_side: int = 1) -> Sequence[Site]:
    return [site for site in anatomy.pick("block") if has_grid(site, least_side)]


def stem_and_blocks(anatomy: Anatomy) -> Sequence[Site]:
    return [site for site in anatomy.sites if site.role in ("stem", "block") and by_image(site)]


def layers_inside_too(anatomy: Anatomy) -> Sequence[Site]:
    """Stem and blocks, residual sums, and all layers inside the blocks."""
    outside = [site for site in anatomy.sites if site.role in ("stem", "junction", "block")]
    return [site for site in sorted([*anatomy.layers, *outside], key=lambda site: site.depth) if by_image(site)]


def evenly(count: int, most: int) -> Sequence[int]:
    """At most `most` of `count` things in order, evenly spaced, with the first and the last.

    >>> evenly(9, 4), evenly(3, 4)
    ([0, 3, 5, 8], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def some_blocks_with_grid(anatomy: Anatomy, most: int, least_side: int = 1) -> Sequence[Site]:
    """At most so many, evenly spaced."""
    blocks = blocks_with_grid(anatomy, least_side)
    return [blocks[index] for index in evenly(len(blocks), most)]


def some_blocks_and_mixing_branches(anatomy: Anatomy, most: int) -> Sequence[Site]:
    """Blocks, at most so many, and before each the branches in it that mix positions.

    An MLP's branch looks at single tokens that the skip has already reached, so it says nothing of its own.
    """
    blocks = [site for site in anatomy.pick("block") if has_several_positions(site)]
    chosen: list[Site] = []
    for block in (blocks[index] for index in evenly(len(blocks), most)):
        branches = [
            site for site in junctions_of(anatomy, block) if site.kind != "mlp" and site.skip_operand is not None
        ]
        chosen += [*(site for site in branches if has_several_positions(site)), block]
    return chosen


def last_and_before(sites: Sequence[Site], count: int) -> Sequence[Site]:
    """The last one and others evenly before it, `count` in all."""
    chosen = {round((step + 1) * len(sites) / count) - 1 for step in range(count)}
    return [site for index, site in enumerate(sites) if index in chosen]


def blocks_with_inner_cells(anatomy: Anatomy, of_cnn: int, of_others: int) -> Sequence[Site]:
    """Blocks whose grid has cells that are not at the edge: so many of a CNN, so many of any other subject."""
    return last_and_before(blocks_with_grid(anatomy, 3), of_cnn if anatomy.family == "cnn" else of_others)


def first_units(anatomy: Anatomy, counts: Sequence[int]) -> Sequence[Site]:
    """The first units of the first stages of a CNN, as many of each stage as `counts` says; none of others."""
    if anatomy.architecture != "cnn":
        return []
    units = blocks(anatomy)
    stages = list(dict.fromkeys(unit.stage for unit in units))
    return [
        unit
        for stage, count in zip(stages, counts, strict=False)
        for unit in [unit for unit in units if unit.stage == stage][:count]
    ]


def attentions(anatomy: Anatomy) -> Sequence[Site]:
    """Attention between places of the picture. Class attention and attention pooling have no queries there."""
    return [
        site
        for site in anatomy.pick("attention")
        if site.attention is not None and site.attention.kind != "other" and site.attention.grid_queries > 1
    ]


def attentions_with_maps(anatomy: Anatomy) -> Sequence[Site]:
    """Those whose weights can be read key by key."""
    return [site for site in attentions(anatomy) if site.attention is not None and site.attention.keys > 0]


def gives_answers(anatomy: Anatomy) -> bool:
    """Whether a subject classifies. Without a classifier its output looks like logits, but is features.

    A fully convolutional classifier pools last, so for a CNN only the experiment itself can decide it.
    """
    return bool(classifier(anatomy)) and (anatomy.pooling is not None or anatomy.architecture == "cnn")


def attentions_of_classifiers(anatomy: Anatomy) -> Sequence[Site]:
    """Attention between places, of subjects that give answers."""
    return attentions(anatomy) if gives_answers(anatomy) else []


def attention_of(anatomy: Anatomy, site: Site) -> Site | None:
    """The attention a sub-layer consists of, where queries and keys lie on its own grid.

    The sub-layer is a junction, or a block that has no other (AlterNet's).
    """
    inside = [a for a in anatomy.pick("attention") if a.block == site.block and a.grid == site.grid]
    return inside[0] if site.kind == "attention" and len(inside) == 1 else None


def residual_additions(anatomy: Anatomy) -> Sequence[Site]:
    """Additions to the picture's stream, not those of a class token alone (CaiT, attention pooling)."""
    readable = [site for site in anatomy.pick("junction") if by_image(site) and "C" in site.layout.axes]
    return [site for site in readable if site.grid is not None] or readable


def junctions_of(anatomy: Anatomy, block: Site) -> Sequence[Site]:
    return [site for site in anatomy.pick("junction") if site.block == block.block]


def has_projected_skip(anatomy: Anatomy, block: Site) -> bool:
    """Where a stage begins; removing such a skip would remove a layer with weights as well."""
    return any(junction.projected for junction in junctions_of(anatomy, block))


def blocks_trained_without_skips(anatomy: Anatomy) -> Sequence[Site]:
    """Blocks without any residual addition in a subject whose other blocks have as many as one another.

    In a plain network there is none to miss, and where blocks differ (EfficientNet) a missing skip is by design.
    """
    counts = {block.block: len(junctions_of(anatomy, block)) for block in anatomy.pick("block")}
    with_skips = {count for count in counts.values() if count}
    if len(with_skips) != 1 or anatomy.family != "vit":
        return []
    return [block for block in anatomy.pick("block") if not counts[block.block]]


def sub_layers(anatomy: Anatomy) -> Sequence[Site]:
    """The stem, then what each sub-layer leaves on the stream.

    A block with one junction is read at its output, as the next block sees it (after ResNet's last ReLU); a block with
    several (attention, then MLP) at each of its sums.
    """
    chosen = [site for site in anatomy.pick("stem") if has_several_positions(site)]
    for block in anatomy.pick("block"):
        inside = junctions_of(anatomy, block)
        chosen += [site for site in (inside if len(inside) > 1 else [block]) if has_several_positions(site)]
    return chosen


def skip_of(anatomy: Anatomy, site: Site) -> Site | None:
    """The junction at which a sub-layer meets its skip; None where it has none, or where that is projected.

    A projected skip is on another grid or has other channels, so that before and after would not compare.
    """
    inside = [site] if site.role == "junction" else junctions_of(anatomy, site)
    if site.role == "stem" or len(inside) != 1 or inside[0].projected or not has_several_positions(inside[0]):
        return None
    return inside[0]


def skips_of_sub_layers(anatomy: Anatomy) -> Sequence[Site]:
    return [skip for site in sub_layers(anatomy) if (skip := skip_of(anatomy, site)) is not None]


def classifier(anatomy: Anatomy) -> Sequence[Site]:
    return anatomy.pick("head")


def classifier_input(anatomy: Anatomy) -> Sequence[Site]:
    """The vector before the logits, or that comes out without a classifier; the last block where there is no such."""
    return anatomy.pick("features") or blocks_with_grid(anatomy)[-1:]
