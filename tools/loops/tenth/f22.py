"""After InseeFrLab/torchTextClassifiers#92.

Text classification of business activities with label attention: every label queries the
token representations.  The fix concerns the mask handed to scaled_dot_product_attention.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TokenEmbedder(nn.Module):
    def __init__(self, vocab_size, embedding_dim, padding_idx=0):
        super().__init__()
        self.embedding_layer = nn.Embedding(vocab_size, embedding_dim, padding_idx=padding_idx)
        self.norm = nn.LayerNorm(embedding_dim)
        self.fc = nn.Linear(embedding_dim, embedding_dim)

    def forward(self, input_ids):
        x = self.embedding_layer(input_ids)
        return self.norm(x + F.relu(self.fc(x)))


class LabelAttention(nn.Module):
    def __init__(self, num_classes, embedding_dim, n_head, mended):
        super().__init__()
        self.n_head, self.mended = n_head, mended
        self.label_embeds = nn.Embedding(num_classes, embedding_dim)
        self.q_proj = nn.Linear(embedding_dim, embedding_dim)
        self.k_proj = nn.Linear(embedding_dim, embedding_dim)
        self.v_proj = nn.Linear(embedding_dim, embedding_dim)
        self.c_proj = nn.Linear(embedding_dim, embedding_dim)

    def split(self, x):
        b, n, d = x.shape
        return x.view(b, n, self.n_head, d // self.n_head).transpose(1, 2)

    def forward(self, token_embeddings, attention_mask):
        b, _n, d = token_embeddings.shape
        q = self.split(self.q_proj(self.label_embeds.weight).expand(b, -1, -1))
        k, v = self.split(self.k_proj(token_embeddings)), self.split(self.v_proj(token_embeddings))
        if self.mended:
            attn_mask = attention_mask[:, None, None, :].bool()
        else:
            attn_mask = (attention_mask == 0)[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.c_proj(y.transpose(1, 2).reshape(b, -1, d))


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, num_classes, embedding_dim=32, mended=False):
        super().__init__()
        self.token_embedder = TokenEmbedder(vocab_size, embedding_dim)
        self.label_attention = LabelAttention(num_classes, embedding_dim, 2, mended)
        self.classification_head = nn.Linear(embedding_dim, 1)

    def forward(self, input_ids, attention_mask):
        x = self.label_attention(self.token_embedder(input_ids), attention_mask)
        return self.classification_head(x).squeeze(-1)


def make_corpus(n, vocab_size, num_classes, max_len=16):
    labels = torch.randint(0, num_classes, (n,))
    input_ids = torch.zeros(n, max_len, dtype=torch.long)
    for i in range(n):
        length = int(torch.randint(5, max_len - 2, ()))
        words = torch.randint(1 + 3 * num_classes, vocab_size, (length,))
        spots = torch.randperm(length)[:2]
        words[spots] = 1 + 3 * labels[i] + torch.randint(0, 3, (2,))
        input_ids[i, :length] = words
    return input_ids, (input_ids != 0).long(), labels


def train(tick, mended=False):
    torch.manual_seed(30)
    input_ids, attention_mask, labels = make_corpus(512, 120, 8)
    model = TextClassificationModel(120, 8, mended=mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _epoch in range(10):
        for idx in torch.randperm(512).split(32):
            logits = model(input_ids[idx], attention_mask[idx])
            loss = F.cross_entropy(logits, labels[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
