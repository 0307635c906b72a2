"""Beginning with a subject's weights: what is kept, what is new, what stays still, and at which size."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from eyechart import zoo
from eyechart.errors import EyechartError, UsageError, WeightsMismatch
from eyechart.subjects.catalogue import Spec
from eyechart.training.loop import Training, train
from eyechart.training.optimisers import make_optimiser, set_learning_rate
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun
from eyechart.training.transfer import _source, begin, freeze, head_names
from eyechart.zoo.vit import resize_pos_embed

from .toys import SHORT, TINY, toy_run, write_toys


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=64, test=20)


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ViT trained on 16-pixel images of ten classes; its card lies beside it."""
    folder = tmp_path_factory.mktemp("trained")
    train(toy_run(data, folder))
    return folder / "vit.safetensors"


def transfer(data: str, out: Path, source: object, **changes: Any) -> Any:
    return toy_run(data, out, **{"begin_from": str(source), "switches": {}, **changes})


def test_all_but_the_head_comes_from_the_checkpoint_and_its_card(data: str, trained: Path, tmp_path: Path) -> None:
    training = Training(transfer(data, tmp_path, trained, classes=("1", "2", "3")))
    state, saved = training.module.state_dict(), load_file(trained)
    assert state["head.weight"].shape == (3, 32)  # the width is the card's switch, not the table's 160
    for name in saved:
        if not name.startswith("head."):
            assert torch.equal(state[name], saved[name].float())
    whole = Training(toy_run(data, tmp_path))
    assert training.normalisation == whole.normalisation  # the card's, not that of three classes


def test_a_new_head_is_not_the_one_that_the_weights_grew_from(data: str, trained: Path, tmp_path: Path) -> None:
    first = load_file(trained.with_name("vit.init.safetensors"))["head.weight"].float()
    new, again = (
        Training(transfer(data, tmp_path, trained)).module.get_parameter("head.weight").detach() for _ in range(2)
    )
    assert torch.equal(new, again)
    assert abs(float(torch.corrcoef(torch.stack([new.flatten(), first.flatten()]))[0, 1])) < 0.3


def test_another_input_size_resizes_the_position_table(data: str, trained: Path, tmp_path: Path) -> None:
    training = Training(transfer(data, tmp_path, trained, image_size=24))
    table = load_file(trained)["pos_embed"].float()
    expected = resize_pos_embed(table, 4, 6, has_cls=True)
    assert torch.allclose(training.module.state_dict()["pos_embed"], expected, atol=1e-6)
    card = train(transfer(data, tmp_path, trained, image_size=24))
    assert card["input_size"] == [24, 24]
    assert card["from"] == f"zoo:vit@{trained}"


