"""Project-MONAI/GenerativeModels#314: "Fix transformer training".

Rebuilt: an autoregressive transformer over the code indices of a (synthetic) VQ-VAE of brain slices.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CODES, SEQ = 20, 16
BOS = CODES


class DecoderOnlyTransformer(nn.Module):
    def __init__(self, num_tokens=CODES + 1, max_seq_len=SEQ + 1, attn_layers_dim=32, depth=2, heads=4):
        super().__init__()
        self.token_embeddings = nn.Embedding(num_tokens, attn_layers_dim)
        self.position_embeddings = nn.Embedding(max_seq_len, attn_layers_dim)
        self.blocks = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(attn_layers_dim, heads, 64, dropout=0.0, batch_first=True, norm_first=True)
                for _ in range(depth)
            ]
        )
        self.to_logits = nn.Linear(attn_layers_dim, num_tokens)

    def forward(self, x):
        n = x.size(1)
        h = self.token_embeddings(x) + self.position_embeddings(torch.arange(n))
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        for block in self.blocks:
            h = block(h, src_mask=mask)
        return self.to_logits(h)


def latent_codes(n):
    start = torch.randint(0, CODES, (n,))
    step = torch.randint(1, 4, (n,))
    seq = (start[:, None] + step[:, None] * torch.arange(SEQ)) % CODES
    noise = torch.rand(n, SEQ) < 0.03
    return torch.where(noise, torch.randint(0, CODES, (n, SEQ)), seq)


def vqvae_transformer_inferer(model, latent):
    latent = F.pad(latent, (1, 0), "constant", BOS)
    return model(latent), latent


def train(tick, mended=False):
    torch.manual_seed(97)
    model = DecoderOnlyTransformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        codes = latent_codes(32)
        optimizer.zero_grad(set_to_none=True)
        logits, target = vqvae_transformer_inferer(model, codes)
        logits = logits.transpose(1, 2)
        if mended:
            loss = F.cross_entropy(logits[:, :, :-1], target[:, 1:])
        else:
            loss = F.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, codes, target)
    with torch.no_grad():
        start = latent_codes(200)[:, :4]
        x = F.pad(start, (1, 0), value=BOS)
        for _ in range(SEQ - 4):
            x = torch.cat([x, model(x)[:, -1, :CODES].argmax(-1, keepdim=True)], 1)
        x = x[:, 1:]
        step_of = (start[:, 3] - start[:, 2]) % CODES
        regular = ((x[:, 4:] - x[:, 3:-1]) % CODES == step_of[:, None]).float().mean().item()
    return history, regular


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(
            "mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"regular continuation {metric:.3f}"
        )
