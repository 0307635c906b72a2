"""Everything eyechart refuses, as one tree. Each message is one sentence: what was expected, what it got, what to do.

EyechartError                   the command prints it without a traceback and exits with 1
├── UsageError                  the question itself is malformed (exit 2)
├── SubjectError                a model cannot be had, called or read
│   ├── UnknownSubject          no such name; near ones are suggested
│   ├── HubUnreachable          the weights are elsewhere; @PATH and @random are named
│   ├── WeightsMismatch         a checkpoint of another architecture; says how many keys fit
│   └── UnsafeWeights           a file that would run code when loaded
├── ImagesError                 no picture can be had from a source
├── TapError                    a pass differs from the dry run, or an address is not in the subject
├── NotFinite                   NaN or infinity inside a subject; names the first site
├── DoesNotApply                a measure cannot be taken of these subjects; says why
├── TallyError                  tallies that do not fit together, or a tally whose fields lack dimensions or merge law
├── EngineError                 workers on other processes or machines are gone, late, or not the same
├── Interrupted                 stopped by the user; says what is kept and how to go on
└── RunFolderError              a run folder is damaged, of another version, of another question, or cannot be written
    └── BeingTrained            another process is making these very weights
"""


class EyechartError(Exception):
    exit_code = 1


class UsageError(EyechartError):
    exit_code = 2


class SubjectError(EyechartError):
    pass


class UnknownSubject(SubjectError):
    exit_code = 2


class HubUnreachable(SubjectError):
    pass


class WeightsMismatch(SubjectError):
    pass


class UnsafeWeights(SubjectError):
    pass


class ImagesError(EyechartError):
    pass


class TapError(EyechartError):
    pass


class NotFinite(EyechartError):
    pass


class DoesNotApply(EyechartError):
    pass


class TallyError(EyechartError):
    pass


class EngineError(EyechartError):
    pass


class Interrupted(EyechartError):
    exit_code = 130


class RunFolderError(EyechartError):
    pass


class BeingTrained(RunFolderError):
    pass


PARTLY = 3
"""The exit code of what was done in part."""
