"""Draw the README's pictures from the bundled models: python scripts/readme_figures.py"""

from __future__ import annotations

from pathlib import Path

import eyechart

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = ("cka", "attention_distance")


def main() -> None:
    run = eyechart.exam(measures=["recognition", *SHOWN])
    for path in run.figures("png"):
        if path.stem in SHOWN:
            target = DOCS / path.name
            target.write_bytes(path.read_bytes())
            print(target)


if __name__ == "__main__":
    main()
