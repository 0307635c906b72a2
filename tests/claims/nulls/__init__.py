"""Cases that a claim must not get wrong: a null must not get "holds", a true case must not get "fails".

One module for each measure, with `CASES`; `tests/claims/test_nulls.py` runs them all.
"""
