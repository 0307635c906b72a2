"""Make docs/example/index.html, the page of four bundled models: python scripts/example_page.py

Ten minutes on two cores. The page may have 6 MB, so that it does not weigh on a clone: some tables and pictures to
explore are left out. scripts/page_pictures.py then photographs its parts for the README.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import eyechart

ROOT = Path(__file__).parents[1]
SUBJECTS = ("zoo:vit", "zoo:vit-gap", "zoo:alternet", "zoo:resnet")
LARGEST = 6_000_000


def main() -> None:
    run = eyechart.exam(SUBJECTS, effort="quick", out=ROOT / "runs" / "example")
    page = ROOT / "docs" / "example" / "index.html"
    page.parent.mkdir(exist_ok=True)
    shutil.copyfile(run.report(largest=LARGEST), page)
    print(f"{page}: {page.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
