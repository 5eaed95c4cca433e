"""Commands as the documents show them: every one can be parsed, and those on data run."""

import shlex

import pytest

from tests.docs.shell import Line, answered, parsed
from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.stores import fill

MANIFEST = """
namespace: default
system:
  on_unavailable: block
  limits: {rpm: {capacity: 1000}, tpm: {capacity: 100000}}
resources:
  gpt-4: {limits: {rpm: {capacity: 500}, tpm: {capacity: 50000}}}
entities:
  user-premium: {resources: {gpt-4: {limits: {rpm: {capacity: 1000}}}}}
"""
OF_STACKS = """
deploy --name my-app --region us-east-1
deploy --name my-app --endpoint-url http://localhost:4566 --region us-east-1
deploy --name my-app --no-aggregator
deploy --name my-app --permission-boundary arn:aws:iam::aws:policy/P --role-name-format pb-{}-P
deploy --name my-app --alarm-sns-topic arn:aws:sns:us-east-1:123456789012:alerts
deploy --name my-app --lambda-timeout 60 --lambda-memory 256 --log-retention-days 30 --no-alarms
deploy --name my-app --no-audit-archival --enable-tracing --create-iam-roles --iam
deploy --name my-app --no-iam --aggregator-role-arn arn:aws:iam::123456789012:role/r
deploy --name my-app --policy-name-format pb-{}-P
status --name my-app --region us-east-1
delete --name my-app --yes
list --region us-east-1
check --name my-app
upgrade --name my-app
cfn-template
lambda-export --output lambda.zip
limits plan -n my-app -f limits.yaml
limits apply -n my-app -f limits.yaml
limits diff -n my-app -f limits.yaml
limits cfn-template -n my-app -f limits.yaml
local up
local up --name my-app
local status
local logs --follow
local down
loadtest deploy -n my-app -C examples/locust
loadtest push -n my-app -C examples/locust
loadtest ui -n my-app -f locustfiles/simple.py
loadtest run -n my-app -f locustfiles/max_rps.py --users 20 --duration 60
loadtest run -n my-app -f locustfiles/max_rps.py MaxRpsCascadeUser
loadtest run -n my-app -f locustfiles/max_rps.py --workers 10 --users 100
loadtest tune -n my-app -f locustfiles/max_rps.py
loadtest tune -n my-app -f locustfiles/max_rps.py MaxRpsCascadeUser
loadtest list
loadtest delete -n my-app --yes
""".strip().splitlines()
ON_DATA = """
version
system set-defaults -l tpm:100000 -l rpm:1000 --on-unavailable allow
resource set-defaults gpt-4 -l tpm:50000 -l rpm:500
entity set-limits user-123 --resource gpt-4 -l rpm:1000
entity set-limits user-123 -l rpm:1000/min -l rps:10/sec -l rph:5000/hour -l rpd:100000/day
entity set-limits user-123 -l rpm:1000:1500
resource list
entity list-resources
entity list --with-custom-limits gpt-4
entity get-limits user-123
namespace register tenant-alpha tenant-beta
namespace list
namespace show tenant-alpha
entity set-limits user-123 --namespace tenant-alpha -l rpm:1000
audit list --namespace tenant-alpha
usage list --namespace tenant-alpha
system set-defaults --namespace tenant-alpha -l rpm:5000
namespace delete tenant-alpha
namespace orphans
limits plan -f limits.yaml
limits apply -f limits.yaml
limits diff -f limits.yaml
entity delete-limits user-123
resource delete-defaults gpt-4
system delete-defaults
""".strip().splitlines()


@pytest.mark.parametrize("text", [*OF_STACKS, *ON_DATA])
def test_a_documented_command_can_be_parsed(text):
    parsed(shlex.split(text))


def test_documented_commands_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAEL_URL", "sqlite:///limits.db?synchronous=OFF")
    fill("sqlite:///limits.db?synchronous=OFF")
    (tmp_path / "limits.yaml").write_text(MANIFEST, encoding="utf-8")
    run = CommandLine(capsys, None)
    for text in ON_DATA:
        line = Line(f"zae-limiter {text}")
        ran = run(*answered(line, parsed(line.words[1:])))
        assert ran.code == 0, f"{text}: {ran.err}"
    orphan = run("namespace", "orphans", "--output", "json").json["namespaces"][0]["namespace_id"]
    for name in ("recover", "delete", "purge"):
        args = ["tenant-alpha"] if name == "delete" else [orphan]
        asked = [] if name == "recover" else ["--yes"]
        assert run("namespace", name, *args, *asked).code == 0
