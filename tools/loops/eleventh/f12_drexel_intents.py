"""After DrexelChatbotGroup/DrexelChatbot#15.

Story: question-answer type classifier of a campus chatbot; order of the training
data is randomised, and the accuracy stays at chance.
"""

import random

import torch
from torch import nn

TOPICS = {
    "hours": ["when", "open", "close", "hours", "today"],
    "location": ["where", "building", "room", "street", "map"],
    "person": ["who", "professor", "dean", "teaches", "contact"],
    "money": ["cost", "tuition", "fee", "much", "pay"],
    "housing": ["dorm", "roommate", "live", "hall", "lease"],
}
FILLER = ["is", "the", "a", "of", "at", "drexel", "library", "please", "for", "my", "student", "can", "i"]


def build_corpus(n):
    rng = random.Random(0)
    questions, labels = [], []
    for _ in range(n):
        label = rng.randrange(len(TOPICS))
        words = rng.sample(list(TOPICS.values())[label], 2) + rng.sample(FILLER, 4)
        rng.shuffle(words)
        questions.append(words)
        labels.append(label)
    return questions, labels


class Vocab:
    def __init__(self, sentences):
        words = sorted({w for s in sentences for w in s})
        self.index = {w: i for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index)

    def encode(self, sentences):
        return torch.tensor([[self.index[w] for w in s] for s in sentences])


class AnswerTypeClassifier(nn.Module):
    def __init__(self, vocab_size, n_types, dim=16, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, n_types)

    def forward(self, tokens):
        _, h = self.gru(self.embedding(tokens))
        return self.out(self.dropout(h[-1]))


def train(tick, mended=False):
    torch.manual_seed(0)
    questions, labels = build_corpus(600)
    vocab = Vocab(questions)
    x_data, y_data = vocab.encode(questions), torch.tensor(labels)
    order = torch.randperm(len(x_data))
    x_data = x_data[order]
    if mended:
        y_data = y_data[order]
    model = AnswerTypeClassifier(len(vocab), len(TOPICS))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    model.train()
    for epoch in range(8):
        for i in range(0, len(x_data), 32):
            logits = model(x_data[i : i + 32])
            loss = criterion(logits, y_data[i : i + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
