"""Runs side by side: checkpoints of one training, two seeds, before and after fine-tuning.

`differences.py` has the numbers, `page.py` the page, `command.py` what `eyechart compare` prints.
"""
