"""Build wheel and sdist so that the same sources give the same bytes, and check them: python scripts/release.py

    python scripts/release.py --may-be-published v0.1.0 ADDRESS    whether this tag may go out from there

The date in both is that of the last commit (or SOURCE_DATE_EPOCH). setuptools keeps to it in wheels, but not to one set
of permissions (those of the umask); both are packed anew here, with sorted names, one owner, one date and plain modes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT, help="folder with pyproject.toml")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheel", action="store_true", help="only the wheel")
    parser.add_argument("--may-be-published", nargs=2, metavar=("TAG", "ADDRESS"), help="only ask that")
    asked = parser.parse_args()
    if asked.may_be_published:
        raise SystemExit("\n".join(reasons_against(asked.source, *asked.may_be_published)) or 0)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or date_of_the_last_commit(asked.source)
    # Without isolation: the versions in constraints.txt build, not those that are newest today.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(asked.out), str(asked.source)]
    command += ["--wheel"] if asked.wheel else []
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, stdout=subprocess.DEVNULL)
    for sdist in asked.out.glob("*.tar.gz"):
        sdist.write_bytes(repacked(sdist.read_bytes(), int(epoch)))
    for wheel in asked.out.glob("*.whl"):
        wheel.write_bytes(with_plain_modes(wheel.read_bytes()))
    files = sorted(map(str, asked.out.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


def reasons_against(folder: Path, tag: str, address: str) -> Iterator[str]:
    """Why a tag may not be published from an address (that of the repository): a sentence each."""
    read = {name: (folder / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md")}
    (version,) = re.findall(r'^__version__ = "(.+)"$', (folder / "src/eyechart/__init__.py").read_text("utf-8"), re.M)
    if tag != f"v{version}":
        yield f"The tag is {tag}, and eyechart.__version__ is {version}."
    source = tomllib.loads(read["pyproject.toml"])["project"].get("urls", {}).get("Source")
    if source != address:
        yield f"Source in [project.urls] of pyproject.toml is {source}, and the repository is {address}."
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", read["CHANGELOG.md"], re.M):
        yield f"CHANGELOG.md has no heading [{version}] with a date."


def date_of_the_last_commit(folder: Path) -> str:
    command = ["git", "-C", str(folder), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repacked(packed: bytes, epoch: int) -> bytes:
    """A tar.gz with the same files, of which nothing says when, where and by whom it was packed."""
    plain, result = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = epoch, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, content)
    with gzip.GzipFile(fileobj=result, mode="wb", mtime=epoch) as file:
        file.write(plain.getvalue())
    return result.getvalue()


def with_plain_modes(packed: bytes) -> bytes:
    """A wheel with the same files and dates, which everybody may read, whatever umask it was built under."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        for member in sorted(old.infolist(), key=lambda each: each.filename):
            plain = zipfile.ZipInfo(member.filename, member.date_time)
            plain.compress_type, plain.create_system = zipfile.ZIP_DEFLATED, 3  # Unix, built wherever
            plain.external_attr = (0o100755 if member.external_attr >> 16 & 0o100 else 0o100644) << 16
            new.writestr(plain, old.read(member))
    return result.getvalue()


if __name__ == "__main__":
    main()
