"""After titu1994/tf-TabNet#7: the re-implemented tabular network and the original differ in which
feature-transformer blocks belong to a decision step."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def sparsemax(z):
    s, _ = torch.sort(z, dim=-1, descending=True)
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    cs = s.cumsum(-1)
    support = (1 + k * s > cs).sum(-1, keepdim=True)
    tau = (cs.gather(-1, support - 1) - 1) / support
    return torch.clamp(z - tau, min=0)


class GhostFC(nn.Module):
    def __init__(self, fc, n_out):
        super().__init__()
        self.fc, self.bn = fc, nn.BatchNorm1d(n_out, eps=1e-3)

    def forward(self, x):
        return self.bn(self.fc(x))


class OfficialFeatureTransformer(nn.Module):
    def __init__(self, shared_fc, dim):
        super().__init__()
        self.t1, self.t2 = GhostFC(shared_fc[0], 2 * dim), GhostFC(shared_fc[1], 2 * dim)
        self.t3 = GhostFC(nn.Linear(dim, 2 * dim, bias=False), 2 * dim)
        self.t4 = GhostFC(nn.Linear(dim, 2 * dim, bias=False), 2 * dim)

    def forward(self, x):
        x = F.glu(self.t1(x), -1)
        for t in (self.t2, self.t3, self.t4):
            x = (x + F.glu(t(x), -1)) * 0.5**0.5
        return x


class OfficialTabNet(nn.Module):
    def __init__(self, n_feat=12, n_d=6, n_a=6, steps=3, classes=4, gamma=1.4):
        super().__init__()
        dim = n_d + n_a
        shared = [nn.Linear(n_feat, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)]
        self.initial_bn = nn.BatchNorm1d(n_feat, eps=1e-3)
        self.feat = nn.ModuleList(OfficialFeatureTransformer(shared, dim) for _ in range(steps + 1))
        self.att = nn.ModuleList(GhostFC(nn.Linear(n_a, n_feat, bias=False), n_feat) for _ in range(steps))
        self.final = nn.Linear(n_d, classes, bias=False)
        self.n_d, self.gamma, self.steps = n_d, gamma, steps

    def forward(self, data):
        x = self.initial_bn(data)
        prior = torch.ones_like(x)
        a = self.feat[0](x)[:, self.n_d :]
        agg = 0
        for i in range(self.steps):
            mask = sparsemax(self.att[i](a) * prior)
            prior = prior * (self.gamma - mask)
            y = self.feat[i + 1](mask * x)
            agg = agg + F.relu(y[:, : self.n_d])
            a = y[:, self.n_d :]
        return self.final(agg)


class TransformBlock(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in, n_out))
        self.register_buffer("scale", torch.ones(n_out))
        self.register_buffer("shift", torch.zeros(n_out))

    def forward(self, x):
        return (x @ self.weight) * self.scale + self.shift

    @torch.no_grad()
    def assign(self, src):
        self.weight.copy_(src.fc.weight.t())
        g = src.bn.weight * torch.rsqrt(src.bn.running_var + src.bn.eps)
        self.scale.copy_(g)
        self.shift.copy_(src.bn.bias - src.bn.running_mean * g)


def gated(x):
    v, g = torch.tensor_split(x, 2, dim=1)
    return v * torch.sigmoid(g)


class TabNetCell(nn.Module):
    def __init__(self, config, n_feat=12, n_d=6, n_a=6, steps=3, classes=4):
        super().__init__()
        dim = n_d + n_a
        self.num_decision_steps, self.output_dim = steps, n_d
        self.relaxation_factor = config["relaxation_factor"]
        self.per_step = config.get("per_step_transforms", False)
        self.register_buffer("input_scale", torch.ones(n_feat))
        self.register_buffer("input_shift", torch.zeros(n_feat))
        self.transform_f1 = nn.ModuleList(TransformBlock(n_feat, 2 * dim) for _ in range(steps + 1))
        self.transform_f2 = nn.ModuleList(TransformBlock(dim, 2 * dim) for _ in range(steps + 1))
        self.transform_f3 = nn.ModuleList(TransformBlock(dim, 2 * dim) for _ in range(steps + 1))
        self.transform_f4 = nn.ModuleList(TransformBlock(dim, 2 * dim) for _ in range(steps + 1))
        self.transform_coef = nn.ModuleList(TransformBlock(n_a, n_feat) for _ in range(steps))
        self.head = nn.Parameter(torch.zeros(n_d, classes))

    def feature_transformer(self, x, ni):
        own = ni if self.per_step else 0
        h = gated(self.transform_f1[ni](x))
        h = (gated(self.transform_f2[ni](h)) + h) * 0.7071067811865476
        h = (gated(self.transform_f3[own](h)) + h) * 0.7071067811865476
        return (gated(self.transform_f4[own](h)) + h) * 0.7071067811865476

    def forward(self, inputs):
        features = inputs * self.input_scale + self.input_shift
        complementary = torch.ones_like(features)
        masked, decision = features, torch.zeros(inputs.shape[0], self.output_dim)
        for ni in range(self.num_decision_steps + 1):
            h = self.feature_transformer(masked, ni)
            if ni > 0:
                decision = decision + h[:, : self.output_dim].relu()
            if ni < self.num_decision_steps:
                mask_values = sparsemax(self.transform_coef[ni](h[:, self.output_dim :]) * complementary)
                complementary = complementary * (self.relaxation_factor - mask_values)
                masked = mask_values * features
        return decision @ self.head


@torch.no_grad()
def port_weights(src, dst):
    bn = src.initial_bn
    dst.input_scale.copy_(bn.weight / (bn.running_var + bn.eps).sqrt())
    dst.input_shift.copy_(bn.bias - bn.running_mean * dst.input_scale)
    for ni, f in enumerate(src.feat):
        for n in (1, 2, 3, 4):
            getattr(dst, f"transform_f{n}")[ni].assign(getattr(f, f"t{n}"))
    for ni, a in enumerate(src.att):
        dst.transform_coef[ni].assign(a)
    dst.head.copy_(src.final.weight.t())


def build(fixed):
    torch.manual_seed(77)
    original = OfficialTabNet().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm1d):
            nn.init.normal_(m.running_mean, std=0.2)
            nn.init.uniform_(m.running_var, 0.1, 0.6)
            nn.init.uniform_(m.weight, 0.8, 1.4)
            nn.init.normal_(m.bias, std=0.2)
    config = {"relaxation_factor": 1.4}
    if fixed:
        config["per_step_transforms"] = True
    port = TabNetCell(config).eval()
    port_weights(original, port)
    return original, port, (torch.randn(8, 12),)