def test_a_table_without_cls_is_resized_too(data: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = zoo.build("vit-gap", image_size=16, **TINY)
    save_file(module.state_dict(), tmp_path / "gap.safetensors")
    run = transfer(data, tmp_path, tmp_path / "gap.safetensors", model="vit-gap", image_size=24, switches=TINY)
    table = Training(run).module.state_dict()["pos_embed"]
    assert torch.allclose(table, resize_pos_embed(module.state_dict()["pos_embed"], 4, 6, has_cls=False))


def test_the_head_is_kept_only_for_the_same_classes(data: str, trained: Path, tmp_path: Path) -> None:
    training = Training(transfer(data, tmp_path, trained, head="keep"))
    assert torch.equal(training.module.state_dict()["head.weight"], load_file(trained)["head.weight"].float())
    with pytest.raises(WeightsMismatch, match=r"are not those of the data, 2 \(4, 5 …\); leave --head keep out"):
        Training(transfer(data, tmp_path, trained, head="keep", classes=("4", "5")))


def test_all_but_the_head_stay_still_batch_statistics_too(data: str, tmp_path: Path) -> None:
    switches: dict[str, Any] = {"width": 8, "depths": (1, 1, 1, 1)}
    torch.manual_seed(0)
    module = zoo.build("resnet", **switches)
    save_file(module.state_dict(), tmp_path / "resnet.safetensors")
    source = tmp_path / "resnet.safetensors"
    training = Training(
        transfer(data, tmp_path / "out", source, model="resnet", switches=switches, freeze="all-but-head")
    )
    before = {name: tensor.clone() for name, tensor in training.module.state_dict().items()}
    training.finish()
    after = training.module.state_dict()
    assert {name for name in after if not torch.equal(before[name], after[name])} == {"fc.weight", "fc.bias"}


@pytest.mark.parametrize(
    ("switches", "low"),
    [
        ({"position": "2d"}, {"0"}),
        ({"position": "1d", "position_at": "layers"}, {"0", "1"}),
        ({"position": "2d", "position_at": "shared"}, set()),  # upper blocks use it too
    ],
)
def test_position_tables_of_the_low_third_stay_still(switches: dict[str, Any], low: set[str]) -> None:
    module = zoo.build("vit", image_size=16, **{**TINY, "depth": 6, **switches})
    freeze(module, "low-third", head_names(module, 10), 16)
    tables = [(name, table) for name, table in module.named_parameters() if name.startswith("positions.")]
    assert {name.split(".")[1] for name, table in tables if not table.requires_grad} == low


@pytest.mark.parametrize(("model", "switches"), [("vit", {**TINY, "depth": 6}), ("resnet", {"width": 8})])
def test_the_low_third_is_stem_and_lowest_blocks(model: str, switches: dict[str, Any]) -> None:
    module = zoo.build(model, image_size=16, **switches)
    parts = freeze(module, "low-third", head_names(module, 10), 16)
    still = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    # Two of six blocks, or three of eight.
    low = {
        "vit": ("patch_embed.", "cls_token", "pos_embed", "blocks.0.", "blocks.1."),
        "resnet": ("conv1.", "bn1.", "layer1.", "layer2.0."),
    }
    assert still == {name for name, _ in module.named_parameters() if name.startswith(low[model])}
    assert all(not parameter.requires_grad for part in parts for parameter in part.parameters())


def test_the_backbone_learns_at_its_share_of_the_rate() -> None:
    module = zoo.build("vit", **TINY)
    optimiser = make_optimiser(module, SHORT, head_names(module, 10), scale=0.1)
    set_learning_rate(optimiser, 0.5)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in module.named_parameters():
        assert rates[id(parameter)] == pytest.approx(0.5 if name.startswith("head.") else 0.05)


def test_a_timm_model_gets_a_new_head_and_another_size(data: str, tmp_path: Path) -> None:
    run = transfer(data, tmp_path, "timm:vit_tiny_patch16_224@random", model="fine-tuned", image_size=32)
    beginning = begin(run, ("a", "b", "c"), 32)
    module: Any = beginning.module
    assert module.pos_embed.shape == (1, 1 + 4, 192)
    assert module(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
    assert beginning.head == ("head.weight", "head.bias")
    assert beginning.normalisation is not None
    assert beginning.normalisation.mean == pytest.approx(module.pretrained_cfg["mean"])


def test_a_timm_model_without_a_setter_of_its_size_is_built_for_it(data: str, tmp_path: Path) -> None:
    run = transfer(data, tmp_path, "timm:pit_ti_224@random", model="fine-tuned", image_size=64)
    module: Any = begin(run, ("a", "b"), 64).module
    assert not hasattr(module, "set_input_size")
    assert module.pos_embed.shape[-2:] == (7, 7)  # patches of 16 every 8 pixels
    assert module(torch.zeros(2, 3, 64, 64)).shape == (2, 2)


def test_both_heads_of_a_distilled_model_are_its_head() -> None:
    sizes: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    module = timm.create_model("deit_tiny_distilled_patch16_224", **sizes, num_classes=7)
    assert set(head_names(module, 7)) == {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}


def test_any_other_classifier_gets_its_last_layer_replaced(data: str, tmp_path: Path) -> None:
    run = transfer(data, tmp_path, "torchvision:squeezenet1_1@random", model="x")
    with pytest.raises(EyechartError, match="no linear layer with 1000 outputs"):
        begin(run, ("a", "b"), 64)
    run = transfer(data, tmp_path, "torchvision:mobilenet_v3_small@random", model="x")
    beginning = begin(run, ("a", "b"), 64)
    assert beginning.head == ("classifier.3.weight", "classifier.3.bias")
    assert isinstance(beginning.module.get_submodule("classifier.3"), nn.Linear)


def test_a_hugging_face_model_is_trained_through_its_logits(data: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=7)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    run = transfer(data, tmp_path / "out", f"hf:{tmp_path / 'vit'}", model="mine")
    card = train(run)
    saved = load_file(tmp_path / "out" / "mine.safetensors")
    assert saved["module.classifier.weight"].shape == (10, 32)
    assert card["mean"] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"begin_from": "zoo:vitt"}, "did you mean"),
        (
            {"begin_from": "zoo:resnet"},
            "cannot be called vit; write eyechart train resnet --from zoo:resnet, or a NAME",
        ),
        ({"begin_from": "nowhere.safetensors"}, "There is no checkpoint at nowhere.safetensors"),
        ({"begin_from": "nowhere.safetensors", "model": "mine"}, "names weights but no architecture"),
        (
            {"begin_from": "timm:mixer_s32_224@random"},
            "16px@random cannot be called on one colour picture of 16×16",
        ),
        ({"begin_from": "timm:resnet10t@random", "switches": {"patch": 2}}, "--switch is for models of the zoo"),
    ],
)
def test_refusals(changes: dict[str, Any], sentence: str, data: str, tmp_path: Path) -> None:
    with pytest.raises(EyechartError, match=sentence):
        Training(toy_run(data, tmp_path, **{"switches": {}, **changes}))


def test_a_checkpoint_of_other_switches_is_refused(data: str, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsMismatch):
        Training(transfer(data, tmp_path, trained, switches={"width": 64}))
    with pytest.raises(WeightsMismatch, match=r"is a trained zoo:vit, as its card says; write zoo:vit@"):
        Training(transfer(data, tmp_path, trained, model="resnet"))
    with pytest.raises(UsageError, match="need --from"):
        Training(toy_run(data, tmp_path, freeze="all-but-head"))


@pytest.mark.parametrize("path", ["weights/a.safetensors", "C:\\weights\\a.safetensors", "D:/a.pth"])
def test_weights_of_the_zoo_may_lie_on_a_drive_of_windows(path: str) -> None:
    run = TrainingRun("vit", "toys", find_recipe("zoo"), "runs", begin_from=path)
    assert _source(run) == Spec("zoo", "vit", path)
