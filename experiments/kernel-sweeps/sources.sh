#!/bin/sh
# Fetch the kernels' sources, at the census's commits: sources.sh CHECKOUTS
set -eu

get() {
    folder="$1/${2#*/}" commit="$3"
    git clone -q --filter=blob:none --no-checkout "https://github.com/$2" "$folder"
    shift 3
    git -C "$folder" checkout -q "$commit" -- "$@"
}

get "$1" fla-org/flash-linear-attention bc3b101dcb713ddc5bd8924b66754eb68b5ccf89 fla
get "$1" linkedin/Liger-Kernel ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c src/liger_kernel
get "$1" state-spaces/mamba e9594ce1c732d97440f0332fdc43170a2294dbfa mamba_ssm
get "$1" pytorch/ao 36027d82d1ad9949597ea16002ff4940374b1b94 torchao
get "$1" pytorch-labs/tritonbench 0efdc53db96523fa02f890015e81a4144eb7b369 tritonbench/operators
get "$1" triton-lang/kernels eeeebdd8be7d13629de22d600621e6234057eed3 kernels
pip install --no-deps --target "$1/packages" einops packaging
