"""Is a sample's result independent of what stands beside it, and if not, since which operation?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.errors import UsageError


class Decoder(nn.Module):
    """Two layers of attention; ``fault`` is what lets a token see what it must not."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.tok, self.pos = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.qkv = nn.ModuleList([nn.Linear(16, 48) for _ in range(2)])
        self.norm, self.head = nn.BatchNorm1d(16) if fault == "batch norm" else nn.LayerNorm(16), nn.Linear(16, 50)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        rows, length = input_ids.shape
        if position_ids is None or self.fault == "count":
            counted = torch.arange(length).expand(rows, length)
            given = counted if attention_mask is None else (attention_mask.cumsum(-1) - 1).clamp(min=0)
            position_ids = counted if self.fault == "count" else given
        x = self.tok(input_ids) + self.pos(position_ids)
        place = torch.arange(length)
        seen = place[:, None] >= place[None] if self.fault != "future" else torch.ones(length, length).bool()
        seen = seen.expand(rows, 1, length, length)
        if attention_mask is not None and self.fault != "padding":
            seen = seen & attention_mask[:, None, None].bool() | torch.eye(length).bool()
        if attention_mask is None and self.fault != "pack":
            sample = (position_ids == 0).cumsum(-1)
            seen = seen & (sample[:, None, :, None] == sample[:, None, None])
        for qkv in self.qkv:
            q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
            if self.fault == "rows":
                q, k, v = (part.transpose(0, 2) for part in (q, k, v))
                x = x + F.scaled_dot_product_attention(q, k, v).transpose(0, 2).transpose(1, 2).flatten(2)
            else:
                x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        if self.fault == "batch norm":
            return self.head(self.norm(x.flatten(0, 1)).view_as(x))
        return self.head(self.norm(x))


IDS = torch.tensor([[3, 9, 12, 4, 8, 21], [1, 2, 11, 7, 23, 5]])
MASK = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
PADDED = {"input_ids": IDS, "attention_mask": MASK}
PACKED = {"input_ids": IDS[:1], "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1]])}


def first(model: nn.Module, inputs: Any, over: Any) -> list[tuple[str, str]]:
    report = fxdebug.independent(model, inputs, over=over)
    return [(finding.op, finding.what.partition(":")[0]) for finding in report.findings]


@pytest.mark.parametrize(
    ("over", "inputs"), [("batch", IDS), ("batch", PADDED), ("length", IDS), ("padding", PADDED), ("pack", PACKED)]
)
def test_a_model_whose_masks_and_positions_are_right_is_independent(over: str, inputs: Any) -> None:
    report = fxdebug.independent(Decoder().eval(), inputs, over=over)
    assert (report.findings, [row.error for row in report.rows]) == ((), [0.0] * len(report.rows))
    assert all(row.compared > 20 and not row.unpaired for row in report.rows)


@pytest.mark.parametrize(
    ("fault", "over", "inputs", "op", "what"),
    [
        ("count", "padding", PADDED, "arange", "row 1 depends on padding"),
        ("padding", "padding", PADDED, "scaled_dot_product_attention", "row 1 depends on padding"),
        (
            "future",
            "length",
            IDS,
            "scaled_dot_product_attention",
            "the first half (tokens 0 to 2) depends on later tokens",
        ),
        ("pack", "pack", PACKED, "scaled_dot_product_attention", "sample 1 depends on its neighbours in the pack"),
        ("count", "pack", PACKED, "arange", "sample 1 depends on its neighbours in the pack"),
        ("rows", "batch", IDS, "scaled_dot_product_attention", "row 0 depends on the other rows of the batch"),
        ("batch norm", "batch", IDS, "batch_norm", "row 0 depends on the other rows of the batch"),
    ],
)
def test_the_first_operation_that_sees_what_it_must_not_is_named(
    fault: str, over: str, inputs: Any, op: str, what: str
) -> None:
    found = first(Decoder(fault).train(fault == "batch norm"), inputs, over)
    assert found[0] == (op, what)


def test_the_tokens_are_named_by_their_places_in_what_was_given() -> None:
    finding = fxdebug.independent(Decoder("count").eval(), PADDED, over="padding").findings[0]
    assert ", at tokens 2, 3, 4, 5;" in finding.what
    assert finding.source is not None and "test_independent.py:" in finding.source


def test_cumulative_lengths_are_a_pack() -> None:
    class Pooled(nn.Module):
        def __init__(self, right: bool) -> None:
            super().__init__()
            self.right = right

        def forward(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
            parts = zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:])
            return torch.cat([x[a:b] - (x[a:b] if self.right else x).mean(0) for a, b in parts])

    given = {"x": torch.randn(7, 3), "cu_seqlens": torch.tensor([0, 3, 7])}
    assert first(Pooled(True), given, "pack") == []
    assert [op for op, _ in first(Pooled(False), given, "pack")] == ["mean"]


