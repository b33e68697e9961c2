"""Forms that gemmtune refuses, by a part of their names, and those that a test shows instead of an adapter."""

REFUSED = {
    "tuple argument": "a tuple: give its values as arguments of their own",
    "descriptor from the host": "a descriptor of the host: give the tensor, and make the descriptor in the kernel",
    "option of AMD's": "a param that no build for NVIDIA's GPUs has: leave it out of the configs",
    "which Triton has not": "no stock Triton compiles or imports it",
    "that Triton has no longer": "its configs name an option that Triton 3.7 does not take",
}
TESTED = {
    "pre_hook of the autotuner": ("tests/spaces/triton/test_forms.py",),
    "libentry below the autotuner": ("tests/engine/consumers/triton/test_keys.py",),
}
