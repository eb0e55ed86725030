"""IMA's experiments: the mean of the last P global models, sent to clients that take milder steps from round t_s on.

Before t_s nothing is sent back, so that the runs without IMA and those with it share their beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..studies.decomposition import DecompositionStudy
from ..studies.ensemble import EnsembleStudy
from ..studies.landscape import LandscapeStudy
from .figures import CurvesFigure, StudyFigure, StudyPanel, ValuesFigure, first_clients, global_models
from .pick import Labels, pick
from .reproduction import Note, Reproduction, Scale, Settings, combined, prose
from .tables import Table

# --- What the experiments have in common ---

LABEL_SKEWS: dict[str, Settings] = {
    "#C=2": {"partition": {"name": "shards", "clients": 100, "classes": 2}},
    "a=0.1": {"partition": {"name": "dirichlet_classes", "clients": 100, "alpha": 0.1}},
}

CIFAR_CNN = {
    "rounds": 400,
    "data": {"name": "cifar10", "augment": False},
    "model": {"name": "cifar_cnn"},
}
FMNIST_CNN = {
    "rounds": 300,
    "data": {"name": "fashion_mnist"},
    "model": {"name": "fmnist_cnn"},
}
RESNET = {"model": {"name": "resnet18_gn"}}

# CIFAR-10 with its CNN, #C = 2; a window of 5 models that is only observed.
CIFAR = {
    **CIFAR_CNN,
    **LABEL_SKEWS["#C=2"],
    "local": {
        "lr": 0.01,
        "optimiser": {"momentum": 0.9, "weight_decay": 1e-3},
        "batch": 50,
        "epochs": 5,
        "schedule": {"name": "exponential", "decay": 0.99},
    },
    "sampling": {"count": 10},
    "averages": {"ima": {"name": "window", "size": 5}},
    "evaluation": {"every": 10, "last": 10},
}
CIFAR_DIRICHLET = combined(CIFAR, LABEL_SKEWS["a=0.1"])

# FedAdam and FedYogi: the window holds the clients' means. Without IMA, too, by a broadcast that never starts.
ADAPTIVE = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
MEANS_IN_WINDOW = {"average": "ima", "order": "code", "start": 1_000_000}

METHODS: dict[str, Settings] = {
    "FedAvg": {},
    "FedProx": {"method": {"name": "fedprox", "mu": 0.01}},
    "FedASAM": {"method": {"name": "fedasam", "rho": 0.7, "eta": 0.2}},
    "FedFA": {"method": {"name": "fedfa", "lam": 0.1, "momentum": 0.5, "anchors_from": 1, "calibrate_from": 100}},
    "FedNova": {"aggregation": {"name": "fednova"}},
    "FedAdam": {"server": {"name": "adam", **ADAPTIVE}, "broadcast": MEANS_IN_WINDOW},
    "FedYogi": {"server": {"name": "yogi", **ADAPTIVE}, "broadcast": MEANS_IN_WINDOW},
    "FedGMA": {"aggregation": {"name": "fedgma", "threshold": 0.8, "mask": "code"}},
}

EXPONENTIAL = {"scheme": "exponential", "late_decay": 0.97}


def mild_from(start: int, scheme: Settings = EXPONENTIAL) -> Settings:
    """IMA's milder steps from the round t_s on."""
    return {"local": {"schedule": {"name": "mild", "start": start, "decay": 0.99, **scheme}}}


def ima_from(start: int, scheme: Settings = EXPONENTIAL) -> Settings:
    """IMA from the round t_s on: milder steps, and after the first of these rounds the window's mean is sent.

    docs/design/architecture.md says why the two don't start together.
    """
    return {"broadcast": {"average": "ima", "start": start + 1}, **mild_from(start, scheme)}


