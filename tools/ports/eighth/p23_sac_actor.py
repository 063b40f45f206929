"""After thu-ml/tianshou#98.

The network file shared by the continuous-control examples was used for soft actor-critic too.
Set beside the SAC authors' Gaussian policy with the same weights, it gives other actions.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_SIG_MAX, LOG_SIG_MIN = 2, -20


class GaussianPolicy(nn.Module):
    def __init__(self, num_inputs=11, num_actions=3, hidden=48, action_scale=1.5):
        super().__init__()
        self.linear1, self.linear2, self.linear3 = (
            nn.Linear(num_inputs, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, hidden),
        )
        self.mean_linear, self.log_std_linear = nn.Linear(hidden, num_actions), nn.Linear(hidden, num_actions)
        self.action_scale = action_scale

    def forward(self, state, noise):
        x = F.relu(self.linear1(state))
        x = F.relu(self.linear2(x))
        x = F.relu(self.linear3(x))
        mean = self.mean_linear(x)
        log_std = torch.clamp(self.log_std_linear(x), LOG_SIG_MIN, LOG_SIG_MAX)
        x_t = mean + log_std.exp() * noise
        y_t = torch.tanh(x_t)
        log_prob = -((x_t - mean) ** 2) / (2 * log_std.exp() ** 2) - log_std - math.log(math.sqrt(2 * math.pi))
        log_prob = log_prob - torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.action_scale, log_prob.sum(1, keepdim=True), torch.tanh(mean) * self.action_scale


class Preprocess(nn.Module):
    def __init__(self, layer_num, state_dim, hidden):
        super().__init__()
        model = [nn.Linear(state_dim, hidden), nn.ReLU()]
        for _ in range(layer_num):
            model += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.model = nn.Sequential(*model)

    def forward(self, s):
        return self.model(s.flatten(1))


class ActorProb(nn.Module):
    def __init__(self, preprocess_net, action_dim, hidden=48, log_std_min=-20, log_std_max=2):
        super().__init__()
        self.preprocess = preprocess_net
        self.mu, self.sigma = nn.Linear(hidden, action_dim), nn.Linear(hidden, action_dim)
        self.log_std_min, self.log_std_max = log_std_min, log_std_max

    def forward(self, s):
        logits = self.preprocess(s)
        mu = torch.tanh(self.mu(logits))
        sigma = self.sigma(logits).clamp(self.log_std_min, self.log_std_max).exp()
        return mu, sigma


class ActorProbMended(ActorProb):
    def forward(self, s):
        logits = self.preprocess(s)
        return self.mu(logits), self.sigma(logits).clamp(self.log_std_min, self.log_std_max).exp()


class SACPolicy(nn.Module):
    def __init__(self, actor, action_range=(-1.5, 1.5)):
        super().__init__()
        self.actor = actor
        self._action_bias, self._action_scale = (
            (action_range[0] + action_range[1]) / 2,
            (action_range[1] - action_range[0]) / 2,
        )
        self.__eps = 1e-6

    def forward(self, obs, noise):
        mu, sigma = self.actor(obs)
        dist = torch.distributions.Independent(torch.distributions.Normal(mu, sigma), 0)
        x = mu + sigma * noise
        y = x.tanh()
        act = y * self._action_scale + self._action_bias
        log_prob = dist.log_prob(x) - torch.log(self._action_scale * (1 - y.square()) + self.__eps)
        return act, log_prob.sum(-1).unsqueeze(-1), mu.tanh() * self._action_scale + self._action_bias


def convert(sd):
    names = {
        "linear1": "actor.preprocess.model.0",
        "linear2": "actor.preprocess.model.2",
        "linear3": "actor.preprocess.model.4",
        "mean_linear": "actor.mu",
        "log_std_linear": "actor.sigma",
    }
    return {names[k.split(".")[0]] + "." + k.split(".")[1]: v for k, v in sd.items()}


def build(fixed):
    torch.manual_seed(47)
    original = GaussianPolicy().eval()
    with torch.no_grad():
        for layer in (original.linear1, original.linear2, original.linear3):
            layer.weight.mul_(1.7)
        original.mean_linear.weight.mul_(2.5)
        original.log_std_linear.bias.fill_(-0.7)
    port = SACPolicy((ActorProbMended if fixed else ActorProb)(Preprocess(2, 11, 48), 3)).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(8, 11), torch.randn(8, 3))
