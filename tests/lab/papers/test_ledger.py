"""The ledger: rows are found, entered, merged and judged; a file that is damaged or forged deceives nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedsash.lab.papers import claims, ima, reproductions
from fedsash.lab.papers.ledger import DATA_OF_PAPERS, Cell, Ledger, Row, cells, data_of, find, papers_settings
from fedsash.lab.papers.measures import BEYOND, REACHED, entered_target
from fedsash.lab.papers.merging import merge
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.tables import DIMS
from fedsash.lab.papers.todo import complete
from fedsash.lab.papers.wima import FIGURE_2, REPRODUCTIONS, TABLE_2, TABLE_5
from fedsash.lab.papers.wima_claims import EARLY, LATEST
from fedsash.settings.errors import FedsashError

PLACE = {"table": "wima-table-5", "row": "CIFAR-10 a=0", "column": "all", "cell": ""}


def cell(name: str = "CIFAR-10 a=0 / all") -> Cell:
    return find(TABLE_5, name)[0]


def row(values: dict[str, float], **settings: str) -> Row:
    return Row(values, {**cell().settings[0].words, **settings}, source="a test")


def test_all_printed_numbers_are_cells() -> None:
    assert len(cells(TABLE_2)) == 2 * 63 + 10
    assert len({each.file for each in cells(TABLE_2)}) == len(cells(TABLE_2))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("FedAvg / CIFAR-10 a=0 / WiMA", 1),
        ("fedavg/CIFAR-10 alpha=0/wima", 1),
        ("FedAvg / CIFAR-10 a=0", 2),
    ],
)
def test_a_cell_is_found_by_its_name(name: str, found: int) -> None:
    assert len(find(TABLE_2, name)) == found


def test_an_unknown_cell_is_one_line_that_says_what_there_is() -> None:
    with pytest.raises(FedsashError, match="did you mean FedAvg / CIFAR-10 a=0 / WiMA"):
        find(TABLE_2, "FedAvg / CIFAR-10 a=0 / WiMaa")


def test_seeds_of_one_setting_come_together_and_other_settings_stand_apart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.rows(cell()) == []
    assert ledger.enter(cell(), row({"0": 59.0})) == "59.00 from one seed"
    assert ledger.enter(cell(), row({"1": 60.0})) == "59.50 from 2 seeds"
    assert ledger.enter(cell(), row({"0": 40.0}, rounds="200")) == "40.00 from one seed"
    assert ledger.enter(cell(), row({"1": 60.0})) == "is there already"
    first, second = ledger.rows(cell())
    assert first.values == {"0": 59.0, "1": 60.0}
    assert first.printed_setting(cell())
    assert second.differences(cell()) == ["rounds = 200 (print: 10000)"]


def test_another_value_of_a_seed_does_not_replace_the_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 59.0}))
    assert ledger.enter(cell(), row({"0": 61.0})) == "seed 0 is there with 59, which stays, and not 61"
    assert ledger.rows(cell())[0].values == {"0": 59.0}


def test_only_rows_at_the_printed_setting_are_the_papers_numbers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 40.0, "1": 41.0}, rounds="200"))
    assert not ledger.numbers(TABLE_5)
    ledger.enter(cell(), row({"0": 59.0}))
    numbers = ledger.numbers(TABLE_5)
    assert list(numbers) == [("CIFAR-10 a=0", "all", "")]
    assert numbers["CIFAR-10 a=0", "all", ""].values == (59.0,)


def test_a_foreign_row_is_merged_as_what_its_settings_are(tmp_path: Path) -> None:
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    theirs.enter(cell(), row({"3": 59.5}))
    theirs.enter(cell(), row({"3": 45.0}, **{"local.lr": "0.01"}))
    merged = merge(theirs.folder, ours, REPRODUCTIONS, claims())
    assert merged.taken == 2
    assert merged.lines == [
        "CIFAR-10 a=0 / all: 59.50 from one seed, at the printed setting",
        "CIFAR-10 a=0 / all: 45.00 from one seed, ours: local.lr = 0.01 (print: 0.1)",
    ]
    assert len(ours.rows(cell())) == 2


def test_a_row_that_leaves_settings_out_is_not_taken_for_the_printed_setting() -> None:
    forged = Row({"0": 99.0}, {})
    assert not forged.printed_setting(cell())
    stated = {"rounds": "10000", "local.lr": "0.1", "partition.alpha": "0.0", "averages.wima.size": "100"}
    for key, value in stated.items():
        lacking = dict(cell().settings[0].words)
        del lacking[key]
        assert Row({"0": 1.0}, lacking).differences(cell()) == [f"{key} is left out (print: {value})"]


def test_a_setting_that_print_has_not_is_a_difference() -> None:
    more = {**cell().settings[0].words, "partition_seed": "7"}
    assert Row({"0": 1.0}, more).differences(cell()) == ["partition_seed = 7 (print: left out)"]


def test_an_option_that_came_later_makes_no_old_row_another_setting() -> None:
    older = dict(cell().settings[0].words)
    del older["local.drop_last"]
    assert Row({"0": 1.0}, older).printed_setting(cell())


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        json.dumps({"format": 2, "rows": []}),
        json.dumps({"format": 1}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"seven": 1.0}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": 1.0}, "settings": {"rounds": 5}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": 1.0}, "settings": {}, "precision": ["x"]}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": "59"}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": 1e999}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": True}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": ["x"]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": 1.0}, "unreached": {"1": "x"}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {"0": 1.0}, "unreached": {"0": 4}, "settings": {}}]}),
        json.dumps({"format": 1, **PLACE, "rows": [{"values": {}, "unreached": {"0": 400}, "settings": {}}]}),
    ],
)
def test_a_damaged_file_is_left_out_with_a_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "theirs" / cell().file
    file.parent.mkdir(parents=True)
    file.write_text(content)
    merged = merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), REPRODUCTIONS, claims())
    (line,) = merged.lines
    assert line.startswith(f"{cell().file}: left out: ")
    assert line.count(cell().file.name) == 1
    assert merged.taken == 0
    assert not (tmp_path / "ours").exists()


def test_a_cell_that_no_paper_has_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "wima-table-5").mkdir()
    strange = {"format": 1, "table": "wima-table-5", "row": "CIFAR-10 a=0", "column": "none", "cell": "", "rows": []}
    (tmp_path / "wima-table-5" / "mine.json").write_text(json.dumps(strange))
    (line,) = merge(tmp_path, Ledger(tmp_path / "ours"), REPRODUCTIONS, claims()).lines
    assert "no paper has the number wima-table-5 / CIFAR-10 a=0 / none" in line


def test_a_number_of_other_data_is_none_of_the_cell(tmp_path: Path) -> None:
    """Such as that of `--scale tiny`, which is a check of the structure on scikit-learn's digits."""
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    theirs.enter(cell(), row({"0": 90.0}, **{"data.name": '"digits"'}))
    claim = claims()["WiMA"]["W46"]
    numbers = Numbers.measured(DIMS, {(PLACE["row"], "all", ""): [90.0]}).saved()
    run = {**cell().settings[0].words, "data.name": '"digits"'}
    theirs.enter_claim("WiMA", claim, {"evidence": {"accuracy": numbers}, "runs": [run], "setting": "ours: x"})
    merged = merge(theirs.folder, ours, REPRODUCTIONS, claims())
    assert merged.taken == 0 and not ours.rows(cell()) and not ours.evidence("WiMA", claim)
    claims_line, cells_line = merged.lines
    papers = ", ".join(f'"{name}"' for name in DATA_OF_PAPERS)
    assert claims_line.endswith(f'left out: the data are "digits", and the papers\' {papers}')
    assert cells_line.endswith('left out: the data are "digits", and the paper\'s "cifar10"')