def _calibrated(run: Labels, rounds: int) -> Iterator[Settings]:
    """FedFA calibrates from a quarter of the rounds on."""
    if run["method"] == "FedFA":
        yield {"method": {"calibrate_from": rounds // 4}}


SEEDS = {"seed": [0, 1, 2]}

# scikit-learn's digits, of which three of ten clients take part
DIGITS = {
    "rounds": 12,
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"clients": 10},
    "local": {"batch": 20},
    "sampling": {"count": 3},
    "evaluation": {"every": 1, "last": 3},
}
# two classes and one epoch for each of the ten
DIGITS_SHARDS = combined(DIGITS, {"partition": {"name": "shards", "clients": 10, "classes": 2}, "local": {"epochs": 1}})

SETTINGS_NOTE = """
    Stated: clients, rate 0.01 with momentum 0.9 and a decay of 0.01 a round, 5 epochs of batches of 50, P = 5. From
    the published code, not the paper: weight decay 1e-3.
"""
SETTINGS_NOTES = (
    Note("FedASAM: from the code rho 0.7 with CNNs (the paper prints 0).", pick(method="FedASAM")),
    Note(
        "FedAdam and FedYogi: from the code a window that acts before the server's step.",
        pick(method=["FedAdam", "FedYogi"]),
    ),
    Note(
        "FedGMA: from the code the mask, which leaves it the plain mean but for a ten-thousandth.",
        pick(method="FedGMA"),
    ),
    Note(
        "FedFA: from the code anchors from round 1, calibration from a quarter of the rounds, and anchor momentum 0.5 "
        "(the paper: 0.9).",
        pick(method="FedFA"),
    ),
)
"""On Tables 1, 2 and 3."""
CNN_NOTE = "Our reading: the network is the CNN, whose numbers in Table 1 agree with these."
CNN_NOTES = (
    Note(
        "mu = 0.01 and lambda = 0.1 are the code's defaults, where the paper took the best of 0.1, 0.01 and 0.001.",
        pick(method=["FedProx", "FedFA"]),
    ),
)
"""On Tables 2 and 3."""

# --- Table 1: eight methods with and without IMA ---


def _domains(inner: Settings) -> Settings:
    """Twenty clients of each domain, among whom its labels are divided."""
    return {"partition": {"name": "domains", "clients_per_domain": 20, "inner": inner}}


CIFAR_100_ROWS = ["CIFAR-100 VGG a=0.1", "CIFAR-100 ResNet a=0.1"]
CIFAR_100 = {
    "data": {"name": "cifar100", "augment": False},
    "partition": {"name": "pachinko", "clients": 100, "samples": 500},
}
DIGIT_FIVE = {"rounds": 200, "data": {"name": "digit_five"}, "model": {"name": "digit_five_cnn"}}
PACS = {"rounds": 400, "data": {"name": "pacs"}, "model": {"name": "alexnet_gn"}, "sampling": {"count": 16}}
INNER_DIRICHLET = {"name": "dirichlet_classes", "alpha": 0.1}

ROWS: dict[str, Settings] = {
    **{f"FMNIST {skew}": {**FMNIST_CNN, **split} for skew, split in LABEL_SKEWS.items()},
    **{f"CIFAR-10 CNN {skew}": {**CIFAR_CNN, **split} for skew, split in LABEL_SKEWS.items()},
    **{f"CIFAR-10 ResNet {skew}": {**CIFAR_CNN, **RESNET, **split} for skew, split in LABEL_SKEWS.items()},
    "CIFAR-100 VGG a=0.1": {"rounds": 300, **CIFAR_100, "model": {"name": "vgg11_gn"}},
    "CIFAR-100 ResNet a=0.1": {"rounds": 400, **CIFAR_100, **RESNET},
    "Digit-Five #C=2": {**DIGIT_FIVE, **_domains({"name": "class_pairs"})},
    "Digit-Five a=0.1": {**DIGIT_FIVE, **_domains(INNER_DIRICHLET)},
    "PACS #C=2": {**PACS, **_domains({"name": "shards", "classes": 2})},
    "PACS a=0.1": {**PACS, **_domains(INNER_DIRICHLET)},
}
CNNS = ("fmnist_cnn", "cifar_cnn", "digit_five_cnn")

# The setting of each method that has a grid, of which Table 1 has the best.
STRENGTHS = {"FedProx": "mu", "FedFA": "lam"}
WINDOWS = (5, 20, 50, 100)

PRINTED_1 = {
    "FMNIST #C=2": [
        "81.17 (84.68)", "79.78 (83.77)", "84.69 (85.01)", "85.60 (88.06)",
        "81.23 (84.65)", "83.53 (86.99)", "82.42 (86.86)", "80.89 (84.56)",
    ],
    "FMNIST a=0.1": [
        "80.13 (83.06)", "78.76 (81.64)", "80.81 (82.88)", "82.97 (86.45)",
        "79.98 (83.15)", "78.85 (83.54)", "79.66 (83.95)", "80.18 (83.14)",
    ],
    "CIFAR-10 CNN #C=2": [
        "62.34 (67.37)", "61.71 (67.03)", "62.60 (63.64)", "67.49 (69.19)",
        "62.34 (67.46)", "64.49 (69.59)", "66.68 (68.74)", "62.25 (67.47)",
    ],
    "CIFAR-10 CNN a=0.1": [
        "61.00 (64.57)", "61.31 (64.80)", "56.92 (59.10)", "64.99 (67.03)",
        "55.11 (60.09)", "61.61 (66.25)", "64.12 (65.86)", "61.18 (64.36)",
    ],
    "CIFAR-10 ResNet #C=2": [
        "50.10 (59.64)", "53.98 (61.65)", "49.01 (56.78)", "46.56 (56.15)",
        "49.65 (59.30)", "54.04 (59.05)", "54.45 (59.73)", "49.42 (58.79)",
    ],
    "CIFAR-10 ResNet a=0.1": [
        "49.96 (56.37)", "52.13 (55.07)", "48.96 (54.41)", "42.84 (48.88)",
        "33.72 (40.52)", "47.47 (47.60)", "50.92 (51.26)", "49.89 (55.93)",
    ],
    "CIFAR-100 VGG a=0.1": [
        "38.99 ? (39.89 ?)", "38.88 ? (39.93 ?)", "37.51 ? (38.25 ?)", "43.47 ? (44.68 ?)",
        "39.21 ? (39.96 ?)", "38.96 ? (39.83 ?)", "38.89 ? (39.29 ?)", "39.30 ? (40.02 ?)",
    ],
    "CIFAR-100 ResNet a=0.1": [
        "31.60 ? (32.97 ?)", "32.06 ? (33.27 ?)", "28.35 ? (29.34 ?)", "31.24 ? (34.03 ?)",
        "32.01 ? (33.50 ?)", "37.87 ? (40.93 ?)", "37.55 ? (40.27 ?)", "31.65 ? (32.90 ?)",
    ],
    "Digit-Five #C=2": [
        "87.90 (90.15)", "88.14 (90.04)", "88.68 (89.97)", "90.26 (91.16)",
        "87.77 (89.53)", "85.63 (91.50)", "86.31 (91.25)", "87.91 (90.33)",
    ],
    "Digit-Five a=0.1": [
        "90.45 (91.38)", "90.52 (91.48)", "90.53 (91.41)", "90.57 (91.58)",
        "90.10 (90.76)", "90.55 (92.20)", "91.06 (92.30)", "90.50 (91.49)",
    ],
    "PACS #C=2": [
        "57.47 (58.01)", "60.88 (61.51)", "61.15 (61.46)", "56.57 (57.36)",
        "60.24 (63.53)", "54.63 (60.09)", "55.54 (57.03)", "57.33 (62.17)",
    ],
    "PACS a=0.1": [
        "40.36 (47.36)", "42.15 (49.13)", "39.57 (43.29)", "41.95 (47.12)",
        "13.96 (16.10)", "33.76 (43.23)", "39.97 (40.56)", "41.73 (47.46)",
    ],
}  # fmt: skip


def _beyond_strengths(run: Labels) -> bool:
    """Whether the method has no grid, and this is not the one run that it has."""
    return run["method"] not in STRENGTHS and run["strength"] != "0.01"


def _ima_in_table_1(run: Labels, start: int) -> Iterator[Settings]:
    """IMA from t_s on, or its milder steps without its feedback."""
    if run["IMA"] == "on":
        yield ima_from(start)
    if run["IMA"] == "mild":
        yield mild_from(start)


def _table_1(run: Labels) -> Iterator[Settings]:
    row = combined(FMNIST_CNN, ROWS.get(run["row"], {}))
    yield from _calibrated(run, row["rounds"])
    yield from _ima_in_table_1(run, start=row["rounds"] * 3 // 4)
    if run["method"] == "FedASAM" and row["model"]["name"] not in CNNS:
        yield {"method": {"rho": 0.2, "eta": 0.05}}
    if run["method"] in STRENGTHS:
        yield {"method": {STRENGTHS[run["method"]]: float(run["strength"])}}


def _table_1_small(run: Labels) -> Iterator[Settings]:
    yield {"rounds": 40, "local": {"epochs": 2}}
    yield from _calibrated(run, rounds=40)
    yield from _ima_in_table_1(run, start=30)


def _table_1_tiny(run: Labels) -> Iterator[Settings]:
    yield DIGITS_SHARDS
    yield from _calibrated(run, rounds=12)
    yield from _ima_in_table_1(run, start=8)


TABLE_1 = Reproduction(
    name="ima-table-1",
    title="IMA, Table 1: eight methods with and without IMA",
    paper="IMA",
    shows=prose(
        """
        The mean accuracy of the last ten rounds of eight methods, without and with IMA, on twelve federations;
        WiMA's windows of 5 to 100 models are observed on the same runs, and on runs that have IMA's mild steps
        without its feedback.
        """
    ),
    note=prose(
        SETTINGS_NOTE
        + """
        The accuracy without IMA is the model's, with IMA that of the model that clients receive; on several domains
        it is the unweighted mean of theirs. Ours, not the paper's: windows of 5, 20, 50 and 100 global models, and
        the arm "mild". One seed: the paper states none.
        """
    ),
    notes=[
        *SETTINGS_NOTES,
        Note(
            "FedASAM has 0.2 and 0.05 with other networks than CNNs.",
            pick(method="FedASAM", row=["CIFAR-10 ResNet #C=2", "CIFAR-10 ResNet a=0.1", *CIFAR_100_ROWS]),
        ),
        Note(
            "FedProx's mu and FedFA's lambda are the best of 0.1, 0.01 and 0.001, as the paper says; that both numbers "
            "of a cell may have their own is our reading.",
            pick(method=["FedProx", "FedFA"]),
        ),
        Note(
            "IMA's own window of FedAdam and FedYogi holds the clients' means, that of the others global models.",
            pick(method=["FedAdam", "FedYogi"], IMA="on"),
        ),
        Note(
            prose(
                """
                CIFAR-100 is said to be partitioned by Pachinko allocation, of which the published notebooks have
                nothing; that its first row is VGG's rests on the order alone; its images are not augmented here, one
                of the notebooks flips and rotates them for ResNet. The text's gain of 3.06 on CIFAR-100, with which it
                compares FedAvg's on CIFAR-10, is FedAdam's cell.
                """
            ),
            pick(row=CIFAR_100_ROWS),
        ),
        Note(
            prose(
                """
                Digit-Five's network is that of the published code, FC 1152-384-128, where Table 4 prints
                6272-2048-128-10 behind three poolings (6272 = 128 x 7 x 7 takes two, so it contradicts itself); --set
                model.variant=paper takes the printed one, with --only "row=Digit-Five #C=2" or the other row.
                """
            ),
            pick(row=["Digit-Five #C=2", "Digit-Five a=0.1"]),
        ),
        Note(
            prose(
                """
                PACS's network is that of the published code, 32 groups of GroupNorm and FC 1024-128-7, where Table 4
                prints two groups and 4096-512-10; --set model.variant=paper takes the printed one, with --only
                "row=PACS #C=2" or the other row.
                """
            ),
            pick(row=["PACS #C=2", "PACS a=0.1"]),
        ),
        Note(
            prose(
                """
                On FMNIST and CIFAR-10 at #C = 2, where all clients have as many samples, FedNova must equal FedAvg up
                to chance, so that the printed numbers are certain to about 0.1 to 0.5 points.
                """
            ),
            pick(method="FedNova", row=["FMNIST #C=2", "CIFAR-10 CNN #C=2", "CIFAR-10 ResNet #C=2"]),
        ),
    ],
    base=combined(
        CIFAR,
        FMNIST_CNN,
        {"averages": {f"wima{size}": {"name": "window", "size": size} for size in WINDOWS}},
    ),
    axes={
        "seed": [0],
        "row": ROWS,
        "method": METHODS,
        "strength": {"0.1": {}, "0.01": {}, "0.001": {}},
        "IMA": {"off": {}, "on": {}, "mild": {}},
    },
    changes=_table_1,
    without=_beyond_strengths,
    tables=[
        Table(
            where=pick("sent"),
            best_over="strength",
            rows="row",
            columns="method",
            cells={"base": pick(IMA="off"), "+IMA": pick(IMA="on")},
            form="{} ({})",
            printed=PRINTED_1,
        ),
        Table(
            name="ima-table-1-wima",
            title="WiMA's windows on the runs of IMA's Table 1 that have no IMA",
            where=pick(IMA="off"),
            best_over="strength",
            rows="row",
            columns="method",
            cells={str(size): pick(f"wima{size}") for size in WINDOWS},
            form="{} / {} / {} / {}",
        ),
        Table(
            name="ima-table-1-mild",
            title="IMA's mild steps without its feedback: the model, and windows of 5 and 20 models",
            where=pick(IMA="mild"),
            best_over="strength",
            rows="row",
            columns="method",
            cells={"model": pick("model"), "5": pick("wima5"), "20": pick("wima20")},
            form="{} / {} / {}",
        ),
    ],
    scales={
        "small": Scale(
            only={"row": ["FMNIST #C=2", "FMNIST a=0.1"], "strength": ["0.1", "0.01"]},
            values=SEEDS,
            changes=_table_1_small,
        ),
        "tiny": Scale(
            only={"row": ["FMNIST #C=2"], "method": ["FedAvg", "FedFA", "FedAdam"], "strength": ["0.1", "0.01"]},
            changes=_table_1_tiny,
        ),
    },
)

# --- Table 2 and Figure 7: the start t_s, the number of models P, and where the IMA model lies ---

STARTS = ("150", "200", "250", "300")
SIZES = ("3", "5", "9")
BELOW_TARGET = ("FedASAM", "FedNova")


def _not_in_table_2(run: Labels) -> bool:
    """What neither Table 2 nor Figure 7 has.

    P is varied for FedAvg from round 200 on. FedASAM and FedNova are in Figure 7c alone.
    """
    if run["P"] != "5" and (run["method"] != "FedAvg" or run["start"] in ("150", "FMA")):
        return True
    return run["method"] in BELOW_TARGET and run["start"] != "300"


def _table_2_small(run: Labels) -> Iterator[Settings]:
    yield {"rounds": 40, "local": {"epochs": 2}, "evaluation": {"target": 0.35}}
    yield from _calibrated(run, rounds=40)
    if run["start"] in STARTS:
        yield ima_from(int(run["start"]) // 10)


def _table_2_tiny(run: Labels) -> Iterator[Settings]:
    yield combined(DIGITS_SHARDS, {"evaluation": {"target": 0.25}})
    yield from _calibrated(run, rounds=12)
    starts = {"200": 6, "300": 9}
    if run["start"] in starts:
        yield ima_from(starts[run["start"]])


def _by_start(method: str) -> CurvesFigure:
    """A method's accuracy by round, for each start."""
    return CurvesFigure(
        f"ima-figure-7a-{method.lower()}",
        f"IMA, Figure 7a: {method} by the start t_s",
        pick("sent", method=method, P="5"),
        lines="start",
        smoothed=True,
    )


TABLE_2 = Reproduction(
    name="ima-table-2",
    title="IMA, Table 2 and Figure 7: the start t_s, the number of models P, and where the IMA model lies",
    paper="IMA",
    shows=prose(
        """
        How many rounds CIFAR-10's CNN needs for the accuracy of 61.61 % at alpha = 0.1, by the round t_s in which
        IMA starts; accuracy by round for several t_s (7a) and P (7b), smoothed; the loss from the model of the
        last clients to IMA's for eight methods (7c). Figure 7 is of the runs of Table 2 and a few more.
        """
    ),
    note=prose(
        SETTINGS_NOTE
        + CNN_NOTE
        + """
        The target is FedAdam's own last accuracy; the first single round that reaches it counts, which is our
        reading of a FedAvg that reaches 61.61 % in round 394 and has a mean of 61.00 %. FedASAM and FedNova are
        left out as below it; in Table 1 FedAvg, FedProx and FedGMA are below it, too. A speed-up is against the
        same method without IMA. In print a later start takes more rounds, but for FedAvg and FedGMA, of which 150
        is the slowest start of the four.
        Figure 7. Stated: P up to 9 in 7b, for FedAvg; 7a and 7b smoothed (Savitzky-Golay, window 10, order 2); 7c
        between IMA's and the FMA model of the last round, for all methods. Our reading: FedAvg, FedFA and FedAdam
        in 7a, of which the text names FedFA alone; P of 3, 5 and 9 with t_s of 200, 250 and 300 in 7b; the runs of
        t_s = 300 and P = 5 in 7c. The text says that a later start ends higher in 7a: FedFA from 300 about 3 points
        above 200. With Table 1's 67.03 at 300 this puts 200 near 64, no higher than FedFA without IMA (64.99). Of
        7b it says that a larger P is steadier, and ends lower if IMA starts early. In 7c IMA's end is the window;
        that of FedAdam and FedYogi holds the clients' means, towards which the server steps, and their other end is
        the model after this step. What is drawn in 7a and 7b is the model that clients receive: the FMA model, from
        t_s on its mean.
        """
    ),
    notes=[*SETTINGS_NOTES, *CNN_NOTES],
    base=combined(CIFAR_DIRICHLET, {"evaluation": {"every": 1, "target": 0.6161}}),
    axes={
        "seed": [0],
        "method": METHODS,
        "start": {start: ima_from(int(start)) for start in STARTS} | {"FMA": {}},
        "P": {"5": {}, "3": {"averages": {"ima": {"size": 3}}}, "9": {"averages": {"ima": {"size": 9}}}},
    },
    without=_not_in_table_2,
    tables=[
        Table(
            where=pick("sent", P="5"),
            rows={method: pick(method=method) for method in METHODS if method not in BELOW_TARGET},
            columns="start",
            cells={"rounds": pick(statistic="rounds_to_target"), "speed-up": pick(statistic="speed_up")},
            form="{} ({})",
            against=pick(start="FMA"),
            printed={
                "FedAvg": ["318 (1.24)", "257 (1.53)", "260 (1.51)", "309 (1.28)", "394 (1)"],
                "FedProx": ["201 (1.96)", "210 (1.88)", "260 (1.52)", "309 (1.28)", "394 (1)"],
                "FedFA": ["183 (1.87)", "212 (1.61)", "258 (1.32)", "308 (1.11)", "341 (1)"],
                "FedAdam": ["193 (2.03)", "210 (1.87)", "259 (1.51)", "306 (1.28)", "392 (1)"],
                "FedYogi": ["195 (1.85)", "210 (1.71)", "257 (1.40)", "306 (1.18)", "360 (1)"],
                "FedGMA": ["316 (1.25)", "242 (1.63)", "260 (1.52)", "309 (1.28)", "394 (1)"],
            },
        )
    ],
    figures=[
        _by_start("FedAvg"),
        _by_start("FedFA"),
        _by_start("FedAdam"),
        CurvesFigure(
            "ima-figure-7b",
            "IMA, Figure 7b: FedAvg by the number of models P and the start t_s",
            pick("sent", method="FedAvg"),
            lines={
                f"t_s = {start}, P = {size}": pick(start=start, P=size)
                for start in ("200", "250", "300")
                for size in SIZES
            },
            smoothed=True,
        ),
        StudyFigure(
            "ima-figure-7c",
            "IMA, Figure 7c: from the FMA model (0) to IMA's (1) in the last round",
            pick(start="300", P="5"),
            study=LandscapeStudy(models=("ima", "model"), points=41),
            shows=("loss", "error"),
            overlay=True,
        ),
    ],
    scales={
        "small": Scale(
            values=SEEDS,
            changes=_table_2_small,
            figures={"ima-figure-7c": {"points": 21, "samples": 2000}},
        ),
        "tiny": Scale(
            only={"method": ["FedAvg", "FedAdam"], "start": ["200", "300", "FMA"], "P": ["5", "9"]},
            changes=_table_2_tiny,
            figures={"ima-figure-7c": {"points": 9}},
        ),
    },
)

# --- Table 3: schemes of mild exploration ---

SCHEMES: dict[str, Settings] = {
    "Exp": EXPONENTIAL,
    "Const": {"scheme": "constant", "floor": 5e-5},
    "Cyclic": {"scheme": "cyclic", "variant": "code"},
    "Epoch": {"scheme": "epochs", "variant": "code"},
    "Cyclic, as worded": {"scheme": "cyclic", "variant": "paper"},
    "Epoch, as worded": {"scheme": "epochs", "variant": "paper"},
    "NA": {"scheme": "none"},
}


def _table_3(run: Labels) -> Iterator[Settings]:
    if run["method"] == "FedFA" and run["scheme"] == "Epoch":
        yield {"local": {"schedule": {"variant": "paper"}}}  # its code has the base decay go on


def _table_3_small(run: Labels) -> Iterator[Settings]:
    yield {
        "rounds": 40,
        "local": {"epochs": 2, "schedule": {"start": 30, "period": 4}},
        "broadcast": {"start": 31},
    }
    yield from _calibrated(run, rounds=40)


def _table_3_tiny(run: Labels) -> Iterator[Settings]:
    yield combined(DIGITS_SHARDS, {"local": {"schedule": {"start": 8, "period": 2}}, "broadcast": {"start": 9}})
    yield from _calibrated(run, rounds=12)


TABLE_3 = Reproduction(
    name="ima-table-3",
    title="IMA, Table 3: schemes of mild exploration",
    paper="IMA",
    shows=prose(
        """
        Last accuracies with IMA under five ways to take smaller client steps, for eight methods on CIFAR-10's CNN
        at alpha = 0.1.
        """
    ),
    note=prose(
        SETTINGS_NOTE
        + CNN_NOTE
        + """
        The text says that Exp and Const, which restrain clients most, are above the milder Cyclic, Epoch and NA:
        in print both are above all three for five of the eight methods (not FedASAM, FedFA and FedAdam). The
        printed cyclic and epoch schemes are those of the published code, since the numbers come from it: a sawtooth
        that rises in its second half, and a rate that starts again at 0.01 (all methods but FedFA). As the paper
        words them (from 1e-2 to 5e-5 every 20 rounds; one epoch less every 20 rounds) they are in a table of their
        own. In FedFA's code the epochs drop at multiples of 20 of the round itself, first in round 300; here 20
        rounds later.
        """
    ),
    notes=[*SETTINGS_NOTES, *CNN_NOTES],
    base=CIFAR_DIRICHLET,
    axes={
        "seed": [0],
        "method": METHODS,
        "scheme": {name: ima_from(300, scheme) for name, scheme in SCHEMES.items()},
    },
    changes=_table_3,
    tables=[
        Table(
            where=pick("sent"),
            rows="method",
            columns={name: pick(scheme=name) for name in ("Exp", "Const", "Cyclic", "Epoch", "NA")},
            printed={
                "FedAvg": ["64.57", "64.50", "64.27", "62.96", "63.96"],
                "FedProx": ["64.80", "64.73", "64.59", "63.14", "64.12"],
                "FedASAM": ["59.10", "58.14", "59.33", "57.48", "58.95"],
                "FedFA": ["67.03", "66.62", "66.94", "66.63", "66.40"],
                "FedNova": ["60.09", "59.86", "59.38", "59.04", "58.90"],
                "FedAdam": ["66.25", "65.89", "66.06", "64.00", "65.62"],
                "FedYogi": ["65.86", "65.53", "65.51", "63.13", "65.12"],
                "FedGMA": ["64.36", "64.41", "64.12", "62.97", "63.75"],
            },
        ),
        Table(
            name="ima-table-3-as-worded",
            title="IMA, Table 3: the cyclic and the epoch scheme as the paper words them",
            where=pick("sent"),
            rows="method",
            columns={name: pick(scheme=f"{name}, as worded") for name in ("Cyclic", "Epoch")},
        ),
    ],
    scales={
        "small": Scale(values=SEEDS, changes=_table_3_small),
        "tiny": Scale(only={"method": ["FedAvg", "FedAdam"]}, changes=_table_3_tiny),
    },
)

# --- Figures 1, 5, 8, 9 and 10: client and global models in the landscape ---

FEDERATIONS: dict[str, Settings] = {
    "CIFAR-10 CNN #C=2": {},
    "cross-silo": {"rounds": 200, "partition": {"clients": 10}},
    "FMNIST CNN #C=2": {**FMNIST_CNN, "rounds": 400},
    "CIFAR-10 ResNet18 #C=2": RESNET,
    "CIFAR-10 CNN a=0.1": LABEL_SKEWS["a=0.1"],
}
FIRST = "CIFAR-10 CNN #C=2"

CLIENTS = {
    "early": StudyPanel(first_clients(0.05)),
    "middle": StudyPanel(first_clients(0.5)),
    "final": StudyPanel(first_clients(1.0, before=1)),
}
GLOBALS = {
    "early": StudyPanel(global_models(0.05, (0, 1, 2))),
    "middle": StudyPanel(global_models(0.5, (0, 1, 2))),
    "final": StudyPanel(global_models(1.0, (-2, -1, 0))),
}

# Planes and lines are through the models of each panel, which take the place of these.
PLANE = LandscapeStudy(models=("model", "model", "model"))
LINE = LandscapeStudy(models=("model", "model"), points=41)
PLANES = ("ima-figure-1", "ima-figure-8", "ima-figure-9", "ima-figure-10")
LINES = ("ima-figure-5b", "ima-figure-5c")


def _coarser(plane: Settings, line: Settings) -> dict[str, Settings]:
    """Other settings of the planes, and of the lines."""
    return dict.fromkeys(PLANES, plane) | dict.fromkeys(LINES, line)


def _late_globals(last: int) -> list[str]:
    """The global models of the last round and of 95 % of the rounds."""
    return [*global_models(1.0)(last), *global_models(0.95)(last)]


def _figure_1_small(run: Labels) -> Iterator[Settings]:
    yield {"rounds": 60, "local": {"epochs": 2}}


def _figure_1_tiny(run: Labels) -> Iterator[Settings]:
    yield combined(DIGITS, {"local": {"epochs": 1}})
    if run["run"] == "cross-silo":
        yield {"sampling": {"count": 10}}


FIGURE_1 = Reproduction(
    name="ima-figure-1",
    title="IMA, Figures 1, 5, 8, 9 and 10: client and global models in the landscape",
    paper="IMA",
    shows=prose(
        """
        Test loss and test error in planes through three client models of one round and through three successive
        global models, early, in the middle and at the end of training, and on the lines between two global models
        and from the global model to their mean. Figures 1, 5, 8, 9 and the first row of 10 are views of one run.
        """
    ),
    note=prose(
        """
        Stated: CIFAR-10, CNN, #C = 2, 100 clients of which a tenth takes part over 400 rounds, and ten that all
        take part over 200; no decay of the rate; the settings of Figure 10, whose caption has two of its four rows
        twice; global models of rounds 398, 399 and 400 in Figure 1; the whole test set; crosses at means. Figure 9
        is the error of Figure 8's planes. Figure 5a is a sketch: it is not drawn. Our reading: 5, 50 and 100 % of
        the rounds as early, middle and final, also in Figure 8, of which no round is named; the three clients with
        the smallest numbers; rounds 380 and 400 in 5b; in 5c, for which neither P nor t_s is stated, the mean of
        five rounds, which is not fed back; what is drawn in Figure 10's planes, both loss and error. The text takes
        Figure 8's smaller offset across devices to support that low participation makes it worse, though these are
        the runs with low participation. Table 6's caption gives ten clients shards of 250 samples, 5,000 of the
        50,000 images; here they have all, as in the published code (2,500 a shard). The axes are orthonormal: the
        paper divides by squared norms, which distorts distances. `small` has no ResNet.
        """
    ),
    base=combined(CIFAR, {"local": {"schedule": {"name": "constant"}}}),
    axes={"seed": [0], "run": FEDERATIONS},
    figures=[
        StudyFigure(
            "ima-figure-1",
            "IMA, Figure 1: three clients of a round, and three global models",
            pick(run=FIRST),
            study=PLANE,
            panels=CLIENTS | {"final, global": GLOBALS["final"]},
            shows=("loss", "error"),
        ),
        StudyFigure(
            "ima-figure-5b",
            "IMA, Figure 5b: between global models of two rounds",
            pick(run=FIRST),
            study=LINE,
            panels={"": StudyPanel(_late_globals)},
        ),
        StudyFigure(
            "ima-figure-5c",
            "IMA, Figure 5c: from the global model (0) to the IMA model (1)",
            pick(run=FIRST),
            study=LandscapeStudy(models=("ima", "model"), points=41),
        ),
        StudyFigure(
            "ima-figure-8",
            "IMA, Figure 8: the loss around three clients",
            pick(run=[FIRST, "cross-silo"]),
            study=PLANE,
            panels=CLIENTS,
            shows=("loss",),
        ),
        StudyFigure(
            "ima-figure-9",
            "IMA, Figure 9: the error around three clients",
            pick(run=[FIRST, "cross-silo"]),
            study=PLANE,
            panels=CLIENTS,
            shows=("error",),
        ),
        StudyFigure(
            "ima-figure-10",
            "IMA, Figure 10: client and global models, by data set, network and skew",
            pick(run=[name for name in FEDERATIONS if name != "cross-silo"]),
            study=PLANE,
            panels={
                f"{whose}, {stage}": panel
                for whose, panels in {"clients": CLIENTS, "global": GLOBALS}.items()
                for stage, panel in panels.items()
            },
            shows=("loss", "error"),
        ),
    ],
    scales={
        "small": Scale(
            only={"run": [name for name in FEDERATIONS if name != "CIFAR-10 ResNet18 #C=2"]},
            values=SEEDS,
            changes=_figure_1_small,
            figures=_coarser({"samples": 1000}, {"points": 21, "samples": 1000}),  # a coarser plane has no offsets
        ),
        "tiny": Scale(
            only={"run": [FIRST, "cross-silo", "CIFAR-10 CNN a=0.1"]},
            changes=_figure_1_tiny,
            figures=_coarser({"points": 5}, {"points": 9}),
        ),
    },
)

# --- Figures 2, 3 and 4: bias, distance and similarity of clients, and how many of them are averaged ---

LOOKED_AT = (*range(5, 101, 5), 125, 150, 175, 200, 250, 300, 350, 399)
AVERAGED_AT = (40, 75, 200, 399)
LOOKED_AT_TINY = (2, 5, 8)

DECOMPOSED = ("ima-figure-2", "ima-figure-3")
ENSEMBLES = ("ima-figure-4-models", "ima-figure-4-similarity")


def _shorter(decomposed: Settings, ensembles: Settings) -> dict[str, Settings]:
    """Other settings of Figures 2 and 3, and of both parts of Figure 4."""
    return dict.fromkeys(DECOMPOSED, decomposed) | dict.fromkeys(ENSEMBLES, ensembles)


def _a_fifth(rounds: Iterable[int]) -> tuple[int, ...]:
    """The rounds that are as early or late in a fifth of all rounds: 8 and 15 for 40 and 75."""
    return tuple(round // 5 for round in rounds)


def _figure_2_small(run: Labels) -> Iterator[Settings]:
    yield {"rounds": 80, "local": {"epochs": 1}}


def _figure_2_tiny(run: Labels) -> Iterator[Settings]:
    yield combined(DIGITS_SHARDS, {"sampling": {"count": 10}})


DECOMPOSITION = DecompositionStudy(rounds=LOOKED_AT, samples=2000)
ENSEMBLE = EnsembleStudy(rounds=AVERAGED_AT, samples=2000)

FIGURE_2 = Reproduction(
    name="ima-figure-2",
    title="IMA, Figures 2, 3 and 4: bias, distance and similarity of clients, and how many of them are averaged",
    paper="IMA",
    shows=prose(
        """
        The bias of clients on their own and on others' samples, their distance from their mean and the test error
        of this mean, by round; the test error of the mean of 1 to 10 clients of one round, and by the similarity of
        the clients. All three are views of the same two runs.
        """
    ),
    note=prose(
        """
        Stated: CIFAR-10, CNN, #C = 2, ten clients that all take part, 400 rounds, with a decay of the rate of 0.01
        a round and without. Our reading: the mean over clients of the squared bias; one seed of the data, one of
        the training; both the largest distance (the theorem's) and the mean one; in Figure 4, of which round 400
        alone is named, the mean over five random orders of the clients of a round, of which the first K are
        averaged, and the CKA of all pairs. A round here is that of the model from which the clients train: those
        of 399 are round 400's. The text says that until about round 40 the error falls although bias and distance
        rise; that from then on bias and error move together with decay, and that without it the error grows
        slightly with the bias; that with decay the distance falls from round 40 to 75 while the error rises; that
        the distance is bounded later; and that a low similarity of the clients does not help, and late it hurts: in
        round 400 the run without decay has less of it and the larger error. The code behind the paper's numbers is
        not published; these are of softmax probabilities against one-hot labels, squared and summed over classes,
        on 2,000 training samples. Figure 4 is of 2,000 test samples. Table 6's caption gives shards of 250 samples,
        5,000 of the 50,000 images; here the clients have all, as in the published code (2,500 a shard). `small` has
        a fifth of the rounds, so that its rounds 8 and 15 stand for 40 and 75.
        """
    ),
    base=combined(CIFAR, {"partition": {"clients": 10}}),
    axes={
        "seed": [0],
        "decay": {"no decay": {"local": {"schedule": {"name": "constant"}}}, "decay 0.01": {}},
    },
    figures=[
        StudyFigure(
            "ima-figure-2",
            "IMA, Figure 2: bias and test error",
            study=DECOMPOSITION,
            shows=("parts of the squared error", "test error"),
        ),
        StudyFigure(
            "ima-figure-3",
            "IMA, Figure 3: distance from the mean and test error",
            study=DECOMPOSITION,
            shows=("distance of the clients", "test error"),
        ),
        StudyFigure(
            "ima-figure-4-models",
            "IMA, Figure 4: the test error by the number of averaged client models",
            study=ENSEMBLE,
            shows=("error by the number of models",),
        ),
        StudyFigure(
            "ima-figure-4-similarity",
            "IMA, Figure 4: the test error by the similarity of client models",
            study=ENSEMBLE,
            shows=("error by similarity",),
        ),
    ],
    scales={
        "small": Scale(
            values=SEEDS,
            changes=_figure_2_small,
            figures=_shorter(
                {"samples": 500, "rounds": _a_fifth(LOOKED_AT)},
                {"samples": 1000, "rounds": _a_fifth(AVERAGED_AT), "orders": 3},
            ),
        ),
        "tiny": Scale(
            changes=_figure_2_tiny,
            figures=_shorter(
                {"samples": 200, "rounds": LOOKED_AT_TINY},
                {"samples": 100, "rounds": LOOKED_AT_TINY, "orders": 2},
            ),
        ),
    },
)

# --- Figure 6: heterogeneity, participation and local epochs ---

SETTINGS: dict[str, Settings] = {
    **{f"alpha {alpha}": {"partition": {"alpha": alpha}} for alpha in (0.05, 0.1, 0.2, 0.4, 0.8)},
    **{f"epochs {epochs}": {"local": {"epochs": epochs}} for epochs in (3, 7, 11, 14, 17)},
    **{f"clients {count}": {"sampling": {"count": count}} for count in (5, 20, 30, 40)},
}
USUAL = "alpha 0.1"  # with 10 of 100 clients and 5 epochs: a point of all three parts

ALPHAS = {alpha: f"alpha {alpha}" for alpha in ("0.05", "0.1", "0.2", "0.4", "0.8")}
SHARES = {"0.05": "clients 5", "0.1": USUAL, "0.2": "clients 20", "0.3": "clients 30", "0.4": "clients 40"}
EPOCHS = {"3": "epochs 3", "5": USUAL, **{epochs: f"epochs {epochs}" for epochs in ("7", "11", "14", "17")}}


def _figure_6_small(run: Labels) -> Iterator[Settings]:
    """An MLP on MNIST, half of the rounds."""
    yield {"rounds": 200, "data": {"name": "mnist"}, "model": {"name": "mlp", "hidden": [64]}}
    yield from _calibrated(run, rounds=200)
    if run["IMA"] == "IMA":
        yield ima_from(150)


def _figure_6_tiny(run: Labels) -> Iterator[Settings]:
    yield DIGITS
    yield from _calibrated(run, rounds=12)
    if run["IMA"] == "IMA":
        yield ima_from(8)


def _values(part: str, by: str, label: str, points: Mapping[str, str]) -> ValuesFigure:
    """A part of Figure 6: the methods' last accuracies against one of the settings."""
    return ValuesFigure(
        f"ima-figure-6{part}",
        f"IMA, Figure 6{part}: by {by}",
        pick("sent"),
        lines=["method", "IMA"],
        x={point: pick(setting=setting) for point, setting in points.items()},
        label=label,
    )


FIGURE_6 = Reproduction(
    name="ima-figure-6",
    title="IMA, Figure 6: heterogeneity, participation and local epochs",
    paper="IMA",
    shows=prose(
        """
        The last accuracies of eight methods with and without IMA over the concentration alpha (6a), the share of
        clients in a round (6b) and the local epochs (6c).
        """
    ),
    note=prose(
        """
        Stated: CIFAR-10, all eight methods; sweeps of alpha from 0.05 to 0.8, of participation from 0.05 to 0.4 and
        of local epochs from 3 to 17. Our reading: the CNN, alpha = 0.1 in 6b and 6c, and the points between. The
        methods' settings are those of Table 1, with mu = 0.01 and lambda = 0.1. The text's gain of about 5 points
        for all methods at alpha = 0.05 and 0.1 is contradicted by Table 1, where it is 1.74 to 4.98 at 0.1 (with
        ResNet18 0.13 to 6.80). At alpha = 0.05 tens of thousands of draws are needed until every client has ten
        samples. `small` is an MLP on MNIST with half of the rounds, at fewer points.
        """
    ),
    base=combined(CIFAR_DIRICHLET, {"partition": {"tries": 100_000}}),
    axes={
        "seed": [0],
        "setting": SETTINGS,
        "method": METHODS,
        "IMA": {"off": {}, "IMA": ima_from(300)},
    },
    figures=[
        _values("a", "heterogeneity", "alpha", ALPHAS),
        _values("b", "participation", "share of clients in a round", SHARES),
        _values("c", "local epochs", "local epochs", EPOCHS),
    ],
    scales={
        "small": Scale(
            only={
                "setting": [
                    "alpha 0.05",
                    "alpha 0.1",
                    "alpha 0.8",
                    "epochs 3",
                    "epochs 17",
                    "clients 5",
                    "clients 20",
                    "clients 40",
                ],
            },
            values=SEEDS,
            changes=_figure_6_small,
        ),
        "tiny": Scale(
            only={"setting": ["alpha 0.1", "alpha 0.8", "epochs 3"], "method": ["FedAvg", "FedProx"]},
            changes=_figure_6_tiny,
        ),
    },
)

REPRODUCTIONS = [TABLE_1, TABLE_2, TABLE_3, FIGURE_1, FIGURE_2, FIGURE_6]
