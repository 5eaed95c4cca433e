"""Ways to break the core, and the test that notices each of them.

``old`` must occur exactly once in the file: when the code moves on, so does this list.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of one file, and the test that must fail because of it."""

    name: str
    file: str
    old: str
    new: str
    test: str


CHARGING = "tests/unit/test_charging.py::"
LEASES = "tests/unit/test_leases.py::"
MEMORY = "tests/contract/_sync/test_engines.py::TestMemory::"
LEASE_HISTORIES = (
    "tests/property/test_lease_histories.py::test_a_lease_costs_what_its_three_numbers_say"
)
BUCKET = "tests/unit/test_bucket.py::"
ROWS = "tests/unit/test_sqlite_rows.py::"
REPORT = "tests/unit/test_usage_report.py::"
SLOT_ORDER = (
    "tests/property/test_slot_order.py::test_no_caller_is_overtaken_and_no_free_slot_stays_idle"
)
MOVES = "tests/property/test_moves.py::"
CLOCK = "tests/unit/test_server_clock.py::"
FLEET = "tests/property/test_fleet_clocks.py::"
HISTORIES = "tests/property/test_usage_histories.py::test_usage_is_exact_"
MANY_HISTORIES = HISTORIES + "in_many_histories_where"
GUARDS = "tests/property/test_usage_guards.py::test_"
SHARED = "tests/unit/test_shared_clock.py::"
HOURS = "tests/unit/dynamodb/test_hour_updates.py::"
BUCKET_ITEM = "tests/unit/dynamodb/test_bucket_item.py::"
ITEM_HOURS = "tests/unit/dynamodb/test_item_hours.py::"
MIGRATIONS = "tests/unit/dynamodb/test_migrations.py::"
DIFF = "tests/ops/manifest/test_diff.py::"
READING = "tests/ops/manifest/test_reading.py::"
BATCHES = "tests/contract/_sync/test_engines.py::TestNamedMemory::"
CHUNKS = "tests/unit/llm/test_chunks.py::"
CALL_RECORDS = "tests/unit/llm/test_records.py::"
LOAD = "tests/unit/dynamodb/test_index_load.py::"
RESERVED = "tests/property/test_reservations.py::"
WAITING = "tests/property/test_waiting.py::"
QUEUE = "tests/unit/dynamodb/test_write_queue.py::"
SLOTS = "tests/property/test_slots.py::test_there_are_never_more_holders_than_slots"
LEDGER = "tests/unit/test_slots.py::test_"
PAUSES = "tests/unit/dynamodb/test_pauses.py::test_"

