"""`python -m barnabas` is the `barnabas` command."""

from barnabas.cli import main

raise SystemExit(main())
