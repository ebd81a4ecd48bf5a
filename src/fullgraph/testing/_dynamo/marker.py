"""Make a compiled specialisation say that it runs.

Dynamo reports a graph break while it compiles and never again. To charge a call that reuses a
compiled specialisation, something in the compiled code must be seen running: a call to a marker is
inserted at the start of the bytecode that Dynamo generated, by `register_bytecode_hook` and torch's
own bytecode assembler (``torch/_dynamo/bytecode_transformation.py``). It costs about 0.1 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType


def with_marker(code: CodeType, marker: Callable[[], None]) -> CodeType:
    """Return `code` with a call of `marker` in front of its first own instruction."""
    from torch._dynamo.bytecode_transformation import (
        add_push_null,
        create_call_function,
        create_instruction,
        create_load_const,
        transform_code_object,
    )

    def insert(instructions: list[Any], _options: dict[str, Any]) -> None:
        # Before RESUME come only the set-up of cells and of generators, which must stay first.
        start = next(i for i, inst in enumerate(instructions) if inst.opname == "RESUME") + 1
        instructions[start:start] = [
            *add_push_null(create_load_const(marker, checked=False)),
            *create_call_function(0, False),
            create_instruction("POP_TOP"),
        ]

    # torch caches by the code object, whose hash is that of its constants, and Dynamo puts dicts
    # and the like among them: opaque objects stand in for those meanwhile.
    originals: dict[object, object] = {}
    stand_ins = []
    for constant in code.co_consts:
        stand_in: object = constant
        if not _is_hashable(constant):
            stand_in = object()
            originals[stand_in] = constant
        stand_ins.append(stand_in)
    marked: CodeType
    marked, _ = transform_code_object(code.replace(co_consts=tuple(stand_ins)), insert)
    if not originals:
        return marked
    constants = tuple(
        originals.get(constant, constant) if type(constant) is object else constant
        for constant in marked.co_consts
    )
    return marked.replace(co_consts=constants)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
