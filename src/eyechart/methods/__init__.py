"""What measures compute with: mathematics and bench work, each file usable and tested on its own."""
