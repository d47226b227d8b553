"""Writes docs/evidence/clients.md from reports of the long form of test_client_families.py.

    python tests/tls/client_matrix.py REPORT.xml... > docs/evidence/clients.md

`make long` runs this command. A report is a file that pytest writes with --junitxml. If several
reports have the same test, the last one counts."""

import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
GOOD, BAD, NONE = "yes", "**NO**", "–"
READS, REFUSED, REVOKED, RENEWED = (
    "test_a_client_reads_what_it_wrote",
    "test_a_client_is_refused_and_nothing_is_written",
    "test_a_client_whose_rule_is_revoked_writes_no_more",
    "test_a_client_goes_on_while_the_certificate_is_renewed",
)
TITLES = {
    READS: "The client writes and reads records (`clear`: without TLS)",
    REFUSED: "The broker refuses the client, and nothing is written",
    REVOKED: "The broker refuses writes on open connections after the access rule is removed",
    RENEWED: "The client continues while the certificate of the broker is renewed",
}
NAME = re.compile(r"(\w+)\[(\w+)-?(.*)\]")


def results(reports: list[Path]) -> dict[tuple[str, str, str], str]:
    """Returns (test, client, case) -> GOOD, BAD or "skipped"."""
    found = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = NAME.fullmatch(case.get("name", ""))
            if name is None or name[1] not in TITLES:
                continue
            skipped = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            outcome = BAD if failed else GOOD if skipped is None else "skipped"
            found[name[1], name[2], name[3].replace("-tls", "").replace("-clear", ", clear")] = (
                outcome
            )
    return found


def page(found: dict[tuple[str, str, str], str], head: str) -> str:
    """Returns the page in Markdown: the head, and one table for each test of TITLES."""
    lines = [head]
    for test, title in TITLES.items():
        rows = {key[1:]: outcome for key, outcome in found.items() if key[0] == test}
        clients = list(dict.fromkeys(client for client, _ in rows))
        cases = list(dict.fromkeys(case for _, case in rows))
        lines += [
            f"\n## {title}\n",
            f"| client | {' | '.join(case or 'PLAIN' for case in cases)} |",
        ]
        lines.append("|---" * (1 + len(cases)) + "|")
        for client in clients:
            cells = [rows.get((client, case), NONE) for case in cases]
            lines.append(f"| {client} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def head_of(found: dict[tuple[str, str, str], str]) -> str:
    """Returns the first section of the page: what was run, when, where, and the counts."""
    outcomes = list(found.values())
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    counts = f"{outcomes.count(GOOD)} passed, {outcomes.count(BAD)} failed, "
    counts += f"{outcomes.count('skipped')} skipped"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"""# Clients, mechanisms and refusals

The long form of [test_client_families.py](../../tests/tls/test_client_families.py) starts a broker
with an authorizer and four listeners, and runs each client against it. `make long` writes this page
([client_matrix.py](../../tests/tls/client_matrix.py)): {counts},
at commit {commit} on {date},
{machine}. A dash means that the client does not support the
mechanism. `tools` are the console producer and consumer of Kafka 4.3.1, `ours` is the client of the
`barnabas` commands; `tools` and `kcat` open new connections for each call. Each client reads three
records that it wrote, one of 300,000 bytes.

Other tests cover what has no column here:

- GSSAPI: [test_kerberos.py](../../tests/security/test_kerberos.py),
  [test_logins.py](../../tests/client/test_logins.py), and over TLS
  [test_kerberos_over_tls.py](../../tests/tls/test_kerberos_over_tls.py) (kafka_python, aiokafka,
  kcat, the mirror, the old clients, and in the long form tools)
- delegation tokens:
  [test_delegation_tokens.py](../../tests/security/test_delegation_tokens.py)
- the mirror and the old clients:
  [test_protected_commands.py](../../tests/security/test_protected_commands.py),
  [test_old_clients.py](../../tests/security/test_old_clients.py)
- Spark: [test_protected_broker.py](../../tests/spark/test_protected_broker.py)"""


if __name__ == "__main__":
    all_of_it = results([Path(name) for name in sys.argv[1:]])
    sys.stdout.write(page(all_of_it, head_of(all_of_it)))
