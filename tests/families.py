"""How many residual junctions and attentions each family has, derived by hand from the model's source.

The numbers are never copied from the tap: each stands beside the sentence that derives it from the source of timm,
torchvision or transformers (class names are theirs). How things are counted:

*Junction*: an addition of skip and branch of equal shapes that closes a residual connection, whether the skip is the
identity, a projection, a pooling, a scaling or a slice of the token axis (class attention). Layer scale and drop path
belong to the branch. Not junctions: position embeddings, rotary embeddings, relative biases, gates, the sums between
the splits of Res2Net, the parallel branches of re-parameterised convolutions, local branches beside an attention's
values, fusions of streams or resolutions (HRNet's fuse layers, TNT's pixels into patches), the mean of two heads.

*Kind* of a junction, from what runs in its branch, the first that fits: `attention` (softmax attention over positions),
`other` (another data-dependent mixing: channel, linear or outlook attention, an LSTM), `conv` (a convolution larger
than 1 × 1, also the one inside PVT's mlp), `pool`, `mixer` (a dense layer over positions), `mlp` (positions apart).

*Attention*: one product of weights and values, where the weights come from softmax(QKᵀ) over positions (talking heads
and gates may follow); windows of one call count once. Channel, linear and outlook attention count 0.

`architecture` is None where people use more than one word for the family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

Status = Literal["served", "partly", "not"]


@dataclass(frozen=True)
class Family:
    name: str
    model: str
    """Where the model comes from and its name there: "timm:resnet18", "torchvision:vgg11", "hf:ViT"."""
    architecture: str | None
    junctions: int
    kinds: Mapping[str, int]
    attentions: int
    derivation: str
    size: int = 64
    options: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "served"
    reason: str = ""
    """For `partly` and `not`: what the taps cannot show, in words."""
    known_gap: Mapping[str, int] = field(default_factory=dict)
    """What the taps are known to find instead of the derived "junctions", "attentions" or kind; `reason` says why."""

    def build(self) -> nn.Module:
        """The model with random weights, in eval mode.

        What is constant after initialisation (zero bias tables, layer scales, zeroed last normalisations) is moved a
        little, or a tap that forgot the relative bias or lost a branch would not be caught.
        """
        import torch

        source, name = self.model.split(":")
        torch.manual_seed(0)
        module: nn.Module = _BUILDERS[source](name, dict(self.options))
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.min() == parameter.max():
                    parameter.add_(0.1 * torch.randn(parameter.shape))
        return module.eval()

    def expected(self, what: str) -> int:
        """What the taps should report: the derived number, or the known gap's."""
        derived = {"junctions": self.junctions, "attentions": self.attentions, **self.kinds}
        return self.known_gap.get(what, derived.get(what, 0))


def _timm(name: str, options: dict[str, Any]) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10, **options)


def _torchvision(name: str, options: dict[str, Any]) -> Any:
    import torchvision

    if name[0].isupper():  # a class: the only way to a small ViT or MaxViT
        return getattr(torchvision.models, name)(num_classes=10, **options)
    return torchvision.models.get_model(name, weights=None, num_classes=10, **options)


def _hugging_face(name: str, options: dict[str, Any]) -> Any:
    import transformers

    config = getattr(transformers, f"{name}Config")(**options, num_labels=10)
    return getattr(transformers, f"{name}ForImageClassification")(config)


_BUILDERS = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face}


VISION_TRANSFORMERS = (
    Family(
        "ViT",
        "timm:vit_tiny_patch16_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "12 Blocks; Block.forward adds the attention branch and the mlp branch: 2 × 12 = 24. One fused attention each.",
        options={"img_size": 64},
    ),
    Family(
        "ViT without class token",
        "timm:vit_medium_patch16_gap_240",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks (12 by default) of 2 junctions and one attention: 8 and 4. The class token is absent, "
        "the mean is pooled.",
        options={"img_size": 64, "depth": 4},
    ),
    Family(
        "ViT with relative positions",
        "timm:vit_relpos_small_patch16_224",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 RelPosBlocks of 2 junctions; the relative bias enters as the mask of the fused attention: 8 "
        "and 4.",
        options={"img_size": 64, "depth": 4},
    ),
    Family(
        "ViT with parallel branches",
        "timm:vit_small_patch16_18x2_224",
        "transformer",
        6,
        {"attention": 3, "mlp": 3},
        6,
        "Built with 3 ParallelThingsBlocks: each sums 2 attentions by stack().sum() and adds them once, then 2 mlps "
        "once: 2 × 3 = 6 junctions, 2 × 3 = 6 attentions.",
        options={"img_size": 64, "depth": 3},
    ),
    Family(
        "ViT with attention pooling (SigLIP)",
        "timm:vit_base_patch16_siglip_224",
        "transformer",
        9,
        {"attention": 4, "mlp": 5},
        5,
        "Built with 4 Blocks: 8 junctions and 4 attentions; AttentionPoolLatent adds one attention (a latent query, no "
        "skip) and one mlp junction: 9 and 5.",
        options={"img_size": 64, "depth": 4, "embed_dim": 192, "num_heads": 3},
    ),
    Family(
        "DeiT",
        "timm:deit_tiny_distilled_patch16_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "12 Blocks of ViT, class and distillation token in front: 24 and 12. The mean of the two heads is not a "
        "junction.",
        options={"img_size": 64},
    ),
    Family(
        "DeiT III",
        "timm:deit3_small_patch16_224",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks of ViT; layer scale belongs to the branch: 8 and 4.",
        options={"img_size": 64, "depth": 4},
    ),
    Family(
        "DINOv2",
        "timm:vit_small_patch14_dinov2",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks of ViT with layer scale: 8 and 4.",
        size=56,
        options={"img_size": 56, "depth": 4},
    ),
    Family(
        "DINOv2 with registers",
        "timm:vit_small_patch14_reg4_dinov2",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks of ViT; class token and 4 registers are the prefix: 8 and 4.",
        size=56,
        options={"img_size": 56, "depth": 4},
    ),
    Family(
        "DINOv3",
        "timm:vit_small_patch16_dinov3",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 EvaBlocks of 2 junctions; rotary embeddings turn queries and keys (not junctions): 8 and 4.",
        options={"img_size": 64, "depth": 4},
    ),
    Family(
        "EVA02",
        "timm:eva02_tiny_patch14_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "12 EvaBlocks; EvaBlock.forward adds attention and SwiGLU mlp: 24 and 12. Rotary sums are not junctions.",
        size=56,
        options={"img_size": 56},
    ),
    Family(
        "BEiT",
        "timm:beit_base_patch16_224",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks; Block.forward adds γ₁·attention and γ₂·mlp: 8 and 4. The relative bias is the fused "
        "attention's mask.",
        options={"img_size": 64, "depth": 4, "embed_dim": 192, "num_heads": 3},
    ),
    Family(
        "BEiT v2",
        "timm:beitv2_base_patch16_224",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks of BEiT (another pretraining, the same source): 8 and 4.",
        options={"img_size": 64, "depth": 4, "embed_dim": 192, "num_heads": 3},
    ),
    Family(
        "SAM's ViT",
        "timm:samvit_base_patch16_224",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 Blocks (2 windowed, 2 global); Block.forward adds attention and mlp: 8 and 4. The decomposed "
        "relative position bias is the fused attention's mask.",
        size=96,
        options={
            "img_size": 96,
            "depth": 4,
            "embed_dim": 192,
            "num_heads": 3,
            "window_size": 4,
            "global_attn_indexes": [1, 3],
        },
    ),
    Family(
        "CaiT",
        "timm:cait_xxs24_224",
        "transformer",
        52,
        {"attention": 26, "mlp": 26},
        26,
        "24 LayerScaleBlocks and 2 LayerScaleBlockClassAttn, each adding attention and mlp: 2 × 26 = 52. Talking-heads "
        "attention in the 24, class attention (one query, skip is the class token) in the 2: 26.",
        options={"img_size": 64},
    ),
    Family(
        "TNT",
        "timm:tnt_s_patch16_224",
        "transformer",
        48,
        {"attention": 24, "mlp": 24},
        24,
        "12 Blocks, each with an inner (pixel) and an outer (patch) attention and mlp: 4 × 12 = 48 junctions, 24 "
        "attentions. The sum that carries pixels into patches joins two streams and is not counted.",
        options={"img_size": 64},
    ),
    Family(
        "PiT",
        "timm:pit_ti_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 6 + 4 = 12 Blocks of ViT: 24 and 12; Pooling between the stages has no skip.",
        options={"img_size": 96},
        size=96,
    ),
    Family(
        "ConViT",
        "timm:convit_tiny",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "12 Blocks of 2 junctions: 24. The first 10 use GPSA (a gate mixes a content softmax and a position "
        "softmax, the mixture multiplies v), the last 2 plain attention: 12 products of weights and values.",
        options={"img_size": 64},
    ),
    Family(
        "CrossViT",
        "timm:crossvit_tiny_240",
        "transformer",
        36,
        {"attention": 21, "mlp": 15},
        21,
        "3 MultiScaleBlocks, each 1 + 4 ViT Blocks (10 junctions, 5 attentions) and 2 CrossAttentionBlocks of one "
        "junction and one attention (no mlp): 3 × 12 = 36 and 3 × 7 = 21.",
        size=120,
        options={"img_size": 120},
    ),
    Family(
        "XCiT",
        "timm:xcit_nano_12_p16_224",
        None,
        40,
        {"other": 12, "conv": 12, "mlp": 14, "attention": 2},
        2,
        "12 XCABlocks add cross-covariance attention, local patch interaction (3 × 3 convolutions) and mlp: 36; 2 "
        "ClassAttentionBlocks add class attention and mlp: 4. XCA's softmax runs over channels: only the 2 class "
        "attentions count.",
        status="partly",
        reason=(
            "Cross-covariance attention mixes channels, so its weights belong to no pair of positions and are not "
            "shown."
        ),
        options={"img_size": 64},
    ),
)

