"""Features of single images, one row each, for measures that need them after the last batch: probes, episodes.

At most `most` images are kept, evenly spread over the plan, so that the size is bounded; the others may go into sums.
Rows have no fold axis; the field `dealt` says how the folds are weighted (leave-one-out).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from eyechart.device import put
from eyechart.scene import Batch, Scene
from eyechart.tally import Concat, Sum, Tally


def kept(batch: Batch, scene: Scene, most: int) -> np.ndarray:
    """Which images of a batch are kept, (image,): whole rounds over the folds, so that every fold keeps as many.

    Every eighth image, for example, would come from two of sixteen folds only.
    """
    rounds, room = -(-scene.images // scene.folds), max(1, most // scene.folds)
    turn = (batch.index * scene.block + np.arange(len(batch.images))) // scene.folds
    if rounds <= room:
        return np.ones(len(turn), dtype=bool)
    return np.asarray((turn + 1) * room // rounds > turn * room // rounds)


def rows_at_most(scene: Scene, most: int) -> int:
    return min(scene.images, max(1, most // scene.folds) * scene.folds)


@dataclass
class RowsTally(Tally):
    image: Annotated[Tensor, Concat("image", dtype="int64")]
    fold: Annotated[Tensor, Concat("image", dtype="int64")]
    label: Annotated[Tensor, Concat("image", dtype="int64")]
    features: Annotated[Tensor, Concat("image", "feature", dtype="float32")]
    dealt: Annotated[Tensor, Sum("fold", "dealt_fold")]
    """Kept images of each fold, on the diagonal: the sum over weighted folds gives the weight of each fold."""
    images: Annotated[Tensor, Sum("fold", counts=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        #: A cache of what depends on the rows alone, by their number. `total()` and `weighted()` are shallow copies, so
        #: they share it.
        self.computed: dict[int, Tensor] = {}

    def keep(self, batch: Batch, features: Tensor, chosen: np.ndarray) -> None:
        """Add the chosen images of a batch."""
        assert batch.labels is not None
        of_batch = {"image": batch.images, "fold": batch.image_folds, "label": batch.labels}
        known = {name: put(values[chosen], features.device) for name, values in of_batch.items()}
        self.append(**known, features=features[put(np.flatnonzero(chosen), features.device)])
        fold = known["fold"]
        ones = torch.ones(len(fold), dtype=torch.float64, device=fold.device)
        self.add("images", fold)
        self.dealt.index_put_((fold, fold), ones, accumulate=True)

    @property
    def fold_weights(self) -> Tensor:
        """The weight of each fold, (fold,): 1 in the total, 0 where it is left out."""
        return self.dealt / torch.bincount(self.fold, minlength=len(self.dealt)).clamp_min(1)
