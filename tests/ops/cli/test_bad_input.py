"""Bad input of every option and argument: one line, exit code 2, and nothing is done."""

import click
import pytest

from tests.ops.cli.stores import on_both_engines
from tests.ops.cli.terminal import only_line, run
from tests.ops.cli.test_reference import LEAVES, MANIFEST, SAMPLES

LONG = "x" * 300
# Bad values by parameter; the store is not opened.
BAD = {
    "url": ["", "redis://x", "sqlite://limits.db", "sqlite:///x.db?mode=ro", "dynamodb://a_b"],
    "stack": ["", "a_b", "-x", LONG],
    "region": ["", "a b", "EU", "eu-west-1.example.org"],
    "endpoint_url": ["", "localhost:8000", "ftp://x", "http://", "http://x:y", "http://x?a=b"],
    "namespace": ["", "a b", "a#b", LONG],
    "output": ["", "xml", "TABLE"],
    "principal": ["", LONG],
    "limits": [
        "",
        "rpm",
        "rpm:",
        ":5",
        "rpm:x",
        "rpm:-1",
        "rpm:0",
        "rpm:1.5",
        "rpm:5/",
        "rpm:5/fortnight",
        "rpm:5/0s",
        "rpm:1__0",
        "rpm:5/min:",
        "rpm:5/min:0",
        "rpm:5:6:7",
        "9rpm:5",
        "wcu:5",
        "rpm:９",
        f"rpm:{10**16}",
    ],
    "amounts": [
        "",
        "tpm",
        "tpm=",
        "=5",
        "tpm=x",
        "tpm=-1",
        "tpm=1.5",
        "tpm=1__0",
        f"tpm={'9' * 5000}",
        f"tpm={10**16}",
    ],
    "further": ["", "usd", "usd=x"],
    "further_of": ["", "usd=-1"],
    "on_unavailable": ["", "maybe"],
    "resource": ["", ":gpt", "a b", "a#b", LONG],
    "with_custom_limits": ["", "/gpt", "a b"],
    "entity_id": ["", " ", "a#b", "$x", "a\nb", "😀" * 226, LONG],
    "parent": ["", "a#b", "$x"],
    "metadata": ["", "team", "=x"],
    "limit": ["", "0", "-1", "x", "1.5", str(10**20)],
    "display_name": ["", " ", LONG],
    "cursor": ["", LONG + LONG],
    "near": ["", "0", "101", "most", "nan"],
    "sort": ["", "name"],
    "mode": ["", "off", "Deny"],
    "until": ["", "soon", "2026-13-01", "0001-01-01"],
    "watch": ["", "0", "often"],
    "resources": ["", "a b", "a#b", LONG],
    "interval": ["", "0", "often"],
    "start_event_id": ["", LONG],
    "next_key": ["", "x", "#", "a#b#c#d"],
    "file": ["", "."],
    "files": ["", "missing.yaml", "."],
    "from_table": ["", "a b", "ab", LONG],
    "form": ["", "flat"],
    "unit": ["", "microtokens"],
    "read_units": ["", "0", "-1", "nan", "many"],
    "function": ["", "processor"],
    "allow_deletions": ["", "-1", "1.5", "many", "all"],
    "lock_timeout": ["", "-1", "4000", "soon"],
    "namespace_id": ["", LONG],
    "seconds": ["", "0", "-1", "nan", "soon"],
    "pause_s": ["", "-1", "601", "nan", "inf", "soon"],
    "tenants": ["", "0", "51", "many"],
    "seed": ["", "1.5"],
    "engine": ["", "redis"],
    "port": ["", "-1", "65536", "http"],
    "grpc_port": ["", "-1", "65536", "grpc"],
    "tokens": ["."],
    "client_ca": ["", ".", "missing.pem"],
    "rules": ["."],
    "advertise": ["", "nowhere"],
    "access_log": ["."],
    "max_leases": ["", "0", "many"],
    "max_requests": ["", "0", "many"],
    "drain_s": ["", "-1", "nan", "long"],
    "host": ["", "0.0.0.0", "a b", LONG],
    "certificate": ["", ".", "missing.pem"],
    "key": ["", ".", "missing.pem"],
    "public_hosts": ["", "a b", "a/b", "user@a", LONG],
    "principal_header": ["", "a b", "a:b", "x-user"],  # the last one needs --behind-proxy
    "manifest": ["", ".", "missing.yaml"],
    "lines": ["", "-1", "many"],
    "window": ["", "weekly"],
    "by": ["", "a b", "9rpm"],
    "last": ["", "0h", "yesterday", "-1d"],
    "start": ["", "yesterday", "2026-13-01"],
    "end": ["", "tomorrow"],
    "of_namespace": ["", "a b", LONG],
    "name": ["", "a b", LONG],
    "names": ["", "a b", LONG],
    "snapshot_windows": ["", "weekly", "hourly,hourly"],
    "usage_retention_days": ["", "-1", "soon"],
    "audit_retention_days": ["", "0", "1.5"],
    "pitr_recovery_days": ["", "0", "36"],
    "log_retention_days": ["", "2", "x"],
    "lambda_timeout": ["", "0", "901"],
    "lambda_memory": ["", "127", "3009"],
    "reserved_concurrency": ["", "0", "1001"],
    "lambda_duration_threshold_pct": ["", "0", "101"],
    "alarm_sns_topic": ["", "topic"],
    "permission_boundary": ["", "boundary"],
    "role_name_format": ["", "x", "{}{}", "{}" + LONG],
    "policy_name_format": ["", "x", "{}{}", "{}" + LONG],
    "audit_archive_glacier_days": ["", "0", "x"],
    "aggregator_role_arn": ["", "role"],
    "tag": ["", "x", "=y", "aws:x=y"],
    "tags": ["", "x", "=y", "aws:x=y"],
    "locustfile": ["", "x.txt"],
    "folder": ["missing"],
    "users": ["", "0", "1.5"],
    "duration": ["", "0", "soon"],
    "workers": ["", "0", "1001"],
    "vpc_id": ["", "x"],
    "subnet_ids": ["", "subnet-1,x"],
    "html": ["", ".", "missing/x.html"],
    "max_latency": ["", "0", "soon"],
    "user_classes": ["", "9x", "a-b"],
}