@pytest.mark.full
def test_the_data_that_the_papers_use_are_those_of_their_runs() -> None:
    """Else evidence of any data would be taken for their claims."""
    printed = [words for reproduction in reproductions().values() for words in papers_settings(reproduction)]
    assert sorted(data_of(printed)) == [f'"{name}"' for name in DATA_OF_PAPERS]


def test_evidence_for_a_claim_may_be_of_any_data_of_the_papers(tmp_path: Path) -> None:
    """Figure 2 is of CIFAR-100; what is found on CIFAR-10, which the paper has elsewhere, is kept as ours."""
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    claim = claims()["WiMA"]["W31"]
    (printed, *_) = papers_settings(FIGURE_2)
    ends: dict[Key, list[float]] = {("WiMA",): [40.0], (LATEST,): [39.0], (EARLY,): [30.0]}
    numbers = Numbers.measured(("line",), ends).saved()
    run = {**printed.words, "data.name": '"cifar10"'}
    theirs.enter_claim("WiMA", claim, {"evidence": {"accuracy": numbers}, "runs": [run], "setting": "ours: x"})
    (line,) = merge(theirs.folder, ours, REPRODUCTIONS, claims()).lines
    assert line.endswith("(ours)")
    (row,) = ours.evidence("WiMA", claim)
    assert 'data.name = "cifar10" (print: "cifar100")' in row["setting"]


