"""Examine your own nn.Module.

Any module that takes a batch of pictures and returns logits will do; nothing has to be registered or named in a certain
way. `classes` are its class names by logit index, and `trained=True` says that its weights were trained: without that,
no claim is decided on it unless it recognises the pictures.
"""

import tempfile

import torch
from torch import Tensor, nn

import eyechart
from eyechart.charts.numbers import in_words

torch.manual_seed(0)
pictures = eyechart.open_images("sample")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.norm(tokens)
        tokens = tokens + self.attention(normed, normed, normed)[0]
        return tokens + self.mlp(tokens)


class Mine(nn.Module):
    """Patches of 4 pixels, three blocks, the mean of the tokens into a classifier."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(3)))
        self.head = nn.Linear(width, len(pictures.classes))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.blocks(tokens).mean(1))


mine = eyechart.load_subject(Mine(), label="mine", classes=pictures.classes, input_size=32, trained=False)
run = eyechart.exam(
    {"mine": mine, "resnet": "zoo:resnet"},
    measures=["recognition", "attention_distance", "skip_ratio"],
    limit=128,
    out=tempfile.mkdtemp(),
)
found = run.scene.anatomy("mine")
print(f"{len(found.pick('junction'))} residual additions, {len(found.pick('attention'))} attentions were found in mine")
for row in run.quantities():
    print(f"{row['quantity']} of {row['subjects']}: {in_words(row['value'], row['low'], row['high'])}")
print(run.path / "report.html")