WINDOWS_AND_PYRAMIDS = (
    Family(
        "Swin",
        "timm:swin_tiny_patch4_window7_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 SwinTransformerBlocks; forward adds (shifted) window attention and mlp: 24 and 12. "
        "PatchMerging has no skip.",
        size=112,
        options={"img_size": 112},
    ),
    Family(
        "Swin v2",
        "timm:swinv2_tiny_window8_256",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 blocks; forward adds norm(attention) and norm(mlp): 24. Cosine attention with an "
        "explicit softmax: 12.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "Swin v2 (CR)",
        "timm:swinv2_cr_tiny_ns_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 SwinTransformerV2CrBlocks of 2 junctions: 24; explicit softmax: 12.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "Twins PCPVT",
        "timm:twins_pcpvt_small",
        None,
        36,
        {"attention": 16, "mlp": 16, "conv": 4},
        16,
        "Depths 3 + 4 + 6 + 3 = 16 Blocks of 2 junctions (32), and a PosConv (convolution added to its input) after "
        "the first block of each of 4 stages: 36. One attention a block: 16.",
        options={"img_size": 64},
    ),
    Family(
        "Twins SVT",
        "timm:twins_svt_small",
        None,
        40,
        {"attention": 18, "mlp": 18, "conv": 4},
        18,
        "Depths 2 + 2 + 10 + 4 = 18 Blocks of 2 junctions (36) and 4 PosConvs: 40. Window and subsampled attention "
        "alternate, one a block: 18.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "PVT v2",
        "timm:pvt_v2_b0",
        None,
        16,
        {"attention": 8, "conv": 8},
        8,
        "Depths 2 × 4 = 8 Blocks of 2 junctions: 16; the mlp branch holds a 3 × 3 depthwise convolution, so it "
        "counts as conv. 8 attentions.",
    ),
    Family(
        "NesT",
        "timm:nest_tiny",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 8 = 12 TransformerLayers of 2 junctions: 24, attention within blocks of the image: 12. "
        "ConvPool has no skip.",
        options={"img_size": 64},
    ),
    Family(
        "Hiera",
        "timm:hiera_tiny_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Stages 1 + 2 + 7 + 2 = 12 HieraBlocks of 2 junctions: 24 (three of the skips are projected and "
        "max-pooled). One attention each: 12.",
        options={"img_size": 64},
        size=64,
    ),
    Family(
        "MViT v2",
        "timm:mvitv2_tiny",
        "transformer",
        30,
        {"attention": 20, "mlp": 10},
        10,
        "Depths 1 + 2 + 5 + 2 = 10 MultiScaleBlocks: attention junction (pooled or projected skip) and mlp junction "
        "(20), and inside the attention the residual pooling connection adds the pooled query to weights @ values "
        "(10): 30. 10 attentions.",
        options={"img_size": 64},
    ),
    Family(
        "LeViT",
        "timm:levit_128s",
        "transformer",
        20,
        {"attention": 9, "mlp": 11},
        11,
        "Depths 2 + 3 + 4 = 9 LevitBlocks of 2 junctions (18); the 2 LevitDownsamples add only their mlp, their "
        "attention has no skip (2): 20. Attentions 9 + 2 = 11.",
        options={"img_size": 128},
        size=128,
    ),
    Family(
        "GC ViT",
        "timm:gcvit_xxtiny",
        "hybrid",
        35,
        {"attention": 12, "mlp": 12, "conv": 11},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 blocks of 2 junctions (24). MbConvBlocks add their input: 1 in the stem's and 3 "
        "in the stages' Downsample2d, and in the FeatureBlocks that make the global queries max(1, log2(grid / "
        "window)) each, 3 + 2 + 1 + 1 = 7: 11. 12 window attentions, every second one with global queries.",
        options={"img_size": 64},
    ),
    Family(
        "DaViT",
        "timm:davit_tiny",
        None,
        48,
        {"attention": 6, "other": 6, "mlp": 12, "conv": 24},
        6,
        "Depths 1 + 1 + 3 + 1 = 6 pairs of a SpatialBlock and a ChannelBlock, each with two ConvPosEnc junctions, an "
        "attention and an mlp junction: 12 × 4 = 48. Window attention in the 6 SpatialBlocks only.",
        status="partly",
        reason=(
            "Every second block attends over channels; those weights belong to no pair of positions and are not shown."
        ),
    ),
    Family(
        "TinyViT",
        "timm:tiny_vit_5m_224",
        "hybrid",
        22,
        {"attention": 10, "mlp": 10, "conv": 2},
        10,
        "2 MBConvs with a skip, then 2 + 6 + 2 = 10 TinyVitBlocks of 2 junctions (their local_conv has no skip): "
        "22. 10 window attentions.",
        size=112,
    ),
    Family(
        "FocalNet",
        "timm:focalnet_tiny_srf",
        None,
        24,
        {"conv": 12, "mlp": 12},
        0,
        "Depths 2 + 2 + 6 + 2 = 12 FocalNetBlocks: focal modulation (depthwise convolutions, gated sums that are not "
        "junctions) and mlp: 24. No softmax anywhere.",
    ),
    Family(
        "VOLO",
        "timm:volo_d1_224",
        "transformer",
        40,
        {"other": 4, "attention": 16, "mlp": 20},
        16,
        "4 Outlookers, 4 + 8 + 2 = 14 Transformers and 2 ClassBlocks, 2 junctions each: 40 (a ClassBlock's skip is the "
        "slice with the class token). Outlook weights come from a linear layer, not from QKᵀ: 14 + 2 = 16 attentions.",
        status="partly",
        reason=(
            "Outlook attention takes its weights from a linear layer over overlapping 3 × 3 windows; they are not "
            "shown."
        ),
        options={"img_size": 64},
    ),
    Family(
        "CoaT (serial)",
        "timm:coat_lite_tiny",
        None,
        24,
        {"conv": 8, "other": 8, "mlp": 8},
        0,
        "Serial depths 2 × 4 = 8 SerialBlocks: convolutional position encoding (added to the image tokens), factorised "
        "attention and mlp: 24. The factorised attention is q (softmax(k)ᵀ v): no weights over pairs of positions.",
        status="partly",
        reason="Factorised attention never forms weights between positions; there is nothing to show.",
        options={"img_size": 64},
    ),
)

