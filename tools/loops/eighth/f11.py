"""benedekrozemberczki/AttentionWalk#9: node embeddings by attention over powers of the transition matrix; the
loss on the target becomes extremely big and the embedding tells nothing of the communities."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def planted_partition(blocks, size, p_in, p_out, gen):
    labels = torch.arange(blocks).repeat_interleave(size)
    prob = torch.where(labels[:, None] == labels[None], torch.tensor(p_in), torch.tensor(p_out))
    upper = torch.triu((torch.rand(prob.shape, generator=gen) < prob).float(), 1)
    return upper + upper.T, labels


def feature_calculator(adjacency, window_size, divide):
    degrees = adjacency.sum(1)
    degs = torch.diag(1.0 / degrees.clamp(min=1)) if divide else torch.diag(degrees)
    normalized_adjacency_matrix = degs @ adjacency
    target_matrices, power = [normalized_adjacency_matrix], normalized_adjacency_matrix
    for _ in range(window_size - 1):
        power = power @ normalized_adjacency_matrix
        target_matrices.append(power)
    return torch.stack(target_matrices)


class AttentionWalkLayer(nn.Module):
    def __init__(self, nodes, window_size, dimensions=16, num_of_walks=80, beta=0.5, gamma=0.5):
        super().__init__()
        self.nodes, self.num_of_walks, self.beta, self.gamma = nodes, num_of_walks, beta, gamma
        self.left_factors = nn.Parameter(torch.empty(nodes, dimensions // 2).uniform_(-0.3, 0.3))
        self.right_factors = nn.Parameter(torch.empty(dimensions // 2, nodes).uniform_(-0.3, 0.3))
        self.attention = nn.Parameter(torch.empty(window_size, 1).uniform_(-0.01, 0.01))

    def forward(self, target_tensor, adjacency_opposite):
        attention_probs = F.softmax(self.attention, dim=0)
        weighted_tar_mat = (target_tensor * attention_probs[:, :, None]).sum(0)
        estimate = self.left_factors @ self.right_factors
        loss_on_target = -weighted_tar_mat * F.logsigmoid(estimate)
        loss_opposite = -adjacency_opposite * F.logsigmoid(-estimate)
        loss_on_matrices = (self.num_of_walks * loss_on_target + loss_opposite).mean()
        loss_on_regularization = self.beta * self.attention.norm(2) ** 2
        return loss_on_matrices + loss_on_regularization


def community_purity(model, labels):
    with torch.no_grad():
        score = model.left_factors @ model.right_factors
        score = (score + score.T).fill_diagonal_(-1e9)
        return (labels[score.topk(5, dim=1).indices] == labels[:, None]).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    adjacency, labels = planted_partition(4, 20, 0.5, 0.04, gen)
    target_tensor = feature_calculator(adjacency, window_size=4, divide=mended)
    adjacency_opposite = (adjacency == 0).float()
    model = AttentionWalkLayer(len(labels), window_size=4, num_of_walks=len(labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(200):
        optimizer.zero_grad()
        loss = model(target_tensor, adjacency_opposite)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    train.final = community_purity(model, labels)
    return losses
