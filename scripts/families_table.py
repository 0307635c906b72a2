"""Write docs/families.md, the table of families served: run the taps on every model of tests/families.py.

python scripts/families_table.py            (about a minute on one core; random weights, no network)
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.families import Family

ROOT = Path(__file__).resolve().parents[1]

HEAD = """# Families the taps serve

`scripts/families_table.py` writes this page by running the taps on one model of each family, with random weights. The
right numbers are derived by hand from the models' source; the derivations, and how things are counted, stand in
`tests/families.py`, and the test suite compares. *Junctions* are residual additions, *attentions* the products of
weights and values whose weights can be shown; found / derived. *Served*: both are complete. *Partly*: what works,
works exactly; the note says what is missing, and so does the model's anatomy.

{counts}

| family | model tried | junctions | attentions | status | note |
|---|---|---|---|---|---|
"""


def row(family: Family) -> str:
    import torch

    from eyechart.subjects.anatomy import anatomy_of

    images = torch.randn(2, 3, family.size, family.size, generator=torch.Generator().manual_seed(1))
    anatomy = anatomy_of(family.name, family.build(), images)
    junctions, attentions = len(anatomy.pick("junction")), len(anatomy.pick("attention"))
    blocks = anatomy.pick("block")
    adrift = sum(block.grid is None for block in blocks)
    order = (
        f"{adrift} of {len(blocks)} block outputs have no grid: their tokens are in another order, or a class token."
    )
    cells = (
        family.name,
        f"`{family.model}`",
        f"{junctions} / {family.junctions}",
        f"{attentions} / {family.attentions}",
        family.status,
        " ".join(filter(None, (family.reason, order if adrift else ""))),
    )
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(ROOT))
    from tests.families import FAMILIES

    status = Counter(family.status for family in FAMILIES)
    counts = f"{len(FAMILIES)} families: {status['served']} served, {status['partly']} partly, {status['not']} not."
    text = HEAD.format(counts=counts) + "".join(row(family) for family in FAMILIES)
    (ROOT / "docs" / "families.md").write_text(text, encoding="utf-8")
    print(counts)


if __name__ == "__main__":
    main()