METAFORMERS_AND_MIXERS = (
    Family(
        "PoolFormer",
        "timm:poolformer_s12",
        None,
        24,
        {"pool": 12, "mlp": 12},
        0,
        "Depths 2 + 2 + 6 + 2 = 12 MetaFormerBlocks; forward adds pooling (pool(x) - x) and a 1 × 1 mlp: 24.",
    ),
    Family(
        "PoolFormer v2",
        "timm:poolformerv2_s12",
        None,
        24,
        {"pool": 12, "mlp": 12},
        0,
        "12 MetaFormerBlocks of 2 junctions: 24. In the last two stages the skip is scaled (res_scale) before the "
        "addition.",
    ),
    Family(
        "CAFormer",
        "timm:caformer_s18",
        "hybrid",
        36,
        {"conv": 6, "attention": 12, "mlp": 18},
        12,
        "Depths 3 + 3 + 9 + 3 = 18 MetaFormerBlocks of 2 junctions: 36; SepConv mixes in the first 6, attention in "
        "the last 12.",
    ),
    Family(
        "ConvFormer",
        "timm:convformer_s18",
        "cnn",
        36,
        {"conv": 18, "mlp": 18},
        0,
        "Depths 3 + 3 + 9 + 3 = 18 MetaFormerBlocks of SepConv and mlp: 36.",
    ),
    Family(
        "MLP-Mixer",
        "timm:mixer_s32_224",
        "mixer",
        16,
        {"mixer": 8, "mlp": 8},
        0,
        "8 MixerBlocks add a token mlp (on the transposed tokens) and a channel mlp: 16.",
        size=96,
        options={"img_size": 96},
    ),
    Family(
        "ResMLP",
        "timm:resmlp_12_224",
        "mixer",
        24,
        {"mixer": 12, "mlp": 12},
        0,
        "12 ResBlocks add linear_tokens and mlp_channels: 24. Affine's addcmul is not a junction.",
        options={"img_size": 64},
    ),
    Family(
        "gMLP",
        "timm:gmlp_ti16_224",
        "mixer",
        30,
        {"mixer": 30},
        0,
        "30 SpatialGatingBlocks with one junction each, whose branch holds the dense layer over tokens: 30.",
        options={"img_size": 64},
    ),
    Family(
        "gMixer",
        "timm:gmixer_12_224",
        "mixer",
        24,
        {"mixer": 12, "mlp": 12},
        0,
        "12 MixerBlocks with gated mlps, over tokens and over channels: 24.",
        options={"img_size": 64},
    ),
    Family(
        "Sequencer",
        "timm:sequencer2d_s",
        None,
        36,
        {"other": 18, "mlp": 18},
        0,
        "Layers 4 + 3 + 8 + 3 = 18 Sequencer2dBlocks add a bidirectional LSTM over rows and columns and an mlp: 36.",
        size=56,
        options={"img_size": 56},
    ),
)

