"""What studies say over seeds and what the bundled weights say of the same claim: a sentence where they differ.

Verdicts on the same models under the same reading are laid beside each other (`vit` of a study and `zoo:vit`). Where
none has such a partner, as where a study reads a claim in its own way, all verdicts of both sides are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eyechart.claims.verdict import Verdict

DECIDED = ("holds", "fails")
WHY = "The bundled weights come from other data, another length of training and one seed."


def differences(over_seeds: Sequence[Verdict], of_weights: Sequence[Verdict]) -> list[str]:
    """Sentences; none where both agree or one of them is silent."""
    studied, examined = by_models(over_seeds), by_models(of_weights)
    both = [key for key in studied if key in examined]
    told = [sentence(*key, studied[key], examined[key]) for key in both if studied[key] != examined[key]]
    if not both:
        told = overall(over_seeds, of_weights)
    return [*told, WHY] if told else []


def by_models(verdicts: Sequence[Verdict]) -> Mapping[tuple[tuple[str, ...], str], str]:
    models = [tuple(name.removeprefix("zoo:") for name in verdict.subjects) for verdict in verdicts]
    return {(names, verdict.reading): verdict.verdict for names, verdict in zip(models, verdicts, strict=True) if names}


def sentence(models: Sequence[str], reading: str, over_seeds: str, of_weights: str) -> str:
    """
    >>> sentence(("vit", "resnet"), "", "fails", "undecided")
    'vit, resnet: fails over seeds, undecided on the bundled weights.'
    """
    read = f" (read {reading})" if reading else ""
    return f"{', '.join(models)}{read}: {over_seeds} over seeds, {of_weights} on the bundled weights."


def overall(over_seeds: Sequence[Verdict], of_weights: Sequence[Verdict]) -> list[str]:
    one, other = ({verdict.verdict for verdict in each} & set(DECIDED) for each in (over_seeds, of_weights))
    if not one or not other or one & other:
        return []
    return [f"Over seeds it {' and '.join(sorted(one))}, on the bundled weights it {' and '.join(sorted(other))}."]