def test_evidence_of_no_run_is_ours_also_where_a_reproduction_gives_evidence_for_the_claim(tmp_path: Path) -> None:
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    ends: dict[Key, list[float]] = {("WiMA",): [40.0], (LATEST,): [39.0], (EARLY,): [30.0]}
    evidence = {"accuracy": Numbers.measured(("line",), ends)}
    theirs.enter_own("WiMA", claims()["WiMA"]["W31"], evidence, "ours: an MLP", "a command")
    (line,) = merge(theirs.folder, ours, REPRODUCTIONS, claims()).lines
    assert line.endswith("(ours)")
    assert [row["setting"] for row in ours.evidence("WiMA", claims()["WiMA"]["W31"])] == ["ours: an MLP"]


def test_a_file_says_of_which_cell_it_is_wherever_it_lies(tmp_path: Path) -> None:
    theirs = Ledger(tmp_path / "theirs")
    theirs.enter(cell(), row({"3": 59.5}))
    (theirs.folder / cell().file).rename(tmp_path / "theirs" / "from a colleague.json")
    assert merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), REPRODUCTIONS, claims()).taken == 1
    assert Ledger(tmp_path / "ours").rows(cell())[0].values == {"3": 59.5}


@pytest.mark.parametrize("value", [-1.0, 101.0, 1e9])
def test_a_value_that_the_cell_cannot_have_is_left_out(tmp_path: Path, value: float) -> None:
    Ledger(tmp_path / "theirs").enter(cell(), row({"0": value}))
    (line,) = merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), REPRODUCTIONS, claims()).lines
    assert "must be a share in per cent" in line


def test_a_damaged_file_in_the_ledger_itself_keeps_its_cell_alone_from_being_taken(tmp_path: Path) -> None:
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    other = cell("CIFAR-10 a=0.05 / all")
    for each in (cell(), other):
        theirs.enter(each, Row({"0": 50.0}, each.settings[0].words))
    (ours.folder / cell().file).parent.mkdir(parents=True)
    (ours.folder / cell().file).write_text("{")
    merged = merge(theirs.folder, ours, REPRODUCTIONS, claims())
    assert merged.taken == 1
    assert ours.rows(other)
    assert any("left out" in line for line in merged.lines)


def test_no_other_folder_is_taken_for_a_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path / "theirs").enter(cell(), row({"0": 50.0}))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.txt").write_text("mine")
    with pytest.raises(FedsashError, match=r"must be a ledger, or a new folder; it holds a\.txt"):
        merge(tmp_path / "theirs", Ledger(tmp_path / "pictures"), REPRODUCTIONS, claims())
    with pytest.raises(FedsashError, match="must be a folder"):
        merge(tmp_path / "theirs", Ledger(tmp_path / "pictures" / "a.txt"), REPRODUCTIONS, claims())


@pytest.mark.full
def test_two_merges_at_once_lose_no_seed(tmp_path: Path) -> None:
    """In processes, as people's: a lock is a process's own."""
    folders = [tmp_path / f"from {i}" for i in range(2)]
    for i, folder in enumerate(folders):
        for seed in range(3):
            Ledger(folder / str(seed)).enter(cell(), row({str(10 * i + seed): 50.0}))
    program = (
        "import sys; from pathlib import Path; from fedsash.lab.papers.wima import REPRODUCTIONS\n"
        "from fedsash.lab.papers.ledger import Ledger; from fedsash.lab.papers.merging import merge\n"
        "assert merge(Path(sys.argv[1]), Ledger(Path(sys.argv[2])), REPRODUCTIONS, {}).taken == 3"
    )
    ours = tmp_path / "ours"
    started = [subprocess.Popen([sys.executable, "-c", program, str(folder), str(ours)]) for folder in folders]
    assert [process.wait() for process in started] == [0, 0]
    assert sorted(Ledger(ours).rows(cell())[0].values) == ["0", "1", "10", "11", "12", "2"]