HYBRIDS = (
    Family(
        "ViT-hybrid (ResNet stem)",
        "timm:vit_tiny_r_s16_p8_224",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Only the stem convolution of a ResNet stands before the 12 Blocks of ViT: 24 and 12.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "ViT-hybrid (R26)",
        "timm:vit_small_r26_s32_224",
        "hybrid",
        32,
        {"conv": 8, "attention": 12, "mlp": 12},
        12,
        "ResNetV2 with 2 × 4 = 8 (not pre-activated) Bottlenecks of one junction, then 12 Blocks of ViT: 8 + 24 = "
        "32; 12 attentions.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "MaxViT",
        "timm:maxvit_pico_rw_256",
        "hybrid",
        55,
        {"conv": 11, "attention": 22, "mlp": 22},
        22,
        "Depths 2 + 2 + 5 + 2 = 11 MaxxVitBlocks: MbConvBlock (1 junction, pooled skip where it strides), window "
        "attention (2) and grid attention (2): 5 × 11 = 55; 2 × 11 = 22 attentions.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "CoAtNet",
        "timm:coatnet_pico_rw_224",
        "hybrid",
        19,
        {"conv": 5, "attention": 7, "mlp": 7},
        7,
        "Depths 2 + 3 MbConvBlocks (1 junction each) and 5 + 2 TransformerBlock2d (2 each): 5 + 14 = 19; 7 attentions. "
        "Where a stage begins the skip is pooled and expanded.",
        options={"img_size": 64},
    ),
    Family(
        "MobileViT",
        "timm:mobilevit_xxs",
        "hybrid",
        21,
        {"conv": 3, "attention": 9, "mlp": 9},
        9,
        "Inverted residuals have a skip only where stride and width stay: 1 + 2 = 3; MobileVitBlocks hold 2 + 4 + 3 "
        "= 9 ViT Blocks (18): 21. Their own shortcut is concatenated, not added. 9 attentions.",
    ),
    Family(
        "MobileViT v2",
        "timm:mobilevitv2_050",
        None,
        19,
        {"conv": 1, "other": 9, "mlp": 9},
        0,
        "One inverted residual keeps stride and width; 2 + 4 + 3 = 9 LinearTransformerBlocks of 2 junctions: 19. "
        "Linear attention weighs the keys by one softmax for all queries.",
        status="partly",
        reason="Linear self-attention has one context vector for all queries, no weights between pairs of positions.",
        size=128,
    ),
    Family(
        "EfficientFormer",
        "timm:efficientformer_l1",
        None,
        30,
        {"pool": 14, "attention": 1, "mlp": 15},
        1,
        "Depths 3 + 2 + 6 + 4 = 15: 14 MetaBlock2d (pooling, 1 × 1 mlp) and as the last one MetaBlock1d (attention, "
        "mlp): 30; 1 attention.",
        size=224,
    ),
    Family(
        "EfficientFormer v2",
        "timm:efficientformerv2_s0",
        "hybrid",
        19,
        {"conv": 14, "attention": 5},
        5,
        "Depths 2 + 2 + 6 + 4 = 14 blocks: the mlp with a 3 × 3 convolution inside (14), attention in the last 2 "
        "blocks of stages 2 and 3 (4), and the last Downsample adds attention to its strided convolution (1): 19. "
        "Sums with v_local and of local and pooled queries are not junctions. 5 attentions.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "EfficientViT (MIT)",
        "timm:efficientvit_b0",
        None,
        11,
        {"conv": 7, "other": 4},
        0,
        "1 stem block, one block in each of stages 0 and 1 (the strided ones have no shortcut), 2 "
        "EfficientVitBlocks in stages 2 and 3 of LiteMLA and MBConv: 1 + 2 + 4 × 2 = 11.",
        status="partly",
        reason="LiteMLA is ReLU linear attention: no weights between positions are ever formed.",
    ),
    Family(
        "EfficientViT (MSRA)",
        "timm:efficientvit_m0",
        "hybrid",
        38,
        {"conv": 16, "mlp": 16, "attention": 6},
        24,
        "Depths 1 + 2 + 3 = 6 EfficientVitBlocks of 5 ResidualDrops (convolution, mlp, attention, convolution, "
        "mlp): 30; 2 downsamples with 2 × (convolution, mlp): 8. CascadedGroupAttention runs its 4 heads one after "
        "another: 6 × 4 = 24.",
        size=112,
        options={"img_size": 112},
    ),
    Family(
        "SHViT",
        "timm:shvit_s1",
        "hybrid",
        39,
        {"conv": 15, "mlp": 15, "attention": 9},
        9,
        "Depths 2 + 4 + 5 = 11 BasicBlocks add a convolution and an ffn (22), those of stages 1 and 2 also single-head "
        "attention (9); 2 downsamples with 2 × (convolution, ffn): 8. 39 and 9.",
        size=128,
    ),
    Family(
        "EdgeNeXt",
        "timm:edgenext_xx_small",
        None,
        15,
        {"conv": 9, "other": 6},
        0,
        "Depths 2 + 2 + 6 + 2 = 12; the last block of stages 1, 2 and 3 is a SplitTransposeBlock (cross-covariance "
        "attention inside, and the whole block: 2 junctions), the other 9 are ConvBlocks (1): 15.",
        status="partly",
        reason=(
            "Cross-covariance attention mixes channels; its weights belong to no pair of positions and are not shown."
        ),
    ),
    Family(
        "FastViT",
        "timm:fastvit_sa12",
        "hybrid",
        25,
        {"conv": 23, "attention": 2},
        2,
        "2 + 2 + 6 = 10 RepMixerBlocks: RepMixer's x + (mixer(x) - norm(x)) and the mlp with its 7 × 7 convolution "
        "(20); 2 AttentionBlocks: attention and the same mlp (4); RepConditionalPosEnc (1): 25. The parallel "
        "branches inside MobileOneBlock are no junctions.",
    ),
    Family(
        "Next-ViT",
        "timm:nextvit_small",
        "hybrid",
        23,
        {"conv": 10, "attention": 3, "mlp": 10},
        3,
        "Built with depths 1, 2, 5, 2: 1 + 1 + 4 + 1 = 7 NextConvBlocks (group convolution, mlp: 14) and 3 "
        "NextTransformerBlocks (attention, group convolution on the projected half, mlp: 9): 23 and 3.",
        options={"depths": (1, 2, 5, 2)},
    ),
    Family(
        "Visformer",
        "timm:visformer_tiny",
        "hybrid",
        23,
        {"conv": 7, "attention": 8, "mlp": 8},
        8,
        "Depths 7, 4, 4: the 7 first Blocks have no attention and a grouped 3 × 3 convolution in the mlp (7), the "
        "other 8 attention and a 1 × 1 mlp (16): 23 and 8.",
        options={"img_size": 64},
    ),
    Family(
        "BoTNet",
        "timm:botnet26t_256",
        "hybrid",
        8,
        {"conv": 5, "attention": 3},
        3,
        "2 + 2 + 1 = 5 bottlenecks and 1 + 2 = 3 SelfAttnBlocks, one junction each (first of a stage projected): 8 "
        "and 3.",
        size=128,
        options={"img_size": 128},
    ),
    Family(
        "HaloNet",
        "timm:halonet26t",
        "hybrid",
        8,
        {"conv": 5, "attention": 3},
        3,
        "2 + 2 + 1 = 5 bottlenecks and 1 + 2 = 3 SelfAttnBlocks, one junction each: 8; blocked attention with a "
        "halo of keys: 3.",
        size=256,
    ),
    Family(
        "LambdaNet",
        "timm:lambda_resnet26t",
        None,
        8,
        {"conv": 5, "other": 3},
        0,
        "2 + 2 + 1 = 5 bottlenecks and 1 + 2 = 3 SelfAttnBlocks with a lambda layer, one junction each: 8.",
        status="partly",
        reason=(
            "A lambda layer applies q to a summary of all keys and values: no weights between positions are ever "
            "formed."
        ),
        size=128,
    ),
)

