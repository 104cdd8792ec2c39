"""Reference implementations of the optimizers, one tensor at a time in float64, close to the formulas."""

import numpy as np

from glassbert.training.optimizers.muon import COEFFICIENTS


class Reference:
    """Named tensors and their buffers; norms and biases do not decay."""

    def __init__(self, parameters, learning_rate, weight_decay, clip, **settings):
        self.p = {name: np.array(values, np.float64) for name, values in parameters.items()}
        self.learning_rate, self.weight_decay, self.clip = learning_rate, weight_decay, clip
        self.settings = settings
        self.steps = 0
        self.mean, self.square, self.curvature = ({n: np.zeros_like(v) for n, v in self.p.items()} for _ in range(3))

    def update(self, gradients):
        self.steps += 1
        g = {name: np.array(values, np.float64) for name, values in gradients.items()}
        norm = np.sqrt(sum((values**2).sum() for values in g.values()))
        scale = min(1.0, self.clip / norm) if self.clip is not None else 1.0
        for name in self.p:
            decay = self.weight_decay if self.p[name].ndim > 1 else 0.0
            step = self.direction(name, g[name] * scale, **self.settings)
            self.p[name] = self.p[name] - self.learning_rate * (step + decay * self.p[name])
        return norm


class AdamW(Reference):
    def direction(self, name, g, betas, epsilon):
        self.mean[name] = betas[0] * self.mean[name] + (1 - betas[0]) * g
        self.square[name] = betas[1] * self.square[name] + (1 - betas[1]) * g**2
        mean, square = self.mean[name] / (1 - betas[0] ** self.steps), self.square[name] / (1 - betas[1] ** self.steps)
        return mean / (np.sqrt(square) + epsilon)


class SGD(Reference):
    def direction(self, name, g, momentum):
        self.mean[name] = momentum * self.mean[name] + g
        return self.mean[name]


class Lion(Reference):
    def direction(self, name, g, betas):
        step = np.sign(betas[0] * self.mean[name] + (1 - betas[0]) * g)
        self.mean[name] = betas[1] * self.mean[name] + (1 - betas[1]) * g
        return step


class Sophia(Reference):
    def direction(self, name, g, betas, gamma, epsilon, every):
        self.mean[name] = betas[0] * self.mean[name] + (1 - betas[0]) * g
        return np.clip(self.mean[name] / np.maximum(gamma * self.curvature[name], epsilon), -1, 1)

    def observe(self, gradients):
        beta = self.settings["betas"][1]
        for name, g in gradients.items():
            self.curvature[name] = beta * self.curvature[name] + (1 - beta) * np.array(g, np.float64) ** 2


class Muon(AdamW):
    """`split` is the number of stacked matrices in a parameter; AdamW updates parameters without one."""

    def direction(self, name, g, betas, epsilon, momentum, iterations, split):
        if name not in split:
            return super().direction(name, g, betas, epsilon)
        self.mean[name] = momentum * self.mean[name] + (1 - momentum) * g
        whole = (1 - momentum) * g + momentum * self.mean[name]
        return np.concatenate([self.orthogonal(part, iterations) for part in np.split(whole, split[name])])

    def orthogonal(self, x, iterations):
        a, b, c = COEFFICIENTS
        scale = 0.2 * np.sqrt(max(x.shape))
        u, s, v = np.linalg.svd(x, full_matrices=False)  # the polynomial acts on each singular value separately
        s = s / max(np.linalg.norm(s), 1e-7)
        for _ in range(iterations):
            s = a * s + b * s**3 + c * s**5
        return scale * (u * s) @ v


REFERENCES = {"adamw": AdamW, "lion": Lion, "sophia": Sophia, "muon": Muon, "sgd": SGD}


def reference_for(optimizer, parameters):
    """The reference for an optimizer, with the same settings and initial weights."""
    settings = dict(optimizer.settings)
    if optimizer.name == "muon":
        settings["split"] = optimizer.matrices
    start = {name: optimizer.engine.to_numpy(values) for name, values in parameters.items()}
    return REFERENCES[optimizer.name](start, optimizer.learning_rate, **settings)
