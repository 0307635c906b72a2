"""Build wheel and sdist so that the same sources give the same bytes, and check them: python scripts/release.py

The date in both is that of the last commit (or SOURCE_DATE_EPOCH). setuptools keeps to it in wheels; an sdist is packed
anew here, with sorted names, one owner and one date.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT, help="folder with pyproject.toml")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheel", action="store_true", help="only the wheel")
    asked = parser.parse_args()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or date_of_the_last_commit(asked.source)
    # Without isolation: the versions in constraints.txt build, not those that are newest today.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(asked.out), str(asked.source)]
    command += ["--wheel"] if asked.wheel else []
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, stdout=subprocess.DEVNULL)
    for sdist in asked.out.glob("*.tar.gz"):
        sdist.write_bytes(repacked(sdist.read_bytes(), int(epoch)))
    files = sorted(map(str, asked.out.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


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


if __name__ == "__main__":
    main()
