"""What an effort keeps of a large subject: a figure on few pictures is better than none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eyechart.errors import DoesNotApply
from eyechart.measure import A_MINUTE, SPEED, SampledExperiment
from eyechart.measures import measures
from eyechart.scene import Scene
from tests.measures.staging import anatomy as anatomy_of
from tests.measures.staging import full_grid, site

VIT_S = 9.2e9  # operations of one pass at 224 pixels


def scene_of(flops: float, images: int = 400) -> Scene:
    geometry = replace(full_grid(14, 16.0, prefix=1), keys=197)
    sites = [
        *(site(f"a{at}", "attention", "attention", block=at, heads=6, attention=geometry) for at in range(12)),
        *(site(f"b{at}", kind="attention", block=at, depth=(at + 1) / 12) for at in range(12)),
    ]
    subject = replace(anatomy_of("vit", sites), flops=flops)
    return Scene((subject,), images, images // 16, 16, 16, ("a", "b"), label_maps={"vit": (0, 1)})


@pytest.mark.parametrize("name", ["attention_maps", "receptive_field", "fourier", "band_noise"])
def test_quick_shows_large_subjects_on_sixteen_pictures(name: str) -> None:
    measure = measures()[name]
    assert isinstance(measure, SampledExperiment)
    scene = scene_of(VIT_S)
    sized = measure.sized("quick", scene)
    assert isinstance(sized, SampledExperiment)
    assert sized.images == 16
    work = sized.passes(scene.anatomies[0]) * VIT_S * sized.images
    assert work <= A_MINUTE * SPEED
    with pytest.raises(DoesNotApply, match="takes longer than --effort quick"):
        measure.sized("quick", scene_of(100 * VIT_S))  # not within its minutes
    small = measure.sized("quick", scene_of(1e8))
    assert isinstance(small, SampledExperiment)
    assert small.images >= 128  # what can decide still does


def test_a_receptive_field_too_dear_for_twelve_depths_is_shown_at_six() -> None:
    """A ViT-S of 14-pixel patches at 224 pixels, as people load it first, lost the figure by seven seconds."""
    measure = measures()["receptive_field"]
    assert isinstance(measure, SampledExperiment)
    dear = scene_of(2.3 * VIT_S)
    sized = measure.sized("quick", dear)
    assert isinstance(sized, SampledExperiment)
    assert (sized.images, sized.options["depths"]) == (16, 6)
    assert sized.work(dear) * sized.images <= A_MINUTE * SPEED < measure.work(dear) * sized.images
    by_hand = replace(measure, depths=11)  # type: ignore[call-arg]
    with pytest.raises(DoesNotApply, match="takes longer"):
        by_hand.sized("quick", dear)
    assert measure.sized("quick", scene_of(VIT_S)).options["depths"] == 12


def test_others_are_left_out_as_before() -> None:
    with pytest.raises(DoesNotApply, match="takes longer than --effort quick"):
        measures()["token_place"].sized("quick", scene_of(VIT_S))


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_on_a_gpu_a_large_subject_gets_what_a_small_one_gets(effort: str) -> None:
    large, small = scene_of(4 * VIT_S), scene_of(4e8)
    on_gpu = replace(large, accelerated=True)
    more = 0
    for name, measure in measures().items():
        if not isinstance(measure, SampledExperiment) or not measure.runs_at(effort):
            continue
        wanted, given = images_of(name, effort, small), images_of(name, effort, on_gpu)
        assert given == wanted, name
        assert images_of(name, effort, replace(small, accelerated=True)) == wanted, name
        more += given > images_of(name, effort, large)
    assert more >= 10, "without a GPU it gets less of most measures"
    assert images_of("fourier", "normal", replace(scene_of(2000 * VIT_S), accelerated=True)) < 64, "GPUs end somewhere"


def images_of(name: str, effort: str, scene: Scene) -> int:
    """0 where the measure is left out."""
    measure = measures()[name]
    try:
        sized = measure.sized(effort, scene)
    except DoesNotApply:
        return 0
    assert isinstance(sized, SampledExperiment)
    return sized.images
