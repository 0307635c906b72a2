"""Where does a subject first go wrong? Only asked when a number was not finite, because it costs a pass of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from eyechart.sites import Anatomy, Site
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap

FINITE = View("finite", lambda look: look.output.isfinite().flatten(1).all(1))


def first_not_finite(
    module: nn.Module, anatomy: Anatomy, images: Tensor, call: Callable[[Tensor], Any] | None = None
) -> Site | None:
    """The first site, in execution order, at which an image has NaN or infinity; None if all are finite."""
    _, views = Tap(module, anatomy, {site.name: [FINITE] for site in anatomy.sites}).run(images, call)
    return next((site for site in anatomy.sites if not bool(views[site.name]["finite"].all())), None)
