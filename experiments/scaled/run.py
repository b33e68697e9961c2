"""Tune 32 products of fp8 models and judge the table. Usage: run.py --out FOLDER [--gpus 2] [--minutes 6]."""

from pathlib import Path

from deployed import main

if __name__ == "__main__":
    main(__doc__.splitlines()[0], Path(__file__).parent, "triton_mm,quack_gemm,cute_gemv,cute_splitk")
