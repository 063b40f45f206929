"""google-deepmind/alphafold#77: the incoming triangle update comes out with i and j exchanged against Algorithm 12.

The source's equation 'kjc,kic->ijc' and the supplement's sum_k a_ki * b_kj differ by a transposition.  Here the model
multiplies as the source does, and the port follows the supplement's reading (or, fixed, the source's).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TriangleMultiplication(nn.Module):
    """Left and right projections with their gates in separate layers; channels stay last."""

    def __init__(self, c_z: int, c_hidden: int, equation: str) -> None:
        super().__init__()
        self.equation = equation
        self.layer_norm_input = nn.LayerNorm(c_z)
        self.left_projection = nn.Linear(c_z, c_hidden)
        self.right_projection = nn.Linear(c_z, c_hidden)
        self.left_gate = nn.Linear(c_z, c_hidden)
        self.right_gate = nn.Linear(c_z, c_hidden)
        self.center_layer_norm = nn.LayerNorm(c_hidden)
        self.output_projection = nn.Linear(c_hidden, c_z)
        self.gating_linear = nn.Linear(c_z, c_z)

    def forward(self, act: Tensor, mask: Tensor) -> Tensor:
        act = self.layer_norm_input(act)
        left = mask.unsqueeze(-1) * self.left_projection(act) * torch.sigmoid(self.left_gate(act))
        right = mask.unsqueeze(-1) * self.right_projection(act) * torch.sigmoid(self.right_gate(act))
        out = self.center_layer_norm(torch.einsum(self.equation, left, right))
        return self.output_projection(out) * torch.sigmoid(self.gating_linear(act))


class Transition(nn.Module):
    def __init__(self, c_z: int) -> None:
        super().__init__()
        self.input_layer_norm = nn.LayerNorm(c_z)
        self.transition1 = nn.Linear(c_z, 2 * c_z)
        self.transition2 = nn.Linear(2 * c_z, c_z)

    def forward(self, act: Tensor) -> Tensor:
        return self.transition2(F.relu(self.transition1(self.input_layer_norm(act))))


class PairBlock(nn.Module):
    def __init__(self, c_z: int, c_hidden: int) -> None:
        super().__init__()
        self.triangle_multiplication_outgoing = TriangleMultiplication(c_z, c_hidden, "ikc,jkc->ijc")
        self.triangle_multiplication_incoming = TriangleMultiplication(c_z, c_hidden, "kjc,kic->ijc")
        self.pair_transition = Transition(c_z)

    def forward(self, pair: Tensor, mask: Tensor) -> Tensor:
        pair = pair + self.triangle_multiplication_outgoing(pair, mask)
        pair = pair + self.triangle_multiplication_incoming(pair, mask)
        return pair + self.pair_transition(pair)


class PairTrunk(nn.Module):
    def __init__(self, c_in: int = 9, c_z: int = 12, c_hidden: int = 10, depth: int = 1) -> None:
        super().__init__()
        self.left_single = nn.Linear(c_in, c_z)
        self.right_single = nn.Linear(c_in, c_z)
        self.blocks = nn.ModuleList(PairBlock(c_z, c_hidden) for _ in range(depth))
        self.distogram = nn.Linear(c_z, 8)

    def forward(self, target_feat: Tensor, seq_mask: Tensor) -> Tensor:
        pair = self.left_single(target_feat)[:, None] + self.right_single(target_feat)[None]
        mask = seq_mask[:, None] * seq_mask[None]
        for block in self.blocks:
            pair = block(pair, mask)
        half_logits = self.distogram(pair)
        return half_logits + half_logits.transpose(0, 1)


class FusedTriangle(nn.Module):
    """Matmul over channels-first planes; both projections and both gates come from one linear each."""

    def __init__(self, c_z: int, c_hidden: int, outgoing: bool, swap: bool = False) -> None:
        super().__init__()
        self.norm_in = nn.LayerNorm(c_z)
        self.ab_p = nn.Linear(c_z, 2 * c_hidden)
        self.ab_g = nn.Linear(c_z, 2 * c_hidden)
        self.norm_out = nn.LayerNorm(c_hidden)
        self.z = nn.Linear(c_hidden, c_z)
        self.g = nn.Linear(c_z, c_z)
        self.outgoing = outgoing
        self.swap = swap

    def forward(self, z: Tensor, mask: Tensor) -> Tensor:
        z = self.norm_in(z)
        ab = self.ab_p(z) * self.ab_g(z).sigmoid() * mask[..., None]
        a, b = ab.permute(2, 0, 1).chunk(2, dim=0)
        if self.outgoing:
            product = torch.matmul(a, b.mT)
        elif self.swap:
            product = torch.matmul(b.mT, a)
        else:
            product = torch.matmul(a.mT, b)
        return self.z(self.norm_out(product.permute(1, 2, 0))) * self.g(z).sigmoid()


class FusedBlock(nn.Module):
    def __init__(self, c_z: int, c_hidden: int, swap: bool) -> None:
        super().__init__()
        self.tri_mul_out = FusedTriangle(c_z, c_hidden, outgoing=True)
        self.tri_mul_in = FusedTriangle(c_z, c_hidden, outgoing=False, swap=swap)
        self.transition = nn.Sequential(nn.LayerNorm(c_z), nn.Linear(c_z, 2 * c_z), nn.ReLU(), nn.Linear(2 * c_z, c_z))

    def forward(self, z: Tensor, mask: Tensor) -> Tensor:
        for update in (self.tri_mul_out, self.tri_mul_in):
            z = z + update(z, mask)
        return z + self.transition(z)


class FusedTrunk(nn.Module):
    def __init__(self, c_in: int, c_z: int, c_hidden: int, depth: int, swap: bool) -> None:
        super().__init__()
        self.tf_z_ij = nn.Linear(c_in, 2 * c_z)
        self.blocks = nn.ModuleList(FusedBlock(c_z, c_hidden, swap) for _ in range(depth))
        self.aux_head = nn.Linear(c_z, 8)

    def forward(self, tf: Tensor, seq_mask: Tensor) -> Tensor:
        i, j = self.tf_z_ij(tf).chunk(2, dim=-1)
        z = i.unsqueeze(1) + j.unsqueeze(0)
        pair_mask = torch.outer(seq_mask, seq_mask)
        for block in self.blocks:
            z = block(z, pair_mask)
        return self.aux_head(z + z.transpose(0, 1)) + self.aux_head.bias


def cat_linear(*layers: nn.Linear) -> dict[str, Tensor]:
    return {key: torch.cat([layer.state_dict()[key] for layer in layers]) for key in ("weight", "bias")}


def load_triangle(src: TriangleMultiplication, dst: FusedTriangle) -> None:
    dst.norm_in.load_state_dict(src.layer_norm_input.state_dict())
    dst.ab_p.load_state_dict(cat_linear(src.left_projection, src.right_projection))
    dst.ab_g.load_state_dict(cat_linear(src.left_gate, src.right_gate))
    dst.norm_out.load_state_dict(src.center_layer_norm.state_dict())
    dst.z.load_state_dict(src.output_projection.state_dict())
    dst.g.load_state_dict(src.gating_linear.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(114)
    original = PairTrunk().eval()
    port = FusedTrunk(9, 12, 10, depth=1, swap=fixed).eval()
    port.tf_z_ij.load_state_dict(cat_linear(original.left_single, original.right_single))
    port.aux_head.load_state_dict(original.distogram.state_dict())
    for src, dst in zip(original.blocks, port.blocks, strict=True):
        load_triangle(src.triangle_multiplication_outgoing, dst.tri_mul_out)
        load_triangle(src.triangle_multiplication_incoming, dst.tri_mul_in)
        transition = src.pair_transition
        dst.transition[0].load_state_dict(transition.input_layer_norm.state_dict())
        dst.transition[1].load_state_dict(transition.transition1.state_dict())
        dst.transition[3].load_state_dict(transition.transition2.state_dict())
    mask = torch.ones(11)
    mask[-2:] = 0.0
    return original, port, (torch.randn(11, 9), mask)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
