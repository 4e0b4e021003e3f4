"""`python -m weft`: the command line, where the `weft` script is not on the path."""

import sys

from weft.cli import main

if __name__ == "__main__":
    sys.exit(main())
