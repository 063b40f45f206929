"""thesouther/MARL#8: QMIX for two agents who have to stand at the ends of two corridors together; the team
never comes to the goal after training, though single steps beside it are learnt."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH, N_AGENTS, N_ACTIONS = 7, 2, 2


class DRQN(nn.Module):
    def __init__(self, obs_dim, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, N_ACTIONS)

    def forward(self, obs):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(obs)))))


class QMIXMixing(nn.Module):
    def __init__(self, state_dim, qmix_hidden=8):
        super().__init__()
        self.hidden = qmix_hidden
        self.hyper_w1 = nn.Linear(state_dim, N_AGENTS * qmix_hidden)
        self.hyper_b1 = nn.Linear(state_dim, qmix_hidden)
        self.hyper_w2 = nn.Linear(state_dim, qmix_hidden)
        self.hyper_b2 = nn.Sequential(nn.Linear(state_dim, qmix_hidden), nn.ReLU(), nn.Linear(qmix_hidden, 1))

    def forward(self, q_values, states):
        w1 = self.hyper_w1(states).abs().view(-1, N_AGENTS, self.hidden)
        hidden = F.elu((q_values[:, None] @ w1).squeeze(1) + self.hyper_b1(states))
        return (hidden * self.hyper_w2(states).abs()).sum(1, keepdim=True) + self.hyper_b2(states)


class QMIX(nn.Module):
    def __init__(self):
        super().__init__()
        self.eval_drqn_net = DRQN(LENGTH + N_AGENTS)
        self.eval_qmix_net = QMIXMixing(LENGTH * N_AGENTS)


def observe(pos):
    onehot = F.one_hot(pos, LENGTH).float()
    ids = torch.eye(N_AGENTS).expand(len(pos), -1, -1)
    return torch.cat([onehot, ids], -1), onehot.flatten(1)


def env_step(pos, actions):
    nxt = (pos + 2 * actions - 1).clamp(0, LENGTH - 1)
    done = (nxt == LENGTH - 1).all(1).float()
    return nxt, done, done


def reach_goal(drqn, n=200):
    pos = torch.randint(0, LENGTH - 1, (n, N_AGENTS))
    solved = torch.zeros(n)
    with torch.no_grad():
        for _ in range(2 * LENGTH):
            pos, _, done = env_step(pos, drqn(observe(pos)[0]).argmax(-1))
            solved = torch.maximum(solved, done)
    return solved.mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    policy = QMIX()
    target_drqn_net = copy.deepcopy(policy.eval_drqn_net)
    target_qmix_net = copy.deepcopy(policy.eval_qmix_net)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=2e-3)
    gamma, target_update_cycle = 0.9, 10
    tick.model(policy)
    tick.optimizer(optimizer)
    losses = []
    for train_step in range(300):
        pos = torch.randint(0, LENGTH, (128, N_AGENTS))
        pos = pos[(pos != LENGTH - 1).any(1)]
        actions = torch.randint(0, N_ACTIONS, pos.shape)
        nxt, reward, done = env_step(pos, actions)
        obs, state = observe(pos)
        obs_next, state_next = observe(nxt)
        q_evals = policy.eval_drqn_net(obs).gather(2, actions[..., None]).squeeze(2)
        q_total_eval = policy.eval_qmix_net(q_evals, state)
        with torch.no_grad():
            q_targets = target_drqn_net(obs_next).max(2).values
            q_total_target = target_qmix_net(q_targets, state_next)
            targets = reward[:, None] + gamma * q_total_target * (1 - done[:, None])
        loss = F.mse_loss(q_total_eval, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
        if train_step % target_update_cycle == 0:
            target_drqn_net.load_state_dict(policy.eval_drqn_net.state_dict())
            if mended:
                target_qmix_net.load_state_dict(policy.eval_qmix_net.state_dict())
            else:
                target_qmix_net.load_state_dict(target_qmix_net.state_dict())
    train.final = reach_goal(policy.eval_drqn_net)
    return losses
