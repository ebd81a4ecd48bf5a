"""First-order gradients of native loops: the backward of a loop is a loop again, in C.

The life of a gradient, one module per step: `joint` traces one step together with its
vector-Jacobian product, so that every derivative formula and tie rule is torch's own; `split` cuts
the joint step into a forward loop that saves some rows and a backward loop that reads them in
reverse; `sums` says how gradients of closed-over tensors add up over steps and lanes; `loops`
compiles and runs both; `function` is what autograd sees.
"""
