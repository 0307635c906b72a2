"""What measures say, set for the page: true minus signs, spaced per cent, and a line for each subject."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Words of quantities' names that are not words; the names themselves are those of the CSV files.
SPELLED = {
    "cls": "class token",
    **{word.lower(): word for word in ("APE", "CKA", "CNN", "ECE", "FGSM", "MC", "MLP", "NEP", "NLL", "PGD")},
    "conv": "convolution",
    "brier": "Brier score",
}

WALL = 160  # letters that are easily read in one paragraph


def typeset(text: str, names: Sequence[str] = ()) -> str:
    """True minus signs and spaced per cent, but not inside `names`, which are copied from the page into commands.

    >>> typeset("right 92.1% [-3.6, +17.1], --effort quick, C.1-C.4")
    'right 92.1\\xa0% [−3.6, +17.1], --effort quick, C.1-C.4'
    >>> typeset("groups by -0.00 [-0.01, 0.02]")
    'groups by 0.00 [−0.01, 0.02]'
    >>> typeset("vit@at 50%.pth is right in 50%", ["vit@at 50%.pth"])
    'vit@at 50%.pth is right in 50\\xa0%'
    """
    longest_first = map(re.escape, sorted(names, key=len, reverse=True))
    parts = re.split(f"({'|'.join(longest_first)})", text) if names else [text]
    return "".join(part if part in names else set_numbers(part) for part in parts)


def set_numbers(text: str) -> str:
    text = re.sub(r"(?<=[\[( ])-(?=0(?:\.0+)?(?![.\d]))", "", text)  # no −0.00
    text = re.sub(r"(?<=[\[( ])-(?=\.?\d)", "−", text)
    return re.sub(r"(?<=\d)%", "\u00a0%", text)


def lines(text: str, subjects: Sequence[str]) -> list[str]:
    """The same text with a new line wherever it turns to another subject: four subjects in one paragraph are a wall.

    After a line break of its own stand remarks about all subjects: they are paragraphs by themselves.

    >>> lines("zoo:vit names 92%; zoo:resnet names 94%.\\nThe commonest class alone is 10%.", ["zoo:vit", "zoo:resnet"])
    ['zoo:vit names 92%; zoo:resnet names 94%.', 'The commonest class alone is 10%.']
    """
    text, *remarks = text.split("\n")
    if len(text) <= WALL:
        return [text, *remarks]
    named = naming(subjects)
    groups: list[list[str]] = []
    last = None
    for clause in re.split(r"(?<=[;.]) ", text):
        match = named.search(clause)
        if groups and (match is None or match.group() == last):
            groups[-1].append(clause)
        else:
            groups.append([clause])
        last = match.group() if match else last
    joined = [re.sub(r";$", ".", " ".join(clauses)) for clauses in groups]
    return [line if line.startswith(tuple(subjects)) else line[:1].upper() + line[1:] for line in joined] + remarks


def naming(subjects: Sequence[str]) -> re.Pattern[str]:
    """Finds a subject's name, and never a shorter one inside it."""
    longest_first = sorted(subjects, key=len, reverse=True)
    return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?![\w-])" for name in longest_first))


def of_these(
    told: Sequence[str], names: Sequence[str], subjects: Sequence[str], most: int
) -> tuple[list[str], list[str]]:
    """The first line and those about these subjects, `most` of them; and the others, in their order.

    >>> of_these(["In a, 3.", "In a-b, 2.", "In c, 1.", "All."], ["a", "c"], ["a", "a-b", "c"], 3)
    (['In a, 3.', 'In c, 1.'], ['In a-b, 2.', 'All.'])
    """
    named = naming(subjects)
    about = [at for at, line in enumerate(told) if at == 0 or any(name in names for name in named.findall(line))][:most]
    return [told[at] for at in about], [line for at, line in enumerate(told) if at not in about]


def name_of_quantity(name: str) -> str:
    """
    >>> name_of_quantity("top_is_unlike_without_cls"), name_of_quantity("head_cka_falls")
    ('top is unlike without class token', 'head CKA falls')
    """
    return " ".join(SPELLED.get(word, word) for word in name.split("_"))