def test_evidence_for_a_claim_is_never_exact_and_its_setting_is_found_anew(tmp_path: Path) -> None:
    claim = claims()["WiMA"]["W46"]
    columns = {"classifier only": 1.0, "feature extractor only": 2.0, "all": 3.0}
    rows = TABLE_5.labels["data"]
    numbers = Numbers.measured(DIMS, {(row, column, ""): [value] for row in rows for column, value in columns.items()})
    assert claim.judged({"accuracy": Numbers.load(numbers.saved(), exact=True)}).holds is True
    forged = {
        "evidence": {"accuracy": numbers.saved() | {"exact": True}},
        "runs": [{**cell().settings[0].words, "rounds": "5"}],
        "setting": "the printed setting",
    }
    theirs = Ledger(tmp_path / "theirs")
    theirs.enter_claim("WiMA", claim, forged)
    merge(theirs.folder, Ledger(tmp_path / "ours"), REPRODUCTIONS, claims())
    ((kept, finding),) = Ledger(tmp_path / "ours").judged("WiMA", claim)
    assert finding.holds is None
    assert "rounds = 5 (print: 10000)" in kept["setting"]


def test_what_a_command_enters_replaces_what_it_entered_before_all_its_runs_had_ended(tmp_path: Path) -> None:
    claim = claims()["WiMA"]["W46"]
    part, whole, other = ({"rounds": "5"}, {"rounds": "6"}, {"rounds": "7"})
    rows = TABLE_5.labels["data"]
    numbers = Numbers.measured(DIMS, {(row, "all", ""): [1.0] for row in rows}).saved()
    ledger = Ledger(tmp_path)

    def enter(source: str, *runs: dict[str, str]) -> None:
        setting = " and ".join(run["rounds"] for run in runs)
        row = {"evidence": {"accuracy": numbers}, "runs": list(runs), "setting": setting, "source": source}
        ledger.enter_claim("WiMA", claim, row)

    enter("mine", part)
    enter("mine", part, whole)
    assert [row["setting"] for row in ledger.evidence("WiMA", claim)] == ["5 and 6"]
    enter("mine", other)
    enter("yours", part, whole, other)
    assert [row["setting"] for row in ledger.evidence("WiMA", claim)] == ["5 and 6", "7", "5 and 6 and 7"]


def test_bfloat16_is_a_row_of_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(cell(), row({"0": 59.0}))
    ledger.enter(cell(), replace(row({"0": 58.9}), precision="bfloat16"))
    assert [each.precision for each in ledger.rows(cell())] == ["full", "bfloat16"]
    assert all(each.printed_setting(cell()) for each in ledger.rows(cell()))


def target_cell(name: str = "FedAvg / 150 / rounds") -> Cell:
    return find(ima.TABLE_2, name)[0]


def target_row(values: dict[str, float], unreached: dict[str, float]) -> Row:
    return Row(values, target_cell().settings[0].words, unreached)


