"""Small trainings by the trainers of other libraries: 12 steps, of which the batch at step 7 has an infinity."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 12


def batches() -> list[Tensor]:
    torch.manual_seed(0)
    found = [torch.randn(4, 8) for _ in range(STEPS)]
    found[7][2, 3] = math.inf
    return found


def train_by_transformers(callback: Any, folder: Path, accumulate: int = 1) -> nn.Module:
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1)

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

    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        InOrder(model, arguments, train_dataset=data, callbacks=[callback]).train()
    return model


def train_by_lightning(callback: Any, folder: Path) -> nn.Module:
    import lightning.pytorch as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1)

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            loss: Tensor = self.layer(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[callback], enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(batches(), batch_size=None))
    return model
