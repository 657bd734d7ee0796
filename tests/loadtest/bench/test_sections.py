"""What was found beside what was wanted."""

from loadtest.bench.sections import Section, as_markdown, plain


def test_a_goal_is_at_most_or_at_least() -> None:
    section = Section("Cost")
    section.find("below", 0.9, "ms", 1)
    section.find("above", 1.1, "ms", 1)
    section.find("enough", 0.95, "times", 0.9, more=True)
    section.find("too little", 0.5, "times", 0.9, more=True)
    section.find("only told", 7.0, "")
    assert [finding.reached for finding in section.findings] == [True, False, True, False, None]
    rows = section.as_markdown().splitlines()[4:]
    assert rows[0] == "| below | 0.9 ms | at most 1 | yes |"
    assert rows[3] == "| too little | 0.5 times | at least 0.9 | no |"
    assert rows[4] == "| only told | 7 |  |  |"


def test_remarks_stand_above_the_table_and_a_section_may_be_all_remarks() -> None:
    told = Section("Experiment", remarks=["Not run."])
    assert as_markdown([told, told]) == "### Experiment\n\nNot run.\n\n### Experiment\n\nNot run."


def test_digits_that_tell_something() -> None:
    assert [plain(value) for value in (0.34567, 12.345, 1234567.8, 0)] == ["0.346", "12.3", "1,234,568", "0"]
