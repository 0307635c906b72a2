"""`python -m eyechart` is `eyechart`, for machines where its command is not on the path."""

from eyechart.cli import main

if __name__ == "__main__":
    main(prog_name="eyechart")
