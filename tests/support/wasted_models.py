"""Models that do work without need, by the rule that names it, each with a twin that does not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Made(nn.Module):
    """A model whose forward is a function of its inputs and of some layers."""

    def __init__(self, run: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def mask_in_each_layer(self: Any, x: Tensor) -> Tensor:
    for _ in range(5):
        mask = torch.full((300, 300), -1e9).triu(1)
        x = (x[:, None] + mask.exp()).mean(1)
    return x


def mask_once(self: Any, x: Tensor) -> Tensor:
    mask = torch.full((300, 300), -1e9).triu(1).exp()
    for _ in range(5):
        x = (x[:, None] + mask).mean(1)
    return x


def normed_in_each_step(self: Any, x: Tensor) -> Tensor:
    h = x[:, 0]
    for _ in range(8):
        weight = self.layer.weight / self.layer.weight.norm(dim=1, keepdim=True)
        h = torch.tanh(F.linear(h, weight))
    return h


def normed_once(self: Any, x: Tensor) -> Tensor:
    h, weight = x[:, 0], self.layer.weight / self.layer.weight.norm(dim=1, keepdim=True)
    for _ in range(8):
        h = torch.tanh(F.linear(h, weight))
    return h


def all_logits(self: Any, x: Tensor) -> Any:
    return self.layer(x)[:, -1]


def last_logits(self: Any, x: Tensor) -> Any:
    return self.layer(x[:, -1])


def body_three_times(self: Any, x: Tensor) -> Any:
    return self.layer(x).sum(-1), self.layer(x).amax(-1), self.layer(x).amin(-1)


def body_once(self: Any, x: Tensor) -> Any:
    h = self.layer(x)
    return h.sum(-1), h.amax(-1), h.amin(-1)


def cat_in_loop(self: Any, x: Tensor) -> Tensor:
    out = x[:, :1]
    for i in range(1, x.shape[1]):
        out = torch.cat([out, x[:, i : i + 1]], 1)
    return out


def cat_once(self: Any, x: Tensor) -> Tensor:
    return torch.cat([x[:, :9], x[:, 9:]], 1)


def one_hot(self: Any, words: Tensor) -> Tensor:
    return F.one_hot(words, 500).float() @ self.layer.weight


def looked_up(self: Any, words: Tensor) -> Tensor:
    return F.embedding(words, self.layer.weight)


def wrong_einsum(self: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.einsum("ij,jk,kl->il", a, b, c)


def right_einsum(self: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.einsum("ij,jl->il", a, torch.einsum("jk,kl->jl", b, c))


def wrong_products(self: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a @ b) @ c


def right_products(self: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a @ (b @ c)


def there_and_back(self: Any, x: Tensor) -> Tensor:
    for _ in range(4):
        x = x.to(torch.bfloat16).float()
    return x + 1


def no_casts(self: Any, x: Tensor) -> Tensor:
    return (x + 1).to(torch.bfloat16)


def looked_at(self: Any, x: Tensor) -> Tensor:
    h = self.layer(x)
    self.seen = h.flatten().sort().values.std()
    return torch.relu(h)


def only_computed(self: Any, x: Tensor) -> Tensor:
    return torch.relu(self.layer(x))


def norms_its_weight(self: Any, x: Tensor) -> Tensor:
    return F.linear(x, self.layer.weight / self.layer.weight.norm(dim=1, keepdim=True))


def table_of_positions(self: Any, x: Tensor) -> Tensor:
    return x + (torch.arange(64.0)[:, None] * torch.arange(64.0)).div(7).sin()


def takes_its_weight(self: Any, x: Tensor) -> Tensor:
    return F.linear(x, self.layer.weight)


def best_by_sort(self: Any, x: Tensor) -> Tensor:
    return x.sort(-1, descending=True)[0][:, :4]


def best_by_topk(self: Any, x: Tensor) -> Tensor:
    return x.topk(4).values


def quantiles_by_sort(self: Any, x: Tensor) -> Tensor:
    return x.sort(-1).values[:, ::100]


def largest_by_sort(self: Any, x: Tensor) -> Tensor:
    return torch.sort(x, dim=0)[0][-1]


def diagonal_matrix(self: Any, x: Tensor) -> Tensor:
    return torch.diag(x[:, 0]) @ x


def times_diagonal(self: Any, x: Tensor) -> Tensor:
    return x[:, :1] * x


def diagonal_of_product(self: Any, x: Tensor) -> Tensor:
    return torch.diagonal(x @ x.T)


def sums_of_rows(self: Any, x: Tensor) -> Tensor:
    return (x * x).sum(-1)


def compared_with_all(self: Any, words: Tensor) -> Tensor:
    return (words[..., None] == torch.arange(500)).float() @ self.layer.weight


def sums_by_compare(self: Any, x: Tensor) -> Tensor:
    groups = torch.arange(len(x)) % 50
    return (groups[None] == torch.arange(50)[:, None]).float() @ x


def sums_by_index(self: Any, x: Tensor) -> Tensor:
    return torch.zeros(50, x.shape[1]).index_add(0, torch.arange(len(x)) % 50, x)


def windows(self: Any, x: Tensor) -> Tensor:
    return self.layer.weight.flatten(1) @ F.unfold(x, 3)  # type: ignore[no-any-return]


def one_probability(self: Any, x: Tensor) -> Tensor:
    return torch.softmax(x, -1)[:, 1]


def kept_average(self: Any, x: Tensor) -> Tensor:
    AVERAGE.mul_(0.9).add_(x, alpha=0.1)
    return torch.relu(x)


def through_python(self: Any, x: Tensor) -> Tensor:
    return torch.relu(torch.tensor(x[0].tolist())) + torch.full((64, 64), x.mean().item()).exp()


AVERAGE = torch.zeros(64, 64)
X64, LENGTHS = torch.randn(2, 64), torch.tensor([20, 30, 40])


def sorted_whole(self: Any, x: Tensor) -> Any:
    values, order = x.sort(-1)
    return values[:, :4], order


def asserts(self: Any, x: Tensor) -> Tensor:
    x = torch.relu(x)
    assert not torch.isnan(x).any()
    return x


def decides(self: Any, x: Tensor) -> Tensor:
    return torch.relu(x) if x[0, 0] > -100 else x


def parts_one_by_one(self: Any, x: Tensor) -> Tensor:
    return torch.cat([self.layer(x[row : row + 1]) for row in range(len(x))])


def parts_at_once(self: Any, x: Tensor) -> Any:
    return self.layer(x)


def heads_one_by_one(self: Any, x: Tensor) -> Tensor:
    return torch.cat([head(x) for head in self.layer], -1)


def few_heads(self: Any, x: Tensor) -> Tensor:
    return torch.cat([head(x) for head in list(self.layer)[:3]], -1)


def inverts(self: Any, a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.inv(a) @ b


def solves(self: Any, a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(a, b)


def distinct_rows(self: Any, cells: Tensor) -> Any:
    return torch.unique(cells, dim=0)


def distinct_keys(self: Any, cells: Tensor) -> Any:
    return torch.unique(cells[:, 0] * 8 + cells[:, 1])


def normed_lookup(self: Any, words: Tensor) -> Tensor:
    return F.embedding(words, self.layer.weight, max_norm=2.0) + 1


def whole_powers(self: Any, x: Tensor) -> Tensor:
    return x**5 + x**7.0


def squares_and_roots(self: Any, x: Tensor) -> Tensor:
    return x**2 + x**3 + x**1.5


def wide_windows(self: Any, x: Tensor) -> Tensor:
    return F.max_pool2d(x, 9, 1, 4) + F.max_pool2d(x, (13, 13), (1, 1), 6)


def narrow_windows(self: Any, x: Tensor) -> Tensor:
    return F.max_pool2d(F.max_pool2d(x, 5, 1, 2), 5, 1, 2) + F.max_pool2d(x, 9, 8).sum()


def sums_down_columns(self: Any, x: Tensor) -> Tensor:
    return x.cumsum(0)


def sums_along_rows(self: Any, x: Tensor) -> Tensor:
    return x.mT.contiguous().cumsum(-1).mT + x[:, :120].cumsum(0).sum()


def turned_kronecker(self: Any, x: Tensor) -> Tensor:
    return x @ torch.kron(self.layer.weight, self.layer.weight).t()


def two_factors(self: Any, x: Tensor) -> Tensor:
    return (self.layer.weight @ x.view(-1, 24, 24) @ self.layer.weight.t()).flatten(1)


def factors_a_diagonal(self: Any, x: Tensor) -> Tensor:
    return torch.linalg.cholesky(torch.diag_embed(x.square() + 1)).flatten(1)


def factors_a_square(self: Any, x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x[:, None] * x[..., None] + torch.eye(x.shape[-1]))


def follows_by_copies(self: Any, x: Tensor) -> Any:
    with torch.no_grad():
        slow = copy.deepcopy(self.layer[1].state_dict())
        fast = copy.deepcopy(self.layer[0]).state_dict()
        self.layer[1].load_state_dict({name: 0.9 * slow[name] + 0.1 * fast[name] for name in slow})
    return self.layer(x)


def follows_in_place(self: Any, x: Tensor) -> Any:
    with torch.no_grad():
        for slow, fast in zip(self.layer[1].parameters(), self.layer[0].parameters()):
            slow.lerp_(fast, 0.1)
    return self.layer(x)


def gated(self: Any, x: Tensor) -> Tensor:
    weights, chosen = self.layer.gate(x).topk(2)
    gates = torch.zeros(len(x), len(self.layer.experts)).scatter(1, chosen, weights)
    return (gates[..., None] * torch.stack([expert(x) for expert in self.layer.experts], 1)).sum(1)


def gated_by_all(self: Any, x: Tensor) -> Tensor:
    gates = self.layer.gate(x).softmax(-1)
    return (gates[..., None] * torch.stack([expert(x) for expert in self.layer.experts], 1)).sum(1)


def experts() -> nn.Module:
    layer = nn.Module()
    layer.gate, layer.experts = nn.Linear(64, 8), nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])
    return layer


def filled_by_mask(self: Any, steps: Tensor, lengths: Tensor, room: int = 200) -> Tensor:
    there = torch.arange(room) < lengths[:, None]
    rows = torch.zeros(len(lengths), room, 32)
    rows[there] = steps
    return torch.relu(self.layer(rows)).sum(1)


def filled_to_the_longest(self: Any, steps: Tensor, lengths: Tensor) -> Tensor:
    return filled_by_mask(self, steps, lengths, int(lengths.max()))


def repeats_heads(self: Any, q: Tensor, k: Tensor) -> Tensor:
    k = k[:, :, None].expand(-1, -1, 8, -1, -1).flatten(1, 2)
    return F.scaled_dot_product_attention(q, k, k)


def groups_heads(self: Any, q: Tensor, k: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


def repeats_rows(self: Any, x: Tensor) -> Tensor:
    return (x[:, None].repeat(1, 64, 1) - x[None]).square().sum(-1)


def broadcasts_rows(self: Any, x: Tensor) -> Tensor:
    return (x[:, None] - x[None]).square().sum(-1)


def copies_weights(self: Any, x: Tensor) -> Any:
    return copy.deepcopy(self.layer)(x)


def copy_for_many(self: Any, x: Tensor) -> Tensor:
    y = x.T.contiguous()
    return y.sin() + y.cos() + y.exp()


def dropped(self: Any, x: Tensor) -> Tensor:
    return F.dropout(F.dropout(x, 0.1, self.training), 0.1, self.training)


def rows_in_a_line(self: Any, x: Tensor) -> Tensor:
    return torch.stack([torch.tanh(torch.relu(x[row]) + 1) for row in range(len(x))])


def rows_at_once(self: Any, x: Tensor) -> Tensor:
    return torch.tanh(torch.relu(x) + 1)


def steps_in_a_line(self: Any, x: Tensor) -> Tensor:
    h = x[:, 0]
    for step in range(x.shape[1]):
        h = torch.tanh(self.layer(h) + x[:, step])
    return h


def layers_in_a_line(self: Any, x: Tensor) -> Tensor:
    for layer in self.layer:
        x = torch.relu(layer(x) + x)
    return x


def pairs_summed(self: Any, x: Tensor) -> Tensor:
    return (x[:, None] * x[None]).sum(-1).softmax(-1)


def pairs_multiplied(self: Any, x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(-1)


def differences_of_pairs(self: Any, x: Tensor) -> Tensor:
    return (x.unsqueeze(1) - x.unsqueeze(0)).pow(2).sum(-1).sqrt()


def gates_of_pairs(self: Any, x: Tensor) -> Tensor:
    return torch.tanh(x[:, None] + x[None]).sum(-1)  # no product of matrices does this


def kronecker(self: Any, x: Tensor) -> Tensor:
    return F.linear(x.reshape(32, 1024), torch.kron(x[:32, :32], x[32:64, :32]))


def written_norm(self: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        centred = x - x.mean(-1, keepdim=True)
        x = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x


def written_softmax(self: Any, x: Tensor) -> Tensor:
    e = torch.exp(x - x.max(-1, keepdim=True)[0])
    return e / e.sum(-1, keepdim=True)


def one_norm(self: Any, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) / (1 + x.norm(dim=-1, keepdim=True))


def over_columns(self: Any, x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)  # no operation of torch does this over rows


def triangle(self: Any, x: Tensor) -> Tensor:
    return torch.ones(len(x), len(x)).tril() @ x


def summed_up(self: Any, x: Tensor) -> Tensor:
    return torch.tril(x @ x.mT) @ x


def equal_rows(self: Any, x: Tensor) -> Tensor:
    whole = x.mean(1, keepdim=True)
    return x + self.layer(whole.expand(-1, x.shape[1], -1)).relu()


def repeated_after(self: Any, x: Tensor) -> Tensor:
    whole = self.layer(x.mean(1, keepdim=True)).relu()
    return x + whole.expand(-1, x.shape[1], -1)


def long_kernel(self: Any, x: Tensor) -> Tensor:
    return F.conv1d(x[:, None], x[:1, None, :2000])


def long_steps(self: Any, x: Tensor) -> Tensor:
    return F.conv1d(x[:, None], x[:1, None, :2000], stride=500)


def averages_one_by_one(self: Any, x: Tensor) -> Tensor:
    for one in self.layer:
        one.weight.data.mul_(0.99).add_(one.weight.detach(), alpha=0.01)
    return self.layer[0](x)  # type: ignore[no-any-return]


def averages_at_once(self: Any, x: Tensor) -> Tensor:
    torch._foreach_mul_([one.weight.data for one in self.layer], 0.99)  # type: ignore[attr-defined]
    return self.layer[0](x)  # type: ignore[no-any-return]


def lists_of_numbers(self: Any, x: Tensor) -> Tensor:
    return torch.tensor([[abs(number) for number in row] for row in x.tolist()])


def few_numbers(self: Any, x: Tensor) -> Tensor:
    return x.abs() * torch.tensor([1.0] * 64)


def mask_after(self: Any, x: Tensor) -> Tensor:
    return self.layer(x)[torch.arange(len(x)) % 4 == 0]  # type: ignore[no-any-return]


def mask_of_result(self: Any, x: Tensor) -> Tensor:
    scores = self.layer(x)
    return scores[scores[:, 0] > 5]  # type: ignore[no-any-return]


def no_cache(self: Any, x: Tensor) -> Tensor:
    for _ in range(16):
        h = self.layer(x)
        x = torch.cat([x, F.scaled_dot_product_attention(h, h, h)[:, -1:]], 1)
    return x


def all_positions(self: Any, x: Tensor) -> Tensor:
    h = self.layer(x)
    return F.scaled_dot_product_attention(h, h, h, is_causal=True)


def cosines_of_pairs(self: Any, x: Tensor) -> Tensor:
    return F.cosine_similarity(x[:, None], x[None], dim=-1)


def cosines_of_rows(self: Any, x: Tensor) -> Tensor:
    return F.cosine_similarity(x, x.flip(0), dim=-1)


def whole_spectrum(self: Any, x: Tensor) -> Tensor:
    return torch.fft.fft(x)[..., : x.shape[-1] // 2 + 1].abs()


def half_spectrum(self: Any, x: Tensor) -> Tensor:
    return torch.fft.rfft(x).abs() + torch.fft.fft(x.to(torch.complex64) * 1j)[..., :129].abs()


def gelu_in_steps(self: Any, x: Tensor) -> Tensor:
    for _ in range(2):
        x = 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x.pow(3))))
    return x


def gelu(self: Any, x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh") + x


def heads_on_parts(self: Any, x: Tensor) -> Tensor:
    return torch.cat([head(one) for head, one in zip(self.layer, x.chunk(20, 1))], -1)


def parts_summed(self: Any, x: Tensor) -> Tensor:
    return torch.stack(x.chunk(20, 1)).sum(0)


def edges_one_by_one(self: Any, x: Tensor) -> Tensor:
    sums = torch.zeros_like(x)
    for one, other in zip(range(40), reversed(range(40))):
        sums[one] += x[other]
    return sums


def edges_at_once(self: Any, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, torch.arange(40), x.flip(0)[-40:])


def averages() -> nn.Module:
    return nn.ModuleList(nn.Linear(8, 8) for _ in range(30))


def many() -> nn.Module:
    return nn.ModuleList(nn.Linear(64, 64) for _ in range(20))


def heads() -> nn.Module:
    return nn.ModuleList(nn.Linear(64, 4) for _ in range(20))


TALL = torch.randn(128, 256)
SQUARES = torch.randn(200, 200), torch.randn(200, 200), torch.randn(200, 1)


def odd_length(self: Any, x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, n=1009) * 2, n=1009)


def even_length(self: Any, x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, n=1024) * 2, n=1024)[..., :500]


def expanded_differences(self: Any, x: Tensor) -> Tensor:
    a, b = x[:, None].expand(-1, len(x), -1), x[None].expand(len(x), -1, -1)
    return (a - b).pow(2).sum(-1)


def filled_up(self: Any, x: Tensor) -> Tensor:
    whole = x.new_zeros(len(x), 256, 32)
    whole[:, : x.shape[1]] = x
    return self.layer(whole)  # type: ignore[no-any-return]


def padded_up(self: Any, x: Tensor) -> Tensor:
    return self.layer(F.pad(x, (0, 0, 0, 256 - x.shape[1])))  # type: ignore[no-any-return]


def joined_up(self: Any, x: Tensor) -> Tensor:
    return self.layer(torch.cat((x, x.new_zeros(len(x), 256 - x.shape[1], 32)), 1))  # type: ignore[no-any-return]


def kept_short(self: Any, x: Tensor) -> Tensor:
    return self.layer(F.pad(x, (0, 0, 0, 8)))  # type: ignore[no-any-return]


def whole_factors(self: Any, x: Tensor) -> Tensor:
    u, values, _ = torch.linalg.svd(x)
    return u[:, :4] * values[:4]


def thin_factors(self: Any, x: Tensor) -> Tensor:
    u, values, _ = torch.linalg.svd(x, full_matrices=False)
    return u[:, :4] * values[:4]


def largest_value(self: Any, x: Tensor) -> Tensor:
    return torch.linalg.svd(x, full_matrices=False)[1]


def attends(self: Any, x: Tensor) -> Tensor:
    return self.layer(x, x, x + 1)[0]  # type: ignore[no-any-return]


def attends_alone(self: Any, x: Tensor) -> Tensor:
    return self.layer(x, x, x + 1, need_weights=False)[0]  # type: ignore[no-any-return]


def attends_and_shows(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return self.layer(x, x, x + 1)  # type: ignore[no-any-return]


def nucleus(self: Any, x: Tensor) -> Tensor:
    ordered, places = x.sort(-1, descending=True)
    inside = ordered.softmax(-1).cumsum(-1) < 0.9
    return x.new_zeros(x.shape).scatter(-1, places, ordered * inside)


def ranks(self: Any, x: Tensor) -> Tensor:
    ordered, places = x.sort(-1)
    return x.new_zeros(x.shape).scatter(-1, places, ordered.cumsum(-1))


def layer_on_enlarged(self: Any, x: Tensor) -> Tensor:
    return self.layer(F.interpolate(x, scale_factor=4.0, mode="bilinear"))  # type: ignore[no-any-return]


def enlarged_at_last(self: Any, x: Tensor) -> Tensor:
    return F.interpolate(self.layer(x), scale_factor=4.0, mode="bilinear")


def smoothed_targets(self: Any, x: Tensor, labels: Tensor) -> Tensor:
    targets = torch.full_like(x, 0.001).scatter(1, labels[:, None], 0.9)
    return -(targets * x.log_softmax(-1)).sum(-1).mean()


def smoothed_loss(self: Any, x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(x, labels, label_smoothing=0.1)


def state_joined(self: Any, x: Tensor) -> Tensor:
    h, out = x.new_zeros(len(x), 32), []
    for step in range(x.shape[1]):
        both = torch.cat((x[:, step, :32], h), -1)
        h = torch.tanh(self.layer(both))[:, :32]
        out.append(h * 2)
    return torch.stack(out, 1)


def writes_words(self: Any, x: Tensor) -> Tensor:
    word, out = torch.zeros(len(x), dtype=torch.long), []
    for _ in range(24):
        y = self.layer(F.one_hot(word, 64).float())
        word = (x[:, 0] + y).argmax(-1)
        out.append(word)
    return torch.stack(out, 1).float()


def product_by_product(self: Any, x: Tensor) -> Tensor:
    weight = self.layer.weight + 0.0 * x[0, 0]
    for _ in range(8):
        x = x @ weight
    return x


def power_of_product(self: Any, x: Tensor) -> Tensor:
    return x @ torch.linalg.matrix_power(self.layer.weight + 0.0 * x[0, 0], 8)


def determinant_by_values(self: Any, x: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(x @ x.mT).log().sum(-1)


def values_shown(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    values = torch.linalg.eigvalsh(x @ x.mT)
    return values, values.log().sum(-1)


def both_for_all(self: Any, x: Tensor) -> Tensor:
    return torch.where(x[:, :1] > 0, self.layer(x).relu(), self.layer(x).tanh())


def one_for_each(self: Any, x: Tensor) -> Tensor:
    y = self.layer(x)
    return torch.where(y > 0, y, 0.1 * y)


def multiplies_whole_numbers(self: Any, x: Tensor) -> Tensor:
    return (x @ x).float()


def multiplies_floats(self: Any, x: Tensor) -> Tensor:
    y = x.float()
    return y @ y


def largest_of_rows(self: Any, x: Tensor) -> Tensor:
    return torch.max(x, 1)[0] + x.min(1).values


def largest_and_places(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.max(1)
    return values, places


def draws_evenly(self: Any, x: Tensor) -> Tensor:
    return torch.multinomial(torch.ones(4, len(x)), 8)


def draws_by_weight(self: Any, x: Tensor) -> Tensor:
    return torch.multinomial(x.abs() + 0.1, 8)


def checked_by_a_distribution(self: Any, x: Tensor) -> Tensor:
    return torch.distributions.Normal(x, x.square() + 1, validate_args=True).log_prob(x)


def not_checked(self: Any, x: Tensor) -> Tensor:
    return torch.distributions.Normal(x, x.square() + 1, validate_args=False).log_prob(x)


def jacobian_row_by_row(self: Any, x: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(torch.tanh, x)


def jacobian_at_once(self: Any, x: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(torch.tanh, x, vectorize=True)


def blur() -> nn.Module:
    layer = nn.Conv2d(1, 1, 9)
    line = torch.arange(9.0) + 1
    layer.weight.data = (line[:, None] * line).reshape(1, 1, 9, 9)
    return layer


def blurs(self: Any, x: Tensor) -> Tensor:
    return self.layer(x)


def blurs_in_two_passes(self: Any, x: Tensor) -> Tensor:
    weight = self.layer.weight
    return F.conv2d(F.conv2d(x, weight[..., :1]), weight[..., :1, :])


def observed() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):
        return torch.ao.quantization.FakeQuantize(quant_min=0, quant_max=255, dtype=torch.quint8)


def observes(self: Any, x: Tensor) -> Tensor:
    return self.layer(x)


def observed_before(self: Any, x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)


CASES: list[tuple[str, Callable[..., Any], Callable[..., Any], Callable[[], nn.Module], tuple[Tensor, ...]]] = [
    ("repeated work", mask_in_each_layer, mask_once, nn.ReLU, (torch.randn(4, 300),)),
    ("repeated work", normed_in_each_step, normed_once, lambda: nn.Linear(64, 64), (torch.randn(64, 3, 64),)),
    ("repeated work", body_three_times, body_once, lambda: nn.Linear(64, 64), (torch.randn(64, 64),)),
    ("slice used", all_logits, last_logits, lambda: nn.Linear(32, 500), (torch.randn(2, 40, 32),)),
    ("row by row", rows_in_a_line, rows_at_once, nn.ReLU, (torch.randn(64, 8),)),
    ("loop over time", steps_in_a_line, rows_at_once, lambda: nn.Linear(64, 64), (torch.randn(2, 30, 64),)),
    ("grows by cat", cat_in_loop, cat_once, nn.ReLU, (torch.randn(8, 40, 64),)),
    ("one-hot product", one_hot, looked_up, lambda: nn.Linear(64, 500), (torch.randint(0, 500, (8, 8)),)),
    ("order of products", wrong_products, right_products, nn.ReLU, SQUARES),
    ("casts there and back", there_and_back, no_casts, nn.ReLU, (torch.randn(64, 64),)),
    ("same in each run", norms_its_weight, takes_its_weight, lambda: nn.Linear(64, 64), (torch.randn(4, 64),)),
    ("same in each run", table_of_positions, parts_at_once, lambda: nn.Linear(64, 64), (torch.randn(64, 64),)),
    ("slice used", best_by_sort, best_by_topk, nn.ReLU, (torch.randn(8, 500),)),
    ("one-hot product", diagonal_matrix, times_diagonal, nn.ReLU, (torch.randn(64, 64),)),
    ("one-hot product", sums_by_compare, sums_by_index, nn.ReLU, (TALL,)),
    ("one-hot product", compared_with_all, looked_up, lambda: nn.Linear(64, 500), (torch.randint(0, 500, (8, 8)),)),
    ("slice used", diagonal_of_product, sums_of_rows, nn.ReLU, (torch.randn(64, 64),)),
    ("slice used", diagonal_of_product, one_probability, nn.ReLU, (torch.randn(64, 64),)),
    ("unused results", looked_at, kept_average, lambda: nn.Linear(64, 64), (torch.randn(64, 64),)),
    ("same in each run", table_of_positions, through_python, nn.ReLU, (torch.randn(64, 64),)),
    ("repeated in memory", windows, parts_at_once, lambda: nn.Conv2d(4, 4, 3), (torch.randn(2, 4, 32, 32),)),
    ("slice used", largest_by_sort, quantiles_by_sort, nn.ReLU, (torch.randn(8, 500),)),
    ("slice used", best_by_sort, sorted_whole, nn.ReLU, (torch.randn(8, 500),)),
    ("checks", asserts, decides, nn.ReLU, (torch.randn(64, 64),)),
    ("row by row", parts_one_by_one, parts_at_once, lambda: nn.Linear(512, 512), (torch.randn(6, 512),)),
    ("side by side", heads_one_by_one, few_heads, heads, (torch.randn(2, 64),)),
    ("inverse", inverts, solves, nn.ReLU, (torch.eye(64)[None], torch.randn(1, 64, 4))),
    ("repeated in memory", repeats_heads, groups_heads, nn.ReLU, (torch.randn(1, 16, 1, 8), torch.randn(1, 2, 300, 8))),
    ("repeated in memory", repeats_rows, broadcasts_rows, nn.ReLU, (torch.randn(64, 8),)),
    ("copies", copies_weights, copy_for_many, lambda: nn.Linear(64, 64), (torch.randn(4, 64),)),
    ("large between", pairs_summed, pairs_multiplied, nn.ReLU, (TALL,)),
    ("large between", differences_of_pairs, gates_of_pairs, nn.ReLU, (TALL,)),
    ("large between", kronecker, pairs_multiplied, nn.ReLU, (TALL,)),
    ("written out", written_norm, one_norm, nn.ReLU, (TALL,)),
    ("written out", written_softmax, over_columns, nn.ReLU, (TALL,)),
    ("mostly zeros", triangle, summed_up, nn.ReLU, (TALL,)),
    ("equal rows", equal_rows, repeated_after, lambda: nn.Linear(64, 64), (torch.randn(2, 40, 64),)),
    ("long kernel", long_kernel, long_steps, nn.ReLU, (torch.randn(2, 20_000),)),
    ("weights one by one", averages_one_by_one, averages_at_once, averages, (torch.randn(2, 8),)),
    ("numbers of Python", lists_of_numbers, few_numbers, nn.ReLU, (torch.randn(16, 64),)),
    ("slice used", mask_after, mask_of_result, lambda: nn.Linear(64, 64), (torch.randn(64, 64),)),
    ("earlier positions again", no_cache, all_positions, lambda: nn.Linear(64, 64), (torch.randn(2, 24, 64),)),
    ("large between", cosines_of_pairs, cosines_of_rows, nn.ReLU, (TALL,)),
    ("slice used", whole_spectrum, half_spectrum, nn.ReLU, (TALL,)),
    ("written out", gelu_in_steps, gelu, nn.ReLU, (torch.randn(512, 1024),)),
    ("side by side", heads_on_parts, parts_summed, heads, (torch.randn(2, 64 * 20),)),
    ("row by row", edges_one_by_one, edges_at_once, nn.ReLU, (torch.randn(64, 8),)),
    ("unused results", looked_at, only_computed, lambda: nn.Linear(64, 64), (torch.randn(64, 64),)),
    ("transform length", odd_length, even_length, nn.ReLU, (torch.randn(64, 500),)),
    ("large between", expanded_differences, gates_of_pairs, nn.ReLU, (TALL,)),
    ("padding", filled_up, kept_short, lambda: nn.Linear(32, 32), (torch.randn(8, 40, 32),)),
    ("padding", padded_up, kept_short, lambda: nn.Linear(32, 32), (torch.randn(8, 40, 32),)),
    ("padding", joined_up, kept_short, lambda: nn.Linear(32, 32), (torch.randn(8, 40, 32),)),
    ("slice used", whole_factors, thin_factors, nn.ReLU, (torch.randn(300, 8),)),
    ("slice used", largest_value, thin_factors, nn.ReLU, (torch.randn(300, 8),)),
    ("eager attention", attends, attends_alone, lambda: nn.MultiheadAttention(64, 4), (torch.randn(40, 2, 64),)),
    ("eager attention", attends, attends_and_shows, lambda: nn.MultiheadAttention(64, 4), (torch.randn(40, 2, 64),)),
    ("slice used", nucleus, ranks, nn.ReLU, (torch.randn(8, 5000),)),
    ("equal rows", layer_on_enlarged, enlarged_at_last, lambda: nn.Conv2d(16, 16, 1), (torch.randn(2, 16, 32, 32),)),
    ("one-hot product", smoothed_targets, smoothed_loss, nn.ReLU, (torch.randn(64, 100), torch.arange(64))),
    ("slow function", distinct_rows, distinct_keys, nn.ReLU, (torch.randint(0, 8, (400, 2)),)),
    ("slow function", normed_lookup, looked_up, lambda: nn.Embedding(64, 8), (torch.arange(64),)),
    ("slow function", whole_powers, squares_and_roots, nn.ReLU, (TALL,)),
    ("slow function", wide_windows, narrow_windows, nn.ReLU, (torch.randn(1, 4, 64, 64),)),
    ("slow function", sums_down_columns, sums_along_rows, nn.ReLU, (torch.randn(2048, 128),)),
    ("large between", turned_kronecker, two_factors, lambda: nn.Linear(24, 24), (torch.randn(8, 576),)),
    ("one-hot product", factors_a_diagonal, factors_a_square, nn.ReLU, (torch.rand(64, 6),)),
    (
        "copies",
        follows_by_copies,
        follows_in_place,
        lambda: nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)),
        (X64,),
    ),
    ("mostly zeros", gated, gated_by_all, experts, (torch.randn(64, 64),)),
    ("padding", filled_by_mask, filled_to_the_longest, lambda: nn.Linear(32, 32), (torch.randn(90, 32), LENGTHS)),
    ("order of products", product_by_product, power_of_product, lambda: nn.Linear(32, 32), (torch.randn(4096, 32),)),
    ("slow function", determinant_by_values, values_shown, nn.ReLU, (torch.randn(4, 16, 16),)),
    ("slice used", both_for_all, one_for_each, lambda: nn.Linear(256, 256), (torch.randn(256, 256),)),
    ("slow function", multiplies_whole_numbers, multiplies_floats, nn.ReLU, (torch.ones(256, 256).long(),)),
    ("slow function", largest_of_rows, largest_and_places, nn.ReLU, (TALL,)),
    ("slow function", draws_evenly, draws_by_weight, nn.ReLU, (torch.randn(64, 64),)),
    ("checks", checked_by_a_distribution, not_checked, nn.ReLU, (torch.randn(64, 64),)),
    ("row by row", jacobian_row_by_row, jacobian_at_once, nn.ReLU, (torch.randn(24),)),
    ("long kernel", blurs, blurs_in_two_passes, blur, (torch.randn(2, 1, 64, 64),)),
    ("training mode", observes, observed_before, observed, (torch.randn(64, 64),)),
    ("loop over time", state_joined, writes_words, lambda: nn.Linear(64, 64), (torch.randn(4, 40, 64),)),
]


def half() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Linear(64, 64).half(), (torch.randn(8, 64).half(),)


def narrow_recurrence() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.GRU(16, 16).bfloat16(), (torch.randn(8, 2, 16).bfloat16(),)


def subnormal() -> tuple[nn.Module, tuple[Tensor, ...]]:
    tiny = nn.Linear(64, 64, bias=False)
    tiny.weight.data.fill_(1e-40)
    return tiny, (torch.randn(8, 64),)


def in_float64() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Linear(64, 64).double(), (torch.randn(8, 64, dtype=torch.float64),)


def dense_graph() -> tuple[nn.Module, tuple[Tensor, ...]]:
    near = torch.eye(300)
    return Made(lambda self, a, x: a @ self.layer(x), layer=nn.Linear(64, 64)).eval(), (near, torch.randn(300, 64))


BY_RULE: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    **{
        rule: lambda slow=slow, layer=layer, args=args: (Made(slow, layer=layer()).eval(), args)  # type: ignore[misc]
        for rule, slow, _, layer, args in CASES
    },
    "training mode": lambda: (Made(dropped), (torch.randn(64, 64, requires_grad=True),)),
    "float16 on the CPU": half,
    "bfloat16 on the CPU": narrow_recurrence,
    "subnormal": subnormal,
    "float64 weights": in_float64,
    "mostly zeros": dense_graph,
}