CONVOLUTIONAL = (
    Family(
        "ResNet-18",
        "timm:resnet18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of BasicBlock, one addition (in place) each: 8.",
    ),
    Family(
        "ResNet-50",
        "timm:resnet50",
        "cnn",
        16,
        {"conv": 16},
        0,
        "Layers 3 + 4 + 6 + 3 = 16 Bottlenecks, one addition (in place) each; the first of a stage is projected: 16.",
    ),
    Family(
        "ResNeXt",
        "timm:resnext50_32x4d",
        "cnn",
        16,
        {"conv": 16},
        0,
        "Layers 3 + 4 + 6 + 3 = 16 Bottlenecks with grouped convolutions: 16.",
    ),
    Family(
        "SE-ResNet",
        "timm:seresnet18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of BasicBlock; squeeze and excite multiplies inside the branch: 8.",
    ),
    Family(
        "SE-ResNet (legacy)",
        "timm:legacy_seresnet18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of SEResNetBlock (se_module(out) + shortcut): 8.",
    ),
    Family(
        "ECA-ResNet",
        "timm:ecaresnet26t",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of Bottleneck; the projected shortcut averages first: 8.",
    ),
    Family(
        "SKNet",
        "timm:skresnet18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of SelectiveKernelBasic: 8. The sum of kernel paths is no junction, the softmax over the "
        "paths no attention.",
    ),
    Family(
        "ResNeSt",
        "timm:resnest14d",
        "cnn",
        4,
        {"conv": 4},
        0,
        "Layers 1, 1, 1, 1 of ResNestBottleneck: 4. Split attention's softmax runs over two splits, not over "
        "positions.",
    ),
    Family(
        "Res2Net",
        "timm:res2net50_14w_8s",
        "cnn",
        16,
        {"conv": 16},
        0,
        "Layers 3 + 4 + 6 + 3 = 16 Bottle2necks: 16. The sums between the 8 splits inside are no junctions.",
    ),
    Family(
        "BiT (ResNetV2)",
        "timm:resnetv2_50x1_bit",
        "cnn",
        16,
        {"conv": 16},
        0,
        "Layers 3 + 4 + 6 + 3 = 16 PreActBottlenecks, one addition each; the projected shortcuts (first of a stage) "
        "start after norm1, the others before: 16.",
    ),
    Family(
        "ResNetV2",
        "timm:resnetv2_18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of PreActBasic: 8.",
    ),
    Family(
        "NF-ResNet",
        "timm:nf_resnet26",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Depths 2, 2, 2, 2 of NormFreeBlock (out · α + shortcut; the projected shortcut starts after act · β): 8.",
    ),
    Family(
        "NFNet",
        "timm:eca_nfnet_l0",
        "cnn",
        12,
        {"conv": 12},
        0,
        "Depths 1 + 2 + 6 + 3 = 12 NormFreeBlocks: 12.",
    ),
    Family(
        "ConvNeXt",
        "timm:convnext_atto",
        "cnn",
        12,
        {"conv": 12},
        0,
        "Depths 2 + 2 + 6 + 2 = 12 ConvNeXtBlocks, one addition each: 12. Downsampling has no skip.",
    ),
    Family(
        "ConvNeXt v2",
        "timm:convnextv2_atto",
        "cnn",
        12,
        {"conv": 12},
        0,
        "Depths 2 + 2 + 6 + 2 = 12 ConvNeXtBlocks: 12. Global response normalisation scales its input by 1 + γ·n "
        "and adds β (written as a sum with its input): a gate, no junction.",
    ),
    Family(
        "InceptionNeXt",
        "timm:inception_next_atto",
        "cnn",
        12,
        {"conv": 12},
        0,
        "Depths 2 + 2 + 6 + 2 = 12 MetaNeXtBlocks, one addition each: 12.",
    ),
    Family(
        "ConvMixer",
        "timm:convmixer_1024_20_ks9_p14",
        "cnn",
        20,
        {"conv": 20},
        0,
        "20 blocks; only the depthwise convolution stands in a Residual, the pointwise one has no skip: 20.",
        size=56,
    ),
    Family(
        "MambaOut",
        "timm:mambaout_femto",
        "cnn",
        18,
        {"conv": 18},
        0,
        "Depths 3 + 3 + 9 + 3 = 18 GatedConvBlocks, one addition each: 18.",
    ),
    Family(
        "StarNet",
        "timm:starnet_s050",
        "cnn",
        6,
        {"conv": 6},
        0,
        "Depths 1 + 1 + 3 + 1 = 6 Blocks, one addition each: 6.",
    ),
    Family(
        "RegNetX",
        "timm:regnetx_002",
        "cnn",
        13,
        {"conv": 13},
        0,
        "Depth 13 in all; every Bottleneck adds a shortcut (identity or projection): 13.",
    ),
    Family(
        "RegNetY",
        "timm:regnety_002",
        "cnn",
        13,
        {"conv": 13},
        0,
        "Depth 13 as RegNetX, with squeeze and excite in the branch: 13.",
    ),
    Family(
        "EfficientNet",
        "timm:efficientnet_b0",
        "cnn",
        9,
        {"conv": 9},
        0,
        "16 blocks in 7 stages of 1, 2, 2, 3, 3, 4, 1; the first of each stage changes stride or width and has no "
        "skip: 0 + 1 + 1 + 2 + 2 + 3 + 0 = 9.",
    ),
    Family(
        "MobileNet v2",
        "timm:mobilenetv2_035",
        "cnn",
        10,
        {"conv": 10},
        0,
        "Stages of 1, 2, 3, 4, 3, 3, 1; the first of each changes stride or width (also at width 0.35: 16→8, 24→32, "
        "56→112): 0 + 1 + 2 + 3 + 2 + 2 + 0 = 10.",
    ),
    Family(
        "MobileNet v3",
        "timm:mobilenetv3_small_050",
        "cnn",
        7,
        {"conv": 7},
        0,
        "Stages of 1, 2, 3, 2, 3 inverted residuals. The first of each strides, but at width 0.5 stage 3 goes from "
        "24 to 24 channels without stride, so both of its blocks have a skip: 0 + 1 + 2 + 2 + 2 = 7.",
    ),
    Family(
        "MobileNet v4",
        "timm:mobilenetv4_conv_small_050",
        "cnn",
        10,
        {"conv": 10},
        0,
        "Two stages of 6 universal inverted residuals whose first strides: 5 + 5 = 10; the plain convolution stages "
        "have no skip.",
    ),
    Family(
        "GhostNet",
        "timm:ghostnet_050",
        "cnn",
        16,
        {"conv": 16},
        0,
        "1 + 1 + 1 + 1 + 1 + 1 + 5 + 1 + 4 = 16 GhostBottlenecks; all add a shortcut (identity, or depthwise and 1 "
        "× 1): 16.",
    ),
    Family(
        "RepVGG",
        "timm:repvgg_a0",
        "cnn",
        0,
        {},
        0,
        "The sums of RepVggBlock (1 × 1, 3 × 3 and normalised identity) are parallel branches of one re-parameterised "
        "convolution, not junctions: 0.",
    ),
    Family(
        "MobileOne",
        "timm:mobileone_s0",
        "cnn",
        0,
        {},
        0,
        "The sums of MobileOneBlock (scale, k × k and identity branches) fold into one convolution: 0 junctions.",
    ),
    Family(
        "RepViT",
        "timm:repvit_m0_9",
        "cnn",
        26,
        {"mlp": 26},
        0,
        "Depths 2 + 2 + 14 + 2 = 20 RepViTBlocks add their channel mixer (1 × 1), 3 RepVitDownsamples hold one such "
        "block and an ffn junction: 20 + 6 = 26. The token mixer's sum (RepVggDw) folds into one convolution.",
    ),
    Family(
        "DenseNet",
        "timm:densenet121",
        "cnn",
        0,
        {},
        0,
        "DenseLayers concatenate; nothing is added: 0.",
    ),
    Family(
        "VGG",
        "timm:vgg11",
        "cnn",
        0,
        {},
        0,
        "A chain of convolutions and poolings: 0. The taps fall back to the convolutions' outputs.",
        options={"mlp_ratio": 0.125},
    ),
    Family(
        "Inception v3",
        "timm:inception_v3",
        "cnn",
        0,
        {},
        0,
        "The branches of every Inception module are concatenated: 0.",
        size=160,
    ),
    Family(
        "Inception-ResNet v2",
        "timm:inception_resnet_v2",
        "cnn",
        40,
        {"conv": 40},
        0,
        "10 Block35, 20 Block17, 9 Block8 and a last Block8, each out · scale + x: 40.",
        size=160,
    ),
    Family(
        "Xception",
        "timm:legacy_xception",
        "cnn",
        12,
        {"conv": 12},
        0,
        "12 Blocks, each adding a shortcut (blocks 1, 2, 3 and 12 projected): 12.",
    ),
    Family(
        "DPN",
        "timm:dpn48b",
        "cnn",
        16,
        {"conv": 16},
        0,
        "3 + 4 + 6 + 3 = 16 DualPathBlocks; the residual path x_s1 + out1 is added, the dense path concatenated: 16.",
    ),
    Family(
        "HRNet",
        "timm:hrnet_w18_small",
        "cnn",
        23,
        {"conv": 23},
        0,
        "1 Bottleneck in layer1, 2 × 2 + 3 × 2 + 4 × 2 = 18 BasicBlocks in the branches, 4 Bottlenecks in the head: "
        "23. Sums in the fuse layers and down the head join resolutions and are no junctions.",
    ),
    Family(
        "CSPNet",
        "timm:cspresnet50",
        "cnn",
        13,
        {"conv": 13},
        0,
        "Depths 3 + 3 + 5 + 2 = 13 BottleneckBlocks on one half of the channels; the halves are concatenated: 13.",
    ),
    Family(
        "DarkNet",
        "timm:darknet17",
        "cnn",
        5,
        {"conv": 5},
        0,
        "5 DarkStages of one DarkBlock: 5.",
    ),
    Family(
        "DLA",
        "timm:dla46_c",
        "cnn",
        12,
        {"conv": 12},
        0,
        "Levels 2 to 5 are trees of depth 1, 2, 2, 1 with 2 + 4 + 4 + 2 = 12 DlaBottlenecks, one addition each (the "
        "first of a tree with a pooled and projected shortcut); DlaRoot concatenates: 12.",
    ),
    Family(
        "VoVNet",
        "timm:ese_vovnet39b",
        "cnn",
        2,
        {"conv": 2},
        0,
        "Blocks a stage 1, 1, 2, 2; only the second block of a stage is residual: 2.",
    ),
)

