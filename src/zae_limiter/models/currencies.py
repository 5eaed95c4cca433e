"""Names of limits that are codes of currencies, so that nobody takes other amounts for money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

# ISO 4217, without metals, funds and codes for tests.
_CODES = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD
    CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP
    GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD
    KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN
    NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP
    SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES
    VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CODES: Final = frozenset(_CODES.split())
# A quota of tokens may have one of these names; a budget may not, unless it is in this currency.
WORDS: Final = frozenset({"ALL", "COP", "CUP", "GEL", "MAD", "MOP", "PEN", "PHP", "TOP", "TRY"})


def check_name(limit: Limit) -> None:
    """Raise ValidationError if the name of a quota or budget is another currency than its own."""
    code, currency = limit.name.upper(), limit.currency
    if code not in CODES or code == currency or (currency is None and code in WORDS):
        return
    counted = "this quota counts tokens" if currency is None else f"this budget is in {currency}"
    right = str(limit).replace(f"{currency or ''}/", f"{code}/", 1)
    raise ValidationError(
        "limit.name",
        limit.name,
        f"is a currency, but {counted}: write {right}, in Python "
        f'Limit.budget("{limit.name}", …, currency="{code}", …), or choose another name',
    )
