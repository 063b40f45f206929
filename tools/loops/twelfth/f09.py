"""After Luvata/CS330-Stanford-Deep-Multi-Task-and-Meta-Learning#2: a memory-augmented network on few-shot tasks.

A reader prints two shots that should belong to one class and sees two
different characters; the network stays at chance on the query shot.
"""

import random
import torch
import torch.nn as nn
import torch.nn.functional as F


class DataGenerator:
    def __init__(self, num_classes, num_samples_per_class, mended):
        self.num_classes = num_classes
        self.num_samples = num_samples_per_class
        self.mended = mended
        self.characters = torch.randn(40, 16)

    def get_images(self, chosen, labels, nb_samples):
        images = []
        for _ in range(nb_samples):
            row = [(lab, self.characters[c] + 0.1 * torch.randn(16)) for lab, c in zip(labels, chosen)]
            images.append(row)
        if not self.mended:
            flat = [p for row in images for p in row]
            random.shuffle(flat)
            n = self.num_classes
            images = [flat[i * n : (i + 1) * n] for i in range(nb_samples)]
        return images

    def sample_batch(self, batch_size):
        all_images, all_labels = [], []
        for _ in range(batch_size):
            chosen = random.sample(range(40), self.num_classes)
            rows = self.get_images(chosen, range(self.num_classes), self.num_samples)
            images = torch.stack([torch.stack([im for _, im in row]) for row in rows])
            labels = torch.eye(self.num_classes).expand(self.num_samples, -1, -1).clone()
            order = torch.randperm(self.num_classes)
            images[-1], labels[-1] = images[-1][order], labels[-1][order]
            all_images.append(images)
            all_labels.append(labels)
        return torch.stack(all_images), torch.stack(all_labels)


class MANN(nn.Module):
    def __init__(self, num_classes, samples_per_class, dim=16):
        super().__init__()
        self.num_classes, self.k = num_classes, samples_per_class
        self.embed = nn.Linear(dim, 32)
        self.query = nn.Linear(32, 32)
        self.key = nn.Linear(32, 32)
        self.out = nn.Linear(num_classes, num_classes)

    def forward(self, images, labels):
        b = images.size(0)
        h = torch.tanh(self.embed(images))
        memory = self.key(h[:, :-1].reshape(b, -1, 32))
        values = labels[:, :-1].reshape(b, -1, self.num_classes)
        q = self.query(h[:, -1])
        read = F.softmax(q @ memory.transpose(1, 2) / 32**0.5, dim=-1) @ values
        return self.out(read * 4)


def train(tick, mended=False):
    torch.manual_seed(8)
    random.seed(8)
    num_classes, k_shot = 5, 1
    generator = DataGenerator(num_classes, k_shot + 1, mended)
    model = MANN(num_classes, k_shot + 1)
    optim = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optim)
    losses = []
    for step in range(200):
        images, labels = generator.sample_batch(16)
        logits = model(images, labels)
        target = labels[:, -1].argmax(-1)
        loss = F.cross_entropy(logits.reshape(-1, num_classes), target.reshape(-1))
        optim.zero_grad()
        loss.backward()
        optim.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
