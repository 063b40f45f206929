"""huggingface/transformers#17946

The Decision Transformer of the gym experiments was re-implemented on top of a stock
GPT-2 body (Conv1D weights).  Actions predicted from the same returns, states and
time steps are not those of the authors' code.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class TrajectoryBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.key, self.value, self.proj = (nn.Linear(hidden, hidden) for _ in range(4))
        self.fc, self.fc_out = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.heads = heads

    def forward(self, x, keep):
        b, n, d = x.shape
        h = self.ln_1(x)
        q, k, v = (f(h).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        w = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        w = w.masked_fill(~keep, -1e4).softmax(-1)
        x = x + self.proj((w @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.fc_out(F.relu(self.fc(self.ln_2(x))))


class DecisionTransformer(nn.Module):
    def __init__(self, state_dim=6, act_dim=3, hidden=24, heads=2, layers=3, max_ep_len=100):
        super().__init__()
        self.embed_timestep = nn.Embedding(max_ep_len, hidden)
        self.embed_return, self.embed_state = nn.Linear(1, hidden), nn.Linear(state_dim, hidden)
        self.embed_action, self.embed_ln = nn.Linear(act_dim, hidden), nn.LayerNorm(hidden)
        self.blocks = nn.ModuleList(TrajectoryBlock(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.predict_action = nn.Sequential(nn.Linear(hidden, act_dim), nn.Tanh())

    def forward(self, states, actions, returns_to_go, timesteps):
        b, n, _ = states.shape
        t = self.embed_timestep(timesteps)
        tokens = torch.stack(
            [self.embed_return(returns_to_go) + t, self.embed_state(states) + t, self.embed_action(actions) + t], dim=2
        )
        x = self.embed_ln(tokens.reshape(b, 3 * n, -1))
        keep = torch.ones(3 * n, 3 * n, dtype=torch.bool).tril()
        for block in self.blocks:
            x = block(x, keep)
        x = self.ln_f(x).view(b, n, 3, -1)
        return self.predict_action(x[:, :, 1])


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class GPT2Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.c_attn, self.c_proj = Conv1D(3 * hidden, hidden), Conv1D(hidden, hidden)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(4 * hidden, hidden), "c_proj": Conv1D(hidden, 4 * hidden)})
        self.heads = heads

    def forward(self, hidden_states):
        q, k, v = self.c_attn(self.ln_1(hidden_states)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        ctx = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden_states = self.c_proj(ctx.transpose(1, 2).flatten(2)) + hidden_states
        return hidden_states + self.mlp["c_proj"](self.mlp["c_fc"](self.ln_2(hidden_states)).relu())


class GPT2Model(nn.Module):
    def __init__(self, hidden, heads, layers, n_positions, use_wpe):
        super().__init__()
        self.wpe = nn.Embedding(n_positions, hidden) if use_wpe else None
        self.h = nn.ModuleList(GPT2Block(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)

    def forward(self, inputs_embeds):
        hidden_states = inputs_embeds
        if self.wpe is not None:
            hidden_states = hidden_states + self.wpe(torch.arange(inputs_embeds.shape[1]))
        for block in self.h:
            hidden_states = block(hidden_states)
        return self.ln_f(hidden_states)


class DecisionTransformerModel(nn.Module):
    def __init__(self, state_dim=6, act_dim=3, hidden=24, heads=2, layers=3, max_ep_len=100, use_wpe=True):
        super().__init__()
        self.encoder = GPT2Model(hidden, heads, layers, 64, use_wpe)
        self.timestep = nn.Embedding(max_ep_len, hidden)
        self.inputs = nn.Linear(1 + state_dim + act_dim, 3 * hidden)
        self.norm = nn.LayerNorm(hidden)
        self.action_head = nn.Linear(hidden, act_dim)

    def forward(self, states, actions, returns_to_go, timesteps):
        feats = self.inputs(torch.cat([returns_to_go, states, actions], dim=-1)).unflatten(-1, (3, -1))
        feats = feats + self.timestep(timesteps).unsqueeze(2)
        out = self.encoder(self.norm(feats.flatten(1, 2)))
        return torch.tanh(self.action_head(out[:, 1::3]))


def convert(sd):
    sd["embed_ln.weight"].shape[0]
    w = torch.block_diag(sd["embed_return.weight"], sd["embed_state.weight"], sd["embed_action.weight"])
    out = {
        "timestep.weight": sd["embed_timestep.weight"],
        "inputs.weight": w,
        "inputs.bias": torch.cat([sd[f"embed_{n}.bias"] for n in ("return", "state", "action")]),
    }
    for w in ("weight", "bias"):
        out["norm." + w], out["encoder.ln_f." + w] = sd["embed_ln." + w], sd["ln_f." + w]
        out["action_head." + w] = sd["predict_action.0." + w]
        turn = (lambda m: m.t()) if w == "weight" else (lambda m: m)
        for i in range(3):
            s, t = f"blocks.{i}.", f"encoder.h.{i}."
            out[t + "ln_1." + w], out[t + "ln_2." + w] = sd[s + "ln_1." + w], sd[s + "ln_2." + w]
            out[t + "c_attn." + w] = turn(torch.cat([sd[f"{s}{n}.{w}"] for n in ("query", "key", "value")]))
            out[t + "c_proj." + w] = turn(sd[s + "proj." + w])
            out[t + "mlp.c_fc." + w], out[t + "mlp.c_proj." + w] = turn(sd[s + "fc." + w]), turn(sd[s + "fc_out." + w])
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(15)
    original = DecisionTransformer().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "ln" in n and n.endswith("weight") else 0.0, 0.15)
    port = DecisionTransformerModel(use_wpe=not fixed).eval()
    if port.encoder.wpe is not None:
        nn.init.normal_(port.encoder.wpe.weight, 0.0, 0.02 * math.sqrt(24))
    port.load_state_dict(convert(original.state_dict()), strict=False)
    b, n = 2, 6
    return (
        original,
        port,
        (
            torch.randn(b, n, 6),
            torch.rand(b, n, 3) * 2 - 1,
            torch.rand(b, n, 1) * 3,
            torch.arange(n).expand(b, n) + torch.tensor([[0], [40]]),
        ),
    )
