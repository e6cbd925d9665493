"""The processes of the bench as the harness sees them: their answers, their end, and what they cost.
Real processes, small ones."""

import sys
import time
from contextlib import AbstractContextManager

import pytest

from bench.contenders.program import Program, running
from bench.contenders.protocol import ContenderFailedError

pytestmark = pytest.mark.long

PATIENCE = 60.0


def python(program: str, *, listens: bool = False) -> AbstractContextManager[Program]:
    return running("it", [sys.executable, "-u", "-c", program], {}, listens=listens)


def burnt(program: Program, at_least: float) -> float:
    deadline = time.monotonic() + PATIENCE
    while (found := program.cpu_seconds) is not None and found < at_least and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found is not None
    return found


def test_answers_come_one_by_one_and_other_lines_are_passed_over() -> None:
    with python("print('warming up'); print('{\"a\": 1}'); print('noise\\n{\"b\": 2}'); input()", listens=True) as it:
        assert it.answer(PATIENCE) == {"a": 1}
        assert it.answer(PATIENCE) == {"b": 2}


def test_a_line_longer_than_a_pipe_arrives_whole() -> None:
    with python("import json; print(json.dumps({'starts': ['x' * 99] * 5000}))") as it:
        assert len(it.answer(PATIENCE)["starts"]) == 5000


def test_one_that_ends_without_an_answer_has_failed_with_its_last_words() -> None:
    with pytest.raises(ContenderFailedError, match=r"(?s)it ended without an answer.*no such luck"):  # noqa: SIM117
        with python("raise SystemExit('no such luck')") as it:
            it.answer(PATIENCE)


def test_silence_is_a_failure_too() -> None:
    with python("input()", listens=True) as it, pytest.raises(ContenderFailedError, match=r"no answer within 0\.2 s"):
        it.answer(0.2)


def test_an_early_end_is_noticed_while_waiting_for_something_else() -> None:
    with python("print('{}'); input()", listens=True) as it:
        it.answer(PATIENCE)
        it.check()
        it.ask_to_tell()
        it.wait(PATIENCE)
        with pytest.raises(ContenderFailedError, match="ended with 1 before its work was done"):
            it.check()


def test_closing_the_input_is_the_question_how_it_went() -> None:
    with python("import sys; sys.stdin.read(); print('{\"told\": 1}')", listens=True) as it:
        it.ask_to_tell()
        assert it.answer(PATIENCE) == {"told": 1}


def test_processor_time_is_that_of_children_too() -> None:
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with python(busy) as it:
        assert burnt(it, 0.3) >= 0.3


def test_the_peak_stays_after_the_memory_is_given_back() -> None:
    with python("x = bytearray(64 << 20); del x; print('{}'); input()", listens=True) as it:
        it.answer(PATIENCE)
        assert it.peak_memory is not None
        assert it.peak_memory > 64 << 20
