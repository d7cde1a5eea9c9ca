"""Queues that share a table by their lanes: each one's counters and depth are its own."""

from __future__ import annotations

from dataclasses import replace

from leasequeue.lane_depth import LaneDepth
from leasequeue_operator.plan.scaling import sample_of
from leasequeue_operator.scaling.share import Share, advance
from tests.operator import samples


def test_the_own_workers_progress_adds_up_and_ends_with_none_of_them() -> None:
    share = advance(Share(), [("a", 5, 500), ("b", 2, 300)])
    assert (share.finished, share.busy_ms) == (7, 800)
    share = advance(share, [("a", 9, 900)])  # b ended
    assert (share.finished, share.busy_ms) == (11, 1200)
    share = advance(share, [("a", 9, 900), ("c", 1, 50)])
    assert (share.finished, share.busy_ms) == (12, 1250)
    assert advance(share, []).finished == 12


def test_a_restarted_process_of_the_same_name_does_not_count_backwards() -> None:
    share = advance(advance(Share(), [("a", 9, 900)]), [("a", 1, 10)])
    assert (share.finished, share.busy_ms) == (9, 900)


def test_depth_and_counters_of_the_own_lanes_make_the_sample() -> None:
    own = LaneDepth(pending=6, scheduled_due=1, assigned=3, expired=1, claimable=7, oldest_pending_at=samples.NOW)
    whole = samples.view(pending=4000, assigned=200, finished_total=9000, busy_ms_total=90_000)
    made = sample_of(replace(whole, own=own), share=Share(40, 4000))
    assert made is not None
    assert (made.due, made.held_back, made.assigned, made.expired) == (7, 0, 2, 1)
    assert (made.finished, made.busy_ms, made.oldest_age_s) == (40, 4000, 0.0)


def test_items_behind_the_head_of_a_strict_lane_are_held_back() -> None:
    own = LaneDepth(pending=50, scheduled_due=0, assigned=1, expired=0, claimable=2, oldest_pending_at=None)
    made = sample_of(replace(samples.view(pending=4000), own=own), share=Share())
    assert made is not None
    assert (made.due, made.held_back) == (2, 48)