TORCHVISION = (
    Family(
        "ViT (torchvision)",
        "torchvision:VisionTransformer",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Built with 4 EncoderBlocks; forward returns x + y after x = attention + input: 8. nn.MultiheadAttention "
        "each: 4.",
        options={
            "image_size": 64,
            "patch_size": 16,
            "num_layers": 4,
            "num_heads": 3,
            "hidden_dim": 192,
            "mlp_dim": 384,
        },
    ),
    Family(
        "Swin (torchvision)",
        "torchvision:swin_t",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 SwinTransformerBlocks of 2 junctions: 24; explicit softmax in a function: 12.",
        size=112,
    ),
    Family(
        "Swin v2 (torchvision)",
        "torchvision:swin_v2_t",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Depths 2 + 2 + 6 + 2 = 12 SwinTransformerBlockV2 of 2 junctions: 24; cosine attention, explicit softmax: 12.",
        size=128,
    ),
    Family(
        "MaxViT (torchvision)",
        "torchvision:MaxVit",
        "hybrid",
        25,
        {"conv": 5, "attention": 10, "mlp": 10},
        10,
        "Built with 1 + 1 + 2 + 1 = 5 MaxVitLayers: MBConv (1), window and grid PartitionAttentionLayer (2 each): 25; "
        "attention written with einsum: 10.",
        options={
            "input_size": (64, 64),
            "stem_channels": 16,
            "partition_size": 2,
            "block_channels": [16, 32, 64, 128],
            "block_layers": [1, 1, 2, 1],
            "head_dim": 8,
            "stochastic_depth_prob": 0.0,
        },
    ),
    Family(
        "ResNet-18 (torchvision)",
        "torchvision:resnet18",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Layers 2, 2, 2, 2 of BasicBlock (out += identity): 8.",
    ),
    Family(
        "ConvNeXt (torchvision)",
        "torchvision:convnext_tiny",
        "cnn",
        18,
        {"conv": 18},
        0,
        "3 + 3 + 9 + 3 = 18 CNBlocks (result += input): 18.",
    ),
    Family(
        "EfficientNet (torchvision)",
        "torchvision:efficientnet_b0",
        "cnn",
        9,
        {"conv": 9},
        0,
        "Stages of 1, 2, 2, 3, 3, 4, 1 MBConvs; the first of each changes stride or width: 0 + 1 + 1 + 2 + 2 + 3 + "
        "0 = 9.",
    ),
    Family(
        "RegNet (torchvision)",
        "torchvision:regnet_y_400mf",
        "cnn",
        16,
        {"conv": 16},
        0,
        "Depth 16 in all; every ResBottleneckBlock adds its input or its projection: 16.",
    ),
    Family(
        "MobileNet v3 (torchvision)",
        "torchvision:mobilenet_v3_small",
        "cnn",
        6,
        {"conv": 6},
        0,
        "11 InvertedResiduals with widths 16, 24, 24, 40, 40, 40, 48, 48, 96, 96, 96; a skip where stride is 1 and "
        "width stays: 1 + 2 + 1 + 2 = 6.",
    ),
    Family(
        "DenseNet (torchvision)",
        "torchvision:densenet121",
        "cnn",
        0,
        {},
        0,
        "Features are concatenated, never added: 0.",
    ),
    Family(
        "SqueezeNet (torchvision)",
        "torchvision:squeezenet1_1",
        "cnn",
        0,
        {},
        0,
        "The two expansions of a Fire module are concatenated: 0.",
    ),
)

