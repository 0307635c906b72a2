"""Pictures of Hangul syllables, for trainings on a target that is unlike photographs:

    python scripts/hangul.py glyphs GLYPHS.npz           100 syllables in 4 faces; needs Debian's fonts-noto-cjk
    python scripts/hangul.py data GLYPHS.npz HANGUL.npz  60,000 pictures of 32×32; needs no font

GLYPHS.npz is small (0.14 MB), so that a machine without fonts can make the pictures. Each is one glyph turned, sheared,
scaled and shifted, in two colours, under noise, all drawn by --seed; --jitter and --noise make it harder (1: as in the
studies; 0: none). HANGUL.npz is what `eyechart train --data` reads: 500 training and 100 test pictures a class.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Generator, Tensor

FONTS = Path("/usr/share/fonts/opentype/noto")
FACES = ("NotoSansCJK-Regular", "NotoSansCJK-Bold", "NotoSerifCJK-Regular", "NotoSerifCJK-Bold")
KOREAN = 1  # the Korean face of each collection
INITIALS, VOWELS, FINALS = "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅎ", "ㅏㅓㅗㅜㅣ", ("", "ㄴ")
SIDE, GLYPH_SIDE = 32, 64
TRAIN, TEST = 500, 100  # of each class
CHUNK = 5_000  # pictures made at once


def syllables() -> list[str]:
    """10 initials × 5 vowels × 2 finals: alike in all but one stroke, so that their parts must be told apart.

    >>> syllables()[:4]
    ['가', '간', '거', '건']
    """
    initials = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
    vowels = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
    finals = ("", "ㄱ", "ㄲ", "ㄳ", "ㄴ")  # the first of 28
    return [
        chr(0xAC00 + (initials.index(initial) * 21 + vowels.index(vowel)) * 28 + finals.index(final))
        for initial in INITIALS
        for vowel in VOWELS
        for final in FINALS
    ]


def drawn(text: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    mask = Image.new("L", (GLYPH_SIDE, GLYPH_SIDE))
    ImageDraw.Draw(mask).text((GLYPH_SIDE / 2, GLYPH_SIDE / 2), text, fill=255, font=font, anchor="mm")
    return mask


def noto() -> list[ImageFont.FreeTypeFont]:
    for face in FACES:
        if not (FONTS / f"{face}.ttc").is_file():
            sys.exit(f"{FONTS / face}.ttc is missing; install Debian's package fonts-noto-cjk.")
    return [ImageFont.truetype(FONTS / f"{face}.ttc", size=48, index=KOREAN) for face in FACES]


def glyph_masks(texts: Sequence[str], fonts: Sequence[ImageFont.FreeTypeFont]) -> np.ndarray:
    """(class, face, y, x) uint8"""
    return np.stack([np.stack([np.asarray(drawn(text, font)) for font in fonts]) for text in texts])


def jittered(masks: Tensor, jitter: float, generator: Generator) -> Tensor:
    """Masks (N, y, x) in 0…1, each turned, sheared, scaled and shifted at random, on a raster of 32×32."""

    def uniform(most: float) -> Tensor:
        return jitter * most * (2 * torch.rand(len(masks), generator=generator) - 1)

    turn, shear, size = uniform(math.radians(15)), uniform(0.25), 1.1 * torch.exp(uniform(0.2))
    across, down = uniform(0.2), uniform(0.2)
    rows = [[turn.cos(), -turn.sin() + shear, across], [turn.sin(), turn.cos(), down]]
    maps = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    maps[:, :, :2] *= size[:, None, None]  # of the raster seen from the glyph: above 1 the glyph is smaller
    grid = F.affine_grid(maps, [len(masks), 1, 2 * SIDE, 2 * SIDE], align_corners=False)
    fine = F.grid_sample(masks[:, None], grid, align_corners=False)
    return F.avg_pool2d(fine, 2)[:, 0]


def coloured(masks: Tensor, noise: float, generator: Generator) -> Tensor:
    """Masks (N, y, x) as pictures (N, y, x, 3) uint8: ink and paper of two colours that differ, and noise."""
    paper = torch.rand(len(masks), 3, generator=generator)
    away = 0.35 + 0.3 * torch.rand(len(masks), 3, generator=generator)
    ink = torch.where(paper > 0.5, paper - away, paper + away)
    shade = masks[..., None]
    pictures = shade * ink[:, None, None] + (1 - shade) * paper[:, None, None]
    strength = noise * 0.2 * torch.rand(len(masks), 1, 1, 1, generator=generator)
    pictures = pictures + strength * torch.randn(pictures.shape, generator=generator)
    return (255 * pictures).round().clamp(0, 255).to(torch.uint8)


def pictures_of(
    masks: np.ndarray, count: int, jitter: float, noise: float, generator: Generator
) -> tuple[np.ndarray, np.ndarray]:
    """So many pictures of each class in a random order, (image, y, x, 3), and their labels."""
    classes, faces = masks.shape[:2]
    labels = torch.arange(classes).repeat_interleave(count)[torch.randperm(classes * count, generator=generator)]
    face = torch.randint(faces, (len(labels),), generator=generator)
    glyphs = torch.from_numpy(masks)
    made = []
    for part in torch.split(torch.arange(len(labels)), CHUNK):
        shapes = jittered(glyphs[labels[part], face[part]].float() / 255, jitter, generator)
        made.append(coloured(shapes, noise, generator).numpy())
    return np.concatenate(made), labels.numpy().astype(np.uint8)


def data_of(
    masks: np.ndarray, *, train: int = TRAIN, test: int = TEST, jitter: float = 1.0, noise: float = 1.0, seed: int = 0
) -> dict[str, np.ndarray]:
    """The arrays of training data."""
    generator = Generator().manual_seed(seed)
    x_train, y_train = pictures_of(masks, train, jitter, noise, generator)
    x_test, y_test = pictures_of(masks, test, jitter, noise, generator)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    glyphs = commands.add_parser("glyphs", help="draw the syllables")
    glyphs.add_argument("out", type=Path)
    data = commands.add_parser("data", help="make pictures of drawn syllables")
    data.add_argument("glyphs", type=Path)
    data.add_argument("out", type=Path)
    data.add_argument("--seed", type=int, default=0)
    data.add_argument("--jitter", type=float, default=1.0)
    data.add_argument("--noise", type=float, default=1.0)
    given = parser.parse_args(arguments)
    if given.command == "glyphs":
        np.savez_compressed(given.out, masks=glyph_masks(syllables(), noto()), classes=np.array(syllables()))
    else:
        with np.load(given.glyphs, allow_pickle=False) as drawn_glyphs:
            made = data_of(drawn_glyphs["masks"], jitter=given.jitter, noise=given.noise, seed=given.seed)
            np.savez(given.out, **made, classes=drawn_glyphs["classes"])
    print(f"{given.out} ({given.out.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
