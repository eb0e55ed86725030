"""Small runs whose numbers are recorded, and compared with those of the code as it is now.

    python golden/golden.py compare                 all runs; exit code 1 and a line for each difference
    python golden/golden.py compare fedavg pieces   these runs
    python golden/golden.py record fedrep          record these runs anew; commit them with what changed them
    python golden/golden.py here                    record all of them on this machine, from the recorded commit's tree

`runs.toml` has the runs, `recorded/` their numbers. Of each run the tensors of its models and of its newest state are
kept by their names, and the numbers of its records, tables and printed lines, without times.

Bytes are equal on one machine with one release of PyTorch and one thread. On another machine each tensor may differ by
1e-5 of its norm, and numbers, which may follow from which of two nearly equal outputs is larger, are not compared;
`here` records a reference for such a machine once, into `here/`, which is then compared byte for byte.

Runs go through experiment files and the entry point of the `fedsash` command, many in one process. Only `saved_state`
knows the format in which the library saves.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from html.parser import HTMLParser
from multiprocessing import get_context
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent
RECORDED = GOLDEN / "recorded"
HERE = GOLDEN / "here"
TOLERANCE = 1e-5
"""Of a tensor's norm, on another machine than that of the recording."""
PROCESSES = 2
UNREPEATED = {"seconds", "training_seconds", "samples_per_second", "peak_memory_bytes", "versions", "command", "folder"}
"""Keys of records whose values are other ones in each run, or texts about it."""
SHOWN = 20
"""At most so many lines about one run."""


# --------------------------------------------------------------------------------------------------------------------
# The runs


def experiments() -> dict[str, dict[str, Any]]:
    """The runs by their names: an `experiment`, the `commands`, and whether the `states` are kept."""
    content = tomllib.loads((GOLDEN / "runs.toml").read_text())
    runs = {}
    for name, changes in content["runs"].items():
        commands = changes.pop("commands", ["run FILE --out OUT"])
        states = changes.pop("states", True)
        runs[name] = {"experiment": merged(content["base"], changes), "commands": commands, "states": states}
    return runs


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with changes. One with another `name` replaces the one that is there, an empty one removes it."""
    result = dict(table)
    for key, value in changes.items():
        before = result.get(key)
        if value == {}:
            result.pop(key, None)
        elif isinstance(before, dict) and isinstance(value, dict) and value.get("name") in (None, before.get("name")):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


def outcome(name: str, tree: Path) -> tuple[dict[str, Any], dict[str, Any], float]:
    """The tensors of a run, its numbers, and the seconds that it took. The package is that in `tree`/src."""
    import tomli_w

    run = experiments()[name]
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="golden-") as place, contextlib.chdir(place):
        for file in ("own.py", "trace.csv", "presence.csv", "axes.toml"):
            shutil.copy(GOLDEN / file, file)
        shutil.copytree(GOLDEN / "rides", "rides")
        Path(f"{name}.toml").write_text(tomli_w.dumps(run["experiment"]))
        printed = []
        places = {"FILE": f"{name}.toml", "OUT": "out"}
        for command in run["commands"]:
            if command.startswith("python "):
                call(command.removeprefix("python "))
                continue
            must_fail = command.startswith("! ")
            words = [places.get(word, word) for word in command.removeprefix("! ").split()]
            if words[0] in ("run", "resume", "network", "sweep", "reproduce"):
                words.append("--no-progress")
            printed.append(f"$ fedsash {shlex.join(words)}")
            printed += output_of(words, tree, must_fail)
        tensors, numbers = results(Path(), run["states"])
    numbers["printed"] = printed
    return tensors, numbers, time.perf_counter() - begin


def call(place: str) -> None:
    """Call a function without arguments, "module:function", of a module in the current folder."""
    module, function = place.split(":")
    sys.path.insert(0, "")
    try:
        getattr(importlib.import_module(module), function)()
    finally:
        sys.path.remove("")


def output_of(words: Sequence[str], tree: Path, must_fail: bool) -> list[str]:
    """The lines that a command prints on standard output, or as errors if it must fail.

    Raises `RuntimeError` if it fails otherwise, or doesn't fail.
    """
    entry = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["fedsash"]
    module, function = entry.split(":")
    command = getattr(importlib.import_module(module), function)
    output = io.StringIO()
    errors = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = command(list(words))
        except SystemExit as end:  # words that the command does not know
            code = end.code
    if bool(code) != must_fail:
        raise RuntimeError(f"fedsash {shlex.join(words)} ended with {code}: {errors.getvalue().strip()[-500:]}")
    if must_fail:  # beside its own lines there may be those of the log, which other libraries direct elsewhere
        return [line for line in errors.getvalue().splitlines() if line.startswith("fedsash: ")]
    return [line.rstrip() for line in output.getvalue().splitlines() if line.strip()]


# --------------------------------------------------------------------------------------------------------------------
# What came out


def results(folder: Path, states: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """All tensors in a folder by their names, and all numbers in its files."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "/state/" in f"/{name}":
            continue
        if path.suffix == ".safetensors":
            model = name.removesuffix(".safetensors")
            for key, value in load_file(path).items():
                tensors[f"{model}: {key}"] = value
        elif path.name == "metrics.jsonl":
            numbers[name] = [repeated(json.loads(line)) for line in path.read_text().splitlines()]
            if states:
                run = path.parent.as_posix()
                for key, value in saved_state(path.parent).items():
                    tensors[f"{run}/state: {key}"] = value
        elif path.suffix == ".json" and path.parent.name == "analyses":
            numbers[name] = repeated(json.loads(path.read_text()))
        elif path.name in ("summary.json", "clients.json", "partition.json"):
            numbers[name] = repeated(json.loads(path.read_text()))
            numbers[name].pop("checksum", None)  # of times, too
        elif path.suffix == ".html":
            numbers[name] = Page.numbers(path.read_text())
    return tensors, numbers


