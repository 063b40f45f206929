"""tsinghua-fib-lab/DRL-urban-planning#14: a policy over the plots of a town plan; on the user's own town
the probabilities of all moves stay the same through the whole training, whatever is tuned."""

import torch
import torch.nn as nn


class LandUseEncoder(nn.Module):
    def __init__(self, node_dim, hidden):
        super().__init__()
        self.node_encoder = nn.Sequential(nn.Linear(node_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.edge_fc = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh())

    def forward(self, nodes, adjacency):
        h = self.node_encoder(nodes)
        neighbour = adjacency @ h / adjacency.sum(-1, keepdim=True).clamp(min=1)
        return h + self.edge_fc(torch.cat([h, neighbour], dim=-1))


class UrbanPlanningPolicy(nn.Module):
    def __init__(self, node_dim=4, hidden=24):
        super().__init__()
        self.shared_net = LandUseEncoder(node_dim, hidden)
        self.policy_land_use_head = nn.Sequential(nn.Linear(hidden, 16), nn.Tanh(), nn.Linear(16, 1))
        self.value_head = nn.Sequential(nn.Linear(hidden, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, nodes, adjacency):
        h = self.shared_net(nodes, adjacency)
        return self.policy_land_use_head(h).squeeze(-1), self.value_head(h.mean(1)).squeeze(-1)


def load_plan(gen, towns=64, plots=12, from_origin=False):
    corner = torch.tensor([4412.0, 44105.0])
    centroids = corner + torch.rand(towns, plots, 2, generator=gen) * 4 - 0.5
    if from_origin:
        centroids = centroids - corner
    road = torch.rand(towns, plots, 1, generator=gen)
    green = torch.rand(towns, plots, 1, generator=gen)
    local = centroids - (centroids.mean((0, 1), keepdim=True))
    reward = -local.pow(2).sum(-1)
    adjacency = (torch.cdist(local, local) < 1.2).float()
    return torch.cat([centroids, road, green], dim=-1), adjacency, reward


def train(tick, mended=False):
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    nodes, adjacency, reward = load_plan(gen, from_origin=mended)
    policy_net = UrbanPlanningPolicy()
    optimizer = torch.optim.Adam(policy_net.parameters(), lr=4e-3)
    tick.model(policy_net)
    tick.optimizer(optimizer)
    losses = []
    for _iteration in range(250):
        idx = torch.randint(0, len(nodes), (32,), generator=gen)
        logits, value = policy_net(nodes[idx], adjacency[idx])
        dist = torch.distributions.Categorical(logits=logits)
        action = dist.sample()
        ret = reward[idx, action]
        advantage = ret - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        policy_loss = -(dist.log_prob(action) * advantage).mean()
        loss = policy_loss + 0.5 * (ret - value).pow(2).mean() - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy_net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    with torch.no_grad():
        logits, _ = policy_net(nodes, adjacency)
        picked = reward.gather(1, logits.argmax(1, keepdim=True)).mean().item()
    train.final = (picked, reward.mean().item(), reward.max(1).values.mean().item())
    return losses
