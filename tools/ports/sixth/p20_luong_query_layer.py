"""A-Jacobson/minimal-nmt#2: the Luong query is decoder_hidden[:-1], which with two layers is the first layer's state.

It should be the last layer, decoder_hidden[-1:].  Everything is sequence-first.  The port unrolls the decoder GRU with
cells, keeps the encoder as two one-directional GRUs, and scores with einsum.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LuongAttention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.W = nn.Linear(hidden, hidden, bias=False)

    def forward(self, query: Tensor, encoder_out: Tensor) -> Tensor:
        """query (1, batch, hidden), encoder_out (source, batch, hidden)."""
        scores = self.W(encoder_out).transpose(0, 1) @ query.permute(1, 2, 0)
        weights = scores.softmax(dim=1)
        return (weights.transpose(1, 2) @ encoder_out.transpose(0, 1)).transpose(0, 1)


class Encoder(nn.Module):
    def __init__(self, vocab: int, embed: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, embed, padding_idx=1)
        self.gru = nn.GRU(embed, hidden, layers, bidirectional=True)
        self.hidden, self.layers = hidden, layers

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        out, state = self.gru(self.embed(source))
        out = out[..., : self.hidden] + out[..., self.hidden :]
        state = state.view(self.layers, 2, *state.shape[1:]).sum(dim=1)
        return out, state


class Decoder(nn.Module):
    def __init__(self, vocab: int, embed: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, embed, padding_idx=1)
        self.attention = LuongAttention(hidden)
        self.gru = nn.GRU(embed + hidden, hidden, layers)
        self.out = nn.Linear(2 * hidden, vocab)

    def forward(self, token: Tensor, encoder_out: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        context = self.attention(state[-1:], encoder_out)
        rnn_out, state = self.gru(torch.cat([self.embed(token), context], dim=2), state)
        return self.out(torch.cat([rnn_out, context], dim=2)), state


class Seq2Seq(nn.Module):
    def __init__(self, vocab: int = 30, embed: int = 10, hidden: int = 14, layers: int = 2) -> None:
        super().__init__()
        self.encoder = Encoder(vocab, embed, hidden, layers)
        self.decoder = Decoder(vocab, embed, hidden, layers)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        encoder_out, state = self.encoder(source)
        steps = []
        for token in target.split(1, dim=0):
            logits, state = self.decoder(token, encoder_out, state)
            steps.append(logits)
        return torch.cat(steps)


class BiLayer(nn.Module):
    """One bidirectional layer as a forward and a backward GRU."""

    def __init__(self, in_size: int, hidden: int) -> None:
        super().__init__()
        self.fw = nn.GRU(in_size, hidden)
        self.bw = nn.GRU(in_size, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fw_out, fw_state = self.fw(x)
        bw_out, bw_state = self.bw(x.flip(0))
        return fw_out, bw_out.flip(0), fw_state + bw_state


class UnrolledNMT(nn.Module):
    def __init__(self, source: Seq2Seq, query_slice: slice) -> None:
        super().__init__()
        enc = source.encoder
        vocab, embed = enc.embed.weight.shape
        hidden = enc.hidden
        self.query_slice = query_slice
        self.source_embedding = nn.Embedding(vocab, embed)
        self.target_embedding = nn.Embedding(vocab, embed)
        self.encoder_layers = nn.ModuleList(BiLayer(embed if i == 0 else 2 * hidden, hidden) for i in range(enc.layers))
        self.score = nn.Parameter(torch.empty(hidden, hidden))
        self.cells = nn.ModuleList(nn.GRUCell(embed + hidden if i == 0 else hidden, hidden) for i in range(enc.layers))
        self.project_state = nn.Linear(hidden, vocab)
        self.project_context = nn.Linear(hidden, vocab, bias=False)
        self.load_from(source)

    @torch.no_grad()
    def load_from(self, source: Seq2Seq) -> None:
        enc, dec = source.encoder, source.decoder
        self.source_embedding.weight.copy_(enc.embed.weight)
        self.target_embedding.weight.copy_(dec.embed.weight)
        self.score.copy_(dec.attention.W.weight)
        for i, layer in enumerate(self.encoder_layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(layer.fw, f"{name}_l0").copy_(getattr(enc.gru, f"{name}_l{i}"))
                getattr(layer.bw, f"{name}_l0").copy_(getattr(enc.gru, f"{name}_l{i}_reverse"))
                getattr(self.cells[i], name).copy_(getattr(dec.gru, f"{name}_l{i}"))
        state_half, context_half = dec.out.weight.chunk(2, dim=1)
        self.project_state.weight.copy_(state_half)
        self.project_state.bias.copy_(dec.out.bias)
        self.project_context.weight.copy_(context_half)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        x = self.source_embedding(source)
        states = []
        for layer in self.encoder_layers:
            fw, bw, state = layer(x)
            x = torch.cat([fw, bw], dim=-1)
            states.append(state)
        return fw + bw, torch.cat(states)

    def attend(self, hidden: Tensor, memory: Tensor) -> Tensor:
        query = hidden[self.query_slice].squeeze(0)
        energy = torch.einsum("bh,hk,sbk->bs", query, self.score, memory)
        return torch.einsum("bs,sbh->bh", F.softmax(energy, dim=-1), memory)

    def step(self, token: Tensor, memory: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        context = self.attend(hidden, memory)
        x = torch.cat([self.target_embedding(token), context], dim=-1)
        new_states = []
        for cell, previous in zip(self.cells, hidden, strict=True):
            x = cell(x, previous)
            new_states.append(x)
        return self.project_state(x) + self.project_context(context), torch.stack(new_states)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, hidden = self.encode(source)
        logits = []
        for token in target:
            step_logits, hidden = self.step(token, memory, hidden)
            logits.append(step_logits)
        return torch.stack(logits)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(120)
    original = Seq2Seq().eval()
    with torch.no_grad():
        for param in original.parameters():
            param.mul_(1.6)
    port = UnrolledNMT(original, slice(-1, None) if fixed else slice(None, -1)).eval()
    return original, port, (torch.randint(2, 30, (7, 3)), torch.randint(2, 30, (5, 3)))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
