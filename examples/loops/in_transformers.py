"""Averages in Hugging Face's Trainer with one line more: a small vision transformer on handwritten digits.

pip install "fedsash[transformers]"; python examples/loops/in_transformers.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import EvalPrediction, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import fedsash as fs
from fedsash.averages.trainers.transformers import Averages


def accuracy(found: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(found.predictions.argmax(1) == found.label_ids))}


def main(epochs: int = 12) -> dict[str, float]:
    """Train, and give the accuracy of an average, and of the model itself, on images that were not trained on."""
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    samples = [{"pixel_values": x, "labels": int(y)} for x, y in zip(images, labels, strict=True)]
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = ViTConfig(**sizes, image_size=8, patch_size=2, num_channels=1, num_labels=10)

    with TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=20,
            per_device_eval_batch_size=600,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            ViTForImageClassification(config),
            args,
            train_dataset=samples[:1200],
            eval_dataset=samples[1200:],
            compute_metrics=accuracy,
        )
        averages = Averages(trainer, {"window": fs.Window(100), "ema": fs.EMA(0.99, warmup=True)})  # the line
        trainer.train()  # which evaluates the window
        found = {"window": trainer.evaluate()["eval_accuracy"]}
        checkpoint = next(Path(folder).glob("checkpoint-*"))
        ema = ViTForImageClassification.from_pretrained(checkpoint / "averages" / "ema")
        found["ema"] = Trainer(ema, args, eval_dataset=samples[1200:], compute_metrics=accuracy).evaluate()[
            "eval_accuracy"
        ]
        averages.evaluate = "model"
        found["model"] = trainer.evaluate()["eval_accuracy"]
    return found


if __name__ == "__main__":
    for name, share in main().items():
        print(f"{name:10} {share:.2%}")
