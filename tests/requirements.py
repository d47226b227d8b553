"""Prints the requirements of this project and of the named extras, a line each: what pip installs
besides the wheel. So pip can install them while the wheel is built.

    python tests/requirements.py test spark-jre
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for requirement in project["dependencies"] + [one for name in sys.argv[1:] for one in extras[name]]:
    print(requirement)