# What commands cannot do without.
NEEDED = {
    "delete": ["--yes"],
    "deploy": ["--name", "my-app"],
    "lambda-export": ["--output", "code.zip"],
    "serve": ["--no-auth"],
}


def cases():
    """Return all bad values once, then one for each other command with that parameter."""
    tried, found = set(), {path: [] for path, _ in LEAVES}
    for path, command in LEAVES:
        for param in command.params:
            if getattr(param, "is_flag", False):
                continue
            values = BAD[param.name]  # KeyError: a new option needs its bad values
            for value in values[-1:] if param.name in tried else values:
                tried.add(param.name)
                found[path].append((param, value))
    return found


def words(path, param, value):
    """Return a correct command line with one wrong word in it."""
    known = SAMPLES | {"limits cfn-template": ["--name", "my-app", *SAMPLES["limits plan"]]}
    args = list(known.get(" ".join(path), NEEDED.get(path[0], ())))
    if isinstance(param, click.Option) and param.nargs > 1:
        return [*args, param.opts[0], *["x"] * (param.nargs - 1), value]
    if isinstance(param, click.Option):
        return [*args, f"{param.opts[0]}={value}"]
    position = [each for each in dict(LEAVES)[path].params if isinstance(each, click.Argument)]
    if position.index(param) < len(args):
        args[position.index(param)] = value
    else:
        args.append(value)
    return args


