"""What few-shot evaluation reads of a subject: the vector that its classifier is applied to, or what comes nearest.

    what the classifier reads              one matrix makes the logits of one vector
    what comes out                         there is no classifier, and one vector comes out
    class tokens of the last block         several classifiers read one each (DeiT's is distilled), or tokens come out
    the mean over positions                everything else: two classifiers of one mean (LeViT), a map comes out

Of a ViT's last block every token is first brought to mean 0 and variance 1 over its channels. That is the LayerNorm
which follows, up to a factor and an offset of each channel, and features are standardised channel by channel later. The
last norms of other families are not known from outside; a batch norm would not matter for the same reason.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from eyechart.sites import Anatomy, Site
from eyechart.tracing.needs import View
from eyechart.tracing.readouts import has_cls, narrow
from eyechart.tracing.views import Look

WIDEST = 2048
CLASSIFIER = "what its classifier reads"


def class_tokens(anatomy: Anatomy, site: Site) -> slice | None:
    """Which tokens of a last block stand for the picture; None: its mean does.

    A subject that answers from its class token but not from one vector has a classifier for each token before the
    patches. One that ends in tokens does not say how it would be read: like others of its kind, at the class token.
    """
    if site.role == "features" or not has_cls(anatomy, site) or anatomy.pooling not in ("cls", None):
        return None
    assert anatomy.cls is not None
    return slice(0, site.layout.prefix) if anatomy.pooling else slice(anatomy.cls, anatomy.cls + 1)


def before_logits(look: Look) -> Tensor:
    """The features, (image, feature)."""
    anatomy, site = look.anatomy, look.site
    if site.role == "features":
        return narrow(look.output.flatten(1).float(), WIDEST)
    tokens, chosen = look.tokens(look.output).float(), class_tokens(anatomy, site)
    if anatomy.family == "vit":
        tokens = F.layer_norm(tokens, tokens.shape[-1:])
    mean = tokens[:, site.layout.prefix :].mean(1)
    return narrow(mean if chosen is None else tokens[:, chosen].flatten(1), WIDEST)


def width_of(anatomy: Anatomy, site: Site) -> int:
    """How many features `before_logits` gives."""
    chosen = class_tokens(anatomy, site)
    return min(site.channels * (1 if chosen is None else chosen.stop - chosen.start), WIDEST)


def words_for(anatomy: Anatomy, site: Site) -> str:
    """What was read, in words."""
    if site.role == "features":
        head = anatomy.pick("head")
        return "what comes out of it" if head and head[0].address == site.address else CLASSIFIER
    chosen = class_tokens(anatomy, site)
    count = 0 if chosen is None else chosen.stop - chosen.start
    tokens = {0: "the mean over positions", 1: "the class token"}.get(count, f"the {count} tokens before the patches")
    return f"{tokens} of {anatomy.words(site)}" + (", normalised over channels" if anatomy.family == "vit" else "")


FEATURES = View("features before the logits", before_logits)
