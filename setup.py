"""Only the package's long description, which pyproject.toml cannot say: README.md as a package index shows it.

An index shows the text without the repository around it, so pictures and links to files need an address: `Source` of
`[project.urls]` in pyproject.toml. While there is none, links are their words and a picture is its description.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?!https?:|#|mailto:)(?P<path>[^)\s]+)\)", re.MULTILINE)


def described(text: str, source: str | None) -> str:
    """The README with every link to a file led to `source`, or taken out.

    >>> described("![a map](docs/a.png) of [it](docs/a.md)", "https://host/us")
    '![a map](https://host/us/raw/main/docs/a.png) of [it](https://host/us/blob/main/docs/a.md)'
    >>> described("![a map](docs/a.png) of [it](docs/a.md)", None)
    '(picture: a map) of it'
    """

    def led(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        if source is None:
            return f"(picture: {words})" if picture else words
        return f"{picture}[{words}]({source}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(led, text)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    source = project.get("urls", {}).get("Source")
    setup(long_description=described(readme, source), long_description_content_type="text/markdown")
