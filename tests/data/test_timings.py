"""Times of repeated runs as one run of medians."""

from __future__ import annotations

from fxdebug.data.measured.timings import Span, median_run


def repeat(*lengths: int) -> list[Span]:
    """A call with two in it, a and b; ``lengths``: before a, in it, in its region, between, in b, after."""
    before, a, region, between, b, _ = lengths
    end_of_a, end = before + a + region, sum(lengths)
    begin_of_b = end_of_a + between
    return [
        Span("", 0, 0, end, 0),
        Span("a", 0, before, end_of_a, 1),
        Span("a/r", 0, before, before + region, 2),
        Span("b", 0, begin_of_b, begin_of_b + b, 1),
    ]  # fmt: skip


def test_a_disturbed_repeat_moves_no_call_wherever_it_was_disturbed() -> None:
    usual = repeat(2, 10, 5, 1, 20, 3)
    disturbed = [usual, usual, repeat(900, 10, 5, 1, 20, 3), repeat(2, 800, 5, 1, 20, 3)]
    disturbed += [repeat(2, 10, 700, 1, 20, 3), repeat(2, 10, 5, 600, 20, 3), repeat(2, 10, 5, 1, 20, 500)]
    assert median_run(disturbed) == usual


def test_times_add_up_and_calls_are_inside_what_calls_them() -> None:
    repeats = [repeat(i % 3, 7 + i, 2 * i, 9 - i, 4, i * i % 5) for i in range(7)]
    root, a, region, b = median_run(repeats)
    assert root.begin <= a.begin <= region.begin <= region.end <= a.end <= b.begin <= b.end <= root.end
    own = {span.path: sorted(each) for span, each in zip((a, region, b), zip(*[_own(spans) for spans in repeats]))}
    assert region.end - region.begin == own["a/r"][3] and b.end - b.begin == own["b"][3]
    assert a.end - a.begin == own["a"][3] + own["a/r"][3]


def _own(spans: list[Span]) -> tuple[int, int, int]:
    _, a, region, b = (span.end - span.begin for span in spans)
    return a - region, region, b


def test_calls_that_some_repeats_alone_have_do_no_harm() -> None:
    with_b, without = repeat(2, 10, 5, 1, 20, 3), [Span("", 0, 0, 20, 0), Span("a", 0, 2, 17, 1)]
    assert [span.path for span in median_run([with_b, without, with_b])] == ["", "a", "a/r", "b"]
    assert [span.path for span in median_run([without, with_b, without])] == ["", "a"]
    assert median_run([]) == [] and median_run([without]) == without


def test_what_ran_one_after_the_other_stays_so() -> None:
    two = [Span("a", 0, 0, 4, 0), Span("a/x", 0, 1, 3, 1), Span("b", 0, 4, 9, 0)]
    assert median_run([two, two, two]) == two


def test_time_that_lies_now_before_and_now_after_what_is_inside_is_put_after_it() -> None:
    repeats = [
        [Span("", 0, 0, 5 + own, 0), Span("a", 0, before, before + 5, 1)] for before, own in [(1, 1), (0, 1), (0, 0)]
    ]
    assert median_run(repeats) == [Span("", 0, 0, 6, 0), Span("a", 0, 0, 5, 1)]
