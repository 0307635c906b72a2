"""Only the package's long description, which pyproject.toml cannot say: README.md with every link absolute.

A package index shows the text without the repository around it, so pictures and links to files need an address: that
of `Source` in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: |src=\")(?!https?:|#|mailto:)(?P<path>[^)\"\s]+)", re.MULTILINE)


def absolute(text: str, source: str) -> str:
    def address(match: re.Match[str]) -> str:
        kind = "raw" if match["path"].endswith((".png", ".svg", ".webp")) else "blob"
        return f"{match[1]}{source}/{kind}/main/{match['path']}"

    return LINK.sub(address, text)


if __name__ == "__main__":
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(long_description=absolute(readme, urls["Source"]), long_description_content_type="text/markdown")
