"""What spark-submit is given: `barnabas spark-load`, in a Python that has barnabas."""

import sys

# spark-submit puts this file's folder first, where modules of the commands have common names.
sys.path[:] = [place for place in sys.path if place != __file__.rpartition("/")[0]]

from barnabas.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["spark-load", *sys.argv[1:]]))
