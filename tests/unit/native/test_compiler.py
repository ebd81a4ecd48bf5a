from __future__ import annotations

import shutil
import subprocess

import pytest

from fullgraph.errors import CompilerNotFoundError, NativeBuildError
from fullgraph.native import compiler as module
from fullgraph.native.compiler import (
    Compiler,
    compile_file,
    compiler_flags,
    find_compiler,
    vector_isa,
)

AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512vl", "avx512bw"}


def gcc(features, is_gcc=True):
    return Compiler(("gcc",), "gcc 12", is_gcc, frozenset(features))


def test_no_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setenv("FULLGRAPH_CC", "/nowhere/cc")
    with pytest.raises(CompilerNotFoundError, match=r"none of /nowhere/cc runs here; install gcc"):
        find_compiler()


def test_an_empty_path_has_no_compiler(monkeypatch):
    monkeypatch.delenv("FULLGRAPH_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    module._compiler.cache_clear()
    try:
        with pytest.raises(CompilerNotFoundError, match="none of gcc, clang, cc runs here"):
            find_compiler()
    finally:
        module._compiler.cache_clear()


@pytest.mark.parametrize("text", ["exit 1", "kill -9 $$", "echo nonsense", "exec sleep 60"])
def test_a_compiler_that_does_not_answer_is_none(monkeypatch, script, text):
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.5)
    monkeypatch.setenv("FULLGRAPH_CC", script(text))
    with pytest.raises(CompilerNotFoundError, match="runs here"):
        find_compiler()


def test_an_open_quote_is_no_compiler(monkeypatch):
    monkeypatch.setenv("FULLGRAPH_CC", "gcc '")
    with pytest.raises(CompilerNotFoundError, match="runs here"):
        find_compiler()


def test_the_next_candidate_serves(monkeypatch):
    monkeypatch.delenv("FULLGRAPH_CC", raising=False)
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert find_compiler().command[0] in ("gcc", "clang", "cc")


def test_a_compiler_has_a_version_and_features(monkeypatch):
    monkeypatch.setenv("FULLGRAPH_CC", "gcc")
    found = find_compiler()
    assert found.is_gcc
    assert found.version.startswith("gcc 1")


@pytest.mark.parametrize(
    ("features", "cpu", "isa"),
    [
        (AVX512, AVX512, "avx512f"),
        (AVX2, AVX512, "avx2"),
        (AVX512, AVX2, "avx2"),
        (AVX512 - {"avx512dq"}, AVX512, "avx2"),
        ({"avx2"}, AVX2, ""),
        (set(), AVX512, ""),
        (AVX512, set(), ""),
    ],
)
def test_vector_math_needs_compiler_and_cpu(monkeypatch, features, cpu, isa):
    monkeypatch.setattr(module, "cpu", lambda: ("a cpu", frozenset(cpu)))
    assert vector_isa(gcc(features)) == isa
    assert vector_isa(gcc(features, is_gcc=False)) == ""


@pytest.mark.parametrize("option", ["-mno-avx512f", "-mno-avx2", "-mno-fma", "-mno-avx"])
def test_options_of_the_compiler_limit_it(monkeypatch, option):
    monkeypatch.setenv("FULLGRAPH_CC", f"gcc {option}")
    isa = vector_isa(find_compiler())
    assert isa in (("", "avx2") if option == "-mno-avx512f" else ("",))


def test_instructions_that_the_cpu_lacks_are_refused(monkeypatch):
    monkeypatch.setattr(module, "cpu", lambda: ("a cpu", frozenset(AVX2)))
    with pytest.raises(NativeBuildError, match=r"avx512bw, .* which this CPU lacks; take those"):
        compiler_flags(gcc(AVX512))
    monkeypatch.setattr(module, "cpu", lambda: ("", frozenset()))
    assert "-O3" in compiler_flags(gcc(AVX512))  # nothing is known


def test_a_failing_compiler_is_quoted(tmp_path):
    compiler = find_compiler()
    with pytest.raises(NativeBuildError, match=r"(?s)with status 1:.*nonsense"):
        compile_file(
            "int answer(void) { return nonsense; }\n", tmp_path, compiler, compiler_flags(compiler)
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exit 3", "with status 3"),
        ("kill -9 $$", "with signal 9"),
        ("exit 0", "with status 0"),  # and no file
    ],
)
def test_every_way_to_fail_is_named(tmp_path, script, text, message):
    broken = Compiler((script(text),), "gcc 0", True, frozenset())
    with pytest.raises(NativeBuildError, match=message):
        compile_file("int a;\n", tmp_path, broken, ())


def test_a_compiler_that_hangs_is_ended(tmp_path, script, monkeypatch):
    monkeypatch.setattr(module, "COMPILE_SECONDS", 0.3)
    slow = Compiler((script("exec sleep 60"),), "gcc 0", True, frozenset())
    with pytest.raises(NativeBuildError, match=r"could not run: .*timed out"):
        compile_file("int a;\n", tmp_path, slow, ())


def test_a_compiler_that_is_gone_is_named(tmp_path):
    gone = Compiler(("/nowhere/cc",), "gcc 0", True, frozenset())
    with pytest.raises(NativeBuildError, match="/nowhere/cc could not run"):
        compile_file("int a;\n", tmp_path, gone, ())


def test_temporary_files_stay_in_the_folder(tmp_path, script):
    seen = Compiler((script('echo "$TMPDIR" >&2; exit 1'),), "gcc 0", True, frozenset())
    with pytest.raises(NativeBuildError, match=str(tmp_path)):
        compile_file("int a;\n", tmp_path, seen, ())


def test_a_full_disk_is_no_bug_of_the_compiler(tmp_path, script):
    full = Compiler(
        (script('echo "fatal error: No space left on device" >&2; exit 1'),),
        "gcc 0",
        True,
        frozenset(),
    )
    with pytest.raises(OSError, match="No space left"):
        compile_file("int a;\n", tmp_path, full, ())


def test_other_platforms_are_named(monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "win32")
    assert "need Linux on x86-64; this is win32" in module.unsupported_platform()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc alone knows these options")
def test_avx512_code_compiles_where_it_cannot_run(tmp_path):
    from fullgraph.native.dtypes import F64
    from fullgraph.native.emit import emit
    from fullgraph.native.ir import Input, Loop, Map
    from fullgraph.native.lanes import make_plan

    c = Input(dtype=F64, shape=(64,), role="carry", index=0)
    new = Map(dtype=F64, shape=(64,), fn="sin", args=(c,), compute=F64)
    loop = Loop(carry=(c,), xs=(), consts=(), carry_out=(new,), ys=())
    source = tmp_path / "loop.c"
    source.write_text(emit(loop, make_plan(loop), isa="avx512f").text)
    flags = [f for f in module.FLAGS if f != "-march=native"]
    wide = ["-march=skylake-avx512", "-mprefer-vector-width=512", "-S", "-o", "-"]
    text = subprocess.run(
        ["gcc", *flags, *wide, str(source)], capture_output=True, text=True, check=True
    ).stdout
    assert "zmm" in text
    assert "_ZGVeN8v_sin" in text
