"""What the benchmarks in Python share: `./bench` and `tools/check-python` put the folder above this one on Python's path."""
