"""`python -m eyechart.training` is `eyechart train`, for machines where the package is not installed."""

from eyechart.training.command import train

if __name__ == "__main__":
    train(prog_name="eyechart train")
