"""Studies: experiments that train their own subjects, examine them where they were trained, and judge over seeds.

One declarative file a study (`warmup.toml`, …): arms to train, exams to make of them, contrasts between arms, and the
claims these decide. READ FIRST: `study.py`, which says what such a file holds. Then

    study file → runs that are missing → workers train and examine (`worker.py`) → records (`records.py`)
               → contrasts over seeds (`seeds.py`) → verdicts (`verdicts.py`)

A record is written the moment a training or an exam ends, and carries the hash of what it was registered under.
"""
