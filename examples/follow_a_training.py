"""Follow a training.

`Watch` examines a model between its epochs and leaves the training as it is, to the bit: it could be taken out, and the
weights would be the same. A small ViT learns for four epochs here: its answers get better, and its first and last
blocks, alike at the start (`uniformity` is their CKA), begin to differ. Each step that is watched leaves a run folder;
`watch.compare()` sets them side by side, as the command line does:

    eyechart compare runs/NAME/step-*

With Lightning, and with the Trainer of transformers, the watch is a callback:

    Trainer(callbacks=[watch.lightning()])
    Trainer(callbacks=[watch.hugging_face()])
"""

import tempfile
from pathlib import Path

import torch
from timm.models import VisionTransformer
from torch import nn

import eyechart
from eyechart.charts.numbers import in_words

torch.manual_seed(0)
pictures = eyechart.open_images("sample:train")
labels = torch.tensor(pictures.labels)
model = VisionTransformer(img_size=32, patch_size=8, embed_dim=64, depth=3, num_heads=4, num_classes=10)

folder = Path(tempfile.mkdtemp())
mine = eyechart.load_subject(model, label="mine", classes=pictures.classes, input_size=32)
watch = eyechart.Watch(mine, "sample", ["recognition", "cka"], every=2, limit=128, out=folder)

inputs = mine.prepare(pictures.pictures(range(len(pictures))))
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
watch(0)
for epoch in range(1, 5):
    model.train()
    for batch in torch.randperm(len(labels)).split(50):
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    watch(epoch)  # every second epoch; the model stays in train mode

table = watch.table
for row in table[table.quantity.isin(["accuracy", "uniformity"])].itertuples():
    print(f"epoch {row.step}: {row.quantity:10} {in_words(row.value, row.low, row.high)}")
compared = watch.compare()
for row in compared.table[compared.table.quantity == "uniformity"].itertuples():
    print(f"{row.run}: {row.quantity} changed by {in_words(row.change, row.low, row.high)} since step 0")
print(compared.report(folder / "comparison.html"))
