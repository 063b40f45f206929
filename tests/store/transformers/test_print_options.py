"""torch's print options change for one thread only, and are restored."""

from __future__ import annotations

import math
import threading

import pytest
import torch
import torch._tensor_str as tensor_str

from fxdebug.store.transformers import print_options
from fxdebug.store.transformers.print_options import thread_print_options
from fxdebug.store.transformers.print_tensor import Printer

STANDARD = {"sci_mode": True, "linewidth": 120}


def expected_text(tensor: torch.Tensor) -> str:
    """Return the text that torch prints under the options of transformers' debugger."""
    with tensor_str.printoptions(**STANDARD):
        return str(tensor)


def our_text(tensor: torch.Tensor) -> str:
    printer = Printer(120)
    printer.begin()
    return printer.text(tensor)


def base() -> torch.Tensor:
    return torch.tensor([[0.0, 1.5, -2e-5], [3e9, 0.0, math.nan]])


class RaisesOnRepr:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_a_repr_that_raises_leaves_the_options_as_they_were() -> None:
    printer = Printer(120)
    printer.begin()
    options = tensor_str.PRINT_OPTS
    with pytest.raises(ValueError, match="no"):
        printer.repr_of(RaisesOnRepr())
    assert tensor_str.PRINT_OPTS is options


def test_an_object_is_shown_under_the_users_options_until_the_first_tensor() -> None:
    class Holder:
        def __repr__(self) -> str:
            return f"<{torch.ones(1)}>"

    printer = Printer(120)
    assert printer.repr_of(Holder()) == "<tensor([1.])>"
    printer.lines(torch.ones(1))
    assert printer.repr_of(Holder()) == "<tensor([1.0000e+00])>"
    assert repr(Holder()) == "<tensor([1.])>"


def test_options_that_the_program_sets_while_we_print_stay_and_those_that_a_repr_sets_go() -> None:
    before = tensor_str.get_printoptions()
    try:
        with thread_print_options(dict(STANDARD)):
            torch.set_printoptions(edgeitems=7)  # as a repr that we asked for might
            program = threading.Thread(target=lambda: torch.set_printoptions(precision=2))
            program.start()
            program.join()
        assert tensor_str.get_printoptions() == {**before, "precision": 2}
        assert str(torch.tensor([1.23456])) == "tensor([1.23])"
    finally:
        torch.set_printoptions(**before)


def test_printing_nested_in_printing_keeps_its_options_until_it_is_done() -> None:
    number, options = torch.tensor(0.5), tensor_str.PRINT_OPTS
    with thread_print_options(dict(STANDARD)):
        with thread_print_options({"precision": 1, "sci_mode": True}):
            assert str(number) == "tensor(5.0e-01)"
        assert str(number) == "tensor(5.0000e-01)"
    assert str(number) == "tensor(0.5000)"
    assert tensor_str.PRINT_OPTS is options


def test_another_thread_printing_at_the_same_time_sees_its_own_options() -> None:
    sparse, plain = base().to_sparse(), torch.tensor([0.5, 1234.5])
    expected, wrong = (expected_text(sparse), str(plain), tensor_str.get_printoptions()), []
    stop = threading.Event()

    def other() -> None:
        while not stop.is_set():
            if str(plain) != expected[1] or tensor_str.get_printoptions() != expected[2]:
                wrong.append(str(plain))

    def mine() -> None:
        printer = Printer(120)
        for _ in range(60):
            if printer.text(sparse) != expected[0]:
                wrong.append(printer.text(sparse))

    bystander, printers = threading.Thread(target=other), [threading.Thread(target=mine) for _ in range(3)]
    for thread in (bystander, *printers):
        thread.start()
    for thread in printers:
        thread.join()
    stop.set()
    bystander.join()
    assert wrong == []


def test_a_repr_that_waits_for_another_thread_that_prints_does_not_block() -> None:
    """A lock held while a user's ``__repr__`` runs would meet the user's own locks in the wrong order."""

    class Waits:
        def __repr__(self) -> str:
            thread = threading.Thread(target=lambda: texts.append(our_text(base().to_sparse())), daemon=True)
            thread.start()
            thread.join(100)
            return "done" if texts else "blocked"

    texts: list[str] = []
    printer = Printer(120)
    printer.begin()
    assert printer.repr_of(Waits()) == "done"
    assert texts == [expected_text(base().to_sparse())]


def test_threads_that_end_in_another_order_than_they_began_put_the_options_back() -> None:
    options = tensor_str.PRINT_OPTS
    began, end = threading.Event(), threading.Event()

    def first() -> None:
        with thread_print_options(dict(STANDARD)):
            began.set()
            end.wait(100)

    thread = threading.Thread(target=first)
    thread.start()
    began.wait(100)
    with thread_print_options({"precision": 1}):
        end.set()
        thread.join()
        assert tensor_str.get_printoptions()["precision"] == 1
    assert tensor_str.PRINT_OPTS is options


def test_a_block_that_ctrl_c_ended_early_does_not_keep_later_ones_from_their_options(monkeypatch) -> None:
    options = tensor_str.PRINT_OPTS
    monkeypatch.setattr(print_options, "_lock", Interrupting())
    with pytest.raises(KeyboardInterrupt), thread_print_options({"precision": 1}):
        pass
    monkeypatch.undo()
    for precision in (2, 3):
        with thread_print_options({"precision": precision}):
            assert tensor_str.get_printoptions()["precision"] == precision
        assert tensor_str.PRINT_OPTS is options


class Interrupting:
    """A lock at whose second use, the end of the first block, Ctrl-C is pressed."""

    uses = 0

    def __enter__(self) -> None:
        self.uses += 1
        if self.uses == 2:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        pass
