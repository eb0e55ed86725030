"""The mean of a folder of checkpoints by fedsash merge, mergekit and timm's avg_checkpoints.py.

    python -m benchmarks.merging [MILLIONS] [--ema D] [--timm avg_checkpoints.py]

It makes 20 checkpoints of a Llama of that many million parameters (5 if not named) in bfloat16, float16 and float32:
numbers of a normal distribution with deviation 0.02, which move by a tenth of that from file to file. Each tool writes
their plain mean, or one with the weights D^(n-i), in a process of its own, in turn. Printed are

- the share of entries that are not correctly rounded to the type that the tool writes: of 20,000, against fractions;
- how many of all entries, in the files' type, are not those of fedsash, which are correctly rounded;
- seconds of the whole command, with its imports, and of the processors: the least of two turns;
- the most memory that is no page of a file (RssAnon), sampled every 5 ms.

mergekit is left out where it is not installed. timm's script has equal weights alone. It is in timm's repository and in
no package, so its path is named; since timm as a whole needs torchvision, it reads files by safetensors' `load_file`,
as timm's own reader does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

COUNT = 20
SAMPLE = 20_000
TURNS = 2
WIDTH = 512
LAYER = 2 * WIDTH + 4 * WIDTH * WIDTH + 3 * WIDTH * 2 * WIDTH

TIMM = """
import runpy, sys, types
from safetensors.torch import load_file
models = types.ModuleType("timm.models")
models.load_state_dict = lambda path, use_ema: load_file(path)
sys.modules["timm"] = types.ModuleType("timm")
sys.modules["timm.models"] = models
script = sys.argv.pop(1)
runpy.run_path(script, run_name="__main__")
"""
"""The script with a reader of safetensors in place of timm's, which is the same for these files."""


