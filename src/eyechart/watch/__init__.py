"""Exams inside a training: what changes from epoch to epoch, without changing it.

`watch.py` has the watch, `untouched.py` what makes a training the same with and without it, `logs.py` where the numbers
go, `callbacks.py` the watch in the loops of Lightning and Hugging Face.
"""
