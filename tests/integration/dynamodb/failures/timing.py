"""How long clients of these tests wait."""

TIMEOUT_S = 2.0  # long enough for a busy machine to answer, short enough to wait for in vain
ATTEMPTS = 50


async def until(holds, scenario):
    """Run a scenario, with another entity each time, until it shows what it must show.

    On a machine that stalls, a caller may come so late that it writes apart. That changes the id
    by which the other write would be recognised, and the outcome of that one is then unknown.
    """
    for number in range(ATTEMPTS):
        shown = await scenario(f"user-{number}")
        if shown == holds:
            break
    assert shown == holds
