"""illiterate/BertClassifier#2 (in Chinese): the loss falls very slowly; with little or unbalanced data the
predictions lean to the most frequent class.

Rebuilt: a tiny BERT-like encoder with a classification head on news-title token ids, ten unbalanced classes.
"""

import torch
import torch.nn as nn


class BertEmbeddings(nn.Module):
    def __init__(self, vocab_size, hidden_size, max_len):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=0)
        self.position_embeddings = nn.Embedding(max_len, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size)

    def forward(self, input_ids):
        pos = torch.arange(input_ids.size(1))
        return self.LayerNorm(self.word_embeddings(input_ids) + self.position_embeddings(pos))


class BertClassifier(nn.Module):
    def __init__(self, vocab_size=120, hidden_size=32, num_labels=10, max_len=16, mended=False):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab_size, hidden_size, max_len)
        self.layer = nn.TransformerEncoderLayer(hidden_size, 4, 64, dropout=0.1, batch_first=True)
        self.pooler = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(hidden_size, num_labels)
        self.softmax = nn.Identity() if mended else nn.Softmax(dim=1)

    def forward(self, input_ids, attention_mask):
        h = self.layer(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        pooled = torch.tanh(self.pooler(h[:, 0]))
        logits = self.classifier(self.dropout(pooled))
        return self.softmax(logits)


def news_titles(n, num_labels=10, max_len=16):
    prior = torch.tensor([0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02])
    y = torch.multinomial(prior, n, replacement=True)
    ids = torch.randint(52, 120, (n, max_len))
    topical = torch.rand(n, max_len) < 0.4
    words = 2 + y[:, None] * 5 + torch.randint(0, 5, (n, max_len))
    ids = torch.where(topical, words, ids)
    ids[:, 0] = 1
    length = torch.randint(9, max_len + 1, (n,))
    mask = (torch.arange(max_len) < length[:, None]).long()
    return ids * mask, mask, y


def train(tick, mended=False):
    torch.manual_seed(23)
    ids, mask, y = news_titles(640)
    model = BertClassifier(mended=mended)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _epoch in range(10):
        model.train()
        for idx in torch.randperm(len(ids)).split(32):
            output = model(input_ids=ids[idx], attention_mask=mask[idx])
            loss = criterion(output, y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
            tick.step(loss, ids[idx], y[idx])
    model.eval()
    tids, tmask, ty = news_titles(400)
    with torch.no_grad():
        acc = (model(tids, tmask).argmax(1) == ty).float().mean().item()
    return history, acc


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"acc {metric:.3f}")
