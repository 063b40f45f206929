"""Small trainings by the trainers of other libraries: 12 steps, of which the batch at step 7 has an infinity."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fxdebug

STEPS = 12
FAILS_AT = 2  # the forward of a model that fails


def batches() -> list[Tensor]:
    torch.manual_seed(0)
    found = [torch.randn(4, 8) for _ in range(STEPS)]
    found[7][2, 3] = math.inf
    return found


FAILS = ["forward", "backward", "batch", "loss", "optimizer", "scheduler"]  # what raises in the third batch or step


class FailingLinear(nn.Linear):
    """A layer whose third forward raises, or the backward of that forward, as ``fails`` says; else a layer."""

    def __init__(self, fails: str) -> None:
        super().__init__(8, 1)
        self.fails, self.forwards = fails, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += 1
        y = super().forward(x)
        self.fail("forward", FAILS_AT + 1)
        y.register_hook(lambda grad: self.fail("backward", FAILS_AT + 1))
        return y

    def fail(self, part: str, forwards: int = FAILS_AT) -> None:
        """Raise if this is the part that fails, and so many forwards have run."""
        if self.fails == part and self.forwards >= forwards:
            raise RuntimeError(f"the {part} failed")


class FailingSGD(torch.optim.SGD):
    """An optimizer that raises instead of the third step, if the layer says so."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.parameters(), lr=1e-3)
        self.layer: FailingLinear = model.layer

    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
        self.layer.fail("optimizer", FAILS_AT + 1)
        super().step()
        return loss


class FailingSchedule(torch.optim.lr_scheduler.LambdaLR):
    """A schedule that raises after the third step, if the layer says so."""

    def __init__(self, optimizer: FailingSGD) -> None:
        self.layer = optimizer.layer
        super().__init__(optimizer, lambda step: 1.0)

    def step(self, *given: Any) -> None:
        self.layer.fail("scheduler", FAILS_AT + 1)
        super().step(*given)


def train_by_transformers(callback: Any, folder: Path, accumulate: int = 1, fails: str = "") -> nn.Module:
    """Train a model; ``fails`` is the part that raises at the third forward, whose exception is ``raised`` of it."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = FailingLinear(fails)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": self.layer(x).pow(2).mean()}

    data = [{"x": row} for batch in batches() for row in batch]
    arguments = TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=4, num_train_epochs=1, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, logging_strategy="no", remove_unused_columns=False,
        gradient_accumulation_steps=accumulate,
    )  # fmt: skip

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(data)

        def compute_loss(self, model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
            layer.fail("batch")
            loss = super().compute_loss(model, inputs, *given, **options)
            layer.fail("loss", FAILS_AT + 1)
            return loss

    model = Model()
    layer = model.layer
    optimizer = FailingSGD(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = InOrder(
            model,
            arguments,
            train_dataset=data,
            callbacks=[callback],
            optimizers=(optimizer, FailingSchedule(optimizer)),
        )
        trained = _trained(model, trainer.train)
        assert "_run_epoch" not in vars(trainer)
        return trained


def train_by_lightning(callback: Any, folder: Path, fails: str = "") -> nn.Module:
    """Train a model, as :func:`train_by_transformers` does."""
    import lightning.pytorch as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = FailingLinear(fails)

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            self.layer.fail("batch")
            loss: Tensor = self.layer(batch).pow(2).mean()
            self.layer.fail("loss", FAILS_AT + 1)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = FailingSGD(self)
            return [optimizer], [{"scheduler": FailingSchedule(optimizer), "interval": "step"}]

    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[callback], enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    model, data = Model(), torch.utils.data.DataLoader(batches(), batch_size=None)
    return _trained(model, lambda: trainer.fit(model, data))


def _trained(model: Any, train: Any) -> nn.Module:
    try:
        train()
    except (RuntimeError, fxdebug.api.StopTraining) as error:
        if not model.layer.fails and not isinstance(error, fxdebug.api.StopTraining):
            raise
        model.raised = error
    return model