Command = Callable[[Path, Path], list[str]]
"""The command line that writes the mean of a folder's checkpoints into another folder."""


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds, seconds of processors, and megabytes."""

    seconds: float
    processor: float
    memory: float


def weights_of(ema: float) -> list[float]:
    return [ema ** (COUNT - 1 - i) for i in range(COUNT)]


def llama(millions: float, generator: torch.Generator) -> tuple[dict[str, object], dict[str, Tensor]]:
    """The configuration and the parameters, in float32, of a Llama of about this size."""
    layers = max(1, round(millions * 1e6 * 0.7 / LAYER))
    vocabulary = max(100, round((millions * 1e6 - layers * LAYER) / (2 * WIDTH)))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, WIDTH)}
    for i in range(layers):
        before = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{before}{name}.weight"] = (WIDTH,)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            shapes[f"{before}self_attn.{name}.weight"] = (WIDTH, WIDTH)
        for name in ("gate_proj", "up_proj"):
            shapes[f"{before}mlp.{name}.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"{before}mlp.down_proj.weight"] = (WIDTH, 2 * WIDTH)
    shapes["model.norm.weight"] = (WIDTH,)
    shapes["lm_head.weight"] = (vocabulary, WIDTH)
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
    }
    return config, {name: torch.randn(shape, generator=generator) / 50 for name, shape in shapes.items()}


def write_checkpoints(folder: Path, millions: float, dtype: torch.dtype) -> None:
    """Write the checkpoints, `checkpoint-1` and so on, as transformers does."""
    generator = torch.Generator().manual_seed(0)
    config, centre = llama(millions, generator)
    config["dtype"] = str(dtype).removeprefix("torch.")
    for i in range(COUNT):
        place = folder / f"checkpoint-{i + 1}"
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(config))
        state = {}
        for name, value in centre.items():
            state[name] = (value + torch.randn(value.shape, generator=generator) / 500).to(dtype)
        save_file(state, place / "model.safetensors", metadata={"format": "pt"})


def fedsash_command(ema: float) -> Command:
    def command(folder: Path, out: Path) -> list[str]:
        line = [sys.executable, "-m", "fedsash", "merge", str(folder), "--out", str(out)]
        if ema < 1:
            line += ["--ema", str(ema)]
        return line

    return command


def mergekit_command(ema: float) -> Command:
    def command(folder: Path, out: Path) -> list[str]:
        models = []
        for i, weight in enumerate(weights_of(ema)):
            models.append({"model": str(folder / f"checkpoint-{i + 1}"), "parameters": {"weight": weight}})
        recipe = folder.parent / "recipe.yaml"
        recipe.write_text(json.dumps({"merge_method": "linear", "models": models}))
        return [sys.executable, "-m", "mergekit.scripts.run_yaml", str(recipe), str(out)]

    return command


def timm_command(script: Path) -> Command:
    def command(folder: Path, out: Path) -> list[str]:
        out.mkdir()
        options = ["--input", str(folder), "--filter", "*/model.safetensors", "--no-sort", "--safetensors"]
        return [sys.executable, "-c", TIMM, str(script), *options, "--output", str(out / "model.safetensors")]

    return command


def cost_of(command: list[str]) -> Cost:
    """Run a command; raises `RuntimeError` with the end of its output if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        memory = 0.0
        while True:
            memory = max(memory, own_memory(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[:4]} failed: {output.read()[-2000:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, memory)


def own_memory(pid: int) -> float:
    """A process's megabytes that are no pages of a file; 0 after its end."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """All tensors in a folder's files."""
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors.update(load_file(path))
    return tensors


def flat(state: dict[str, Tensor]) -> Tensor:
    """All entries of a state, in the order of its names."""
    return torch.cat([state[name].reshape(-1) for name in sorted(state)])


def sampled(entries: Tensor) -> Tensor:
    """Some of all entries, evenly."""
    return entries[:: max(1, len(entries) // SAMPLE)][:SAMPLE]


def exact_means(folder: Path, weights: list[float]) -> list[Fraction]:
    """The exact means of the sampled entries."""
    totals = [Fraction()] * SAMPLE
    for i, weight in enumerate(weights):
        entries = sampled(flat(load_file(folder / f"checkpoint-{i + 1}" / "model.safetensors")))
        for k, entry in enumerate(entries.tolist()):
            totals[k] += Fraction(weight) * Fraction(entry)
    whole = sum(map(Fraction, weights), Fraction())
    return [total / whole for total in totals]


def share_wrong(means: Tensor, exact: list[Fraction]) -> float:
    """The share of means that are not the number of their type that is nearest to the exact one, half to even."""
    bits = means.view({2: torch.int16, 4: torch.int32}[means.element_size()])
    smaller = (bits - 1).view(means.dtype)  # by magnitude
    larger = (bits + 1).view(means.dtype)
    wrong = 0
    rows = zip(exact, means.tolist(), smaller.tolist(), larger.tolist(), (bits & 1).tolist(), strict=True)
    for wanted, mean, inner, outer, odd in rows:
        size = abs(wanted)
        lowest = (Fraction(abs(mean)) + Fraction(abs(inner))) / 2
        highest = (Fraction(abs(mean)) + Fraction(abs(outer))) / 2
        right = lowest < size < highest or (not odd and size in (lowest, highest))
        wrong += not (right and wanted * Fraction(mean) >= 0)
    return wrong / len(exact)


def compare(millions: float, dtype: torch.dtype, ema: float, tools: dict[str, Command]) -> None:
    """Print a line for each tool."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "checkpoints"
        write_checkpoints(folder, millions, dtype)
        exact = exact_means(folder, weights_of(ema))
        costs: dict[str, list[Cost]] = {name: [] for name in tools}
        means = {}
        for turn in range(TURNS):
            for name, command in tools.items():
                out = Path(made) / f"{name}-{turn}"
                costs[name].append(cost_of(command(folder, out)))
                means[name] = flat(tensors_of(out))
    size = len(means["fedsash"])
    print(f"{COUNT} files of {size:,} {str(dtype).removeprefix('torch.')}")
    for name, mean in means.items():
        seconds = min(cost.seconds for cost in costs[name])
        processor = min(cost.processor for cost in costs[name])
        memory = max(cost.memory for cost in costs[name])
        written = str(mean.dtype).removeprefix("torch.")
        wrong = 100 * share_wrong(sampled(mean), exact)
        other = int((mean.to(dtype) != means["fedsash"]).sum())
        line = f"{wrong:8.3f} % wrong in {written:8} {other:10,} others"
        print(f"  {name:12} {line} {seconds:7.1f} s {processor:7.1f} s of processors {memory:7.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="?", type=float, default=5.0)
    parser.add_argument("--ema", type=float, default=1.0, metavar="D")
    parser.add_argument("--timm", type=Path)
    args = parser.parse_args()
    tools: dict[str, Command] = {"fedsash": fedsash_command(args.ema)}
    if find_spec("mergekit") is not None:
        tools["mergekit"] = mergekit_command(args.ema)
        print(f"mergekit {version('mergekit')}, torch {torch.__version__}")
    if args.timm is not None and args.ema == 1:
        tools["timm"] = timm_command(args.timm)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        compare(args.millions, dtype, args.ema, tools)


if __name__ == "__main__":
    main()
