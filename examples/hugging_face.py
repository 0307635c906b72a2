"""Examine a Hugging Face model.

`hf:ORG/NAME` is a model of the hub, `hf:FOLDER` one that `save_pretrained` wrote. Here a small ViT with random weights
is written to a folder, so that nothing is downloaded; the processor's size and normalisation come along with it. It
needs `pip install 'eyechart[hf]'`.
"""

import tempfile

import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

import eyechart
from eyechart.charts.numbers import in_words

torch.manual_seed(0)
folder = tempfile.mkdtemp()
names = eyechart.open_images("sample").classes
config = ViTConfig(
    image_size=32,
    patch_size=8,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    id2label=dict(enumerate(names)),
)
ViTForImageClassification(config).save_pretrained(folder)
ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)

run = eyechart.exam(
    {"hugging face": f"hf:{folder}", "zoo": "zoo:vit"},
    measures=["recognition", "cka"],
    limit=128,
    out=tempfile.mkdtemp(),
)
for row in run.quantities():
    print(f"{row['quantity']} of {row['subjects']}: {in_words(row['value'], row['low'], row['high'])}")
print(run.path / "report.html")
