"""Compare two checkpoints of a fine-tuning.

What does fine-tuning change, and where? The bundled ResNet is trained for a few steps on new labels (animal or machine)
and examined beside the weights it began from. Two checkpoints of your own are compared by the command line alone:

    eyechart exam before=timm:NAME@first.safetensors after=timm:NAME@last.safetensors --images photos/
"""

import copy
import tempfile

import torch
from torch import nn

import eyechart
from eyechart.charts.numbers import in_words

torch.manual_seed(0)
ANIMALS = {"bird", "cat", "deer", "dog", "frog", "horse"}


def fine_tuned(subject: eyechart.Subject, steps: int) -> nn.Module:
    """A copy of the subject's module after a few steps on a question of two classes."""
    pictures = eyechart.open_images("sample:train")
    model = copy.deepcopy(subject.module).eval()  # batch norms keep their statistics: six batches are too few for them
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        chosen = list(range(step * 32, (step + 1) * 32))
        names = [pictures.classes[pictures.labels[index]] for index in chosen]
        is_animal = torch.tensor([int(name in ANIMALS) for name in names])
        loss = nn.functional.cross_entropy(model(subject.prepare(pictures.pictures(chosen)))[:, :2], is_animal)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step}: loss {float(loss.detach()):.2f}")
    return model


before = eyechart.load_subject("zoo:resnet", label="before")
after = eyechart.load_subject(fine_tuned(before, steps=6), transform=before.preprocessing, label="after")

run = eyechart.exam([before, after], measures="cka", limit=128, out=tempfile.mkdtemp())
cka = run.findings["cka"]
blocks = [str(site) for site in cka.site.values if site.startswith("before/")]
for block in blocks:
    twin = block.replace("before/", "after/")
    cell = cka.sel(site=block, other_site=twin)
    ends = [float(cell[name]) for name in ("cka", "cka_low", "cka_high")]
    print(f"{block.removeprefix('before/'):12} {in_words(*ends)}")
print(run.path / "report.html")