class SumsBeforeEach(nn.Module):
    """Sums of all tokens of the same sample up to each, of rows that are packed in other ways."""

    def __init__(self, whole_rows: bool) -> None:
        super().__init__()
        self.whole_rows = whole_rows
        self.embed = nn.Embedding(9, 4)

    def forward(self, ids: Tensor, position_ids: Tensor) -> Tensor:
        sample = (position_ids == 0).cumsum(1)
        seen = torch.arange(ids.shape[1])[:, None] >= torch.arange(ids.shape[1])
        same = seen if self.whole_rows else seen & (sample[:, :, None] == sample[:, None, :])
        return same.float() @ self.embed(ids)


class NormMadeAnew(nn.Module):
    """A norm that each call makes, in training mode: by the statistics of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.BatchNorm1d(3)(x * 2)


def test_memory_that_is_yet_to_be_written_is_not_what_mixes_rows() -> None:
    assert first(NormMadeAnew().eval(), torch.randn(4, 3, 5), "batch") == [
        ("batch_norm", "row 0 depends on the other rows of the batch")
    ]


def test_rows_may_be_packed_in_other_ways() -> None:
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 4, 0, 1, 2]])
    given = {"ids": torch.arange(16).reshape(2, 8) % 9, "position_ids": positions}
    assert first(SumsBeforeEach(False), given, "pack") == []
    assert first(SumsBeforeEach(True), given, "pack") == [("matmul", "row 0 #1 depends on its neighbours in the pack")]
    report = fxdebug.independent(SumsBeforeEach(True), given, over="pack")
    assert [row.sample for row in report.rows if row.error] == ["row 0 #1", "row 1 #1"]


def test_samples_of_a_pack_are_told_by_a_number_for_each_token() -> None:
    class Joined(nn.Module):
        def forward(self, x: Tensor, text: Tensor, apart: Tensor) -> Tensor:
            same = (text[:, :, None] == text[:, None]) | ~apart
            return same.float() @ x[..., None].float()

    given = {"x": IDS[:1], "text": torch.tensor([[0, 0, 0, 0, 1, 1]]), "apart": torch.tensor(True)}
    assert first(Joined(), given, "pack") == []
    assert [op for op, _ in first(Joined(), given | {"apart": torch.tensor(False)}, "pack")] == ["matmul"]


def test_padding_is_known_by_the_index_that_an_embedding_has_for_it() -> None:
    class Pooled(nn.Module):
        def __init__(self, masked: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.words, self.masked = nn.Embedding(30, 4, padding_idx=0), masked

        def forward(self, ids: Tensor) -> Tensor:
            x = self.words(ids)
            return x.sum(1) / (ids != 0).sum(1, keepdim=True) if self.masked else x.mean(1)

    padded = IDS * MASK
    assert first(Pooled(True), padded, "padding") == []
    assert [op for op, _ in first(Pooled(False), padded, "padding")] == ["mean"]


@pytest.mark.parametrize("how", ["fill", "add", "take off"])
def test_a_mask_that_hides_too_little_is_told_with_its_number(how: str) -> None:
    class Scored(nn.Module):
        def __init__(self, number: float, scale: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.words, self.number, self.scale = nn.Embedding(50, 8), number, scale

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            x = self.words(input_ids)
            scores, hidden = self.scale * x @ x.transpose(1, 2), 1.0 - attention_mask[:, None]
            if how == "fill":
                scores = scores.masked_fill(hidden.bool(), -self.number)
            else:
                scores = scores - self.number * hidden if how == "take off" else scores + -self.number * hidden
            return scores.softmax(-1) @ x

    report = fxdebug.independent(Scored(2, 0.1), PADDED, over="padding")
    (finding,) = report.findings
    verb = {"fill": "fills in -2", "add": "adds -2", "take off": "takes off 2"}[how]
    assert finding.op == "softmax"
    assert (
        f"row 1 depends on padding: its mask {verb}, which hides too little: a place that it hides has" in finding.what
    )
    assert not fxdebug.independent(Scored(1e9, 0.1), PADDED, over="padding").findings


def test_an_operation_without_effect_on_what_is_returned_is_not_blamed() -> None:
    class Aside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.largest = x.max()
            return x * 2

    assert first(Aside(), torch.randn(3, 4), "batch") == []


@pytest.mark.parametrize(
    ("inputs", "over", "message"),
    [
        (IDS[:1], "batch", "at least two samples"),
        (IDS, "padding", "needs a mask of shape"),
        ({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, "padding", "needs a mask of shape"),
        (IDS, "pack", "needs position_ids that begin again"),
        (IDS, "neighbour", "give one of 'batch', 'length', 'padding', 'pack'"),
        ((), "batch", "needs a tensor"),
    ],
)
def test_inputs_without_neighbours_are_refused(inputs: Any, over: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fxdebug.independent(Decoder(), inputs, over=over)


def test_the_model_and_random_numbers_are_as_before() -> None:
    model = Decoder("batch norm").train()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    fxdebug.independent(model, IDS)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


class Blocks(nn.Module):
    """Adds the mean of a block of four tokens to each of them: those before it end see what is behind them."""

    def __init__(self, right: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.right, self.tok, self.mix = right, nn.Embedding(50, 16), nn.Linear(16, 16)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tok(ids)
        blocks = x.unflatten(1, (-1, 4))
        mean = blocks.cumsum(2) / torch.arange(1, 5)[:, None] if self.right else blocks.mean(2, keepdim=True)
        x = x + self.mix(mean.expand_as(blocks).flatten(1, 2))
        return x, x[:, -1]  # the last token alone may depend on all of them


def test_a_block_that_ends_where_the_first_half_does_is_seen_at_the_end() -> None:
    ids = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(0))
    report = fxdebug.independent(Blocks(), ids, over="length")
    assert [row.error > 0 for row in report.rows] == [False, True]
    assert first(Blocks(), ids, "length") == [("mean", "the start (tokens 0 to 14) depends on later tokens")]
    assert ", at tokens 12, 13, 14;" in report.findings[0].what  # the 16 features of the mean are no tokens
    assert first(Blocks(right=True), ids, "length") == []


class Convolved(nn.Module):
    """A convolution along time; a right one sees zeros where padding is."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.right, self.up, self.conv = right, nn.Conv1d(2, 6, 1), nn.Conv1d(6, 6, 3, padding=1)

    def forward(
        self, wave: Tensor, lengths: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        if lengths is not None:
            hidden = torch.arange(wave.shape[2]) >= lengths[:, None]
        else:
            assert src_key_padding_mask is not None
            hidden = src_key_padding_mask
        x = self.up(wave)
        return self.conv(x.masked_fill(hidden[:, None], 0.0) if self.right else x)


HIDDEN = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])