def test_a_run_that_never_reaches_its_target_is_a_row_and_nothing_is_left_of_its_cell(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert not complete(target_cell(), ledger)
    assert ledger.enter(target_cell(), target_row({}, {"0": 400})) == "400+ from one seed"
    assert complete(target_cell(), ledger)
    assert ledger.enter(target_cell(), target_row({}, {"0": 400})) == "is there already"


def test_seeds_that_reach_a_target_and_seeds_that_do_not_come_together(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(target_cell(), target_row({}, {"0": 400}))
    assert ledger.enter(target_cell(), target_row({"1": 390}, {})) == "390.00 from 1 of 2 seeds, 400+ from the rest"
    refused = ledger.enter(target_cell(), target_row({"0": 390}, {}))
    assert refused == "seed 0 is there with 400+, which stays, and not 390"
    (entered,) = ledger.rows(target_cell())
    assert (entered.values, entered.unreached) == ({"1": 390}, {"0": 400})
    ledger.enter(target_cell(), target_row({"0": 395}, {}), anew=True)
    (entered,) = ledger.rows(target_cell())
    assert (entered.values, entered.unreached) == ({"0": 395, "1": 390}, {})


def test_rounds_that_a_seed_did_not_reach_are_no_number_of_the_cell_but_evidence(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.enter(target_cell(), target_row({"1": 390}, {"0": 400}))
    assert not ledger.numbers(ima.TABLE_2)
    entered = entered_target(ima.TABLE_2, ledger, cell="rounds")
    assert {key: dict(zip(each.names, each.values, strict=True)) for key, each in entered.items()} == {
        ("FedAvg", "150", REACHED): {"1": 390},
        ("FedAvg", "150", BEYOND): {"0": 400},
    }


def test_a_claim_counts_a_row_that_did_not_reach_the_target_with_one_round_more(tmp_path: Path) -> None:
    """IMA from 150 needs more than 400 rounds in each seed, and plain averaging 390, 391 and 392: it needs more."""
    claim = claims()["IMA"]["F8"]
    assert claim.entered is not None
    ledger = Ledger(tmp_path)
    without = target_cell("FedAvg / FMA / rounds")
    ledger.enter(target_cell(), target_row({}, {"0": 400, "1": 400, "2": 400}))
    ledger.enter(without, Row({"0": 390, "1": 391, "2": 392}, without.settings[0].words))
    finding = claim.judged(claim.entered(ledger))
    assert finding.holds is False
    ledger.enter(without, Row({}, without.settings[0].words, {"0": 400, "1": 400, "2": 400}), anew=True)
    assert claim.judged(claim.entered(ledger)).holds is None


def test_an_accuracy_has_no_target_that_a_run_could_miss(tmp_path: Path) -> None:
    Ledger(tmp_path / "theirs").enter(cell(), Row({}, cell().settings[0].words, {"0": 400}))
    (line,) = merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), REPRODUCTIONS, claims()).lines
    assert "is not counted up to a target" in line


def test_rounds_of_a_run_that_did_not_reach_its_target_are_merged(tmp_path: Path) -> None:
    Ledger(tmp_path / "theirs").enter(target_cell(), target_row({}, {"0": 400}))
    merged = merge(tmp_path / "theirs", Ledger(tmp_path / "ours"), [ima.TABLE_2], claims())
    assert merged.lines == ["FedAvg / 150 / rounds: 400+ from one seed, at the printed setting"]


@pytest.mark.parametrize(("setting", "taken"), [("ours: a simulated link", 1), ("the printed setting", 0)])
def test_evidence_that_no_reproduction_gives_is_ours_and_never_at_the_printed_setting(
    tmp_path: Path, setting: str, taken: int
) -> None:
    claim = claims()["FedWindow"]["V34"]
    trips = {("FedAsync",): [250.0, 251.0, 252.0], ("FedBuff",): [100.0, 100.0, 100.0]}
    theirs = Ledger(tmp_path / "theirs")
    theirs.enter_own("FedWindow", claim, {"trips": Numbers.measured(("scheme",), trips)}, setting, "a command")
    ours = Ledger(tmp_path / "ours")
    assert merge(theirs.folder, ours, REPRODUCTIONS, claims()).taken == taken
    verdicts = [(row["setting"], finding.holds) for row, finding in ours.judged("FedWindow", claim)]
    assert verdicts == [(setting, True)] * taken


def test_a_benchmark_that_is_run_again_takes_the_place_of_what_it_found_before(tmp_path: Path) -> None:
    claim = claims()["FedWindow"]["V34"]
    ledger = Ledger(tmp_path)
    for trips in (250.0, 300.0):
        evidence = {"trips": Numbers.measured(("scheme",), {("FedAsync",): [trips], ("FedBuff",): [100.0]})}
        ledger.enter_own("FedWindow", claim, evidence, "ours: one reading", "one command")
    (row,) = ledger.evidence("FedWindow", claim)
    assert Numbers.load(row["evidence"]["trips"])["FedAsync",].values == (300.0,)


def test_readings_of_one_command_without_runs_stand_beside_each_other(tmp_path: Path) -> None:
    claim = claims()["FedWindow"]["V34"]
    evidence = {"trips": Numbers.measured(("scheme",), {("FedAsync",): [250.0], ("FedBuff",): [100.0]})}
    ledger = Ledger(tmp_path)
    for setting in ("ours: one reading", "ours: another"):
        ledger.enter_own("FedWindow", claim, evidence, setting, "one command")
    assert [row["setting"] for row in ledger.evidence("FedWindow", claim)] == ["ours: one reading", "ours: another"]
