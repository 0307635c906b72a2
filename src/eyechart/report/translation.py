"""English sentences into another language, a whole sentence at a time.

Findings and verdicts lie in the run folder as English sentences, and a page is made of the folder alone. So a catalogue
holds pairs of whole sentences with named places for what changes from run to run, and a sentence of the page is read
back by its English form and said again in the other: nothing is glued together, and every number is copied.

A place is read by the first word of its name:

- `{subject…}`, `{0}`, `{1}`   the name of a subject of this run
- `{subjects…}`                several of them
- `{text…}`                    any words, kept as they are (a file, a figure); several sentences only where nothing
                               else fits and it stands last (what a library said of an error)
- `{word…}`                    words that the catalogue must know, too
- `{list…}`                    several of these, one after the other
- anything else                a number, with its interval and per cent sign if it has any
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

PLACE = re.compile(r"\{(\w+)\}")
NUMBER = r"[−+-]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+|nan|inf)(?:e[−+-]?\d+)?(?:[ \u00a0]?%)?(?: \[[^\]]*\])?"
BREAK = re.compile(r"(?<=[^.]{2}[.;]) (?=\S)|(?<=\.\d[.;]) (?=\S)|(?<=[?!]) (?=\S)|(?<=[)”]) (?=[A-Z“])")
"""Where one sentence or clause ends and the next begins: after "0.5." too, not after "e.g."."""
WITHIN = r"(?:(?!(?<!al)(?<!Fig)[.;?!] ).)+?"
"""Any words of one clause; "et al. 2021, Fig. 3" is one."""
LIST = re.compile(r"; |, then |, and |, (?![^\[]*\])| and ")  # the comma of an interval divides nothing
WORDS_FOR_ENDS = re.compile(r"(?<=\[)[a-z ]+(?=\])")
"""What a number says instead of an interval: "[the same in all folds]"."""
END = ".;"
SIGN = re.compile(r"[^\w.:@/=+-]")
PRIVATE = 0xE000
PLAIN_SIGNS = str.maketrans("\u00a0−\u2011", " --")


class Translator:
    """Says English text in the other language of a catalogue, for the subjects of one run; None where it cannot.

    >>> say = Translator({"{subject} names {share}": "{subject}의 정답률은 {share}이다"}, ["zoo:vit"])
    >>> say("zoo:vit names 92.1 % [90.0 %, 94.0 %]."), say("zoo:vit names nobody.")
    ('zoo:vit의 정답률은 92.1 % [90.0 %, 94.0 %]이다.', None)
    """

    def __init__(self, catalogue: Mapping[str, str], subjects: Sequence[str] = ()) -> None:
        longest_first = sorted(subjects, key=len, reverse=True)
        self.stand_ins = {name: chr(PRIVATE + at) for at, name in enumerate(longest_first) if SIGN.search(name)}
        """Names with commas and the like, which would divide a sentence: a letter that no text has reads for each."""
        self.subjects = [self.stand_ins.get(name, name) for name in longest_first]
        self.fixed: dict[str, str] = {}
        self.patterns: list[tuple[Sentence, str]] = []
        self.loose: list[tuple[Sentence, str]] = []
        for english, other in catalogue.items():
            if PLACE.search(english):
                self.patterns.append((Sentence(english, self.subjects), other))
                if re.fullmatch(r"[^{].*\{text\w*\}", english.rstrip(END)):
                    self.loose.append((Sentence(english, self.subjects, text=".+?"), other))
            else:
                self.fixed[key_of(english)] = other
        self.known: dict[str, str | None] = {}

    def __call__(self, text: str) -> str | None:
        if text not in self.known:
            read = text
            for name, stand_in in self.stand_ins.items():
                read = re.sub(rf"(?<!\w){re.escape(name)}(?![\w-])", stand_in, read)
            said = self.whole(read) or self.in_parts(read) or self.matched(read, self.loose)
            for name, stand_in in self.stand_ins.items():
                said = said and said.replace(stand_in, name)
            self.known[text] = said
        return self.known[text]

    def whole(self, text: str) -> str | None:
        """The text as one sentence of the catalogue."""
        bare = key_of(text)
        return ended(self.fixed[bare], text) if bare in self.fixed else self.matched(text, self.patterns)

    def matched(self, text: str, sentences: Sequence[tuple[Sentence, str]]) -> str | None:
        bare = text.rstrip(END)
        plain = plain_signs(bare)
        for sentence, other in sentences:
            match = sentence.pattern.fullmatch(bare) if sentence.may_be(plain) else None
            filled = match and self.filled(other, match.groupdict())
            if filled:
                return ended(filled, text)
        return None

    def in_parts(self, text: str) -> str | None:
        """Sentence by sentence; nothing where one of them is not known: half a text helps nobody."""
        pieces = BREAK.split(text)
        if len(pieces) == 1:
            return None
        # A sentence of several clauses may be known as one, so longer runs of pieces are tried first.
        for length in range(len(pieces) - 1, 0, -1):
            first = self.whole(" ".join(pieces[:length]))
            rest = self(" ".join(pieces[length:])) if first else None
            if first and rest:
                return f"{first} {rest}"
        return None

    def filled(self, other: str, values: Mapping[str, str]) -> str | None:
        said: dict[str, str] = {}
        for place, value in values.items():
            name = place.removeprefix("_")
            if name.startswith("subjects"):
                said[name] = re.sub(", and | and ", ", ", value)
            elif name.startswith("word"):
                told = self(value)
                if told is None:
                    return None
                said[name] = told
            elif name.startswith("list"):
                items = [self(item) for item in LIST.split(value)]
                if None in items:
                    return None
                said[name] = ", ".join(item for item in items if item)
            else:
                said[name] = WORDS_FOR_ENDS.sub(lambda ends: self(ends[0]) or ends[0], value)
        return PLACE.sub(lambda match: said[match[1]], other)


class Sentence:
    """A sentence of the catalogue with places. Its pattern is made for a text that begins and ends like it: making all
    550 took a tenth of a small page's time, and nine in ten meet no such text."""

    def __init__(self, english: str, subjects: Sequence[str], text: str = WITHIN) -> None:
        self.subjects, self.text = subjects, text
        self.pieces = PLACE.split(english.rstrip(END))
        """Words and names of places in turn."""
        self.start, self.end = plain_signs(self.pieces[0]), plain_signs(self.pieces[-1])

    def may_be(self, plain: str) -> bool:
        return plain.startswith(self.start[1:], 1) and plain.endswith(self.end)  # the first letter may be a capital

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return pattern_of(tuple(self.pieces), tuple(self.subjects), self.text)