HUGGING_FACE = (
    Family(
        "ViT (Hugging Face)",
        "hf:ViT",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with 4 ViTLayers; forward adds attention and mlp to the residual: 8 and 4 (fused attention).",
        options={
            "image_size": 64,
            "hidden_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "intermediate_size": 192,
        },
    ),
    Family(
        "DeiT (Hugging Face)",
        "hf:DeiT",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with 4 DeiTLayers, as ViTLayer: 8 and 4; here with the eager attention (explicit softmax).",
        options={
            "image_size": 64,
            "hidden_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "intermediate_size": 192,
            "attn_implementation": "eager",
        },
    ),
    Family(
        "BEiT (Hugging Face)",
        "hf:Beit",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with 4 BeitLayers; λ₁·attention and λ₂·mlp are added: 8 and 4. The relative bias is the mask.",
        options={
            "image_size": 64,
            "hidden_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "intermediate_size": 192,
            "use_relative_position_bias": True,
        },
    ),
    Family(
        "DINOv2 (Hugging Face)",
        "hf:Dinov2",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with 4 Dinov2Layers; scaled attention and mlp are added to the residual: 8 and 4.",
        size=56,
        options={
            "image_size": 56,
            "patch_size": 14,
            "hidden_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
        },
    ),
    Family(
        "Swin (Hugging Face)",
        "hf:Swin",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with depths 2, 2: 4 SwinLayers of 2 junctions, every second one shifted: 8 and 4.",
        options={"image_size": 64, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4},
    ),
    Family(
        "SegFormer (Hugging Face)",
        "hf:Segformer",
        None,
        8,
        {"attention": 4, "conv": 4},
        4,
        "Configured with depths 1, 1, 1, 1: 4 SegformerLayers of attention (reduced keys) and an mlp with a 3 × 3 "
        "depthwise convolution: 8 and 4.",
        options={"depths": (1, 1, 1, 1), "hidden_sizes": (16, 32, 80, 128)},
    ),
    Family(
        "PoolFormer (Hugging Face)",
        "hf:PoolFormer",
        None,
        10,
        {"pool": 5, "mlp": 5},
        0,
        "Configured with depths 1, 1, 2, 1: 5 PoolFormerLayers of pooling and 1 × 1 mlp: 10.",
        options={"depths": (1, 1, 2, 1), "hidden_sizes": (16, 32, 64, 128)},
    ),
    Family(
        "ConvNeXt (Hugging Face)",
        "hf:ConvNext",
        "cnn",
        5,
        {"conv": 5},
        0,
        "Configured with depths 1, 1, 2, 1: 5 ConvNextLayers, one addition each: 5.",
        options={"depths": (1, 1, 2, 1), "hidden_sizes": (16, 32, 64, 128)},
    ),
    Family(
        "ResNet (Hugging Face)",
        "hf:ResNet",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Configured with depths 2, 2, 2, 2 of ResNetBasicLayer (hidden_state += shortcut): 8.",
        options={
            "depths": (2, 2, 2, 2),
            "hidden_sizes": (16, 32, 64, 128),
            "embedding_size": 16,
            "layer_type": "basic",
        },
    ),
    Family(
        "BiT (Hugging Face)",
        "hf:Bit",
        "cnn",
        8,
        {"conv": 8},
        0,
        "Configured with depths 2, 2, 2, 2 of BitPreActivationBottleneckLayer; the projected shortcut starts after "
        "norm1: 8.",
        options={"depths": (2, 2, 2, 2), "hidden_sizes": (128, 256, 256, 512), "embedding_size": 32, "num_groups": 8},
    ),
)