@pytest.mark.parametrize(
    "padding",
    [
        {"lengths": torch.tensor([7, 4])},
        {"src_key_padding_mask": HIDDEN},
        {"src_key_padding_mask": HIDDEN | torch.tensor([[False] * 6 + [True]])},  # no row without padding
    ],
)
def test_lengths_and_masks_that_mark_padding_are_read(padding: dict[str, Tensor]) -> None:
    given = {"wave": torch.randn(2, 2, 7)} | padding
    assert first(Convolved(right=True), given, "padding") == []
    found = fxdebug.independent(Convolved(right=False), given, over="padding").findings[0]
    assert found.op == "conv1d"


def test_a_last_state_that_is_returned_beside_all_others_may_differ() -> None:
    class Weighted(nn.Module):
        """Weights of all time steps, or of those up to each one."""

        def __init__(self, right: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.right, self.rnn, self.score = right, nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            y, _ = self.rnn(x)
            scores = self.score(y)
            weights = scores.exp() / scores.exp().cumsum(1) if self.right else scores.softmax(1)
            return torch.cumsum(weights * y, 1) if not self.right else weights * y

    x = torch.randn(2, 10, 5)
    assert [op for op, _ in first(Weighted(right=False), x, "length")] == ["softmax"]
    assert first(Weighted(right=True), x, "length") == []


def test_a_reshape_that_mixes_rows_is_named_and_not_the_layer_behind_it() -> None:
    class Queries(nn.Module):
        def __init__(self, mixed: bool) -> None:
            super().__init__()
            self.mixed, self.queries, self.head = mixed, nn.Embedding(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            weights = torch.einsum("qd,btd->qbt", self.queries.weight, x).softmax(-1)
            seen = torch.einsum("qbt,btd->qbd", weights, x)
            return self.head(seen.reshape(len(x), 4, 8) if self.mixed else seen.transpose(0, 1))

    x = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    assert first(Queries(False).eval(), x, "batch") == []
    assert first(Queries(True).eval(), x, "batch") == [("reshape", "row 0 depends on the other rows of the batch")]


def test_a_reshape_behind_a_transpose_is_told_with_its_shapes() -> None:
    class Lines(nn.Module):
        def __init__(self, turned: bool) -> None:
            super().__init__()
            self.turned, self.inner, self.head = turned, nn.Linear(8, 8), nn.Linear(48, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            y = y.transpose(0, 1) if self.turned else y
            return self.head(y.reshape(len(x), -1))

    x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
    assert first(Lines(False).eval(), x, "batch") == []
    (finding,) = fxdebug.independent(Lines(True).eval(), x).findings
    assert (finding.op, finding.path) == ("reshape", "")
    assert "6×4×8 becomes 4×48, elements in their order, so that one row gets numbers of several; " in finding.what


class Masked(nn.Module):
    """Attention of each kind that is given a mask of padding, or the opposite of it."""

    def __init__(self, how: str, turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.how, self.turned = nn.Embedding(20, 8), nn.Linear(8, 24), how, turned
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        seen = attention_mask.bool()[:, None] ^ self.turned
        if self.how == "module":
            mixed: Tensor = self.attention(q, k, v, key_padding_mask=~seen[:, 0], need_weights=False)[0]
        elif self.how == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.expand(-1, x.shape[1], -1))
        elif self.how == "added":
            added = torch.zeros(seen.shape).masked_fill(~seen, -1e9)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
        else:
            mixed = (q @ k.mT).masked_fill(~seen, -1e9).softmax(-1) @ v
        return x + mixed


@pytest.mark.parametrize("how", ["module", "fused", "added", "filled"])
def test_a_mask_that_hides_the_tokens_and_shows_the_padding_is_told(how: str) -> None:
    ids = torch.tensor([[3, 7, 9, 4, 11, 5], [8, 2, 6, 0, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    assert not fxdebug.independent(Masked(how, False).eval(), inputs, over="padding").findings
    (finding,) = fxdebug.independent(Masked(how, True).eval(), inputs, over="padding").findings
    assert "its mask hides the tokens of row 1 and shows the padding: it is turned round" in finding.what


class Strided(nn.Module):
    """An encoder of waves whose convolutions make fewer frames; statistics over all of them, or over those given."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.whole, self.conv, self.out = whole, nn.Conv1d(1, 8, 5, stride=5), nn.Linear(8, 4)

    def forward(self, waves: Tensor, lengths: Tensor) -> Tensor:
        x = self.conv(waves[:, None])
        kept = torch.arange(x.shape[-1]) < (lengths // 5)[:, None]
        kept = torch.ones_like(kept) if self.whole else kept
        x = x - (x * kept[:, None]).sum(-1, keepdim=True) / kept.sum(1)[:, None, None]
        return self.out(x.transpose(1, 2))


def test_frames_of_a_strided_encoder_are_paired_with_those_of_the_sample() -> None:
    waves = torch.randn(2, 60, generator=torch.Generator().manual_seed(0))
    waves[0, 20:] = 0
    inputs = {"waves": waves, "lengths": torch.tensor([20, 60])}
    (finding,) = fxdebug.independent(Strided(whole=True), inputs, over="padding").findings
    assert (finding.op, finding.what.partition(":")[0]) == ("sum", "row 0 depends on padding")
    quiet = fxdebug.independent(Strided(whole=False), inputs, over="padding")
    assert (quiet.findings, [note.what for note in quiet.notes]) == (
        (),
        ["paired with the same tokens alone, over='padding'"],
    )


def test_what_has_no_part_that_is_surely_the_samples_is_unknown_and_not_nothing() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return torch.cat([x, x, x[:, :1]], 1)

    report = fxdebug.independent(Doubled(), {"x": torch.ones(2, 9), "lengths": torch.tensor([4, 9])}, over="padding")
    assert report.findings == ()
    assert report.notes[-1].what == ("nothing is known of row 0: no part of what is returned is surely the sample's")


@pytest.mark.parametrize(
    "lengths",
    [{"counts": torch.tensor([2, 5])}, {"rel_lens": torch.tensor([0.4, 1.0])}],
    ids=["counts", "shares of the longest"],
)
def test_counts_and_shares_tell_where_padding_is(lengths: dict[str, Tensor]) -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor, counts: Tensor | None = None, rel_lens: Tensor | None = None) -> Tensor:
            return x.mean(1)

    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    (finding,) = fxdebug.independent(Mean(), {"x": x, **lengths}, over="padding").findings
    assert finding.what.startswith("row 0 depends on padding")


class OfTables(nn.Module):
    """Sums over the lines of a table, divided by how many there are, with the padding or without it."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        lines = mask.bool().any(2).sum(1) if self.counts else torch.full((len(x),), x.shape[1])
        return (x * mask).sum((1, 2)) / lines


def test_a_mask_of_tables_is_left_out_a_dimension_at_a_time() -> None:
    mask = torch.zeros(2, 4, 6)
    mask[0], mask[1, :2, :5] = 1, 1
    inputs = {"x": torch.randn(2, 4, 6), "mask": mask}
    report = fxdebug.independent(OfTables(False), inputs, over="padding")
    assert [row.sample for row in report.rows] == ["row 1, in dimension 1,", "row 1, in dimension 2,"]
    assert [(finding.op, finding.what.partition(":")[0]) for finding in report.findings] == [
        ("full", "row 1, in dimension 1, depends on padding")
    ]
    assert fxdebug.independent(OfTables(True), inputs, over="padding").findings == ()


class OfFrames(nn.Module):
    """A signal of channels and frames; ``whole`` normalises over all frames."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.whole = nn.Conv1d(6, 8, 3), nn.GroupNorm(1, 8), whole

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(nn.functional.pad(x, (2, 0)))
        whole: Tensor = self.norm(y) if self.whole else nn.functional.layer_norm(y.mT, (8,)).mT
        return whole


def test_the_frames_of_a_signal_are_in_its_last_dimension_where_half_of_its_channels_cannot_run() -> None:
    x = torch.randn(2, 6, 20, generator=torch.Generator().manual_seed(1))
    (finding,) = fxdebug.independent(OfFrames(True), x, over="length").findings
    assert (finding.path, finding.op) == ("norm", "group_norm")
    assert finding.what.partition(":")[0] == "the first half (tokens 0 to 9) depends on later tokens"
    assert fxdebug.independent(OfFrames(False), x, over="length").findings == ()


class LastOfEach(nn.Module):
    """The last token of each sample of a pack; borders are where positions fall, or where they are 0."""

    def __init__(self, by: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.by = nn.Embedding(20, 8), by

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        x, places = self.embed(input_ids)[0].tanh(), position_ids[0]
        begins = places[1:] == 0 if self.by == "zeros" else places[1:] < places[:-1]
        borders = [0, *(begins.nonzero().flatten() + 1).tolist(), len(places)]
        return torch.stack([each[-1] for each in x.split([b - a for a, b in pairwise(borders)])])


def test_a_pack_with_fewer_results_than_samples_is_told() -> None:
    given = {"input_ids": torch.arange(7)[None], "position_ids": torch.tensor([[0, 1, 2, 0, 0, 1, 2]])}
    assert fxdebug.independent(LastOfEach("zeros"), given, over="pack").findings == ()
    (finding,) = fxdebug.independent(LastOfEach("falls"), given, over="pack").findings
    assert finding.op == "split"
    assert finding.what.startswith(
        "2 results are returned for 3 samples of the pack, which this operation makes of the "
    )
    assert finding.what.endswith("it takes other borders; what sample 1 has alone is none of them")


class Graph(nn.Module):
    """Attention of nodes to nodes of their graph, with a softmax before or behind the mask."""

    def __init__(self, masks: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.masks = nn.Linear(4, 4), masks

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        y = torch.zeros_like(x).index_add(0, edge_index[1], self.inner(x)[edge_index[0]])
        same = batch[:, None] == batch
        scores = y @ y.mT
        if self.masks:
            return scores.masked_fill(~same, -torch.inf).softmax(-1) @ x
        return (scores.softmax(-1) * same) @ x


@pytest.mark.parametrize("says", [True, False])
def test_graphs_of_one_edge_index_are_run_alone(says: bool) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    batch = torch.tensor([0, 0, 0, 1, 1])
    given = {"x": torch.randn(5, 4), "edge_index": edges, "batch": batch if says else batch * 3}
    assert fxdebug.independent(Graph(True), given).findings == ()
    finding, *_ = fxdebug.independent(Graph(False), given).findings
    assert finding.op == "softmax"
    assert finding.what.startswith(
        "graph 0 depends on the other graphs: this is the first operation that gives it other"
    )
    assert ", at nodes 0, 1, 2; " in finding.what


class LastToken(nn.Module):
    """The last token of each row by its mask, behind a layer whose last state nothing takes."""

    def __init__(self, least: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.rnn, self.least = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True), least

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.rnn(self.embed(input_ids))[0]
        at = attention_mask.argmin(1) - 1 if self.least else attention_mask.sum(1) - 1
        return x[torch.arange(len(x)), at.clamp_min(0)]


def test_a_result_that_nothing_takes_is_no_first_difference() -> None:
    ids = torch.tensor([[3, 4, 5, 0, 0], [6, 7, 8, 9, 10]])
    given = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    alone = {name: value[:1, :3] for name, value in given.items()}
    for least in (True, False):
        assert [op for op, _ in first(LastToken(least), given, "padding")] == ["argmin"][:least]
        runs = [fxdebug.fx_debug(LastToken(least).eval(), one, values="tensors") for one in (alone, given)]
        assert [row.op for row in fxdebug.compare(*runs).findings] == ["getitem"][:least]
