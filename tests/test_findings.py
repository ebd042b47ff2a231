"""A finding has its numbers from elsewhere, and can be overturned."""

import pytest

from fedentropy_core.report.findings import Findings, listed, say


def test_a_sentence_with_its_numbers():
    finding = say("On CIFAR-10 it leads by {gain:.1f} points", lambda gain: gain > 0, gain=2.345)
    assert finding.holds
    assert str(finding) == "On CIFAR-10 it leads by 2.3 points"
    assert finding._repr_markdown_() == str(finding)


def test_numbers_overturn_it():
    finding = say("It leads by {gain:.1f} points", lambda gain: gain > 0, gain=-1.0)
    assert not finding.holds
    assert str(finding) == "Overturned by the records: It leads by -1.0 points"
    assert "Overturned" in finding._repr_markdown_()


@pytest.mark.parametrize(
    "sentence", ["It leads by 2.3 points", "It leads by {gain:.1f} points in case 1", "CIFAR-1000 is new {gain}"]
)
def test_typed_digits_are_refused(sentence):
    with pytest.raises(ValueError, match="a number is typed into"):
        say(sentence, lambda gain: gain > 0, gain=2.3)


@pytest.mark.parametrize(
    "holds", [lambda: True, lambda gain: True, lambda gain: gain == gain, lambda gain: gain < 1e300]
)
def test_a_condition_that_cannot_fail_is_refused(holds):
    with pytest.raises(ValueError, match="its condition is a constant"):
        say("It leads by {gain}", holds, gain=2.3)


def test_a_condition_may_ask_for_what_is_not_shown():
    assert say("{one} is ahead", lambda lead, other: lead > other, one="FedAvg", lead=2, other=1).holds
    with pytest.raises(ValueError, match="asks for lead"):
        say("{one} is ahead", lambda lead: lead > 0, one="FedAvg")


def test_an_overturned_finding_may_need_several_other_numbers():
    """No single number would make it hold again."""
    finding = say("{one} and {other}", lambda one, other: one > 0 and other > 0, one=-1, other=-1)
    assert not finding.holds


def test_findings_are_a_list():
    found = Findings([say("It leads by {gain}", lambda gain: gain > 0, gain=gain) for gain in (1, -1)])
    assert repr(found) == "- It leads by 1\n- Overturned by the records: It leads by -1\n"
    assert found._repr_markdown_() == "- It leads by 1\n- **Overturned by the records:** ~~It leads by -1~~\n"
    assert repr(Findings()) == "No runs to speak of yet."


def test_values_as_words():
    assert [listed([1.25]), listed([1.25, 2], ".1f"), listed("abc")] == ["1.25", "1.2 and 2.0", "a, b and c"]
