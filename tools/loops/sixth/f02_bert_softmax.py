"""illiterate/BertClassifier#2: "the loss falls very slowly, the model leans to the largest classes"."""

import torch
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class TinyBert(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=0)
        self.position = nn.Embedding(16, hidden_size)
        self.encoder = nn.TransformerEncoderLayer(hidden_size, 4, 64, dropout=0.1, batch_first=True)
        self.pooler = nn.Linear(hidden_size, hidden_size)

    def forward(self, input_ids, attention_mask):
        x = self.embeddings(input_ids) + self.position(torch.arange(input_ids.size(1)))
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return torch.tanh(self.pooler(x[:, 0]))


class BertClassifier(nn.Module):
    def __init__(self, num_labels, softmax_out):
        super().__init__()
        self.bert = TinyBert(60, 32)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(32, num_labels)
        self.out = nn.Softmax(dim=-1) if softmax_out else nn.Identity()

    def forward(self, input_ids, attention_mask):
        pooled = self.dropout(self.bert(input_ids, attention_mask))
        return self.out(self.classifier(pooled))


def get_batch(gen, n=32):
    labels = torch.randint(0, 10, (n,), generator=gen)
    ids = torch.randint(31, 60, (n, 12), generator=gen)
    ids[:, 0] = 1
    for k in range(2, 7):
        ids[:, k] = 2 + labels * 2 + torch.randint(0, 2, (n,), generator=gen)
    lens = torch.randint(8, 13, (n,), generator=gen)
    mask = (torch.arange(12)[None] < lens[:, None]).long()
    return ids * mask, mask, labels


def build(bad: bool):
    torch.manual_seed(11)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(1)
    model = BertClassifier(10, softmax_out=bad)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    def step(i):
        model.train()
        input_ids, attention_mask, labels = get_batch(gen)
        logits = model(input_ids, attention_mask)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