@pytest.mark.parametrize(
    ("path", "bad"), [pytest.param(path, bad, id="-".join(path)) for path, bad in cases().items()]
)
def test_a_bad_value_is_wrong_usage_in_one_line(path, bad, capsys, monkeypatch, tmp_path):
    from tests.ops.cli.inprocess import CommandLine

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAEL_URL", "sqlite:///never.db")
    command = CommandLine(capsys, None)
    for param, value in bad:
        line = command(*path, *words(path, param, value)).error(2)
        name = param.opts[0] if isinstance(param, click.Option) else ""
        assert name in line, value
        assert line.endswith(f"see 'zae-limiter {' '.join(path)} --help'"), value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["entity", "create", "a", "--cascade"], "--cascade needs --parent"),
        (["entity", "create", "a", "--parent", "a"], "must be another entity"),
        (["entity", "set-mode", "key-7", "off"], "'off' is not one of 'enforce', 'shadow'"),
        (["entity", "set-mode", "key-7", "deny", "--until", "2020-01-01"], "is over already"),
        (["resource", "set-mode", "gpt-4", "inherit"], "'inherit' is not one of"),
        (
            ["resource", "set-mode", "gpt-4", "enforce", "--until", "2099-01-01"],
            "enforce is the mode of every resource",
        ),
        (["entity", "set-parent", "key-7"], "give either PARENT, or --none"),
        (["entity", "set-parent", "key-7", "a", "--none"], "give either PARENT, or --none"),
        (["entity", "set-parent", "key-7", "key-7", "--force"], "must be another entity"),
        (["entity", "create", "a", "-m", f"{'k' * 300}=v"], "at most 256 characters"),
        (["entity", "create", "a", "--display-name", "n" * 300], "at most 256 characters"),
        (
            ["entity", "list", "--parent", "a", "--with-custom-limits", "b"],
            "give only one of --with-custom-limits",
        ),
        (["entity", "set-limits", "a"], "Missing option '--limit'"),
        (["entity", "set-limits", "a", "-l", "rpm:1", "-l", "rpm:2"], "names the same limit twice"),
        (["bucket", "top-up", "a", "b", "-a", "x=1", "-a", "x=2"], "names a limit twice"),
        (["bucket", "top-up", "key-7", "gpt-4", "-a", "tmp=1"], "did you mean 'tpm'?"),
        (["local", "up", "--port", "0"], "is not in the range"),
        (["bucket", "show"], "Missing argument 'ENTITY'"),
        (["audit", "list", "--system", "-e", "a"], "give only one of --entity-id"),
        (["usage", "list", "--start", "2026-01-02", "--end", "2026-01-01"], "must be later than"),
        (["namespace", "register", "a", "--create-table"], "--create-table is for DynamoDB"),
        (["usage", "list", "-e", "a", "--output", "png"], "needs --file"),
        (["usage", "list", "-e", "a", "--file", "x"], "--file goes with"),
        (["usage", "list", "-e", "a", "--plot", "--output", "csv"], "leave out --output csv"),
        (["system", "get-defaults", "--url", "memory://", "-n", "other"], "leave out --name"),
        (["system", "get-defaults", "extra"], "unexpected extra argument"),
        (["system", "get-defaults", "--outptu", "json"], "Did you mean '--output'?"),
        (["system", "get-default"], "did you mean 'get-defaults'"),
        (["namespace", "register"], "Missing argument 'NAME...'"),
        (["limits", "plan"], "Missing option '--file'"),
        (["limits", "plan", "-f", MANIFEST, "-N", "other"], "leave out one of the two"),
        (["limits", "export", "-f", "x"], "No such option"),
        (["sistem"], "did you mean 'system'"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(cli, args, said):
    assert said in cli(*args).error(2)


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["entity", "show", "key-77"], "did you mean 'key-7'?"),
        (["entity", "show", "stranger"], "create it: zae-limiter entity create stranger"),
        (["entity", "create", "key-7"], "exists already; show it: zae-limiter entity show"),
        (
            ["entity", "create", "key-8", "--parent", "projct-1", "--cascade"],
            "the parent 'projct-1' does not exist (did you mean 'project-1'?)",
        ),
        (
            ["entity", "create", "key-8", "--parent", "nothing-like-it"],
            "give --force, or create it first: zae-limiter entity create nothing-like-it",
        ),
        (
            ["entity", "set-parent", "key-7", "projct-1"],
            "the parent 'projct-1' does not exist (did you mean 'project-1'?)",
        ),
        (
            ["entity", "set-parent", "kei-7", "project-1"],
            "entity 'kei-7' is not registered (did you mean 'key-7'?)",
        ),
        (["entity", "set-parent", "stranger", "--none"], "create it: zae-limiter entity create"),
        (["entity", "delete", "stranger", "--yes"], "entity 'stranger' does not exist"),
        (["bucket", "reset", "key-7", "gpt4", "--yes"], "did you mean 'gpt-4'?"),
        (["bucket", "reset", "stranger", "gpt-4", "--yes"], "has no buckets (unused or expired)"),
        (
            ["bucket", "top-up", "stranger", "gpt-4", "-a", "tpm=1"],
            "has no buckets (unused or expired)",
        ),
        (["namespace", "show", "tenant-aa"], "did you mean 'tenant-a'?"),
        (["namespace", "show", "nothing"], "zae-limiter namespace register nothing"),
        (["namespace", "delete", "nothing", "--yes"], "namespace register nothing"),
        (
            ["namespace", "recover", "nothing"],
            "list the deleted namespaces: zae-limiter namespace orphans",
        ),
        (["namespace", "recover", "tenant-a"], "is active"),
        (["namespace", "purge", "tenant-a", "--yes"], "zae-limiter namespace delete tenant-a"),
        (
            ["namespace", "purge", "nothing", "--yes"],
            "list the deleted namespaces: zae-limiter namespace orphans",
        ),
        (["resource", "list", "-N", "nothing"], "zae-limiter namespace register nothing"),
        (["resource", "list", "-N", "tenant-b"], "did you mean 'tenant-a'?"),
        (["entity", "show", "projct-1"], "did you mean 'project-1'?"),
        (["resource", "list", "--url", "sqlite:///gone.db"], "namespace register default --url"),
        (["system", "set-defaults", "-l", "a:1", "--url", "sqlite:////x/y.db"], "create it"),
    ],
)
def test_what_fails_says_what_to_do_next(cli, args, said):
    assert said in cli(*args).error(1)