MUTANTS = [
    # --- a paused bucket admits nothing
    Mutant(
        "embedded engines do not look at the pause",
        "zae_limiter/admission/charge.py",
        "if is_paused(seen, now_ms):",
        "if False:",
        MEMORY + "test_calls_are_rejected_until_the_end_to_the_millisecond",
    ),
    Mutant(
        "a pause lasts a millisecond longer",
        "zae_limiter/admission/image.py",
        "return image.paused_until_ms is not None and now_ms < image.paused_until_ms",
        "return image.paused_until_ms is not None and now_ms <= image.paused_until_ms",
        MEMORY + "test_calls_are_rejected_until_the_end_to_the_millisecond",
    ),
    Mutant(
        "a rejection does not say how long the pause is",
        "zae_limiter/admission/charge.py",
        "max(retry_after, paused_s),",
        "retry_after,",
        MEMORY + "test_calls_are_rejected_until_the_end_to_the_millisecond",
    ),
    Mutant(
        "a second pause shortens the first",
        "zae_limiter/admission/settle.py",
        "return until_ms if before_ms is None else max(before_ms, until_ms)",
        "return until_ms",
        MEMORY + "test_a_later_end_holds_and_an_earlier_one_changes_nothing",
    ),
    Mutant(
        "a bucket expires during its pause",
        "zae_limiter/admission/image.py",
        "moments.append(image.paused_until_ms)",
        "pass",
        "tests/contract/test_housekeeping.py::test_a_pause_is_not_forgotten[memory]",
    ),
    Mutant(
        "callers that wait ask while the bucket is paused",
        "zae_limiter/admission/reservation.py",
        "latest_ms = max(latest_ms, paused_ms, fits_ms - HORIZON_MS)",
        "latest_ms = max(latest_ms, fits_ms - HORIZON_MS)",
        RESERVED + "test_a_paused_bucket_is_asked_when_the_pause_is_over",
    ),
    Mutant(
        "a charge is sent under the digest of a pause",
        "zae_limiter/dynamodb/buckets/planning.py",
        "if paused and not known.is_fresh and any(change.is_charge for change in changes):",
        "if False:",
        PAUSES + "a_charge_is_not_sent_by_a_client_that_knows_of_the_pause",
    ),
    Mutant(
        "a charge is sent to a bucket that was just seen paused",
        "zae_limiter/dynamodb/buckets/planning.py",
        "        and not paused\n",
        "",
        PAUSES + "a_charge_is_not_sent_by_a_client_that_knows_of_the_pause",
    ),
    Mutant(
        "a charge fits into a paused bucket",
        "zae_limiter/dynamodb/buckets/pending.py",
        "    if is_paused(image, now_ms):\n        return False\n",
        "",
        PAUSES + "a_charge_is_not_sent_by_a_client_that_knows_of_the_pause",
    ),
    Mutant(
        "charges go along with a settlement during a pause",
        "zae_limiter/dynamodb/buckets/pending.py",
        "        if paused:\n            selection.skipped",
        "        if False:\n            selection.skipped",
        PAUSES + "of_two_changes_only_the_settlement_is_taken_during_a_pause",
    ),
    Mutant(
        "all pauses have the same digest",
        "zae_limiter/dynamodb/items/bucket.py",
        'f"{of_limits}{PAUSE_MARK}{paused_until_ms:x}"',
        'f"{of_limits}{PAUSE_MARK}"',
        PAUSES + "it_is_written_once_and_two_ends_have_two_digests",
    ),
    Mutant(
        "other limits end a pause",
        "zae_limiter/dynamodb/buckets/writes.py",
        "    if not is_paused(target, now_ms):\n        target",
        "    if True:\n        target",
        PAUSES + "other_limits_leave_a_pause_that_is_not_over",
    ),
    Mutant(
        "a pause that is over is never removed",
        "zae_limiter/dynamodb/buckets/writes.py",
        "if image.paused_until_ms is not None and not is_paused(image, now_ms):",
        "if False:",
        PAUSES + "the_first_write_after_the_end_removes_the_pause",
    ),
    Mutant(
        "a debt ends a pause that is under way",
        "zae_limiter/dynamodb/buckets/writes.py",
        "if image.paused_until_ms is not None and not is_paused(image, now_ms):",
        "if image.paused_until_ms is not None:",
        PAUSES + "a_settlement_is_written_under_the_digest_of_the_pause",
    ),
    Mutant(
        "a split forgets the pause",
        "zae_limiter/dynamodb/sharding/transactions.py",
        "_COPIED = (stored.DIGEST, stored.NOT_BEFORE, stored.VERSION,",
        "_COPIED = (stored.DIGEST, stored.VERSION,",
        MANY_HISTORIES + "[paused buckets are split and merged]",
    ),
    Mutant(
        "a charge is gathered from paused shards",
        "zae_limiter/admission/shards/spreading.py",
        "    if any(is_paused(image, now_ms) for image in images.values()):\n        return None\n",
        "",
        PAUSES + "nothing_is_gathered_from_shards_of_which_one_is_paused",
    ),
    Mutant(
        "a pause moves a TTL back that another client has moved on",
        "zae_limiter/dynamodb/buckets/pauses.py",
        "update.require_equal(stored.TTL, stored.ttl_value(ttl_ms))",
        "pass",
        PAUSES + "the_bucket_outlives_its_pause_and_its_ttl_is_not_moved_back",
    ),
    Mutant(
        "that a pause was lifted is never learned",
        "zae_limiter/dynamodb/rejection_cache.py",
        "        if 0 <= now_ms - entry.at_ms < self._ttl_ms:\n            return Rejected(",
        "        if True:\n            return Rejected(",
        PAUSES + "calls_are_rejected_without_asking_as_long_as_other_rejections_are",
    ),
    Mutant(
        "every refusal of a provider is a pause of its own",
        "zae_limiter/_async/llm_feedback.py",
        "end_s < recent.get(bucket, 0.0) + TOLERANCE_S",
        "False",
        "tests/integration/llm/test_sdks.py::test_many_refusals_at_once_are_one_pause",
    ),
    # --- an LLM call costs what it used
    Mutant(
        "text of a stream that was cut off is free",
        "zae_limiter/llm/chunks.py",
        "output_tokens=max(known.output_tokens, self.delivered_tokens),",
        "output_tokens=known.output_tokens,",
        CHUNKS + "test_without_reported_usage_a_complete_answer_costs_its_text",
    ),
    Mutant(
        "counts in the middle of a stream are taken for final",
        "zae_limiter/llm/chunks.py",
        "self.final = self._ended",
        "self.final = True",
        CHUNKS + "test_a_stream_cut_off_anywhere_costs_the_larger_of_reported_and_delivered",
    ),
    Mutant(
        "text after a report is free",
        "zae_limiter/llm/chunks.py",
        "self.final = False  # the reported usage did not include this text",
        "pass",
        CHUNKS + "test_text_after_a_report_makes_it_provisional_again",
    ),
    Mutant(
        "totals so far are added up",
        "zae_limiter/llm/chunks.py",
        "self._counts[key] = max(before, count)",
        "self._counts[key] = before + count",
        CHUNKS + "test_counts_so_far_are_not_added_up_and_zeros_between_are_ignored",
    ),
    Mutant(
        "tokens read from a cache beside the input are free",
        "zae_limiter/llm/usage.py",
        'counts.get("tool_input_beside", 0) + read_beside + write_beside',
        'counts.get("tool_input_beside", 0) + write_beside',
        "tests/unit/llm/test_usage.py::test_every_provider_is_read_in_one_form",
    ),
    Mutant(
        "a call that fails is free",
        "zae_limiter/llm/records.py",
        "return Usage(self.estimate.input_tokens, requests=requests)",
        "return Usage(requests=requests)",
        CALL_RECORDS + "test_a_failed_call_costs_its_input",
    ),
    Mutant(
        "a refund gives back what was sent",
        "zae_limiter/llm/records.py",
        "elif self.is_refunded and not self.sent.requests:",
        "elif self.is_refunded:",
        CALL_RECORDS + "test_a_refund_is_for_calls_that_were_never_sent",
    ),
    Mutant(
        "retries of an SDK are free",
        "zae_limiter/llm/records.py",
        "return replace(usage, requests=max(usage.requests, self.sent.requests))",
        "return usage",
        CALL_RECORDS + "test_retries_count_wherever_they_are_known",
    ),
    # --- never too much
    Mutant(
        "what runs over is kept",
        "zae_limiter/admission/charge.py",
        "if balance > full:",
        "if False:",
        CHARGING + "test_after_a_long_idle_time_no_more_than_the_capacity_is_given",
    ),
    Mutant(
        "the surplus is cut but still admits",
        "zae_limiter/admission/charge.py",
        "if balance + accrued < amount_milli:",
        "if state.balance_milli + accrued < amount_milli:",
        CHARGING + "test_an_idle_bucket_gives_nothing_beyond_its_capacity_at_once",
    ),
    Mutant(
        "the lower bound is dropped",
        "zae_limiter/admission/charge.py",
        "if balance + accrued < amount_milli:",
        "if False:",
        CHARGING + "test_a_new_bucket_is_full_and_gives_just_its_capacity",
    ),
    Mutant(
        "exactly enough is refused",
        "zae_limiter/admission/charge.py",
        "if balance + accrued < amount_milli:",
        "if balance + accrued <= amount_milli:",
        CHARGING + "test_exactly_what_is_there_is_given",
    ),
    Mutant(
        "a debt stops only calls that name the limit",
        "zae_limiter/admission/charge.py",
        "if balance + accrued < amount_milli:",
        "if amount_milli and balance + accrued < amount_milli:",
        CHARGING + "test_a_debt_stops_calls_that_do_not_name_the_limit",
    ),
    Mutant(
        "the level is shown beyond the capacity",
        "zae_limiter/admission/image.py",
        "return min(rate.capacity_milli, state.balance_milli + accrued_since_epoch(rate, now_ms))",
        "return state.balance_milli + accrued_since_epoch(rate, now_ms)",
        CHARGING + "test_a_credit_does_not_fill_beyond_the_capacity",
    ),
    Mutant(
        "before the epoch nothing accrues",
        "zae_limiter/admission/image.py",
        "accrued_milli(now_ms - EPOCH_MS,",
        "accrued_milli(max(0, now_ms - EPOCH_MS),",
        CHARGING + "test_before_the_epoch_buckets_fill_as_well",
    ),
    Mutant(
        "accrual is rounded up",
        "zae_limiter/bucket.py",
        "return elapsed_ms * refill_amount_milli // refill_period_ms",
        "return -(-elapsed_ms * refill_amount_milli // refill_period_ms)",
        BUCKET + "test_tokens_to_add_and_the_time_they_took",
    ),
    # --- exact answers
    Mutant(
        "the wait is rounded down",
        "zae_limiter/bucket.py",
        "return -(-deficit_milli * refill_period_ms // refill_amount_milli)",
        "return deficit_milli * refill_period_ms // refill_amount_milli",
        CHARGING + "test_the_wait_is_rounded_up_to_the_millisecond",
    ),
    Mutant(
        "the wait is a millisecond too long where it divides evenly",
        "zae_limiter/bucket.py",
        "return -(-deficit_milli * refill_period_ms // refill_amount_milli)",
        "return deficit_milli * refill_period_ms // refill_amount_milli + 1",
        CHARGING + "test_a_rejection_says_exactly_when",
    ),
    Mutant(
        "the wait is told in whole seconds",
        "zae_limiter/admission/charge.py",
        "return max(0, reaches_ms(state, amount_milli) - now_ms) / 1000",
        "return max(0, reaches_ms(state, amount_milli) - now_ms) // 1000",
        CHARGING + "test_the_wait_is_rounded_up_to_the_millisecond",
    ),
    Mutant(
        "what can never fit gets a time",
        "zae_limiter/admission/charge.py",
        "if amount_milli > state.rate.capacity_milli:",
        "if False:",
        CHARGING + "test_a_rejection_says_exactly_when",
    ),
    Mutant(
        "a refill forgets the time that was too short",
        "zae_limiter/bucket.py",
        "last_refill_ms + time_used_ms)",
        "now_ms)",
        BUCKET + "test_time_too_short_for_a_millitoken_is_not_used_up",
    ),
    # --- all or nothing
    Mutant(
        "a refused call has charged its first bucket",
        "zae_limiter/embedded/buckets.py",
        "        plans.append((wanted, plan, window, image))\n",
        (
            "        plans.append((wanted, plan, window, image))\n"
            "        if plan.granted is not None:\n"
            "            _write(tables, namespace_id, wanted.entity_id, wanted.resource,\n"
            "                   plan.granted, closed=window)\n"
        ),
        CHARGING + "test_a_refused_parent_leaves_the_child_alone",
    ),
    Mutant(
        "a cascade writes the child only",
        "zae_limiter/embedded/buckets.py",
        "for wanted, plan, window, _ in plans:",
        "for wanted, plan, window, _ in plans[:1]:",
        CHARGING + "test_a_cascade_charges_both",
    ),
    # --- other limits
    Mutant(
        "a bucket is charged at another rate than it was filled with",
        "zae_limiter/admission/rebase.py",
        "if state is None or state.rate != rate:",
        "if state is None:",
        CHARGING + "test_other_parameters_keep_the_level",
    ),
    Mutant(
        "other limits start full",
        "zae_limiter/admission/rebase.py",
        'balance = rebase_move("", state, rate, now_ms).applied(state.balance_milli)',
        "balance = full_balance(rate, now_ms)",
        CHARGING + "test_going_back_and_forth_between_limits_mints_nothing",
    ),
    Mutant(
        "other limits keep the balance instead of the level",
        "zae_limiter/admission/rebase.py",
        "return state._replace(balance_milli=balance, rate=rate)",
        "return state._replace(rate=rate)",
        CHARGING + "test_other_parameters_keep_the_level",
    ),
    Mutant(
        "a smaller capacity does not cut the level",
        "zae_limiter/admission/moves.py",
        "smaller = min(state.rate.capacity_milli, rate.capacity_milli)",
        "smaller = state.rate.capacity_milli",
        CHARGING + "test_a_level_that_was_cut_stays_cut_when_the_clock_goes_back",
    ),
    Mutant(
        "limits that are out of date are applied",
        "zae_limiter/admission/charge.py",
        "elif image is not None and is_newer(image, in_force) and not refreshed:",
        "elif False:",
        CHARGING + "test_limits_that_are_out_of_date_are_not_applied",
    ),
    Mutant(
        "limits of a call take the place of the configured ones",
        "zae_limiter/admission/in_force.py",
        "self.keys = self.names if governing is None else self._keys_beside(governing)",
        "self.keys = self.names",
        CHARGING + "test_limits_of_a_call_leave_the_configured_ones_alone",
    ),
    Mutant(
        "the default of an entity wins over its own limits",
        "zae_limiter/admission/resolution.py",
        "        (ConfigSource.ENTITY, snapshot.entity_resource),\n"
        "        (ConfigSource.ENTITY_DEFAULT, snapshot.entity_default),\n",
        "        (ConfigSource.ENTITY_DEFAULT, snapshot.entity_default),\n"
        "        (ConfigSource.ENTITY, snapshot.entity_resource),\n",
        "tests/unit/test_resolution.py::test_the_first_level_that_has_limits_wins",
    ),
    Mutant(
        "a read that was under way brings old limits back",
        "zae_limiter/_sync/config_cache.py",
        "if generation != self.generation:",
        "if False:",
        (
            "tests/unit/test_config_cache.py::"
            "test_a_read_that_was_under_way_during_a_change_is_not_remembered"
        ),
    ),
    # --- debts and credits
    Mutant(
        "a credit counts twice",
        "zae_limiter/admission/settle.py",
        "balance_milli=balance - amount_milli,",
        "balance_milli=balance - amount_milli * (2 if amount_milli < 0 else 1),",
        CHARGING + "test_a_credit_counts_once",
    ),
    Mutant(
        "a debt is swallowed by what has run over",
        "zae_limiter/admission/settle.py",
        "    if amount_milli > 0:\n        balance = min(",
        "    if False:\n        balance = min(",
        CHARGING + "test_a_debt_of_an_overfull_bucket_is_not_swallowed",
    ),
    Mutant(
        "the debt of a forgotten bucket is lost",
        "zae_limiter/admission/settle.py",
        "if all(amount <= 0 for amount in amounts.values()):",
        "if amounts:",
        CHARGING + "test_a_forgotten_bucket_keeps_debts_and_needs_no_credit",
    ),
    Mutant(
        "a top-up fills beyond the capacity",
        "zae_limiter/admission/moves.py",
        "added = min(amount_milli, full - state.balance_milli)",
        "added = amount_milli",
        CHARGING + "test_what_a_top_up_would_have_run_over_is_gone_also_when_the_clock_goes_back",
    ),
    # --- what a lease costs
    Mutant(
        "an exception keeps the tokens",
        "zae_limiter/_sync/lease.py",
        "failed and not self._call.keeps_on_error",
        "False",
        LEASES + "test_an_exception_gives_everything_back_and_drops_adjustments",
    ),
    Mutant(
        "an exception writes the adjustments as well",
        "zae_limiter/admission/account.py",
        "if not failed:\n            return self.unwritten",
        "if self.unwritten:\n            return self.unwritten",
        LEASES + "test_an_exception_gives_everything_back_and_drops_adjustments",
    ),
    Mutant(
        "more tokens within a lease are not given back",
        "zae_limiter/_sync/lease.py",
        "self._account = self._booked().charged(grant, grant.tokens(checked))",
        "self._booked()",
        LEASES + "test_an_exception_gives_everything_back_and_drops_adjustments",
    ),
    Mutant(
        "an error refunds what was to be kept",
        "zae_limiter/_sync/lease.py",
        "failed and not self._call.keeps_on_error",
        "failed",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a settled amount is refunded",
        "zae_limiter/admission/account.py",
        "kept={**self.kept, **amounts}",
        "kept=self.kept",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a settled amount is added to what was charged",
        "zae_limiter/admission/account.py",
        "name: cost - written.get(name, 0) for",
        "name: cost for",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a settlement forgets the adjustments of other limits",
        "zae_limiter/admission/account.py",
        "unwritten={**self.unwritten, **unwritten}",
        "unwritten=unwritten",
        LEASE_HISTORIES,
    ),
    Mutant(
        "what was settled at once is written again at the end",
        "zae_limiter/admission/account.py",
        "unwritten = sum_amounts([self.unwritten, negated(changes)])",
        "unwritten = self.unwritten",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a failure costs more than a success after an adjustment",
        "zae_limiter/admission/account.py",
        "return changed.kept_at_most_the_cost(amounts)",
        "return changed",
        LEASES + "test_a_failed_block_costs_what_was_settled_and_no_more",
    ),
    Mutant(
        "a failure costs more than a success after a release",
        "zae_limiter/admission/account.py",
        "Booking(self, self.changed_by(shares).kept_at_most_the_cost(amounts), shares)",
        "Booking(self, self.changed_by(shares), shares)",
        LEASES + "test_a_failed_block_costs_what_was_settled_and_no_more",
    ),
    Mutant(
        "a failure costs less than nothing",
        "zae_limiter/admission/account.py",
        "kept[name] = min(kept[name], max(0, cost.get(name, 0)))",
        "kept[name] = min(kept[name], cost.get(name, 0))",
        LEASES + "test_a_failed_block_costs_what_was_settled_and_no_more",
    ),
    Mutant(
        "a write that was not made stays booked",
        "zae_limiter/_sync/lease.py",
        "if booking is not None and not receipt.is_committed:",
        "if False:",
        LEASES + "test_a_write_that_was_not_made_is_not_booked",
    ),
    Mutant(
        "a write of which nothing is known is made again",
        "zae_limiter/_sync/lease.py",
        "if booking is not None and not receipt.is_committed:",
        "if booking is not None:",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a settlement that was not written is forgotten",
        "zae_limiter/_sync/lease.py",
        "self._account = settled = account.settled(checked)",
        "settled = account.settled(checked)",
        LEASE_HISTORIES,
    ),
    Mutant(
        "a credit goes to the oldest charge",
        "zae_limiter/admission/account.py",
        "for position in reversed(range(len(self.charges))):",
        "for position in range(len(self.charges)):",
        LEASES + "test_a_credit_goes_to_the_newest_charge_and_a_debt_to_the_first",
    ),
    Mutant(
        "a debt goes to the newest charge",
        "zae_limiter/admission/account.py",
        "for position, charge in enumerate(self.charges):",
        "for position, charge in reversed(list(enumerate(self.charges))):",
        LEASES + "test_a_credit_goes_to_the_newest_charge_and_a_debt_to_the_first",
    ),
    # --- what is left, and what hooks are told
    Mutant(
        "what a block changes is not taken from what is left",
        "zae_limiter/admission/account.py",
        "since = sum_amounts([cost, negated(charge.written)])",
        "since = dict[str, int]()",
        MEMORY + "test_remaining_follows_time_and_what_the_block_changes",
    ),
    Mutant(
        "a parent that has less left is overlooked",
        "zae_limiter/_sync/lease.py",
        "left[name] = min(available, left.get(name, available))",
        "left.setdefault(name, available)",
        MEMORY + "test_of_a_cascade_the_smaller_rest_remains",
    ),
    Mutant(
        "a time in a header is rounded down",
        "zae_limiter/headers.py",
        "NEVER_FITS_S if math.isinf(seconds) else math.ceil(seconds)",
        "NEVER_FITS_S if math.isinf(seconds) else math.floor(seconds)",
        "tests/unit/test_headers.py::test_ietf_names_each_policy_and_what_is_left_of_it",
    ),
    Mutant(
        "a limiter with hooks rejects nothing",
        "zae_limiter/hooks.py",
        "        return is_shadow\n",
        "        return True\n",
        MEMORY + "test_rejections_are_reported",
    ),
    Mutant(
        "a shadow rejects",
        "zae_limiter/hooks.py",
        "        return is_shadow\n",
        "        return False\n",
        MEMORY + "test_a_call_that_does_not_fit_is_let_through_uncharged",
    ),
    Mutant(
        "every error of a hook is logged",
        "zae_limiter/hooks.py",
        "            self._failed.add((position, name))\n",
        "",
        MEMORY + "test_an_error_in_a_hook_is_logged_once_and_breaks_nothing",
    ),
    # --- usage
    Mutant(
        "a new hour is not begun",
        "zae_limiter/embedded/buckets.py",
        "image, window = roll(image, now_ms)",
        "image, window = image, None",
        CHARGING + "test_usage_belongs_to_the_hour_in_which_it_was",
    ),
    Mutant(
        "usage is counted again in the next hour",
        "zae_limiter/admission/usage.py",
        "key: state._replace(counted_milli=state.consumed_milli)",
        "key: state",
        CHARGING + "test_usage_belongs_to_the_hour_in_which_it_was",
    ),
    Mutant(
        "a closed hour is not kept",
        "zae_limiter/embedded/buckets.py",
        "    if closed is not None:\n",
        "    if False:\n",
        CHARGING + "test_usage_belongs_to_the_hour_in_which_it_was",
    ),
    Mutant(
        "a removed bucket takes its usage along",
        "zae_limiter/embedded/buckets.py",
        "    window = open_window(row.image)\n    if window is not None:\n",
        "    window = open_window(row.image)\n    if False:\n",
        CHARGING + "test_what_a_removed_bucket_has_used_stays",
    ),
    Mutant(
        "what came through a child is counted like a parent's own",
        "zae_limiter/admission/charge.py",
        "    if charge.through_child:\n",
        "    if False:\n",
        CHARGING + "test_what_came_through_a_child_is_counted_apart",
    ),
    Mutant(
        "a refund leaves what came through a child",
        "zae_limiter/admission/settle.py",
        "    if settlement.through_child:\n",
        "    if False:\n",
        CHARGING + "test_what_came_through_a_child_is_counted_apart",
    ),
    Mutant(
        "what came through a child is counted again in the next hour",
        "zae_limiter/admission/usage.py",
        "        through_children=None,\n",
        "",
        CHARGING + "test_what_came_through_a_child_is_counted_apart",
    ),
    Mutant(
        "totals count tokens of children twice",
        "zae_limiter/usage/report.py",
        "        if self._each_token_once:\n",
        "        if False:\n",
        REPORT + "test_what_came_through_children_is_counted_once_over_entities",
    ),
    Mutant(
        "a page ends before its month does",
        "zae_limiter/usage/report.py",
        "return not any(first <= start <= last for start in starts)",
        "return True",
        REPORT + "test_a_page_of_months_is_bounded_in_memory",
    ),
    Mutant(
        "a page holds all windows",
        "zae_limiter/usage/report.py",
        "            if len(self._windows) > 2 * self._wanted:\n",
        "            if False:\n",
        REPORT + "test_a_page_of_months_is_bounded_in_memory",
    ),
    Mutant(
        "a part of many entities is not ranked",
        "zae_limiter/usage/ranking.py",
        "        self._parts.append((self._divisor, self._remainder + self._divisor // 2))\n",
        "",
        "tests/unit/test_usage_ranking.py::"
        "test_many_entities_are_added_up_in_parts_and_none_is_lost",
    ),
    Mutant(
        "rejections of an earlier hour move to this one",
        "zae_limiter/embedded/rejection_counts.py",
        "        if hour == image.window_hour:\n",
        "        if True:\n",
        "tests/unit/test_rejection_counts.py::test_those_of_an_earlier_hour_stay_in_it",
    ),
    # --- forgetting
    Mutant(
        "a bucket is forgotten before it is full",
        "zae_limiter/embedded/housekeeping.py",
        "if full_ms <= now_ms:",
        "if True:",
        CHARGING + "test_a_bucket_in_debt_is_not_forgotten_before_it_is_full",
    ),
    Mutant(
        "buckets on limits of their own are forgotten",
        "zae_limiter/admission/in_force.py",
        "if self.source.is_entity_level or ttl_multiplier <= 0:",
        "if ttl_multiplier <= 0:",
        CHARGING + "test_buckets_on_limits_of_their_own_are_never_forgotten",
    ),
    # --- the stored form
    Mutant(
        "consumption and its last count change places",
        "zae_limiter/embedded/sqlite/rows.py",
        "LimitState(balance, Rate(*rate), consumed, counted)",
        "LimitState(balance, Rate(*rate), counted, consumed)",
        ROWS + "test_a_bucket_reads_back_as_it_was",
    ),
    # --- writes that are guessed
    Mutant(
        "an overflowing limit gives more than it can hold",
        "zae_limiter/admission/moves.py",
        "if overflowing and taken and (not asked or needed <= capacity):",
        "if overflowing and taken:",
        MOVES + "test_what_is_let_through_is_exact",
    ),
    Mutant(
        "a guess that there is no overflow is not checked",
        "zae_limiter/admission/moves.py",
        "not_overfull = full - returned if taken else None",
        "not_overfull = None",
        MOVES + "test_what_is_let_through_is_exact",
    ),
    Mutant(
        "what was not charged for is not asked whether it owes",
        "zae_limiter/admission/moves.py",
        "enough = needed - returned - accrued if asked else None",
        "enough = needed - returned - accrued if asked and taken else None",
        MOVES + "test_what_fits_is_let_through_by_the_branch_that_was_read",
    ),
    Mutant(
        "a guess of overflow is not checked",
        "zae_limiter/admission/moves.py",
        "low=full - returned,",
        "low=None,",
        MOVES + "test_what_is_let_through_is_exact",
    ),
    Mutant(
        "another rate mints what ran over",
        "zae_limiter/admission/moves.py",
        "return Move(key, None, smaller - before, before - after, None)",
        "return Move(key, None, None, before - after, None)",
        MOVES + "test_another_rate_keeps_the_level_of_whatever_is_let_through",
    ),
    # --- one time for all clients
    Mutant(
        "the target is always the middle",
        "zae_limiter/clock/bounds.py",
        "return min(max(host_ns, bounds.low_ns), bounds.high_ns)",
        "return bounds.middle_ns",
        FLEET + "test_hosts_on_ntp_keep_their_own_time",
    ),
    Mutant(
        "the target is always the host",
        "zae_limiter/clock/bounds.py",
        "        return bounds.middle_ns\n",
        "        return host_ns\n",
        FLEET + "test_hosts_that_are_seconds_apart_agree_within_a_round_trip",
    ),
    Mutant(
        "a host beside tight bounds loses to their middle",
        "zae_limiter/clock/bounds.py",
        "_HOST_SLACK_NS = 3_000_000",
        "_HOST_SLACK_NS = 0",
        FLEET + "test_hosts_on_ntp_keep_their_own_time",
    ),
    Mutant(
        "bounds are those of the last answer",
        "zae_limiter/clock/bounds.py",
        "self._newest = self._newest.both(answer)",
        "self._newest = answer",
        FLEET + "test_hosts_that_are_seconds_apart_agree_within_a_round_trip",
    ),
    Mutant(
        "repeated Dates are not used",
        "zae_limiter/clock/server.py",
        "bounds.take(Interval(high_ns=latest_ns), received_ns, host_ns)",
        "bounds.answers += 1",
        FLEET + "test_hosts_that_are_seconds_apart_agree_within_a_round_trip",
    ),
    Mutant(
        "bounds are never renewed",
        "zae_limiter/clock/bounds.py",
        "if self._is_over(now_ns):",
        "if False:",
        CLOCK + "test_front_ends_that_converge_are_followed",
    ),
    Mutant(
        "bounds are not loosened",
        "zae_limiter/clock/bounds.py",
        "_DRIFT_DIVISOR = 20_000",
        "_DRIFT_DIVISOR = 10**30",
        CLOCK + "test_a_client_that_idles_for_hours_allows_for_drift",
    ),
    Mutant(
        "only one generation of bounds",
        "zae_limiter/clock/bounds.py",
        "self._newest, self._older = Interval(), older",
        "self._newest, self._older = Interval(), Interval()",
        FLEET + "test_hosts_that_are_seconds_apart_agree_within_a_round_trip",
    ),
    Mutant(
        "crossed bounds are taken as they are",
        "zae_limiter/clock/bounds.py",
        "if self.low_ns <= self.high_ns:",
        "if True:",
        CLOCK + "test_bounds_that_contradict_each_other_a_little_are_replaced_by_their_middle",
    ),
    Mutant(
        "answers far outside the bounds are used",
        "zae_limiter/clock/bounds.py",
        "is_inside = answer.agrees_with(bounds)",
        "is_inside = True",
        FLEET + "test_single_dates_that_are_hours_off_move_no_clock",
    ),
    Mutant(
        "a rival wins at once",
        "zae_limiter/clock/bounds.py",
        "_RIVAL_LASTS_NS = 5 * _SECOND_NS",
        "_RIVAL_LASTS_NS = 0",
        CLOCK + "test_a_server_that_is_wrong_for_a_moment_is_not_followed_by_a_host_that_is_wrong",
    ),
    Mutant(
        "no answer votes against a rival",
        "zae_limiter/clock/bounds.py",
        "left = rival._replace(votes=rival.votes - 1)",
        "left = rival",
        CLOCK + "test_a_front_end_that_is_wrong_for_good_is_outvoted",
    ),
    Mutant(
        "the host has no say about a rival",
        "zae_limiter/clock/bounds.py",
        "_LEAD_OVER_HOST = 8",
        "_LEAD_OVER_HOST = 3",
        CLOCK + "test_a_host_that_agrees_with_the_bounds_makes_them_harder_to_replace",
    ),
    Mutant(
        "a first Date that is far off is believed alone",
        "zae_limiter/clock/bounds.py",
        "_LEAD_AT_START = 2",
        "_LEAD_AT_START = 1",
        CLOCK + "test_a_first_date_that_is_far_off_is_not_believed_alone",
    ),
    Mutant(
        "the clock jumps although it was read",
        "zae_limiter/clock/course.py",
        "_SLEW_DIVISOR = 10\n",
        "_SLEW_DIVISOR = 0\n",
        CLOCK + "test_a_clock_that_is_less_than_two_seconds_off_is_corrected_slowly",
    ),
    Mutant(
        "the clock never jumps",
        "zae_limiter/clock/server.py",
        "self._course = self._last_course = _UNREAD",
        "self._course = self._last_course = _UNREAD; self()",
        CLOCK + "test_until_its_first_reading_the_clock_may_jump",
    ),
    Mutant(
        "far behind is waited for at 10 %",
        "zae_limiter/clock/course.py",
        "_WAIT_DIVISOR = 2",
        "_WAIT_DIVISOR = 10",
        CLOCK + "test_a_server_that_stays_behind_is_waited_for_at_half_speed",
    ),
    Mutant(
        "a course is read from before its start",
        "zae_limiter/clock/course.py",
        "elapsed_ns = max(0, boot_ns - self.since_ns)",
        "elapsed_ns = boot_ns - self.since_ns",
        CLOCK + "test_a_reading_that_a_change_of_course_overtakes_is_not_before_earlier_ones",
    ),
    Mutant(
        "the course is changed under the eyes of readers",
        "zae_limiter/clock/server.py",
        "        self._course = _CHANGING\n",
        "        _CHANGING = self._course\n",
        CLOCK + "test_a_reading_during_a_change_of_course_is_not_after_later_ones",
    ),
    Mutant(
        "a correction begins at once",
        "zae_limiter/clock/shared.py",
        "_AHEAD_NS = 3 * _SECOND_NS",
        "_AHEAD_NS = 0",
        SHARED + "test_a_correction_begins_later_than_every_process_has_read_it",
    ),
    Mutant(
        "a short step corrects the shared time",
        "zae_limiter/clock/shared.py",
        "_LASTS_NS = 5 * _SECOND_NS",
        "_LASTS_NS = 0",
        SHARED + "test_a_step_that_is_taken_back_is_not_stored",
    ),
    Mutant(
        "without a boot id any row is believed",
        "zae_limiter/clock/shared.py",
        "_CLOSE_NS = 10 * _SECOND_NS",
        "_CLOSE_NS = 10**30",
        SHARED + "test_without_a_boot_id_an_offset_that_is_far_off_is_of_an_earlier_boot",
    ),
    # --- hours of usage
    Mutant(
        "an hour is turned twice",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '    update.require(f"{update.name(HOUR)} < {hour}")\n',
        "",
        HOURS + "test_the_first_write_of_an_hour_turns_it",
    ),
    Mutant(
        "the hour of another item is turned",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '    update.require_equal(ORIGIN, s(hours.origin))\n    update.require(f"',
        '    update.require(f"',
        HOURS + "test_the_first_write_of_an_hour_turns_it",
    ),
    Mutant(
        "a finished hour is dropped that nothing has stored",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "        update.require(absent)\n",
        "        pass\n",
        HOURS + "test_the_first_write_of_an_hour_turns_it",
    ),
    Mutant(
        "a finished hour is dropped that another one has followed",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "({absent} OR {finished} = {update.number(hour)})",
        "({absent} OR {finished} <= {update.number(hour)})",
        HOURS + "test_a_finished_hour_is_stored_before_it_is_turned_over",
    ),
    Mutant(
        "a finished hour is turned over without being stored",
        "zae_limiter/dynamodb/buckets/turning.py",
        "return Turn(TURN_MARK + write_id, bucket.finished, begins_hour)",
        "return Turn(TURN_MARK + write_id, None, begins_hour)",
        HOURS + "test_a_finished_hour_is_stored_before_it_is_turned_over",
    ),
    Mutant(
        "unseen use through children is lost",
        "zae_limiter/dynamodb/items/hour_updates.py",
        'update.require(f"attribute_not_exists({update.name(children)})")\n            if name',
        "if name",
        HOURS + "test_the_first_write_of_an_hour_turns_it",
    ),
    Mutant(
        "use through children is not begun anew",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "            update.set_number(children, counts.through_milli.get(name, 0))\n",
        "            update.add(children, counts.through_milli.get(name, 0))\n",
        HOURS + "test_what_came_through_children_is_turned_with_it",
    ),
    Mutant(
        "the late form does not require the hour",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "        if counts.form is HourForm.LATE:",
        "        if False:",
        HOURS + "test_late_if_others_have_probably_turned_the_hour",
    ),
    Mutant(
        "a first write takes from an hour that is over",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        '        f"{update.name(HOUR)} >= {update.number(hour)}",\n',
        "",
        HOURS + "test_the_first_write_takes_only_from_an_hour_that_is_not_over",
    ),
    Mutant(
        "a first write replaces the origin",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    update.set_if_missing(ORIGIN, s(counts.origin))",
        "    update.set(ORIGIN, s(counts.origin))",
        HOURS + "test_the_first_write_takes_only_from_an_hour_that_is_not_over",
    ),
    Mutant(
        "a limit is dropped with its finished hour",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    hour_updates.require_stored(update, hours.finished)\n",
        "",
        HOURS + "test_a_dropped_limit_leaves_its_hour_to_its_namesake",
    ),
    Mutant(
        "a limit is dropped in another hour",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    update.require_equal(HOUR, n(hours.hour))\n",
        "",
        HOURS + "test_a_dropped_limit_leaves_its_hour_to_its_namesake",
    ),
    Mutant(
        "use through children goes with a dropped limit",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '        update.require(f"attribute_not_exists({update.name(children)})")\n'
        '    update.remove(f"{BEGAN}{slot}")\n',
        '        pass\n    update.remove(f"{BEGAN}{slot}")\n',
        HOURS + "test_a_dropped_limit_leaves_its_hour_to_its_namesake",
    ),
    Mutant(
        "an item without hours begins twice",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '    update.require(f"attribute_not_exists({update.name(HOUR)})")\n',
        "",
        HOURS + "test_an_item_without_hours_begins_to_count",
    ),
    Mutant(
        "the digest forgets the slots",
        "zae_limiter/dynamodb/items/bucket.py",
        'f"{name} {pack(rate, slot)}" for name, rate, slot in limits',
        'f"{name} {pack(rate, 0)}" for name, rate, slot in limits',
        HOURS + "test_other_slots_are_other_limits",
    ),
    Mutant(
        "another origin is taken for the known one",
        "zae_limiter/dynamodb/items/bucket.py",
        '        item[ORIGIN]["S"],\n',
        "",
        HOURS + "test_a_changed_hour_is_decoded_again",
    ),
    Mutant(
        "an hour that another client has turned is not noticed",
        "zae_limiter/dynamodb/items/bucket.py",
        '        item[HOUR]["N"],\n',
        "",
        HOURS + "test_a_changed_hour_is_decoded_again",
    ),
    Mutant(
        "another generation is taken for the known one",
        "zae_limiter/dynamodb/items/bucket.py",
        '        item[GENERATION]["N"],\n',
        "",
        BUCKET_ITEM + "test_what_few_writes_change_is_noticed[change1]",
    ),
    Mutant(
        "another version is taken for the known one",
        "zae_limiter/dynamodb/items/bucket.py",
        '        item[VERSION]["N"],\n',
        "",
        BUCKET_ITEM + "test_what_few_writes_change_is_noticed[change2]",
    ),
    Mutant(
        "another TTL is taken for the known one",
        "zae_limiter/dynamodb/items/bucket.py",
        '        None if ttl is None else ttl["N"],\n',
        "",
        BUCKET_ITEM + "test_what_few_writes_change_is_noticed[change3]",
    ),
    Mutant(
        "a cleared hour is not noticed",
        "zae_limiter/dynamodb/items/bucket.py",
        "if known.finished is not None and FINISHED not in item:",
        "if False:",
        HOURS + "test_a_cleared_hour_is_noticed",
    ),
    Mutant(
        "a credit never turns the hour",
        "zae_limiter/dynamodb/buckets/writes.py",
        "not is_over(bucket, context.now_ms, context.usage_ms)",
        "True",
        HOURS + "test_a_credit_to_a_bucket_that_was_seen_turns_its_hour",
    ),
    Mutant(
        "a deletion loses what came after it was read",
        "zae_limiter/dynamodb/items/removal.py",
        "(SHARDS, GENERATION, WRITES, ORIGIN)",
        "(SHARDS, GENERATION)",
        HOURS + "test_an_item_goes_only_as_it_was_read",
    ),
    Mutant(
        "a later hour than the stored one is cleared",
        "zae_limiter/dynamodb/items/hours.py",
        "    update.require_equal(FINISHED, n(state.finished))\n",
        "",
        ITEM_HOURS + "test_clearing_requires_the_origin_and_the_hour",
    ),
    Mutant(
        "the hour of another item is cleared",
        "zae_limiter/dynamodb/items/hours.py",
        "    update.require_equal(ORIGIN, s(state.origin))\n",
        "",
        ITEM_HOURS + "test_clearing_requires_the_origin_and_the_hour",
    ),
    Mutant(
        "an announcement overwrites what is stored",
        "zae_limiter/dynamodb/items/usage.py",
        "update.set_if_missing(ORIGIN_PREFIX + origin, OPEN_VALUE)",
        "update.set(ORIGIN_PREFIX + origin, OPEN_VALUE)",
        "tests/unit/dynamodb/test_stored_form.py::test_an_announced_hour_is_open",
    ),
    Mutant(
        "hours that run in buckets are not counted",
        "zae_limiter/_sync/engines/dynamodb/live_hours.py",
        "{**row.origins, **counted, **stored_origins(row)}",
        "{**row.origins, **stored_origins(row)}",
        "tests/unit/dynamodb/test_usage_hours.py::test_every_hour_comes_once_and_in_order",
    ),
    # --- indexes
    Mutant(
        "everything of a resource has one key",
        "zae_limiter/schema.py",
        "return crc32(key.encode()) % PARTITIONS",
        "return 0",
        LOAD + "test_no_index_key_gets_more_than_it_takes",
    ),
    Mutant(
        "partitions are too few for entities that are registered",
        "zae_limiter/schema.py",
        "PARTITIONS = 32",
        "PARTITIONS = 16",
        LOAD + "test_no_index_key_gets_more_than_it_takes",
    ),
    Mutant(
        "a migration writes an item that was deleted meanwhile",
        "zae_limiter/dynamodb/migrations.py",
        "update.require_equal(name, item[name])",
        "update.require('attribute_exists(PK) OR attribute_not_exists(PK)')",
        MIGRATIONS + "test_an_item_gets_the_partition_of_its_entity_or_key",
    ),
    Mutant(
        "a migration indexes what was in no index",
        "zae_limiter/dynamodb/migrations.py",
        "if name in item and item[name] != value",
        "if item.get(name) != value",
        MIGRATIONS + "test_an_item_in_no_index_stays_in_none",
    ),
    Mutant(
        "a table of an older schema is opened",
        "zae_limiter/dynamodb/version_record.py",
        "    if version < SCHEMA_VERSION:\n",
        "    if False:\n",
        "tests/unit/dynamodb/test_table.py::test_a_table_of_an_older_version_has_to_be_migrated",
    ),
    # --- hours of usage, in random histories
    Mutant(
        "a late write counts for an hour that is over",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "return [*values, hour] if form is HourForm.LATE else values",
        "return [*values, 0] if form is HourForm.LATE else values",
        MANY_HISTORIES + "[clocks are hours apart]",
    ),
    Mutant(
        "a removed bucket takes its hours along",
        "zae_limiter/dynamodb/items/removal.py",
        "    if not retention_days:\n        return []\n",
        "    return []\n",
        MANY_HISTORIES + "[removed buckets return]",
    ),
    Mutant(
        "an announcement hides a stored hour",
        "zae_limiter/dynamodb/items/usage.py",
        "    update.set_if_missing(ORIGIN_PREFIX + origin, OPEN_VALUE)",
        "    update.set(ORIGIN_PREFIX + origin, OPEN_VALUE)",
        MANY_HISTORIES + "[clocks are hours apart]",
    ),
    Mutant(
        "the origin of a removed bucket returns",
        "zae_limiter/dynamodb/buckets/writes.py",
        "counts = new_bucket.counts._replace(origin=new_origin(shard_id.number))",
        "counts = new_bucket.counts",
        MANY_HISTORIES + "[removed buckets return]",
    ),
    Mutant(
        "a bucket expires before its usage",
        "zae_limiter/admission/in_force.py",
        "        if usage_ms:\n            usage_ms += HOUR_MS",
        "        if False:\n            usage_ms += HOUR_MS",
        HISTORIES + "in_random_histories[0]",
    ),
    Mutant(
        "a turn is repeated within its hour",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '    update.require(f"{update.name(HOUR)} < {hour}")\n',
        '    update.require(f"({update.name(HOUR)} < {hour} OR attribute_exists(PK))")\n',
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a bucket that was made again is turned for the earlier one",
        "zae_limiter/dynamodb/items/hour_updates.py",
        '    update.require_equal(ORIGIN, s(hours.origin))\n    update.require(f"',
        "    held = update.value(s(hours.origin))\n"
        '    update.require(f"({update.name(ORIGIN)} = {held} OR attribute_exists(PK))")\n'
        '    update.require(f"',
        GUARDS + "a_client_that_knows_the_earlier_bucket_does_not_turn_the_later_one",
    ),
    Mutant(
        "a turn drops an hour that it has not seen",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "        update.require(absent)\n",
        '        update.require(f"({absent} OR attribute_exists({finished}))")\n',
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a turn drops another hour than the one that is stored",
        "zae_limiter/dynamodb/items/hour_updates.py",
        "({absent} OR {finished} = {update.number(hour)})",
        "({absent} OR {finished} = {update.number(hour)} OR attribute_exists({finished}))",
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a turn drops an hour before it is stored",
        "zae_limiter/dynamodb/buckets/turning.py",
        "        return Turn(TURN_MARK + write_id, bucket.finished, begins_hour)",
        "        return Turn(TURN_MARK + write_id, None, begins_hour)",
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a turn drops what came through children unseen",
        "zae_limiter/dynamodb/items/hour_updates.py",
        'update.require(f"attribute_not_exists({update.name(children)})")\n            if name',
        "k = update.name(children)\n"
        '            update.require(f"(attribute_not_exists({k}) OR attribute_exists({k}))")\n'
        "            if name",
        MANY_HISTORIES + "[shards come and go]",
    ),
    Mutant(
        "a first write counts for an hour that is over",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        '        f"{update.name(HOUR)} >= {update.number(hour)}",\n',
        '        f"{update.name(HOUR)} >= {update.number(0)}",\n',
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a first write gives a bucket another origin",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "set_if_missing(ORIGIN, s(counts.origin))",
        "set(ORIGIN, s(counts.origin))",
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a first write sets the hour back",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "set_if_missing(HOUR, n(counts.hour))",
        "set(HOUR, n(counts.hour))",
        MANY_HISTORIES + "[anything may happen]",
    ),
    Mutant(
        "a late clear drops the next finished hour",
        "zae_limiter/dynamodb/items/hours.py",
        "    update.require_equal(FINISHED, n(state.finished))\n",
        "    held = update.value(n(state.finished))\n"
        '    update.require(f"({update.name(FINISHED)} = {held} OR attribute_exists(PK))")\n',
        MANY_HISTORIES + "[the processor is late]",
    ),
    Mutant(
        "a late clear drops the hour of a bucket that was made again",
        "zae_limiter/dynamodb/items/hours.py",
        "    update.require_equal(ORIGIN, s(state.origin))\n",
        "    held = update.value(s(state.origin))\n"
        '    update.require(f"({update.name(ORIGIN)} = {held} OR attribute_exists(PK))")\n',
        GUARDS + "what_was_stored_of_the_earlier_bucket_is_not_cleared_in_the_later_one",
    ),
    Mutant(
        "a removal loses writes that came since it was planned",
        "zae_limiter/dynamodb/items/removal.py",
        "(SHARDS, GENERATION, WRITES, ORIGIN)",
        "(SHARDS, GENERATION, ORIGIN)",
        MANY_HISTORIES + "[removed buckets return]",
    ),
    Mutant(
        "a merge loses writes that came since it was planned",
        "zae_limiter/dynamodb/sharding/transactions.py",
        "(stored.GENERATION, stored.WRITES, ORIGIN)",
        "(stored.GENERATION, ORIGIN)",
        MANY_HISTORIES + "[shards come and go]",
    ),
    Mutant(
        "use of an hour that was turned is counted again with a dropped limit",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    update.require_equal(HOUR, n(hours.hour))\n",
        "    held = update.value(n(hours.hour))\n"
        '    update.require(f"({update.name(HOUR)} = {held} OR attribute_exists(PK))")\n',
        GUARDS + "a_limit_is_not_dropped_with_use_of_the_hour_before",
    ),
    Mutant(
        "use that came since goes with a dropped limit",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    update.require_equal(stored.CONSUMED + name, n(state.consumed_milli))\n",
        "",
        GUARDS + "a_limit_is_not_dropped_with_use_that_came_since",
    ),
    Mutant(
        "the finished hour of a bucket that was made again goes with a dropped limit",
        "zae_limiter/dynamodb/items/bucket_updates.py",
        "    update.require_equal(ORIGIN, s(hours.origin))\n    update.require_equal(HOUR",
        "    update.require_equal(HOUR",
        GUARDS + "a_limit_is_not_dropped_with_the_finished_hour_of_a_bucket_that_was_made_again",
    ),
    Mutant(
        "a bucket that was made again goes with the earlier one",
        "zae_limiter/dynamodb/items/removal.py",
        "(SHARDS, GENERATION, WRITES, ORIGIN)",
        "(SHARDS, GENERATION, WRITES)",
        GUARDS + "a_bucket_that_was_made_again_does_not_go_with_the_earlier_one",
    ),
    Mutant(
        "a shard that was made again is merged as the earlier one",
        "zae_limiter/dynamodb/sharding/transactions.py",
        "(stored.GENERATION, stored.WRITES, ORIGIN)",
        "(stored.GENERATION, stored.WRITES)",
        GUARDS + "a_shard_that_was_made_again_is_not_merged_as_the_earlier_one",
    ),
    Mutant(
        "rows are read before the buckets",
        "zae_limiter/_async/engines/dynamodb/usage_hours.py",
        "        rows = EntityRows(context, partition, resources, hours)\n    else:",
        "        rows = EntityRows(context, partition, resources, hours)\n"
        "        early = [await rows.take()]\n"
        "        live = await live_hours.of_entity(\n"
        "            context.client, namespace_id, entity_id, resource\n"
        "        )\n"
        "        async def take() -> list[UsageRow]:\n"
        "            return early.pop() if early else []\n"
        "        rows.take = take\n"
        "    else:",
        GUARDS + "a_query_is_complete_while_an_hour_is_stored_and_the_next_one_turned",
    ),
    Mutant(
        "an hour that was stored during a query is not looked for",
        "zae_limiter/_async/engines/dynamodb/live_hours.py",
        "await _read_again(client, namespace_id, [row for row in resolved if _is_open(row)])",
        "{}",
        GUARDS + "a_query_by_resource_is_complete_while_an_hour_is_stored",
    ),
    # --- manifests
    Mutant(
        "an entity registered by hand is unregistered",
        "zae_limiter_ops/manifest/diff.py",
        "if target.kind is not TargetKind.ENTITY or is_ours:",
        "if True:",
        DIFF + "test_an_entity_is_unregistered_only_if_an_apply_has_registered_it",
    ),
    Mutant(
        "what was never managed is deleted",
        "zae_limiter_ops/manifest/diff.py",
        "for target in managed.digests.keys() - wanted.keys()",
        "for target in live.keys() - wanted.keys()",
        DIFF + "test_a_target_is_created_updated_left_alone_or_deleted",
    ),
    Mutant(
        "what an apply is about to make is not known to be managed",
        "zae_limiter_ops/manifest/diff.py",
        "digests[change.target] = PENDING_REGISTRATION if keeps_place else PENDING",
        "digests.pop(change.target, None)",
        DIFF + "test_what_an_apply_will_change_is_pending_until_it_is_done",
    ),
    Mutant(
        "a batch is written without its lease",
        "zae_limiter/embedded/configs.py",
        "if batch.guard is not None and not is_at(tables, namespace_id, *batch.guard):",
        "if False:",
        BATCHES + "test_a_guard_refuses_the_whole_batch",
    ),
    Mutant(
        "a document is replaced whatever its revision",
        "zae_limiter/embedded/namespaces.py",
        "if not is_at(tables, namespace_id, key, revision):",
        "if False:",
        BATCHES + "test_a_document_is_replaced_at_its_revision_only",
    ),
    Mutant(
        "a key that comes twice is accepted",
        "zae_limiter_ops/manifest/yaml_text.py",
        "elif name in mapping:",
        "elif False:",
        READING + "test_every_mistake_is_reported_with_its_place",
    ),
    # --- waiting
    Mutant(
        "callers that wait are judged at the stamp",
        "zae_limiter/admission/reservation.py",
        "    return min(until_ms, now_ms + HORIZON_MS)",
        "    return now_ms",
        WAITING + "test_small_requests_do_not_starve_a_large_one",
    ),
    Mutant(
        "reservations have no horizon",
        "zae_limiter/admission/reservation.py",
        "    return min(until_ms, now_ms + HORIZON_MS)",
        "    return until_ms",
        RESERVED + "test_nothing_is_reserved_beyond_the_horizon",
    ),
    Mutant(
        "more than the capacity is waited for",
        "zae_limiter/admission/reservation.py",
        "    if amount_milli > rate.capacity_milli:\n        return False",
        "    if False:\n        return False",
        RESERVED + "test_what_fits_is_what_will_have_accrued",
    ),
    Mutant(
        "more than the capacity is let through by the store",
        "zae_limiter/admission/reservation.py",
        "reserves = 0 < amount <= state.rate.capacity_milli",
        "reserves = 0 < amount",
        RESERVED + "test_the_store_lets_through_what_fits_whatever_the_client_has_seen",
    ),
    Mutant(
        "a limit that is not named is reserved over",
        "zae_limiter/admission/reservation.py",
        "        return held >= 0",
        "        return True",
        RESERVED + "test_what_fits_is_what_will_have_accrued",
    ),
    Mutant(
        "charges behind a caller in its own write delay it",
        "zae_limiter/admission/reservation.py",
        "balance = state.balance_milli + behind_milli.get(key, 0)",
        "balance = state.balance_milli",
        WAITING + "test_a_caller_goes_on_when_the_tokens_of_all_before_it_have_accrued",
    ),
    Mutant(
        "a caller that was stopped uses its reservation",
        "zae_limiter/admission/reservation.py",
        "if after_due_ms > LAPSE_MS:",
        "if False:",
        WAITING + "test_no_window_has_more_than_the_published_bound[stops]",
    ),
    Mutant(
        "a caller goes on after its deadline",
        "zae_limiter/admission/reservation.py",
        "return Waking.LATE if after_deadline_ms > LATE_MS else Waking.ENTER",
        "return Waking.ENTER",
        WAITING + "test_a_caller_that_is_answered_after_its_deadline_gives_back",
    ),
    Mutant(
        "of a group only the last charge is bounded",
        "zae_limiter/dynamodb/buckets/pending.py",
        "needed[key] = max(level, needed.get(key, level))",
        "needed[key] = level",
        RESERVED + "test_a_group_is_let_through_if_each_fits_behind_those_before_it",
    ),
    Mutant(
        "in a group nothing is charged before a caller",
        "zae_limiter/dynamodb/buckets/pending.py",
        "            charged[key] = charged.get(key, 0) + amount\n            level",
        "            charged[key] = amount\n            level",
        RESERVED + "test_a_group_is_let_through_if_each_fits_behind_those_before_it",
    ),
    Mutant(
        "an image from before a reservation moves its due",
        "zae_limiter/concurrency/waiting_line.py",
        "if reservation.place[0] > image.writes:",
        "if False:",
        RESERVED + "test_an_image_with_other_limits_or_from_before_moves_no_due",
    ),
    Mutant(
        "an image with other limits moves a due",
        "zae_limiter/concurrency/waiting_line.py",
        "if key in image.limits and image.limits[key].rate == state.rate",
        "if key in image.limits",
        RESERVED + "test_an_image_with_other_limits_or_from_before_moves_no_due",
    ),
    Mutant(
        "a due is moved into the past",
        "zae_limiter/concurrency/waiting_line.py",
        "due_ms = max(now_ms, raised.due_ms)",
        "due_ms = raised.due_ms",
        WAITING + "test_no_window_has_more_than_the_published_bound[cancels]",
    ),
    Mutant(
        "callers ahead of a cancelled one move up, too",
        "zae_limiter/concurrency/waiting_line.py",
        "while following is not None and following.place < reservation.place:",
        "while following is not None:",
        RESERVED + "test_only_callers_behind_a_cancelled_one_move_up",
    ),
    Mutant(
        "callers behind a cancelled one stay",
        "zae_limiter/concurrency/waiting_line.py",
        "while following is not None and following.place < reservation.place:",
        "while False:",
        RESERVED + "test_only_callers_behind_a_cancelled_one_move_up",
    ),
    Mutant(
        "a credit moves callers up that came after it",
        "zae_limiter/concurrency/waiting_line.py",
        "sleeper.missed_milli = dict(self._credits_milli)",
        "sleeper.missed_milli = {}",
        "tests/unit/test_waiting_line.py::"
        "test_a_caller_that_comes_after_a_credit_is_not_moved_up_by_it",
    ),
    Mutant(
        "a caller that its own bucket refuses blocks its siblings",
        "zae_limiter/concurrency/waiting_line.py",
        "            sleeper.is_aside = is_aside\n",
        "            sleeper.is_aside = is_aside = False\n",
        SLOT_ORDER + "[slots of parent and child]",
    ),
    Mutant(
        "siblings pass a caller whose slot has returned",
        "zae_limiter/concurrency/waiting_line.py",
        "                    head.is_aside = False\n"
        "                    self._add_head_to_parents_queue(key)",
        "                    pass",
        "tests/unit/test_waiting_line.py::"
        "test_a_caller_whose_own_slot_returns_comes_back_before_its_siblings_wake",
    ),
    Mutant(
        "two writes with reservations are in flight",
        "zae_limiter/dynamodb/buckets/write_queue.py",
        "or (reserves and queue.reserving is not None)",
        "or False",
        QUEUE + "test_a_second_write_with_reservations_waits_for_the_first_however_long_that_takes",
    ),
    Mutant(
        "a write with reservations is handed over to early",
        "zae_limiter/dynamodb/buckets/write_queue.py",
        "        if reserves and queue.reserving is not None:\n            return False",
        "        if False:\n            return False",
        QUEUE + "test_a_second_write_with_reservations_waits_for_the_first_however_long_that_takes",
    ),
    Mutant(
        "a group takes reservations beside another one",
        "zae_limiter/dynamodb/buckets/write_queue.py",
        "and not (reserves and others_reserve)",
        "and not (False and others_reserve)",
        QUEUE + "test_a_group_takes_no_reservations_while_a_write_with_them_is_in_flight",
    ),
    Mutant(
        "what is forfeited is given back",
        "zae_limiter/admission/settle.py",
        "    if forfeits:\n",
        "    if False:\n",
        RESERVED + "test_what_is_forfeited_is_no_longer_counted_and_not_given_back",
    ),
    Mutant(
        "a charge has its shard repaid",
        "zae_limiter/dynamodb/buckets/pending.py",
        "is_short = not change.is_charge and any(",
        "is_short = any(",
        RESERVED + "test_reservations_of_one_write_are_due_in_order_and_have_no_shard_repaid",
    ),
    Mutant(
        "a credit that an image shows counts twice",
        "zae_limiter/concurrency/waiting_line.py",
        "                self._move(sleeper, reservation.with_balances(balances))",
        "                raised = reservation.with_balances(balances)\n"
        "                if raised.due_ms < reservation.due_ms:\n"
        "                    sleeper.reservation = raised\n"
        "                self._move(sleeper, raised)",
        WAITING + "test_no_caller_is_due_before_the_tokens_of_all_before_it[a slow network]",
    ),
    # --- slots
    Mutant(
        "slots of another life of the bucket are freed",
        "zae_limiter/admission/slots.py",
        "if hold.life != self._image.life:",
        "if False:",
        "tests/property/test_slots.py::"
        "test_calls_of_a_deleted_bucket_free_and_renew_no_slot_of_the_next_one",
    ),
    Mutant(
        "slots are taken that are not free",
        "zae_limiter/admission/slots.py",
        "Move(key, -net if asked else None, None, net, None)",
        "Move(key, None, None, net, None)",
        SLOTS,
    ),
    Mutant(
        "slots are released that have expired",
        "zae_limiter/admission/slots.py",
        "        if left < 0:\n",
        "        if False:\n",
        LEDGER + "releasing_and_renewing_need_slots_that_are_still_held",
    ),
    Mutant(
        "slots of others are released and renewed",
        "zae_limiter/admission/slots.py",
        "SlotWrite(key, each.expired, each.removed, each.added)",
        "SlotWrite(key, each.expired, {}, each.added)",
        SLOTS,
    ),
    Mutant(
        "what was swept meanwhile is swept again",
        "zae_limiter/admission/slots.py",
        "SlotWrite(key, each.expired, each.removed, each.added)",
        "SlotWrite(key, {}, each.removed, each.added)",
        SLOTS,
    ),
    Mutant(
        "slots are swept before they expire",
        "zae_limiter/admission/slots.py",
        "for moment in held if moment <= now_ms}",
        "for moment in held if moment <= now_ms + 1000}",
        SLOTS,
    ),
    Mutant(
        "a lease is lost only when its slots have expired",
        "zae_limiter/admission/slots.py",
        "return now_ms >= expires_ms - MARGIN_MS",
        "return now_ms >= expires_ms",
        SLOTS,
    ),
    Mutant(
        "swept slots are not free",
        "zae_limiter/admission/slots.py",
        "changes.freed = sum(expired.values())",
        "changes.freed = 0",
        LEDGER + "expired_slots_are_free_for_the_write_that_sweeps_them",
    ),
    Mutant(
        "lowered slots are forgotten",
        "zae_limiter/admission/moves.py",
        "Move(key, None, None, rate.capacity_milli - state.rate.capacity_milli, None)",
        "Move(key, None, None, 0, rate.capacity_milli)",
        LEDGER + "other_numbers_of_slots_leave_those_that_are_held",
    ),
    Mutant(
        "every shard has all slots",
        "zae_limiter/admission/shards/tree.py",
        "Rate(0 if shard.number else capacity, 0, period)",
        "Rate(capacity, 0, period)",
        LEDGER + "all_slots_of_a_split_bucket_stay_in_the_first_shard",
    ),
    Mutant(
        "a bucket with held slots counts as full",
        "zae_limiter/admission/image.py",
        "    if image.holds is not None:\n        moments +=",
        "    if False:\n        moments +=",
        LEDGER + "a_bucket_is_full_when_its_last_slot_has_expired",
    ),
]
