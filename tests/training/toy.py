"""A small task, registered as a plug-in: a line fitted to noisy points."""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from seq2seq.tasks.build import TASKS
from seq2seq.training.optim import build_objective
from seq2seq.training.task import BatchSize, Drawing, Loss, Report, Task


class LineTask(Task[torch.Tensor]):
    """Fits y = a x + b to 60 points, rows (x, y), in batches of ``trainer.batch_sentences``."""

    item_name = "points"
    num_examples = 60

    def __init__(self, config, device="cpu"):
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(70, 1, generator=generator)
        noise = 0.01 * torch.randn(70, 1, generator=generator)
        self.points = torch.cat([x, 3 * x - 1 + noise], dim=1).to(device)
        self.model = nn.Sequential(nn.Dropout(0.1), nn.Linear(1, 1)).to(device)
        self.seed, self.batch_size = config.seed, config.trainer.batch_sentences
        self.objectives = [build_objective(config.optim, self.model.parameters())]

    @classmethod
    def build(cls, config, inputs, device):
        return cls(config, device)

    def batches(self, epoch, position):
        order = np.random.default_rng((self.seed, epoch)).permutation(self.num_examples)
        for start in range(position, self.num_examples, self.batch_size):
            yield self.points[order[start : start + self.batch_size]]

    def size(self, batch):
        return BatchSize(examples=len(batch), items=len(batch))

    def loss(self, objective, batch):
        total = (self.model(batch[:, :1]) - batch[:, 1:]).square().sum()
        return Loss(total, total.detach())

    def validate(self, step):
        self.model.eval()
        with torch.no_grad():
            held_out = self.points[self.num_examples :]
            loss = self.loss(self.objectives[0], held_out).reported.item() / len(held_out)
        figure = Figure(figsize=(1, 1), dpi=50)
        figure.subplots().scatter(*held_out.T.tolist())
        return Report({"loss": loss}, {"alignment/line": Drawing(figure, "{}")}, {"text/line": "y"})


TASKS.register("line", LineTask)