def test_a_file_of_another_program_is_left_alone(tmp_path):
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam, this is not a database at all. " * 100)
    found = run("resource", "list", "--url", f"sqlite:///{file}")
    assert found.returncode == 1
    assert "file is not a database" in only_line(found.stderr)
    assert file.read_text().startswith("Dear Sir")


def test_looking_makes_no_file_and_no_namespace(cli, opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("resource", "list", "--url", "sqlite:///typo.db").error(1)
    cli("resource", "list", "-N", "typo").error(1)
    assert not (tmp_path / "typo.db").exists()
    assert "typo" not in [each.name for each in opened.list_namespaces()]


def test_the_command_line_wins_over_the_environment(cli, monkeypatch):
    assert "no store named 'my-stack'" in cli("resource", "list", "-n", "my-stack").error(1)
    monkeypatch.setenv("ZAEL_URL", "sqlite:///gone.db")
    assert cli("resource", "list", "--url", cli.url).code == 0


@pytest.mark.parametrize(
    "args",
    [
        ["--url", "postgres://user:s3cret@host/db"],
        ["--url", "dynamodb://stack?token=s3cret"],
        ["--url", "dynamodb://stack?endpoint_url=http://user:s3cret@host"],
        ["--name", "stack", "--endpoint-url", "http://user:s3cret@host"],
        ["--name", "stack", "--endpoint-url", "user:s3cret@host"],
        ["--name", "user:s3cret@stack"],
    ],
)
def test_no_message_shows_the_credentials_of_a_url(cli, monkeypatch, args):
    monkeypatch.delenv("ZAEL_URL")
    assert "s3cret" not in cli("entity", "list", *args).error(2)
    if args[0] == "--url":
        monkeypatch.setenv("ZAEL_URL", args[1])
        assert "s3cret" not in cli("entity", "list").error(2)
