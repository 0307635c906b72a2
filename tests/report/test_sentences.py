"""What measures say, a line for each subject, and remarks about all of them by themselves."""

from eyechart.report.sentences import WALL, lines

SUBJECTS = ("zoo:vit", "zoo:vit-gap", "zoo:resnet")


def test_a_remark_about_all_is_not_the_last_subjects() -> None:
    each = [f"{subject} names 92% right; of its pictures {'many ' * 20}are of frogs" for subject in SUBJECTS]
    remarks = ["The commonest class alone is 10%.", "Left out: zoo:vit-2; zoo:resnet was read at 4 of 8 blocks."]
    told = lines("\n".join([". ".join(each) + ".", *remarks]), SUBJECTS)
    assert told == [*(f"{one}." for one in each), *remarks]
    assert len(told[0]) < WALL < len(". ".join(each))
    assert lines("zoo:vit names 92%.\nAll others were left out.", SUBJECTS) == [
        "zoo:vit names 92%.",
        "All others were left out.",
    ]
