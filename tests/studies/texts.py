"""What the file of every study begins with."""


def study_text(body: str, data: str = "toys") -> str:
    return f"""
title = "A small one"
question = "Does it run?"
row = 99
data = "{data}"
minutes = 1
seeds = [0, 1, 2]
{body}"""