def saved_state(run: Path) -> dict[str, Any]:
    """The tensors of a run's newest state, by their names. The only function here that knows how states are saved.

    A state is a folder `state/ROUND`. `state.safetensors` has the tensors that are always written; a model of the past
    and each client's state have a file of their own, `past-SLICE-ROUND` and `client-NUMBER.ROUND`. The latter's round
    is the one in which the client took part last, which `last` has, too.
    """
    from safetensors.torch import load_file

    folders = sorted(folder for folder in (run / "state").glob("*") if folder.name.isdigit())
    if not folders:
        return {}
    tensors: dict[str, Any] = {}
    for path in sorted(folders[-1].glob("*.safetensors")):
        part = re.sub(r"^(client-\d+)\.\d+$", r"\1", path.stem)
        prefix = "" if part == "state" else f"{part}/"
        for name, tensor in load_file(path).items():
            tensors[f"{prefix}{name}"] = tensor
    settings = tomllib.loads((run / "config.toml").read_text())
    if settings.get("personal"):
        return in_the_modules_order(run, tensors)
    return tensors


def in_the_modules_order(run: Path, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a run's state, with its models in the order of their module, whatever stays with the clients.

    In a state what stays comes after the common parameters, so each tensor of a model has its place by name. The names
    of files of past models tell the places of their slice, so they change with these. No value changes.
    """
    import torch

    from fedsash.averages import Observer
    from fedsash.lab.studies.opened import open_run
    from fedsash.vector.layout import Layout

    federation = open_run(run, own_code=True).federation
    layout = federation.layout
    of_module = Layout(federation.module)
    w = layout.flatten(federation.module)
    slices = {}
    for average in federation.averages.values():
        here = Observer.of(average, layout, federation.sharing.own_names).part(w)
        slices[here] = Observer.of(average, of_module, federation.sharing.own_names).part(w)
    ordered = {}
    for name, tensor in tensors.items():
        if name == "w" or name.startswith("best/"):
            parts = layout.views(tensor)
            tensor = torch.cat([parts[part].reshape(-1) for part in of_module.names])
        name = re.sub(r"(?<=^past-)\w+", lambda match: slices.get(match[0], match[0]), name)
        ordered[name] = tensor
    return ordered


def repeated(value: Any) -> Any:
    """A value of JSON without what is another one in each run."""
    if isinstance(value, dict):
        return {key: repeated(each) for key, each in value.items() if key not in UNREPEATED}
    if isinstance(value, list):
        return [repeated(each) for each in value]
    return value


class Page(HTMLParser):
    """Collects the cells of each table of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[str]] = []
        self._inside = False

    @classmethod
    def numbers(cls, text: str) -> list[list[str]]:
        """All numbers in each table of a page, in their order; without the tables of speed and of versions."""
        page = cls()
        page.feed(text)
        repeated = [table for table in page.tables if not {"seconds a round", "torch"} & set(table)]
        return [re.findall(r"-?\d+(?:\.\d+)?", " ".join(table)) for table in repeated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag in ("td", "th"):
            self._inside = True
            self.tables[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tables[-1][-1] += data


# --------------------------------------------------------------------------------------------------------------------
# Recording and comparing


def machine() -> dict[str, str]:
    """What bytes depend on besides the code."""
    import numpy
    import torch

    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels of OpenBLAS": os.environ.get("OPENBLAS_CORETYPE", ""),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "threads": os.environ["OMP_NUM_THREADS"],
    }


def processor() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def record(name: str, tensors: Mapping[str, Any], numbers: Mapping[str, Any], folder: Path) -> None:
    """Write what came out of a run."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / f"{name}.safetensors")
    files = ",\n".join(f"{json.dumps(file)}: {lines_of(content)}" for file, content in numbers.items())
    head = f'"machine": {json.dumps(machine())}'
    (folder / f"{name}.json").write_text(f'{{\n{head},\n"numbers": {{\n{files}\n}}\n}}\n')


def lines_of(content: Any) -> str:
    """The JSON of a file's content: a list has a line for each element, so that a changed record is a changed line."""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in content) + "\n]"


def differences(name: str, tensors: Mapping[str, Any], numbers: Mapping[str, Any], folder: Path) -> list[str]:
    """A line for each difference between what came out and what is recorded."""
    from safetensors.torch import load_file

    recorded = json.loads((folder / f"{name}.json").read_text())
    same_machine = recorded["machine"] == machine()
    before = load_file(folder / f"{name}.safetensors")
    tolerance = 0.0 if same_machine else TOLERANCE
    lines = [f"{key}: only recorded" for key in before.keys() - tensors.keys()]
    lines += [f"{key}: not recorded" for key in tensors.keys() - before.keys()]
    for key in sorted(before.keys() & tensors.keys()):
        line = difference(tensors[key], before[key], tolerance)
        if line:
            lines.append(f"{key}: {line}")
    if same_machine:
        lines += unlike(json.loads(json.dumps(numbers)), recorded["numbers"])
    return lines


def difference(now: Any, before: Any, tolerance: float) -> str:
    """How two tensors differ; empty if they are equal or within a tolerance."""
    import torch

    if now.dtype != before.dtype or now.shape != before.shape:
        return f"{now.dtype} {list(now.shape)}, recorded {before.dtype} {list(before.shape)}"
    if torch.equal(now.reshape(-1).view(torch.uint8), before.reshape(-1).view(torch.uint8)):
        return ""
    new = now.double()
    old = before.double()
    largest = float((new - old).abs().max())
    norm = float(torch.linalg.vector_norm(old))
    relative = largest / norm if norm else largest
    if relative <= tolerance:
        return ""
    line = f"differs by {relative:.2g} of its norm"
    if torch.equal(new.reshape(-1).sort().values, old.reshape(-1).sort().values):
        line += " (the same values in another order)"
    return line


def unlike(now: Any, before: Any, place: str = "") -> Iterator[str]:
    """A line for each place at which two values of JSON differ."""
    if isinstance(now, dict) and isinstance(before, dict):
        for key in before:
            if key in now:
                yield from unlike(now[key], before[key], f"{place}/{key}")
            else:
                yield f"{place}/{key}: only recorded"
        for key in now:
            if key not in before:
                yield f"{place}/{key}: not recorded"
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        for index, (one, other) in enumerate(zip(now, before, strict=True)):
            yield from unlike(one, other, f"{place}[{index}]")
    elif now != before and not (now != now and before != before):  # NaN is NaN
        yield f"{place}: {shortened(now)}, recorded {shortened(before)}"


def shortened(value: Any) -> str:
    """A value as Python writes it, or the beginning of it."""
    text = repr(value)
    if len(text) < 120:
        return text
    return f"{text[:117]}..."


def reference(name: str) -> Path:
    """The folder with the numbers to compare a run with: those of this machine, if they are of the same recording."""
    commit = HERE / "commit"
    if not commit.exists() or commit.read_text() != recording():
        return RECORDED
    recorded = json.loads((RECORDED / f"{name}.json").read_text())["machine"]
    recorded_here = json.loads((HERE / f"{name}.json").read_text())["machine"]
    if recorded != machine() and recorded_here == machine():
        return HERE
    return RECORDED


def recording() -> str:
    """The newest commit that changed what is recorded. Its tree gives these numbers."""
    command = ["git", "log", "-1", "--format=%H", "--", str(RECORDED)]
    return subprocess.run(command, cwd=GOLDEN, check=True, capture_output=True, text=True).stdout.strip()


# --------------------------------------------------------------------------------------------------------------------
# Processes and commands


def prepare(tree: Path) -> None:
    """Make this process one whose package is that in a tree, with one thread and folders of its own."""
    place = tempfile.mkdtemp(prefix="golden-cache-")
    os.environ |= {"FEDSASH_CACHE": place, "XDG_STATE_HOME": place, "COLUMNS": "120", "NO_COLOR": "1"}
    sys.path.insert(0, str(tree / "src"))
    os.environ["PYTHONPATH"] = str(tree / "src")  # for the processes of sweeps


def carry_out(name: str, tree: Path, into: Path | None) -> tuple[str, list[str], float]:
    """Carry out a run: record it in a folder, or compare it. Returns its name, the differences and the seconds."""
    try:
        tensors, numbers, seconds = outcome(name, tree)
    except Exception as error:
        return name, [f"failed: {type(error).__name__}: {error}"], 0.0
    if into is not None:
        record(name, tensors, numbers, into)
        return name, [], seconds
    if not (RECORDED / f"{name}.json").exists():
        return name, ["is not recorded"], seconds
    return name, differences(name, tensors, numbers, reference(name)), seconds


def work(names: Sequence[str], tree: Path, into: Path | None, stop: bool = False) -> int:
    """Carry out runs in two processes and print what differs; returns how many do."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    begin = time.perf_counter()
    wrong = 0
    context = get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=prepare, initargs=(tree,)) as pool:
        ordered = names if stop else reversed(names)  # the longest stand at the end
        futures = [pool.submit(carry_out, name, tree, into) for name in ordered]
        for count, future in enumerate(as_completed(futures), 1):
            name, lines, seconds = future.result()
            wrong += bool(lines)
            verdict = "differs" if lines else "ok"
            print(f"[{count}/{len(names)}] {name}: {verdict}, {seconds:.1f} s", flush=True)
            for line in lines[:SHOWN]:
                print(f"    {line}")
            if len(lines) > SHOWN:
                print(f"    and {len(lines) - SHOWN} more")
            if lines and stop:
                for future in futures:
                    future.cancel()
                break
    action = "recorded" if into else "compared"
    print(f"{len(names)} runs {action} in {time.perf_counter() - begin:.0f} s, {wrong} differ or failed")
    return wrong


def foreign() -> list[str]:
    """How this machine differs from that of the recording."""
    now = machine()
    lines = set()
    for path in RECORDED.glob("*.json"):
        for key, value in json.loads(path.read_text())["machine"].items():
            if value != now[key]:
                lines.add(f"{key}: {value} there, {now[key]} here")
    return sorted(lines)


def here() -> int:
    """Record all runs on this machine from the tree of the recorded commit."""
    commit = recording()
    with tempfile.TemporaryDirectory(prefix="golden-tree-") as place:
        archive = subprocess.run(["git", "archive", commit], cwd=GOLDEN.parent, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
        shutil.rmtree(HERE, ignore_errors=True)
        HERE.mkdir()
        script = [sys.executable, "golden/golden.py", "record", "--into", str(HERE)]
        code = subprocess.run(script, cwd=place).returncode
    if code == 0:
        (HERE / "commit").write_text(commit)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["compare", "record", "here"])
    parser.add_argument("names", nargs="*", help="runs (default: all)")
    parser.add_argument("-x", dest="stop", action="store_true", help="stop at the first difference; quick runs first")
    parser.add_argument("--into", type=Path, default=RECORDED, help="the folder to record into")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.action == "here":
        return here()
    known = list(experiments())
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"no such run: {', '.join(unknown)}; there are {', '.join(known)}")
    names = arguments.names or known
    if arguments.action == "record":
        return 1 if work(names, GOLDEN.parent, arguments.into) else 0
    lines = foreign()
    if lines and reference(names[0]) == HERE:
        print("compared with what the recorded commit gives on this machine")
    elif lines:
        print(f"another machine than that of the recording ({'; '.join(lines)}):")
        print(f"tensors are compared within {TOLERANCE} of their norm, numbers are not")
        print("`make golden-here` records the numbers of this machine, which are then compared byte for byte")
    return 1 if work(names, GOLDEN.parent, None, arguments.stop) else 0


if __name__ == "__main__":
    sys.exit(main())
