"""docs/evidence/clients.md says what a long run of test_client_families.py found, and no less."""

import pytest
from tls.client_matrix import BAD, GOOD, READS, REFUSED, ROOT, page, results
from tls.protected_clients import FAMILIES

REPORT = """<testsuites><testsuite>
<testcase classname="tls" name="{reads}[kcat-plain-tls]"/>
<testcase classname="tls" name="{reads}[kcat-plain-clear]"><failure>no</failure></testcase>
<testcase classname="tls" name="{reads}[ours-scram-512-tls]"/>
<testcase classname="tls" name="{refused}[ours-a wrong password]"><skipped/></testcase>
<testcase classname="tls" name="test_another[kcat-plain-tls]"><failure>no</failure></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.xml"
    path.write_text(REPORT.format(reads=READS, refused=REFUSED))
    return path


def test_a_report_becomes_tables(report):
    found = results([report])
    assert found == {
        (READS, "kcat", "plain"): GOOD,
        (READS, "kcat", "plain, clear"): BAD,
        (READS, "ours", "scram-512"): GOOD,
        (REFUSED, "ours", "a wrong password"): "skipped",
    }
    text = page(found, "head")
    assert "| kcat | yes | **NO** | – |" in text and "| ours | – | – | yes |" in text
    assert "| ours | skipped |" in text


def test_the_page_has_every_client_and_no_failure():
    text = (ROOT / "docs" / "evidence" / "clients.md").read_text()
    assert BAD not in text
    for name in FAMILIES:
        assert text.count(f"\n| {name} |") == 4, name