@lru_cache(2048)
def pattern_of(pieces: Sequence[str], subjects: Sequence[str], text: str) -> re.Pattern[str]:
    """Reads what a sentence says; kept for the next page of the same subjects, since making one takes 10 ms."""
    one = "|".join(map(re.escape, subjects)) or r"(?!)"
    met: set[str] = set()

    def place(name: str) -> str:
        if name in met:
            return f"(?P=_{name})"
        met.add(name)
        if name.startswith("subjects"):
            shape = rf"(?:{one})(?:(?:, and |, | and )(?:{one}))*"
        elif name.startswith("subject") or name.isdigit():
            shape = one
        elif name.startswith("text"):
            shape = text
        else:
            shape = ".+?" if name.startswith(("word", "list")) else NUMBER
        return f"(?P<_{name}>{shape})"

    made = "".join(place(piece) if at % 2 else spaced(piece, first=not at) for at, piece in enumerate(pieces))
    return re.compile(made, re.DOTALL)


def spaced(words: str, first: bool) -> str:
    """Words as a pattern: with any kind of space, and at the beginning of a sentence with or without a capital."""
    shape = re.escape(words.replace("\u00a0", " ")).replace(r"\ ", "[ \u00a0]").replace(r"\-", "[-−\u2011]")
    if first and words[:1].isalpha():
        return f"(?i:{words[:1]}){shape[1:]}"
    return shape


def plain_signs(text: str) -> str:
    """A text without what `spaced` lets differ, so that two that fit begin and end alike."""
    return text.translate(PLAIN_SIGNS)


def key_of(text: str) -> str:
    """How a fixed text is looked up: whatever its spaces, its first letter and its full stop."""
    bare = text.replace("\u00a0", " ").replace("\u2011", "-").rstrip(END)
    return bare[:1].lower() + bare[1:]


def ended(text: str, like: str) -> str:
    """With a full stop if the English has one."""
    bare = text.rstrip(END)
    stop = "." if like.endswith(tuple(END)) and not bare.endswith(("?", "!")) else ""
    return bare + stop


def places(text: str) -> set[str]:
    return set(PLACE.findall(text))
