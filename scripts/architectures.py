"""Examine many architectures with random weights by every measure, and say which measures did not apply and why.

    python scripts/architectures.py [--images 16] [--device cuda] [--pages FOLDER] [NAME…]

Each runs alone, on a few pictures and the smallest experiments: this shows that everything runs, not what it finds.
A run on a GPU takes a minute or two an architecture, on one CPU core ten times as long.
Ends with exit code 1 if any exam failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

ARCHITECTURES = (
    "timm:vit_tiny_patch16_224",
    "timm:vit_small_patch32_224",
    "timm:deit_tiny_distilled_patch16_224",
    "timm:beit_base_patch16_224",
    "timm:eva02_tiny_patch14_224",
    "timm:cait_xxs24_224",
    "timm:xcit_nano_12_p16_224",
    "timm:swin_tiny_patch4_window7_224",
    "timm:swinv2_cr_tiny_ns_224",
    "timm:pit_ti_224",
    "timm:twins_pcpvt_small",
    "timm:mixer_s32_224",
    "timm:poolformer_s12",
    "timm:convnext_atto",
    "timm:resnet18",
    "timm:resnet50",
    "timm:resnetv2_50x1_bit",
    "timm:regnetx_002",
    "timm:efficientnet_b0",
    "timm:densenet121",
    "timm:vgg11",
    "torchvision:vit_b_32",
    "torchvision:swin_t",
    "torchvision:mobilenet_v3_small",
)
#: CIFAR-10's classes as ImageNet has them, so that measures that need labels run too.
CLASSES = {
    "airplane": "airliner",
    "automobile": "sports car",
    "bird": "goldfinch",
    "cat": "tabby",
    "deer": "impala",
    "dog": "beagle",
    "frog": "tree frog",
    "horse": "sorrel",
    "ship": "container ship",
    "truck": "moving van",
}


def main() -> None:
    from eyechart.errors import EyechartError
    from eyechart.exam import exam
    from eyechart.measures import measures

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=ARCHITECTURES, metavar="NAME")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pages", type=Path, help="keep every report in this folder")
    asked = parser.parse_args()
    sized = {m.name for m in measures().values() if "images" in {field.name for field in fields(m)}}
    options: dict[str, object] = {f"{name}.images": asked.images for name in sized}
    options |= {"landscape.steps": 3, "hessian.batch": 4, "hessian.images": 4}
    failed = 0
    for name in asked.names:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                run = exam(
                    [f"{name}@random"],
                    measures=None,
                    options=options,
                    effort="normal",
                    limit=8 * asked.images,
                    classes=CLASSES,
                    device=asked.device,
                    out=Path(folder) / "run",
                )
            except (EyechartError, RuntimeError, ValueError, AssertionError, IndexError, KeyError) as error:
                failed += 1
                print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
                continue
            if asked.pages:
                asked.pages.mkdir(parents=True, exist_ok=True)
                shutil.copy(run.path / "report.html", asked.pages / f"{name.replace(':', '-')}.html")
            left_out, found = {entry["measure"]: entry["reason"] for entry in run.plan["left_out"]}, len(run.findings)
        print(f"{name}: {found} measures in {time.perf_counter() - began:.0f} s", flush=True)
        for measure, reason in left_out.items():
            print(f"    {measure}: {reason}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
