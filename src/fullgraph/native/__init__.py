"""The loop compiler: a captured loop body becomes one C function with the loop inside.

The life of a body, one module per step: `capture` (Dynamo and decompositions, FX graph of ATen
operations), `ops` (ATen operations to the loop IR), `ir` (the IR, its printer and verifier),
`lanes` (which dimension is independent all through), `emit` (IR to C text), `build` (C text to a
shared object, cached), `runtime` (one call per loop) and `dispatch` (guards). Everything between
`ops` and `emit` is pure and knows no torch.
"""