#: Derived after the taps were written and not shown to their author. At the first run 23 of the 25 agreed in every
#: number; SwiftFormer's kinds and NASNet's sums did not.
HELD_OUT = (
    Family(
        "ViT with one parallel branch",
        "timm:vit_pwee_patch16_reg1_gap_256",
        "transformer",
        3,
        {"attention": 3},
        3,
        "Built with 3 ParallelScalingBlocks: attention and mlp share one branch and one addition: 3 and 3.",
        options={"img_size": 64, "depth": 3},
    ),
    Family(
        "ViT with differential attention",
        "timm:vit_dwee_patch16_reg1_gap_256",
        "transformer",
        6,
        {"attention": 3, "mlp": 3},
        6,
        "Built with 3 Blocks of 2 junctions: 6; DiffAttention runs two fused attentions over the same values and "
        "subtracts them: 2 × 3 = 6.",
        options={"img_size": 64, "depth": 3},
    ),
    Family(
        "NaFlexViT",
        "timm:naflexvit_base_patch16_gap",
        "transformer",
        6,
        {"attention": 3, "mlp": 3},
        3,
        "Built with 3 Blocks of ViT: 6 and 3.",
        options={"depth": 3, "embed_dim": 192, "num_heads": 3},
    ),
    Family(
        "ViTamin",
        "timm:vitamin_small_224",
        "hybrid",
        14,
        {"conv": 6, "attention": 4, "mlp": 4},
        4,
        "2 + 4 = 6 MbConvLNBlocks (1 junction, pooled and expanded skip where they stride) and, built with depth 4, "
        "4 Blocks of ViT with gated mlps: 6 + 8 = 14; 4.",
        options={"img_size": 64, "depth": 4},
    ),
    Family(
        "SAM 2's Hiera",
        "timm:sam2_hiera_tiny",
        "transformer",
        24,
        {"attention": 12, "mlp": 12},
        12,
        "Stages 1 + 2 + 7 + 2 = 12 MultiScaleBlocks of 2 junctions (three skips projected and max-pooled): 24 and 12.",
        size=128,
    ),
    Family(
        "CoaT (parallel)",
        "timm:coat_tiny",
        None,
        42,
        {"conv": 14, "other": 14, "mlp": 14},
        0,
        "8 SerialBlocks of 3 junctions (24); built with 2 ParallelBlocks over 3 scales, each position encoding, "
        "factorised attention and mlp: 2 × 9 = 18. The sums across scales before the addition are fusions.",
        status="partly",
        reason="Factorised attention never forms weights between positions; there is nothing to show.",
        size=128,
        options={"img_size": 128, "parallel_depth": 2},
    ),
    Family(
        "MobileNet v4 (hybrid)",
        "timm:mobilenetv4_hybrid_medium",
        "hybrid",
        27,
        {"conv": 15, "mlp": 4, "attention": 8},
        8,
        "Blocks without stride: 1 in stage 1, 7 (one of them without depthwise convolution, mlp) and 4 multi-query "
        "attentions in stage 2, 11 (3 of them mlp) and 4 attentions in stage 3: conv 15, mlp 4, attention 8.",
        size=128,
    ),
    Family(
        "TResNet",
        "timm:tresnet_m",
        "cnn",
        5,
        {"conv": 5},
        0,
        "Built with layers 1, 1, 2, 1 of BasicBlock and Bottleneck, one addition each: 5.",
        options={"layers": (1, 1, 2, 1)},
    ),
    Family(
        "ReXNet",
        "timm:rexnet_100",
        "cnn",
        11,
        {"conv": 11},
        0,
        "Layers 1, 2, 2, 3, 3, 5 of LinearBottleneck; without stride and where channels do not shrink, the first "
        "channels get the shortcut: 0 + 1 + 1 + 2 + 3 + 4 = 11.",
    ),
    Family(
        "EfficientNet v2",
        "timm:tf_efficientnetv2_b0",
        "cnn",
        15,
        {"conv": 15},
        0,
        "Stages of 1, 2, 2, 3, 5, 8 blocks; the first of each changes stride or width: 0 + 1 + 1 + 2 + 4 + 7 = 15.",
    ),
    Family(
        "MixNet",
        "timm:mixnet_s",
        "cnn",
        11,
        {"conv": 11},
        0,
        "Blocks without stride and with equal width: 1 (16 to 16 after the stem) + 1 + 3 + 2 + 2 + 2 = 11.",
    ),
    Family(
        "GhostNet v2",
        "timm:ghostnetv2_100",
        "cnn",
        16,
        {"conv": 16},
        0,
        "16 GhostBottlenecks, all with a shortcut: 16. The long-range gate multiplies.",
    ),
    Family(
        "RepGhost",
        "timm:repghostnet_050",
        "cnn",
        16,
        {"conv": 16},
        0,
        "16 RepGhostBottlenecks, all with a shortcut: 16. The sums inside RepGhostModule fold into one convolution.",
    ),
    Family(
        "FasterNet",
        "timm:fasternet_t0",
        "cnn",
        13,
        {"conv": 13},
        0,
        "Depths 1 + 2 + 8 + 2 = 13 MLPBlocks, one addition each (partial convolution in the branch): 13.",
    ),
    Family(
        "HGNet v2",
        "timm:hgnetv2_b0",
        "cnn",
        1,
        {"conv": 1},
        0,
        "Blocks a stage 1, 1, 2, 1; only the second block of a stage is residual: 1.",
    ),
    Family("SelecSLS", "timm:selecsls42", "cnn", 0, {}, 0, "Blocks concatenate: 0."),
    Family("RDNet", "timm:rdnet_tiny", "cnn", 0, {}, 0, "Dense blocks concatenate: 0."),
    Family(
        "LeViT (Hugging Face)",
        "hf:Levit",
        "transformer",
        14,
        {"attention": 6, "mlp": 8},
        8,
        "Configured with depths 2, 2, 2: 6 attention and 6 mlp LevitResidualLayers, and after each of 2 "
        "LevitAttentionSubsamples (no skip) one mlp: 14; 6 + 2 = 8.",
        size=128,
        options={
            "image_size": 128,
            "hidden_sizes": [64, 128, 192],
            "depths": [2, 2, 2],
            "num_attention_heads": [2, 4, 6],
        },
    ),
    Family(
        "CvT (Hugging Face)",
        "hf:Cvt",
        None,
        12,
        {"attention": 6, "mlp": 6},
        6,
        "Configured with depth 1, 2, 3: 6 CvtLayers of attention (convolutional projections, einsum) and mlp: 12 "
        "and 6.",
        options={"depth": [1, 2, 3], "embed_dim": [16, 48, 96]},
    ),
    Family(
        "PVT (Hugging Face)",
        "hf:Pvt",
        "transformer",
        8,
        {"attention": 4, "mlp": 4},
        4,
        "Configured with depths 1, 1, 1, 1: 4 PvtLayers of attention (reduced keys) and mlp: 8 and 4.",
        options={
            "image_size": 64,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [16, 32, 64, 128],
            "num_attention_heads": [1, 2, 4, 8],
        },
    ),
    Family(
        "RegNet (Hugging Face)",
        "hf:RegNet",
        "cnn",
        5,
        {"conv": 5},
        0,
        "Configured with depths 1, 1, 2, 1 of RegNetYLayer, one addition each: 5.",
        options={"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 48, 64], "groups_width": 8, "embedding_size": 8},
    ),
    Family(
        "ShuffleNet v2 (torchvision)",
        "torchvision:shufflenet_v2_x0_5",
        "cnn",
        0,
        {},
        0,
        "Branches are concatenated and shuffled: 0.",
    ),
    Family(
        "EfficientViM",
        "timm:efficientvim_m1",
        None,
        28,
        {"conv": 16, "other": 6, "mlp": 6},
        0,
        "Depths 2, 2, 2: 6 EfficientViMBlocks add (gated) a depthwise convolution, a state-space mixer, another "
        "convolution and an ffn: 24; 2 PatchMergings add two depthwise convolutions each: 4.",
        size=128,
        status="partly",
        reason="The state-space mixer weighs each position once, not pairs of positions; there are no weights to show.",
    ),
    Family(
        "SwiftFormer",
        "timm:swiftformer_xs",
        None,
        28,
        {"conv": 16, "other": 8, "mlp": 4},
        0,
        "Layers 3 + 3 + 6 + 4 = 16: 12 ConvEncoders (1 junction) and as the last of each stage a Block of local "
        "convolution, additive attention and mlp (3), with the query added once more inside the attention (1): 12 + "
        "4 × 4 = 28.",
        size=128,
        status="partly",
        reason="Additive attention has one global query, no weights between pairs of positions.",
    ),
    Family(
        "NASNet",
        "timm:nasnetalarge",
        "cnn",
        18,
        {"conv": 18},
        0,
        "3 FirstCells and 15 NormalCells add comb_iter_4_left(x_right) to x_right: 18. All other sums of the cells "
        "join two branches, or a branch and another branch's pooling.",
        size=96,
        status="not",
        reason="Cells add branches in pairs; the taps take 27 of these sums for residual additions (45 instead of 18).",
        options={"num_features": 960},  # a quarter of its width
        known_gap={"junctions": 45, "conv": 45},
    ),
)

FAMILIES = (
    *VISION_TRANSFORMERS,
    *WINDOWS_AND_PYRAMIDS,
    *METAFORMERS_AND_MIXERS,
    *HYBRIDS,
    *CONVOLUTIONAL,
    *TORCHVISION,
    *HUGGING_FACE,
    *HELD_OUT,
)
