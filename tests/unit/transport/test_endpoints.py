"""The endpoints of AWS, in every region and variant, as botocore's rules name them."""

import pytest
from botocore.session import Session

from tests.support.endpoint_rules import rules_of
from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter_ops.transport.control import Control

REGIONS = [
    region
    for partition in Session().get_available_partitions()
    for region in Session().get_available_regions("dynamodb", partition)
]


@pytest.fixture(autouse=True)
def no_profile(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config"


def host_of(region):
    return AwsConfig().endpoint_and_region(None, region)[0].host


@pytest.mark.parametrize(
    "regions",
    [
        pytest.param(REGIONS[::8], id="sample"),
        pytest.param(REGIONS, id="all", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("use_fips", [False, True])
def test_every_region_has_the_host_that_botocore_names(monkeypatch, use_fips, regions):
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", str(use_fips).lower())
    assert len(REGIONS) > 40
    assert {f"https://{host_of(region)}": region for region in regions} == {
        rules_of("dynamodb", region, use_fips): region for region in regions
    }


@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1"])
def test_a_profile_sets_fips_endpoints_of_both_planes(monkeypatch, no_profile, region):
    no_profile.write_text("[default]\nuse_fips_endpoint = true\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    assert f"https://{host_of(region)}" == rules_of("dynamodb", region, True)
    control = Control(region)
    try:
        found = control._client("lambda").meta  # noqa: SLF001 - a call would need the network
        assert found.config.use_fips_endpoint is True
        assert found.endpoint_url == rules_of("lambda", region, True)
    finally:
        control.close()


def test_a_variant_that_a_partition_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    with pytest.raises(ValidationError, match="use_fips_endpoint and use_dualstack_endpoint"):
        host_of("us-isof-east-1")
