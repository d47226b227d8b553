"""The application for spark-submit: it runs `barnabas spark-load` in a Python that has barnabas."""

import sys

# spark-submit puts this file's directory first, which has modules with common names.
sys.path[:] = [place for place in sys.path if place != __file__.rpartition("/")[0]]

from barnabas.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["spark-load", *sys.argv[1:]]))
