"""Region, endpoint, credentials and certificates, from the environment and from profiles."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import PermissionDenied, ValidationError, ZAELimiterError
from zae_limiter.store_errors import NotSent
from zae_limiter.transport.messages import Endpoint, parse_endpoint
from zae_limiter.transport.signing import Credentials

if TYPE_CHECKING:
    from botocore.session import Session

# A server on this machine, such as DynamoDB Local, does not check credentials.
_LOCAL_CREDENTIALS = Credentials("local", "local")
_LOCAL_REGION = "us-east-1"
_REGION = re.compile(r"[a-z0-9-]+")
# Regions of AWS's main partition, whose endpoints follow one pattern.
_STANDARD_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]+")
_ENDPOINT_VARIANTS = ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT")
_GOVCLOUD = "us-gov-"  # begins the regions whose only endpoints of DynamoDB meet FIPS 140
_HEADER_SAFE = re.compile(r"[!-~]+")


class AwsConfig:
    """The AWS configuration of this process, as botocore reads it.

    botocore, whose import takes 0.2 s, is imported only if the environment does not say enough.
    """

    def __init__(self) -> None:
        self._botocore: Session | None = None

    def endpoint_and_region(
        self, endpoint: Endpoint | None, region: str | None
    ) -> tuple[Endpoint, str]:
        """Return DynamoDB's endpoint and the region to sign for, completing the given values."""
        endpoint = endpoint or self._configured_endpoint()
        region = region or self._configured_region(endpoint)
        if region is None:
            raise ValidationError(
                "region", None, "is not known; pass region=, or set AWS_REGION or a profile"
            )
        if not _REGION.fullmatch(region):
            raise ValidationError("region", region, "must be like us-east-1")
        return endpoint or self._public_endpoint(region), region

    def credentials(self, is_local: bool) -> tuple[Credentials, Any]:
        """Return credentials; with them botocore's object that renews them, if they expire."""
        fixed = _from_environment()
        if fixed is not None:
            return _checked(fixed), None
        provider = self._provider(is_local) if not is_local or _has_profiles() else None
        if provider is not None:
            is_renewable = hasattr(provider, "refresh_needed")
            return current_credentials(provider), provider if is_renewable else None
        if is_local:
            return _LOCAL_CREDENTIALS, None
        raise PermissionDenied(
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "a profile, or a role"
        )

    def ca_bundle(self) -> str | None:
        """Return the file of certificates to trust, in botocore's order of preference.

        Returns None without such a setting; raises ValidationError if the file cannot be read.
        """
        bundle = (
            os.environ.get("AWS_CA_BUNDLE")
            or self._profile_ca_bundle()
            or os.environ.get("REQUESTS_CA_BUNDLE")
        )
        if not bundle:
            return None
        try:
            with Path(bundle).open("rb"):
                return bundle
        except OSError as error:
            raise ValidationError(
                "ca_bundle",
                bundle,
                f"cannot be read ({error.strerror}); check AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE "
                "or ca_bundle of the profile",
            ) from error

    def _profile_ca_bundle(self) -> str | None:
        if not _has_profiles():
            return None
        from botocore.exceptions import ProfileNotFound

        with suppress(ProfileNotFound):  # raised again where the profile's credentials are needed
            bundle: str | None = self._session.get_config_variable("ca_bundle")
            return bundle
        return None

    @property
    def _session(self) -> Session:
        if self._botocore is None:
            from botocore.session import Session

            self._botocore = Session()
        return self._botocore

    def configured_url(self, service: str) -> str | None:
        """Return the endpoint that environment or profile name for a service; None for AWS's."""
        if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
            return None
        own_variable = f"AWS_ENDPOINT_URL_{service.upper()}"
        url: str | None = os.environ.get(own_variable) or os.environ.get("AWS_ENDPOINT_URL")
        if not url and _has_profiles():
            profile = self._session.get_scoped_config()
            services = self._session.full_config.get("services", {})
            own = services.get(profile.get("services"), {}).get(service, {})
            url = own.get("endpoint_url") or profile.get("endpoint_url")
        return url or None

    def _configured_endpoint(self) -> Endpoint | None:
        url = self.configured_url("dynamodb")
        return parse_endpoint(url) if url else None

    def _configured_region(self, endpoint: Endpoint | None) -> str | None:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region and _has_profiles():
            region = self._session.get_config_variable("region")
        if not region and endpoint is not None and endpoint.is_local:
            region = _LOCAL_REGION
        return region or None

    def _public_endpoint(self, region: str) -> Endpoint:
        """Return the public endpoint; botocore's list is asked where a pattern does not give it.

        Making a client of botocore for that would take ten times as long.
        """
        has_variant = _has_profiles() or any(os.environ.get(name) for name in _ENDPOINT_VARIANTS)
        if _STANDARD_REGION.fullmatch(region) and not has_variant:
            return parse_endpoint(f"https://dynamodb.{region}.amazonaws.com")
        from botocore.exceptions import EndpointVariantError
        from botocore.regions import EndpointResolver

        variable = self._session.get_config_variable
        is_dual_stack = bool(variable("use_dualstack_endpoint"))
        is_fips = bool(variable("use_fips_endpoint"))
        if region.startswith(_GOVCLOUD) and not is_dual_stack:
            is_fips = False  # botocore's list would name a host that does not exist
        try:
            resolved = EndpointResolver(self._session.get_data("endpoints")).construct_endpoint(
                "dynamodb",
                region,
                use_fips_endpoint=is_fips,
                use_dualstack_endpoint=is_dual_stack,
            )
        except EndpointVariantError:
            resolved = None
        if not resolved:
            raise ValidationError(
                "region",
                region,
                "has no DynamoDB that botocore knows of; check the region, and the settings "
                "use_fips_endpoint and use_dualstack_endpoint",
            )
        return parse_endpoint(f"https://{resolved['hostname']}")

    def _provider(self, is_local: bool) -> Any:
        if is_local:  # the metadata service of a cloud says nothing about a local server
            providers = self._session.get_component("credential_provider")
            providers.remove("container-role")
            providers.remove("iam-role")
        return self._session.get_credentials()


def current_credentials(provider: Any) -> Credentials:
    """Return the credentials of a botocore provider, which may renew them first."""
    frozen = provider.get_frozen_credentials()
    return _checked(Credentials(frozen.access_key, frozen.secret_key, frozen.token or None))


def lookup_error(error: Exception) -> ZAELimiterError:
    """Return our error for an error of botocore."""
    if isinstance(error, ZAELimiterError):
        return error
    # Only the kind is shown: the text may quote the output of a credential process.
    kind = type(error).__name__
    from botocore.exceptions import HTTPClientError

    if isinstance(error, HTTPClientError):
        return NotSent(f"the service that gives AWS credentials cannot be reached ({kind})")
    return PermissionDenied(
        f"AWS credentials or configuration could not be read ({kind}); "
        "check the profile, the environment or the role"
    )


def _from_environment() -> Credentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret or os.environ.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN") or None)


def _checked(credentials: Credentials) -> Credentials:
    """Refuse characters that a header cannot contain: a line break would begin another header."""
    if all(part is None or _HEADER_SAFE.fullmatch(part) for part in credentials):
        return credentials
    raise PermissionDenied(
        "the AWS credentials are empty, or contain blanks or other characters that cannot be "
        "sent; check their source"
    )


def _has_profiles() -> bool:
    if os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE"):
        return True
    files = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
        os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config",
    )
    return any(Path(file).expanduser().exists() for file in files)
